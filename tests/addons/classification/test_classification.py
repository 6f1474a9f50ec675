"""What classifies: pooling, reading, scores, and the tables that it learns from."""

import random
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.addons.classification.toy_classifier import (
    LABELS,
    OVERRIDES,
    SIZES,
    random_model,
    table,
    toy_tokenizer,
    write_tables,
)
from tests.conftest import slow
from transformer_cli.addons.classification.classifier import Classifier, Convolution
from transformer_cli.addons.classification.scores import RESAMPLES, accuracy, class_report, columns, confusion, macro_f1
from transformer_cli.addons.classification.scores import resampled as resampled_tables
from transformer_cli.addons.embedding.encode import LineEncoder, ask_each
from transformer_cli.addons.embedding.pooling import pool
from transformer_cli.config.compose import load_config
from transformer_cli.config.model import ModelConfig
from transformer_cli.data.cache import EncodedCorpus
from transformer_cli.data.feed import Feed
from transformer_cli.data.prepare import Prepared, prepare
from transformer_cli.errors import ConfigError, DataError
from transformer_cli.models.layouts import PackedLayout, PaddedLayout
from transformer_cli.training.initialisation import Initial, initial_weights, with_initial_sizes

CPU = torch.device("cpu")
WANTED = ["a"] * 4 + ["b"] * 3 + ["c"] * 3
PREDICTED = ["a", "a", "a", "b", "b", "b", "a", "c", "a", "a"]


# ---- Scores: the expected values are scikit-learn's definitions, worked out by hand


def test_scores_are_those_of_a_hand_computation() -> None:
    # a: 3 right, 6 predicted, 4 wanted; b: 2, 3, 3; c: 1, 1, 3.
    report = class_report(PREDICTED, WANTED, ["a", "b", "c"], seed=1)
    assert report.confusion == [[3, 1, 0], [1, 2, 0], [2, 0, 1]]
    assert report.accuracy.score == pytest.approx(60)
    found = [(c.label, c.precision, c.recall, c.f1, c.n_lines) for c in report.classes]
    assert found[0] == ("a", pytest.approx(50), pytest.approx(75), pytest.approx(60), 4)
    assert found[1] == ("b", pytest.approx(200 / 3), pytest.approx(200 / 3), pytest.approx(200 / 3), 3)
    assert found[2] == ("c", pytest.approx(100), pytest.approx(100 / 3), pytest.approx(50), 3)
    assert report.macro_f1.score == pytest.approx((60 + 200 / 3 + 50) / 3)
    assert (accuracy(PREDICTED, WANTED), macro_f1(PREDICTED, WANTED)) == pytest.approx((60, (60 + 200 / 3 + 50) / 3))


def test_a_class_that_nobody_wants_or_predicts_is_not_in_the_mean() -> None:
    report = class_report(["a", "b"], ["a", "a"], ["a", "b", "never"], seed=1)
    assert report.macro_f1.score == pytest.approx((200 / 3 + 0) / 2)
    assert [c.f1 for c in report.classes] == pytest.approx([200 / 3, 0, 0])


def test_the_interval_is_that_of_sentences_drawn_one_by_one() -> None:
    draw = random.Random(1)
    wanted = draw.choices("ab", k=400)
    predicted = [w if draw.random() < 0.8 else "b" for w in wanted]
    report = class_report(predicted, wanted, ["a", "b"], seed=1)
    pairs = list(zip(predicted, wanted, strict=True))
    scores = []
    for _ in range(1000):
        p, w = zip(*draw.choices(pairs, k=len(pairs)), strict=True)
        scores.append((accuracy(p, w), macro_f1(p, w)))
    for interval, values in zip((report.accuracy, report.macro_f1), zip(*scores, strict=True), strict=True):
        low, high = np.quantile(values, [0.025, 0.975])
        assert interval.low == pytest.approx(low, abs=1)
        assert interval.high == pytest.approx(high, abs=1)
        assert interval.low < interval.score < interval.high


def test_the_interval_leaves_out_the_lowest_and_the_highest_fortieth() -> None:
    draw = random.Random(2)
    wanted = draw.choices("ab", k=5000)
    predicted = [w if draw.random() < 0.8 else "b" for w in wanted]
    report = class_report(predicted, wanted, ["a", "b"], seed=3)
    tables = resampled_tables(confusion(predicted, wanted, ["a", "b"]), seed=3)
    a_as_a, a_as_b, b_as_a, b_as_b = tables.reshape(-1, 4).T.astype(float)
    f1_of_a, f1_of_b = (200 * right / (2 * right + a_as_b + b_as_a) for right in (a_as_a, b_as_b))
    scores = {"accuracy": 100 * (a_as_a + b_as_b) / 5000, "macro_f1": (f1_of_a + f1_of_b) / 2}
    for name, values in scores.items():
        interval = getattr(report, name)
        assert (values < interval.low).sum() == pytest.approx(25, abs=2), name  # 2.5 % of 1,000
        assert (values > interval.high).sum() == pytest.approx(25, abs=2), name
    assert report.signature == "bootstrap, 95% percentile, 1,000 resamples, seed 3"


