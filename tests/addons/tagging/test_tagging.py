"""What labels words: windows, pooling, the baseline, the reader of CoNLL columns, and what it makes of a corpus."""

import random
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.addons.tagging.toy_tagger import LABELS, OVERRIDES, SIZES, conll, random_model, toy_tokenizer, write_files
from tests.conftest import slow
from transformer_cli.addons.tagging.tagger import Tagger, span_means
from transformer_cli.addons.tagging.word_labels import MostFrequent, word_report
from transformer_cli.addons.tagging.word_tagger import WordTagger
from transformer_cli.addons.tagging.words import WordEncoder, split_words, windows, words_of_line
from transformer_cli.config.compose import load_config
from transformer_cli.config.data import DataConfig, OnBad
from transformer_cli.data.batching import micro_batches
from transformer_cli.data.cache import EncodedCorpus
from transformer_cli.data.corpus import load_text
from transformer_cli.data.feed import Feed
from transformer_cli.data.prepare import Prepared, prepare
from transformer_cli.data.words import in_a_row
from transformer_cli.errors import ConfigError, DataError
from transformer_cli.models.kernel_choice import PackedKernel
from transformer_cli.training.forward import predict_batch

CPU = torch.device("cpu")


# ---- Words


def test_words_are_divided_by_spaces_and_tabs_alone() -> None:
    assert words_of_line(" a\tb  10\u00a0000 c\u3000d\r") == ["a", "b", "10\u00a0000", "c\u3000d"]
    assert words_of_line(" \t ") == []


def test_each_word_is_tokenized_by_itself_and_has_at_least_one_token() -> None:
    tokenizer = toy_tokenizer()
    [[one, other, space]] = WordEncoder(tokenizer).encode([["abc", "a", "\u00a0"]])
    assert [one, other] == tokenizer.encode(["abc", "a"])
    assert space == [tokenizer.unk_id]
    found = in_a_row([one, other])
    assert (found.ids, found.word_ends) == ([*one, *other], [len(one) - 1, len(one) + len(other) - 1])


@given(st.lists(st.integers(1, 9), min_size=1, max_size=60), st.integers(1, 30))
@settings(max_examples=60, deadline=None, database=None)
def test_windows_label_each_word_once_and_hold_what_fits(lengths: list[int], longest: int) -> None:
    found = windows(lengths, longest)
    assert [i for window in found for i in window.labelled] == list(range(len(lengths)))
    for window in found:
        assert window.first <= window.labelled.start
        assert window.labelled.stop <= window.end
        assert sum(lengths[window.first : window.end]) <= longest or window.end - window.first == 1
    if sum(lengths) <= longest:
        assert len(found) == 1


def test_a_word_in_the_middle_of_a_long_sentence_has_context_on_both_sides() -> None:
    found = windows([1] * 100, 20)
    for window in found:
        for word in window.labelled:
            assert min(word - window.first, window.end - 1 - word) >= 4 or word < 4 or word >= 96


# ---- The model


def packed_and_alone(pooling: str, kernel: PackedKernel) -> tuple[torch.Tensor, torch.Tensor]:
    """Logits of the words of five sentences together, and one by one from padded tensors."""
    file = random_model(pooling, max_length=40)
    model, tokenizer = file.build_as(Tagger, CPU), file.tokenizers.source
    draw = random.Random(3)
    sentences = [["".join(draw.choices("abcHL", k=draw.randint(1, 4))) for _ in range(n)] for n in (1, 3, 3, 5, 2)]
    rows = [in_a_row(words) for words in WordEncoder(tokenizer).encode(sentences)]
    corpus = EncodedCorpus.of(
        [[*row.ids, tokenizer.eos_id] for row in rows],
        [[0] * len(row.word_ends) for row in rows],
        [row.word_ends for row in rows],
    )
    (batch,) = micro_batches(corpus, np.arange(5), file.tokenizers, max_tokens=1000)
    together, _ = predict_batch(model, batch, CPU, kernel)
    tagger = WordTagger(file, device=CPU, batch_tokens=1000)
    order = np.lexsort((corpus.target_lengths, corpus.source_lengths))  # of the batch
    return together, torch.cat([tagger.tag([sentences[i]])[0] for i in order])


