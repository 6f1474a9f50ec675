"""Dev and test sentences that are trained on are found among all training pairs."""

from pathlib import Path

import pytest

from transformer_cli.config.data import DataConfig, TokenizerConfig, TokenizerKind
from transformer_cli.data.checks import overlap
from transformer_cli.data.checks.overlap import leaks
from transformer_cli.data.prepare import Prepared, prepare
from transformer_cli.data.readers.builtin import read_builtin

Pairs = list[tuple[str, str]]


def prepared(folder: Path, tokenizer: TokenizerConfig, **splits: Pairs) -> Prepared:
    names = {split: [f"{split}.en", f"{split}.fr"] for split in splits}
    for split, pairs in splits.items():
        for name, lines in zip(names[split], zip(*pairs, strict=True), strict=True):
            (folder / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return prepare(
        DataConfig(
            source_lang="en", target_lang="fr", root=str(folder), cache=f"{folder}/cache", tokenizer=tokenizer, **names
        )
    )


def test_a_leak_is_found_wherever_it_is_in_a_large_corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overlap, "_SENTENCES_AT_A_TIME", 7)
    pairs = read_builtin("demo_en_fr", "train")
    train, test = pairs[:500], pairs[2500:2600]
    corpus = prepared(tmp_path, TokenizerConfig(vocab_size=300), train=train, dev=train[::-1], test=test)
    assert corpus.test is not None
    (dev_pairs, dev_sources), (test_pairs, _) = leaks([corpus.dev, corpus.test], corpus)
    assert dev_pairs.tolist() == dev_sources.tolist() == list(range(500))
    assert test_pairs.tolist() == []


def test_unknown_words_do_not_make_sentences_equal(tmp_path: Path) -> None:
    train = [(f"the {a} house", f"das {b} Haus") for a, b in (("red", "rote"), ("green", "gruene"), ("old", "alte"))]
    dev = [("the blue house", "das blaue Haus"), ("the house", "das Haus")]
    words = TokenizerConfig(kind=TokenizerKind.word, vocab_size=8)
    corpus = prepared(tmp_path, words, train=[*train * 20, ("the house", "das Haus")], dev=dev, test=dev[:1])
    source = corpus.tokenizers.source
    assert all(source.unk_id in ids for ids in source.encode(["the blue", "the red"]))
    ((of_dev, by_source),) = leaks([corpus.dev], corpus)
    assert of_dev.tolist() == by_source.tolist() == [1]