def test_equal_seeds_give_equal_intervals_and_others_do_not() -> None:
    first, again, other = (class_report(PREDICTED, WANTED, ["a", "b", "c"], seed=seed) for seed in (1, 1, 2))
    assert first == again
    counts = confusion(PREDICTED, WANTED, ["a", "b", "c"])
    assert (resampled_tables(counts, seed=1) != resampled_tables(counts, seed=2)).any()
    assert resampled_tables(counts, seed=1).sum((1, 2)).tolist() == [10] * RESAMPLES
    assert other.accuracy.score == first.accuracy.score


def test_columns_stand_under_each_other() -> None:
    assert columns([["class", "F1"], ["a", "100.00"]]) == ["class      F1", "a      100.00"]


# ---- The model


@pytest.mark.parametrize("pooling", ["first", "mean", "max"])
def test_packed_sentences_are_pooled_as_padded_ones(pooling: str) -> None:
    torch.manual_seed(1)
    short, long = torch.randn(2, 3, 4), torch.randn(1, 5, 4)
    packed = pool(
        torch.cat([short.flatten(0, 1), long.flatten(0, 1)]), PackedLayout.of_groups([(2, 3), (1, 5)], CPU), pooling
    )
    x_BSD = torch.full((3, 5, 4), 99.0)
    x_BSD[:2, :3], x_BSD[2] = short, long[0]
    mask = torch.tensor([[True] * 3 + [False] * 2] * 2 + [[True] * 5])
    torch.testing.assert_close(pool(x_BSD, PaddedLayout(5, mask[:, None, None, :]), pooling), packed)


def test_first_mean_and_max_are_what_their_names_say() -> None:
    x_SD = torch.tensor([[1.0, 2.0], [3.0, 6.0], [5.0, 1.0], [7.0, 8.0]])  # sentences of 1 and 3 tokens
    source = PackedLayout.of_groups([(1, 1), (1, 3)], CPU)
    assert pool(x_SD, source, "first").tolist() == [[1, 2], [3, 6]]
    assert pool(x_SD, source, "mean").tolist() == [[1, 2], [5, 5]]
    assert pool(x_SD, source, "max").tolist() == [[1, 2], [7, 8]]


def test_the_convolution_is_torchs_with_zeros_around_each_sentence() -> None:
    torch.manual_seed(1)
    convolution = Convolution(4, 5)
    reference = torch.nn.Conv1d(4, 4, 5, padding=2)
    with torch.no_grad():
        reference.weight.copy_(convolution.to_out.weight.unflatten(1, (5, 4)).transpose(1, 2))
        reference.bias = convolution.to_out.bias
    one, three, six = torch.randn(1, 4), torch.randn(3, 4), torch.randn(6, 4)
    expected = [reference(x_LD.T).relu().T for x_LD in (one, three, six)]
    source = PackedLayout.of_groups([(1, 1), (1, 3), (1, 6)], CPU)
    torch.testing.assert_close(convolution(torch.cat([one, three, six]), source), torch.cat(expected))
    x_BSD = torch.full((2, 6, 4), 99.0)
    x_BSD[0, :3], x_BSD[1] = three, six
    mask = torch.tensor([[True] * 3 + [False] * 3, [True] * 6])
    found = convolution(x_BSD, PaddedLayout(6, mask[:, None, None, :]))
    torch.testing.assert_close(found[0, :3], expected[1])
    torch.testing.assert_close(found[1], expected[2])


@pytest.mark.parametrize(("width", "is_taken"), [(None, False), (3, True), (5, False)])
def test_a_run_begins_with_a_convolution_of_its_width(tmp_path: Path, width: int | None, is_taken: bool) -> None:
    start = random_model(replace(SIZES, convolution=3))
    wanted = "null" if width is None else str(width)
    overrides = [*OVERRIDES, *write_tables(tmp_path), "init.from=x", f"model.convolution={wanted}"]
    config = with_initial_sizes(load_config("train", overrides), Initial(Path("x"), start, is_resumed=False))
    found = initial_weights(config, Initial(Path("x"), start, is_resumed=False), start.tokenizers)
    assert config.model.convolution == width
    assert ("convolution.to_out.weight" in found) == is_taken
    assert {"encoder.layers.0.feed_forward.to_out.weight", "to_classes.weight"} <= found.keys()


