"""What a run has held out stays out of the training text of the runs that begin with its model."""

import json
import random
import shutil
import unicodedata
from collections.abc import Iterable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from tests.support import zygote
from tests.toy.run import prepared as toy_prepared
from transformer_cli.cli import main
from transformer_cli.config.data import DataConfig, TokenizerConfig
from transformer_cli.data.prepare import Prepared, prepare, prepared_of
from transformer_cli.evaluation.held_out import LEFT_OUT_FILE, read_left_out, write_held_out
from transformer_cli.models.runs import read_config

WORDS = ["café", "naïve", "señor", "über", "rôle", "fête", "même", "hôtel"]


def sentences(n: int, seed: int) -> list[str]:
    draw = random.Random(seed)
    return sorted({" ".join(draw.choices(WORDS, k=4)) for _ in range(n)})


def written(folder: Path, name: str, sources: Iterable[str], label: str = "") -> str:
    rows = (f"{label}\t{source}" if label else f"{source}\t{source}" for source in sources)
    (folder / name).write_text("".join(f"{row}\n" for row in rows), encoding="utf-8")
    return name


def one_form(sentence: str) -> str:
    """A sentence as people compare two: composed, with single spaces."""
    return " ".join(unicodedata.normalize("NFC", sentence).split())


def trained_on(corpus: Prepared) -> list[str]:
    ids, ends = corpus.train.source_ids.tolist(), corpus.train.source_offsets.tolist()
    lines = [ids[start : end - 1] for start, end in pairwise(ends)]  # without EOS
    return [one_form(corpus.tokenizers.source.decode(line)) for line in lines]


@pytest.fixture
def config(tmp_path: Path) -> DataConfig:
    return DataConfig(
        source_lang="en",
        target_lang="xx",
        root=str(tmp_path),
        cache=str(tmp_path / "cache"),
        train=written(tmp_path, "text.tsv", sentences(80, seed=1)),
        holdout=3,
        tokenizer=TokenizerConfig(vocab_size=60),
    )


def test_no_training_pair_has_a_sentence_that_is_left_out(config: DataConfig) -> None:
    """However it is spaced or composed; dev and test are what they are without, and the others are all there."""
    whole = prepare(config)
    before = trained_on(whole)
    chosen = before[3:9]
    asked = [unicodedata.normalize("NFD", sentence).replace(" ", "  ") for sentence in chosen]
    found = prepare(config, tokenizers=whole.tokenizers, left_out=[*asked, "is nowhere", " "])
    assert trained_on(found) == [sentence for sentence in before if sentence not in chosen]
    assert (found.dev, found.test) == (whole.dev, whole.test)
    assert found.report.n_left_out == len(chosen)
    assert found.report.n_kept == whole.report.n_kept - len(chosen)


def test_text_without_such_sentences_is_the_same_text(config: DataConfig) -> None:
    whole = prepare(config)
    of_dev = [one_form(source) for source in whole.dev.sources]  # which this corpus holds out by itself
    again = prepare(config, tokenizers=whole.tokenizers)
    other = prepare(config, tokenizers=whole.tokenizers, left_out=["is nowhere", *of_dev])
    assert other.fingerprint == again.fingerprint == whole.fingerprint


def test_a_class_of_left_out_lines_alone_is_a_class_all_the_same(tmp_path: Path, config: DataConfig) -> None:
    lines = sentences(40, seed=2)
    written(tmp_path, "old.tsv", lines, label="pos")
    rows = f"rare\tonly once\n{(tmp_path / 'old.tsv').read_text(encoding='utf-8')}".replace("pos", "neg", 20)
    (tmp_path / "labels.tsv").write_text(rows, encoding="utf-8")
    labels = replace(config, task="classification", train="labels.tsv", dev="old.tsv", test="old.tsv")
    whole = prepare(labels)
    found = prepare(labels, tokenizers=whole.tokenizers, left_out=["only once"])
    assert found.tokenizers.labels == whole.tokenizers.labels
    assert "only once" not in trained_on(found)


@pytest.mark.parametrize("content", [None, b"", b"{", b"7", b"\xff"])
def test_a_file_of_left_out_sentences_that_is_none_has_none(tmp_path: Path, content: bytes | None) -> None:
    if content is not None:
        (tmp_path / LEFT_OUT_FILE).write_bytes(content)
    assert read_left_out(tmp_path) == []