@pytest.mark.parametrize("kernel", [PackedKernel.per_length, PackedKernel.varlen, slow(PackedKernel.buckets)])
@pytest.mark.parametrize("pooling", ["mean", slow("first")])
def test_words_of_packed_sentences_are_those_of_each_padded_alone(pooling: str, kernel: PackedKernel) -> None:
    together, alone = packed_and_alone(pooling, kernel)
    torch.testing.assert_close(together, alone, atol=1e-5, rtol=1e-5)


def test_a_mean_is_of_the_tokens_of_the_word_alone() -> None:
    x_SD = torch.tensor([[1.0], [3.0], [5.0], [100.0], [7.0], [100.0]])  # two words and EOS, one word and EOS
    assert span_means(x_SD, torch.tensor([0, 2, 4]), torch.tensor([1, 2, 4])).tolist() == [[2], [5], [7]]


@pytest.mark.parametrize("pooling", ["mean", slow("first")])
def test_tags_of_a_sentence_do_not_depend_on_its_neighbours(pooling: str) -> None:
    sentences = [[word for word, *_ in map(str.split, text.splitlines())] for text in conll(30, seed=5).split("\n\n")]
    file = random_model(pooling)
    alone = [WordTagger(file, device=CPU, batch_tokens=1000).tag([words])[0] for words in sentences]
    for batch_tokens in (1, 30, 1000):
        together = WordTagger(file, device=CPU, batch_tokens=batch_tokens).tag(sentences)
        for one, other in zip(alone, together, strict=True):
            torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-5)


def test_a_sentence_of_a_thousand_words_gets_a_thousand_tags() -> None:
    tagger = WordTagger(random_model(), device=CPU, batch_tokens=1000)
    long, none, short = tagger.tag([["abc"] * 1000, [], ["a"]])
    assert (len(tagger.predicted(long)), len(tagger.predicted(none)), len(tagger.predicted(short))) == (1000, 0, 1)
    assert (tagger.n_split, tagger.n_truncated) == (1, 0)
    assert set(tagger.predicted(long)) <= set(LABELS)
    [endless] = tagger.tag([["a" * 500, "b"]])  # a word that is longer than all is truncated
    assert len(endless) == 2
    assert (tagger.n_split, tagger.n_truncated) == (2, 1)
    tagger.tag([["a" * 500]])
    assert (tagger.n_split, tagger.n_truncated) == (2, 2)  # there is one window


# ---- Scores


def test_accuracy_and_confusions_are_those_of_all_words() -> None:
    wanted = [["A", "B"], ["A", "A", "C"]]
    predicted = [["A", "A"], ["A", "B", "C"]]
    report = word_report(predicted, wanted, ["A", "B", "C"], seed=1, has_entities=False)
    assert report.labels.accuracy.score == pytest.approx(60)
    assert report.labels.confusion == [[2, 1, 0], [1, 0, 0], [0, 0, 1]]
    assert report.labels.macro_f1.score == pytest.approx((200 / 3 + 0 + 100) / 3)
    assert (report.n_sentences, report.n_words, report.entities) == (2, 5, None)


def test_the_interval_is_that_of_sentences_not_of_words() -> None:
    # Ten sentences all right, ten all wrong, of 50 words each: by words the interval would be a seventh as wide.
    wanted = [["A"] * 50] * 20
    predicted = [["A"] * 50] * 10 + [["B"] * 50] * 10
    interval = word_report(predicted, wanted, ["A", "B"], seed=1, has_entities=False).labels.accuracy
    assert interval.score == 50
    # Binomial with 20 draws: 2.5 % below 6 of 20 (0.0207), at most 0.0577 at 6.
    assert 25 <= interval.low <= 30
    assert 70 <= interval.high <= 75


def test_the_baseline_is_each_word_s_most_frequent_label() -> None:
    a, b, new = [4], [5, 6], [7]
    train = EncodedCorpus.of([[4, 5, 6, 3], [4, 4, 3]], [[0, 1], [2, 2]], [[0, 2], [0, 1]])
    # a: once 0, twice 2; b: once 1; of all labels 2 is the most frequent.
    assert MostFrequent(train, ["x", "y", "z"]).predict([[a, b, new]]) == [["z", "y", "z"]]


# ---- The reader


def read(folder: Path, text: str | bytes, name: str = "test.conll", **data: object) -> list[list[tuple[str, str]]]:
    (folder / name).write_bytes(text.encode() if isinstance(text, str) else text)
    config = DataConfig(source_lang="text", target_lang="label", task="token_classification", **data)  # type: ignore[arg-type]
    found = load_text(replace(config, test=str(folder / name)), "test")
    assert found is not None
    return [list(zip(split_words(s), split_words(t), strict=True)) for s, t in found.each()]