def test_a_convolution_wants_an_odd_width() -> None:
    with pytest.raises(ConfigError, match=r"model\.convolution=4: even.* Choose 5"):
        ModelConfig(name="classifier", convolution=4)


@pytest.mark.parametrize("name", ["transformer", "tagger", "decoder"])
def test_only_a_classifier_has_a_convolution_and_the_largest_of_each_column(name: str) -> None:
    with pytest.raises(ConfigError, match=r"model\.convolution=3: only of a classifier\. Leave it out"):
        ModelConfig(name=name, convolution=3)
    with pytest.raises(ConfigError, match=r"model\.pooling=max: only of a classifier\. Leave it out"):
        ModelConfig(name=name, pooling="max")


def reader(pooling: str = "mean", *, batch_tokens: int = 4096, max_length: int = 12) -> LineEncoder:
    model = random_model(replace(SIZES, pooling=pooling), max_length=max_length)
    return LineEncoder(model.build_as(Classifier, CPU), model, device=CPU, batch_tokens=batch_tokens)


@pytest.mark.parametrize("pooling", ["mean", slow("first")])
def test_what_is_said_of_a_line_does_not_depend_on_its_neighbours(pooling: str) -> None:
    lines = [line.split("\t")[1] for line in table(60, seed=3).split("\n")[:-1]]
    alone = [reader(pooling).read([line])[0] for line in lines]
    for batch_tokens in (1, 40, 4096):
        together = reader(pooling, batch_tokens=batch_tokens).read(lines[::-1])[::-1]
        for one, other in zip(alone, together, strict=True):
            assert one is not None
            assert other is not None
            assert (one.softmax(0) - other.softmax(0)).abs().max() <= 1e-6
            assert one.argmax() == other.argmax()


def test_a_blank_line_has_no_answer_and_a_long_one_is_cut_and_counted() -> None:
    # The six letters, BOS and EOS are eight tokens; what goes beyond is not read.
    short = reader(max_length=8)
    answers = short.read(["a b c d e f", "", "a b c d e f g h", " \t "])
    assert [answer is None for answer in answers] == [False, True, False, True]
    assert answers[0] is not None
    assert answers[2] is not None
    assert torch.equal(answers[0], answers[2])
    assert short.cut == [3]
    short.read(["a"])
    short.read(["a b c d e f g"])
    assert short.cut == [3, 6]


def test_the_first_tokens_are_what_the_test_above_takes_them_for() -> None:
    assert [len(ids) for ids in toy_tokenizer().encode(["a b c d e f", "a"])] == [6, 1]


def test_of_nothing_nothing_is_asked() -> None:
    assert ask_each(lambda ids: ids, [], pad_id=0, device=CPU, batch_tokens=10) == []


# ---- The tables


def prepared(folder: Path, *overrides: str, **tables: str) -> Prepared:
    names = write_tables(folder)
    for name, text in tables.items():
        (folder / f"{name}.tsv").write_text(text, encoding="utf-8")
    config = load_config("train", [*OVERRIDES, *names, f"data.cache={folder / 'cache'}", *overrides])
    return prepare(config.data)


def refusal(folder: Path, **tables: str) -> str:
    with pytest.raises(DataError) as refused:
        prepared(folder, **tables)
    assert "\n" not in str(refused.value)
    return str(refused.value)


def test_classes_are_numbered_in_their_order_and_sentences_begin_and_end(tmp_path: Path) -> None:
    found = prepared(tmp_path)
    assert found.tokenizers.labels == LABELS
    tokenizer, train = found.tokenizers.source, found.train
    first = table(200, seed=0).split("\n")[0].split("\t")
    ids = train.source_ids[: train.source_offsets[1]].tolist()
    assert (ids[0], ids[-1], tokenizer.decode(ids[1:-1])) == (tokenizer.bos_id, tokenizer.eos_id, first[1])
    assert LABELS[train.target_ids[0]] == first[0]
    assert train.target_lengths.tolist() == [1] * len(train)


def test_a_line_without_a_tab_is_named(tmp_path: Path) -> None:
    message = refusal(tmp_path, train=table(30, seed=1) + "high a b c\n" + table(3, seed=2))
    assert message.endswith("train.tsv:31: no tab between label and text: 'high a b c'. Write label<TAB>text")


def test_a_class_that_training_has_not_seen_is_named_with_the_near_one(tmp_path: Path) -> None:
    message = refusal(tmp_path, dev=table(4, seed=1) + "\nmidle\ta b c\n")
    assert "dev.tsv:6: class 'midle' is not in the training text; did you mean `middle`?" in message