def test_what_is_left_out_is_kept_also_when_it_becomes_nothing(tmp_path: Path) -> None:
    write_held_out(toy_prepared(), tmp_path)
    assert not (tmp_path / LEFT_OUT_FILE).exists()
    for left_out in (["a b", "ü"], []):
        write_held_out(replace(toy_prepared(), left_out=left_out), tmp_path)
        assert read_left_out(tmp_path) == left_out


# ---- Runs


def command(name: str, *text: str, **settings: object) -> list[str]:
    others = ("data.train", "data.dev", "data.test", "name=", "data.tokenizer")
    kept = [word for word in zygote.COMMAND if not word.startswith(others)]
    more = [f"{key.replace('__', '.')}={value}" for key, value in settings.items()]
    quick = ["data.tokenizer.vocab_size=60", "data.max_length=40", "train.robustness_lines=0", "train.max_steps=1"]
    return [*kept, *quick, f"data.train=[{','.join(text)}]", "data.holdout=3", f"name={name}", *more]


def of_run(run: Path) -> tuple[Prepared, set[str]]:
    """The corpus of a run, and the sentences that it has held out."""
    kept = json.loads((run / "held_out.json").read_bytes())
    corpus = prepared_of(read_config(run).data, kept["fingerprint"])
    assert corpus is not None
    return corpus, {one_form(source) for split in ("dev", "test") for source in kept[split]["sources"]}


def test_held_out_sentences_stay_out_of_every_later_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The next run begins with the model, and goes on without it; a third begins with the next."""
    monkeypatch.chdir(tmp_path)
    old = sentences(80, seed=1)
    texts = written(tmp_path, "old.tsv", old), written(tmp_path, "new.tsv", sentences(300, seed=3))
    assert main(command("base", "old.tsv")) == 0
    _, of_base = of_run(Path("runs/base"))
    assert len(of_base) == 6
    assert of_base < set(old)

    mixed = command("mixed", *texts, init__from="runs/base")
    capsys.readouterr()
    assert main(mixed) == 0
    err = capsys.readouterr().err
    corpus, of_mixed = of_run(Path("runs/mixed"))
    n_left_out = len(of_base - of_mixed)
    assert n_left_out > 0
    assert f"{n_left_out} dropped: held out as dev or test by the run that init.from names, or before it" in err
    assert not of_base & set(trained_on(corpus))
    assert set(old) - of_base - of_mixed <= set(trained_on(corpus))

    shutil.move("runs/base", "base")
    assert main([*mixed, "train.max_steps=2"]) == 0  # the same text: other text is refused
    assert "resuming from step 1" in capsys.readouterr().err
    assert main(command("third", *texts, init__from="runs/mixed", seed=5)) == 0
    corpus, _ = of_run(Path("runs/third"))
    assert not (of_base | of_mixed) & set(trained_on(corpus))


def test_a_named_dev_set_is_warned_of_and_left_where_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The same is said of the training text itself, which is the dev set where there is too little to hold any out."""
    monkeypatch.chdir(tmp_path)
    old, new = sentences(12, seed=1), sentences(60, seed=3)
    texts = written(tmp_path, "old.tsv", old), written(tmp_path, "new.tsv", new)
    written(tmp_path, "few.tsv", old[:3])
    named = {"data__dev": "old.tsv", "data__test": "old.tsv"}
    for name, train, sets, n_old in (("base", "new.tsv", named, len(old)), ("toy", "few.tsv", {}, 3)):
        assert main(command(name, train, data__tokenizer__vocab_size=50, **sets)) == 0
        capsys.readouterr()
        after = {"init__from": f"runs/{name}", "data__dev": "few.tsv", "data__test": "few.tsv"}
        assert main(command(f"after-{name}", *texts, **after)) == 0
        err = capsys.readouterr().err
        assert "held out as dev or test" not in err
        assert (f"dev (old): {n_old} of {n_old} dev pairs are in the training text" in err) == (name == "base")
        corpus, _ = of_run(Path(f"runs/after-{name}"))
        assert len(corpus.train) == len({*old, *new})