DOG = [("The", "DET"), ("dog", "NOUN")]


@pytest.mark.parametrize(
    ("name", "text", "columns"),
    [
        ("x.conll", "The\tDET\ndog\tNOUN\n\nIt\tPRON\n", []),
        ("x.conll", "The DT DET\ndog  NN   NOUN\n \nIt PRP PRON", []),  # the first and the last; no end of line
        ("x.conll", "The\tDET\r\ndog\tNOUN\r\n\r\n\r\nIt\tPRON\r\n", []),
        ("x.conll", "-DOCSTART- -X- O\n\nThe x DET\ndog x NOUN\n-DOCSTART- -X- O\nIt x PRON\n", []),
        ("x.conll", "1 The DET x\n2 dog NOUN x\n\n1 It PRON x\n", [1, 2]),
        (
            "x.conllu",
            "# text\n1\tThe\tthe\tDET\n1-2\tx\t_\t_\n2\tdog\tdog\tNOUN\n2.1\te\te\tX\n\n#\n1\tIt\tit\tPRON\n",
            [],
        ),
    ],
)
def test_columns_are_read_as_they_are_written(tmp_path: Path, name: str, text: str, columns: list[int]) -> None:
    assert read(tmp_path, text, name, columns=columns) == [DOG, [("It", "PRON")]]


def test_only_conllu_has_comments_and_words_may_have_spaces_where_tabs_divide(tmp_path: Path) -> None:
    assert read(tmp_path, "#\tSYM\n10 000\tNUM\n\n") == [[("#", "SYM"), ("10 000", "NUM")]]
    assert read(tmp_path, "a\u2028b\tX\n\x85\tY\n") == [[("a\u2028b", "X"), ("\x85", "Y")]]


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("The DET\ndog\n", "x.conll:2: one column, where a word and its label are needed: 'dog'. Correct the line"),
        ("The x DET\ndog NOUN\n", "x.conll:2: 2 columns, and the first row has 3: 'dog NOUN'"),
        ("The\tDET\n\tNOUN\n", "x.conll:2: no word in column 0, counted from 0"),
        ("The\tDET\ndog\t\n", "x.conll:2: no label in column 1, counted from 0"),
        ("The\tDET\ndog\tN N\n", "x.conll:2: white space in the label in column 1, counted from 0"),
    ],
)
def test_a_row_that_has_no_word_or_label_is_named_or_its_sentence_dropped(
    tmp_path: Path, text: str, printed: str
) -> None:
    with pytest.raises(DataError) as refused:
        read(tmp_path, text, "x.conll")
    assert printed in str(refused.value)
    found = read(tmp_path, f"{text}a b X\n\nIt x PRON\n", "x.conll", on_bad=OnBad.skip)
    assert found in ([[("It", "PRON")]], [])  # of the sentence nothing is left


def test_of_a_sentence_with_bytes_that_are_no_text_nothing_is_left(tmp_path: Path) -> None:
    text = b"The DET\n\xff NOUN\nruns VERB\n\nIt PRON\n"
    with pytest.raises(DataError, match=r"x\.conll"):
        read(tmp_path, text, "x.conll")
    assert read(tmp_path, text, "x.conll", on_bad=OnBad.skip) == [[("It", "PRON")]]


# ---- The corpus


def prepared(folder: Path, *overrides: str) -> Prepared:
    names = write_files(folder)
    return prepare(load_config("train", [*OVERRIDES, *names, f"data.cache={folder / 'cache'}", *overrides]).data)


def sentences_of(corpus: EncodedCorpus) -> list[list[list[int]]]:
    """The ids of each word of each sentence."""
    assert corpus.word_ends is not None
    found = []
    for s, (first, end) in enumerate(pairwise(corpus.target_offsets.tolist())):
        ids = corpus.source_ids[corpus.source_offsets[s] :].tolist()
        found.append([ids[a + 1 : b + 1] for a, b in pairwise([-1, *corpus.word_ends[first:end].tolist()])])
    return found


def test_words_and_labels_are_stored_as_they_stand_in_the_file(tmp_path: Path) -> None:
    found = prepared(tmp_path)
    assert found.tokenizers.labels == LABELS
    rows = [line.split() for line in (tmp_path / "train.conll").read_text().split("\n\n")[0].split("\n") if line]
    tokenizer = found.tokenizers.source
    assert [tokenizer.decode(ids) for ids in sentences_of(found.train)[0]] == [word for word, _, _ in rows]
    labels = [LABELS[i] for i in found.train.target_ids[: found.train.target_lengths[0]]]
    assert labels == [label for _, _, label in rows]
    assert found.train.source_ids[found.train.source_offsets[1] - 1] == tokenizer.eos_id