def test_a_rare_class_whose_every_line_is_held_out_is_a_class_all_the_same(tmp_path: Path) -> None:
    rows = [line.split("\t") for line in table(40, seed=3).split("\n")[:-1]]
    rare = "".join(f"rare{i}\t{text} {'a ' * i}\n" for i, (_, text) in enumerate(rows[:18]))
    usual = "".join(f"high\t{text}\n" for _, text in rows[18:])
    found = prepared(tmp_path, "data.dev=null", "data.test=null", train=rare + usual)
    trained = {found.tokenizers.labels[number] for number in found.train.target_ids.tolist()}
    unlearnt = set(found.dev.targets) - trained
    assert unlearnt, "the seed holds out no rare class; choose another"
    assert unlearnt <= set(found.tokenizers.labels)


def test_labels_that_look_alike_and_classes_of_one_line_are_warned_of(tmp_path: Path) -> None:
    """They stay the classes that they are; a rare class of a small text is no fault."""
    lines = [f"sentence {n}" for n in range(150)]
    labels = ["caf\u00e9", "cafe\u0301", "neg\u200b", "neg", "Other", "other"] * 25
    rows = [f"{label}\t{line}" for label, line in zip(labels, lines, strict=True)]
    write_tables(tmp_path)
    config = load_config("train", [*OVERRIDES, f"data.root={tmp_path}", f"data.cache={tmp_path}/cache"]).data
    config = replace(config, train="own.tsv", dev="few.tsv", test="few.tsv")
    (tmp_path / "few.tsv").write_text("".join(f"{row}\n" for row in rows[:4]), encoding="utf-8")
    (tmp_path / "own.tsv").write_text("".join(f"{row}\n" for row in ["titel\tsatz", *rows]), encoding="utf-8")
    prepared = prepare(config)
    assert set(prepared.tokenizers.labels) == {*labels, "titel"}
    said = [line for line in prepared.warnings if "classes" in line]
    for alike in ("'cafe\\u0301' (25) and 'caf\\xe9' (25)", "'neg' (25) and 'neg\\u200b' (25)",
                  "'Other' (25) and 'other' (25)", "with a single line: 'titel'."):  # fmt: skip
        assert [alike in line for line in said].count(True) == 1
    assert len(said) == 4
    (tmp_path / "own.tsv").write_text("pos\tone\n" + "neg\ttwo\nneg\tthree\n", encoding="utf-8")
    (tmp_path / "few.tsv").write_text("neg\tfour\n", encoding="utf-8")
    assert not [line for line in prepare(config).warnings if "classes" in line]


def test_swapped_columns_are_noticed(tmp_path: Path) -> None:
    rows = [line.split("\t") for line in table(60, seed=1).split("\n")[:-1]]
    message = refusal(tmp_path, train="".join(f"{text}\t{label}\n" for label, text in rows))
    assert message.startswith("data.train: ")
    assert message.endswith("Write label<TAB>text, the label first")


def test_one_class_is_nothing_to_learn(tmp_path: Path) -> None:
    message = refusal(tmp_path, train="".join(f"high\t{'a ' * n}H\n" for n in range(1, 9)))
    assert message == "data.train: has the one label 'high', so there is nothing to learn. Add another class"


def test_a_dev_set_of_blank_lines_is_refused(tmp_path: Path) -> None:
    assert "dev.tsv: holds no sentence with a class" in refusal(tmp_path, dev="\n\n")


def test_dropped_merges_change_pieces_and_nothing_else(tmp_path: Path) -> None:
    names = [*write_tables(tmp_path), f"data.cache={tmp_path / 'cache'}", "data.tokenizer.vocab_size=40"]
    text = "".join(f"{label}\t{word} {word}\n" for label, word in [("high", "abab"), ("low", "cdcd")] * 20)
    (tmp_path / "train.tsv").write_text(text + table(100, seed=1), encoding="utf-8")
    plain, dropped = (load_config("train", [*OVERRIDES, *names, f"data.subword_dropout={share}"]) for share in (0, 0.5))
    corpus = prepare(plain.data)
    tokenizer = corpus.tokenizers.source
    before, after = Feed(plain, corpus).pairs(1), Feed(dropped, corpus).pairs(1)
    assert before.target_ids.tolist() == after.target_ids.tolist()
    assert len(after.source_ids) > len(before.source_ids)
    for pairs in (before, after):
        sentences = sentences_of(pairs)
        assert {ids[0] for ids in sentences} == {tokenizer.bos_id}
        assert {ids[-1] for ids in sentences} == {tokenizer.eos_id}
        assert all(tokenizer.bos_id not in ids[1:] and tokenizer.eos_id not in ids[:-1] for ids in sentences)
        texts = [tokenizer.decode(ids) for ids in sentences]
        assert texts == [tokenizer.decode(ids) for ids in sentences_of(before)]


def sentences_of(pairs: EncodedCorpus) -> list[list[int]]:
    return [pairs.source_ids[start:end].tolist() for start, end in pairwise(pairs.source_offsets.tolist())]