def test_a_long_training_sentence_is_said_and_a_long_dev_sentence_is_kept(tmp_path: Path) -> None:
    found = prepared(tmp_path, "data.max_length=12")
    assert found.report.n_long > 0
    assert any("longer than data.max_length=12 tokens" in line for line in found.report.lines())
    assert len(found.dev) == 20


def test_subword_dropout_draws_other_tokens_of_the_same_words(tmp_path: Path) -> None:
    found = prepared(tmp_path)
    names = [f"data.{name}={tmp_path / name}.conll" for name in ("train", "dev", "test")]
    config = load_config("train", [*OVERRIDES, *names, "data.subword_dropout=0.5"])
    drawn = Feed(config, found)
    plain = Feed(load_config("train", [*OVERRIDES, *names]), found)
    tokenizer, n_other = found.tokenizers.source, 0
    for step in range(1, 4):
        one, other, again = drawn.pairs(step), plain.pairs(step), drawn.pairs(step)
        assert one.target_ids.tolist() == other.target_ids.tolist()
        assert one.source_ids.tolist() == again.source_ids.tolist()
        for words, as_stored in zip(sentences_of(one), sentences_of(other), strict=True):
            assert [tokenizer.decode(ids) for ids in words] == [tokenizer.decode(ids) for ids in as_stored]
            n_other += words != as_stored
    assert n_other > 10


def test_rows_without_a_blank_line_between_sentences_are_named_as_that(tmp_path: Path) -> None:
    """They are one sentence, which is longer than any."""
    rows = "".join(f"{word} x {'A' if n % 2 else 'B'}\n" for n, word in enumerate("abcdefgh" * 40))
    (tmp_path / "rows.conll").write_text(rows, encoding="utf-8")
    with pytest.raises(DataError, match=r"1 longer than .* Put a blank line between two sentences, or raise data\.max"):
        prepared(tmp_path, f"data.train={tmp_path / 'rows.conll'}", "data.tokenizer.vocab_size=auto")


def test_labels_that_are_none_are_refused(tmp_path: Path) -> None:
    write_files(tmp_path)
    every = "".join(f"w{i} L{i}\n\n" for i in range(150))
    for text, printed in (
        ("a X\n\nb X\n", "every word has the label 'X'"),
        (every, "150 different labels of 150 words"),
    ):
        (tmp_path / "other.conll").write_text(text)
        with pytest.raises(DataError) as refused:
            names = [f"data.train={tmp_path / 'other.conll'}", f"data.dev={tmp_path / 'dev.conll'}"]
            prepare(load_config("train", [*OVERRIDES, *names, f"data.cache={tmp_path / 'cache'}"]).data)
        assert printed in str(refused.value)
        assert "data.columns" in str(refused.value)


@pytest.mark.parametrize(
    ("overrides", "printed"),
    [
        (["model.name=classifier"], "model.name=classifier: is not for data.task=token_classification"),
        (["train.best_metric=bleu"], "Set train.best_metric=accuracy"),
        (["data.reader=columns"], "data.task=token_classification: data.reader=columns is for"),
        (["data.tags=['<2de>']"], "data.task=token_classification has none. Leave it out"),
        (["init.decoder_layers=1", "init.from=x"], "data.task=token_classification has no decoder. Leave it out"),
    ],
)
def test_settings_of_another_task_are_refused(tmp_path: Path, overrides: list[str], printed: str) -> None:
    with pytest.raises(ConfigError) as refused:
        prepare(load_config("train", [*OVERRIDES, *write_files(tmp_path), *overrides]).data)
    assert printed in str(refused.value)


def test_a_text_of_blank_lines_is_refused_with_what_belongs_there(tmp_path: Path) -> None:
    (tmp_path / "blank.conll").write_text("\n\n")
    with pytest.raises(DataError, match=r"the text is empty\. Write a word and its label on each line"):
        prepared(tmp_path, f"data.train={tmp_path / 'blank.conll'}")


def test_the_toy_model_is_a_tagger() -> None:
    assert isinstance(random_model().build_as(Tagger, CPU), Tagger)
    assert SIZES.name == "tagger"
