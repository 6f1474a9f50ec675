"""Pairs of texts that are classified together: their ids, segments and pooling, tables, commands, and a resumed run."""

import contextlib
import io
import itertools
import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.addons.classification.test_classify_command import TRANSLATOR
from tests.addons.classification.toy_classifier import SIZES, random_model, toy_tokenizer, written
from tests.addons.classification.toy_pairs import LABELS, PAIR_OVERRIDES, pair_file, pair_model, pair_table, write_pairs
from tests.conftest import Run, slow
from tests.support.each import each
from tests.toy import run as toy_run
from transformer_cli.addons.classification.classifier import Classifier, pool_segments
from transformer_cli.addons.embedding.encode import LineEncoder, delimited_pair
from transformer_cli.cli import main
from transformer_cli.config.compose import load_config
from transformer_cli.config.model import ModelConfig
from transformer_cli.config.poolings import POOLINGS
from transformer_cli.config.train import TrainConfig
from transformer_cli.data.batching import micro_batches
from transformer_cli.data.cache import EncodedCorpus
from transformer_cli.data.encoding import Encoded
from transformer_cli.data.feed import Feed
from transformer_cli.data.prepare import Prepared, prepare
from transformer_cli.data.tokenizer import Tokenizers
from transformer_cli.errors import ConfigError, DataError
from transformer_cli.models.file import read_model
from transformer_cli.models.kernel_choice import PackedKernel
from transformer_cli.models.layouts import PackedLayout, PaddedLayout
from transformer_cli.training.forward import predict_batch
from transformer_cli.training.initialisation import Initial, initial_weights

CPU = torch.device("cpu")
TOKENIZER = toy_tokenizer()
BOS, EOS, PAD = TOKENIZER.bos_id, TOKENIZER.eos_id, TOKENIZER.pad_id


# ---- Ids


def test_the_ids_of_a_pair_are_those_of_both_texts_each_with_eos_behind(tmp_path: Path) -> None:
    found = prepared(tmp_path)
    tokenizer = found.tokenizers.source
    rows = [line.split("\t") for line in (tmp_path / "train.tsv").read_text().split("\n")[:-1]]
    rows = list(map(list, dict.fromkeys(map(tuple, rows))))  # without duplicates
    kept = [row for row in rows if "\t".join(row[1:]) not in {*found.dev.sources, *found.test_sources}]
    expected = []
    for _, first, second in kept:
        ids = tokenizer.encode([first, second])
        expected.append([tokenizer.bos_id, *ids[0], tokenizer.eos_id, *ids[1], tokenizer.eos_id])
    assert sentences_of(found.train) == expected
    assert [found.tokenizers.labels[i] for i in found.train.target_ids.tolist()] == [row[0] for row in kept]
    assert not any("\t" in piece for piece in tokenizer.pieces(range(len(tokenizer))))
    assert set(found.tokenizers.labels) == set(LABELS)


def test_eos_in_a_text_of_another_programs_tokenizer_is_no_end() -> None:
    both = [
        Encoded(np.array(ids, np.int32), np.array(lengths))
        for ids, lengths in (([5, EOS, 6, 7], [3, 1]), ([8], [1, 0]))
    ]
    joined = both[0].joined(both[1], TOKENIZER)
    assert joined.ids.tolist() == [5, TOKENIZER.unk_id, 6, EOS, 8]
    assert joined.lengths.tolist() == [5, 0]  # a pair with nothing in a text is nothing


def test_of_a_long_pair_as_much_is_read_as_may_be_and_the_longer_text_is_cut_first() -> None:
    for n_first, n_second, max_length in itertools.product(range(1, 9), range(1, 9), range(5, 14)):
        first, second = list(range(10, 10 + n_first)), list(range(30, 30 + n_second))
        ids = delimited_pair(first, second, TOKENIZER, max_length=max_length)
        assert len(ids) == min(n_first + n_second + 3, max_length)
        end = ids.index(EOS)
        a, b = ids[1:end], ids[end + 1 : -1]
        assert (ids[0], ids[-1], a, b) == (BOS, EOS, first[: len(a)], second[: len(b)])
        assert min(len(a), len(b)) >= 1
        assert len(a) == n_first or len(a) >= len(b)
        assert len(b) == n_second or len(b) >= len(a) - 1


def test_other_pieces_are_drawn_for_each_text_by_itself(tmp_path: Path) -> None:
    words = "".join(f"{label}\tabab {word}\tcdcd abab\n" for label, word in [("first", "cd"), ("second", "ef")] * 20)
    found = prepared(tmp_path, "data.tokenizer.vocab_size=39", train=words + pair_table(100, seed=1))
    config = config_of(tmp_path, "data.tokenizer.vocab_size=39", "data.subword_dropout=0.5")
    tokenizer = found.tokenizers.source
    plain = Feed(replace(config, data=replace(config.data, subword_dropout=0)), found).pairs(1)
    drawn = Feed(config, found).pairs(1)
    assert len(drawn.source_ids) > len(plain.source_ids)

    def texts(pairs: EncodedCorpus) -> list[list[str]]:
        each = [" ".join(map(str, ids[1:-1])).split(f" {tokenizer.eos_id} ") for ids in sentences_of(pairs)]
        return [[tokenizer.decode(list(map(int, text.split()))) for text in one] for one in each]

    assert texts(drawn) == texts(plain)
    assert {len(one) for one in texts(drawn)} == {2}


# ---- The model


PAIRS = [([4, 5, 6], [7]), ([8], [9, 10, 11, 12]), ([5], [6]), ([4, 4], [5, 5])]


def test_segments_are_counted_by_hand() -> None:
    embedding = pair_model().segment_embedding
    assert embedding is not None
    sentences = [[BOS, 4, 5, EOS, 6, EOS], [BOS, 4, EOS, 5, 6, 7, EOS], [BOS, 4, 5, EOS, 6, EOS]]
    packed = torch.tensor(sentences[0] + sentences[2] + sentences[1])
    layout = PackedLayout.of_groups([(2, 6), (1, 7)], CPU)
    first, second = [0, 0, 0, 0, 1, 1], [0, 0, 0, 1, 1, 1, 1]
    assert embedding.segments(packed, layout).tolist() == first + first + second
    padded = torch.tensor([[*ids, *[PAD] * (9 - len(ids))] for ids in sentences])
    found = embedding.segments(padded, PaddedLayout(9)).tolist()
    assert [row[: len(ids)] for row, ids in zip(found, sentences, strict=True)] == [first, second, first]
    assert all(segment in (0, 1) for row in found for segment in row)


def test_pooling_by_segments_is_what_a_hand_computation_gives() -> None:
    x_SD = torch.tensor([[1.0, 2.0], [3.0, 6.0], [5.0, -1.0], [2.0, 2.0], [4.0, 0.0]])
    # Pairs of 3 and 2 tokens: means (2, 4) and (5, -1), then (2, 2) and (4, 0).
    expected = [[2, 4, 5, -1, 3, 5, 10, -4], [2, 2, 4, 0, 2, 2, 8, 0]]
    packed = pool_segments(x_SD, PackedLayout.of_groups([(1, 3), (1, 2)], CPU), torch.tensor([0, 0, 1, 0, 1]))
    assert packed.tolist() == expected
    x_BSD = torch.full((2, 4, 2), 99.0)
    x_BSD[0, :3], x_BSD[1, :2] = x_SD[:3], x_SD[3:]
    mask = torch.tensor([[True, True, True, False], [True, True, False, False]])
    segment_BS = torch.tensor([[0, 0, 1, 1], [0, 1, 1, 1]])
    assert pool_segments(x_BSD, PaddedLayout(4, mask[:, None, None, :]), segment_BS).tolist() == expected


@each("pooling", POOLINGS.names())
@each("kernel", PackedKernel)
def test_packed_pairs_are_classified_as_padded_ones_and_as_each_alone(pooling: str, kernel: PackedKernel) -> None:
    model = pair_model(pooling).double()
    ids = [delimited_pair(*pair, TOKENIZER, max_length=20) for pair in PAIRS]
    tokenizers = Tokenizers(TOKENIZER, TOKENIZER, ("a", "b", "c"))
    corpus = EncodedCorpus.of(ids, [[0]] * len(ids))
    (batch,) = micro_batches(corpus, np.arange(len(ids)), tokenizers, max_tokens=100)
    packed_NC = predict_batch(model, batch, CPU, kernel)[0][: len(ids)]
    alone = torch.cat([model(torch.tensor([one])) for one in ids])
    padded = model(torch.tensor([[*one, *[PAD] * (12 - len(one))] for one in ids]))
    torch.testing.assert_close(padded, alone)
    torch.testing.assert_close(packed_NC.sort(dim=0).values, alone.sort(dim=0).values)  # ordered by length


def test_the_two_texts_are_told_apart_by_their_segments_alone() -> None:
    model = pair_model("mean")
    assert model.segment_embedding is not None
    ids = torch.tensor([delimited_pair([4, 5], [6, 7], TOKENIZER, max_length=20)])
    before = model(ids)
    with torch.no_grad():
        model.segment_embedding.weight[1] += torch.arange(16)
    assert not torch.allclose(before, model(ids))


def test_a_classifier_of_single_texts_has_no_segments() -> None:
    assert not any("segment" in name for name in random_model().weights)
    weights = pair_file().weights
    assert weights.keys() - random_model().weights.keys() == {"segment_embedding.weight"}
    assert weights["segment_embedding.weight"].shape == (2, 16)
    assert pair_file("segments").weights["to_classes.weight"].shape == (3, 4 * 16)


# ---- The tables


def config_of(folder: Path, *overrides: str) -> TrainConfig:
    names = [f"data.{name}={folder / name}.tsv" for name in ("train", "dev", "test")]
    found = load_config("train", [*PAIR_OVERRIDES, *names, f"data.cache={folder / 'cache'}", *overrides])
    assert isinstance(found, TrainConfig)
    return found


class PreparedPairs(Prepared):
    """A prepared corpus with the test set's sources."""

    @property
    def test_sources(self) -> list[str]:
        assert self.test is not None
        return self.test.sources


def prepared(folder: Path, *overrides: str, **tables: str) -> PreparedPairs:
    write_pairs(folder)
    for name, text in tables.items():
        (folder / f"{name}.tsv").write_text(text, encoding="utf-8")
    found = prepare(config_of(folder, *overrides).data)
    return PreparedPairs(**vars(found))


def sentences_of(pairs: EncodedCorpus) -> list[list[int]]:
    return [pairs.source_ids[start:end].tolist() for start, end in pairwise(pairs.source_offsets.tolist())]


def test_a_pair_that_lacks_a_text_is_blank_in_every_split(tmp_path: Path) -> None:
    lacking = "first\t\ta b\nsecond\ta b\t \n\nneither\t\t\n"
    found = prepared(tmp_path, train=pair_table(30, seed=1) + lacking, dev=lacking + "first\tH\ta b\n")
    assert (found.report.n_blank, found.dev.sources) == (4, ["H\ta b"])


def test_a_row_without_a_second_text_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"train.tsv:31: too few columns for data.columns=\[0, 1, 2\]"):
        prepared(tmp_path, train=pair_table(30, seed=1) + "first\ta b\n")
    with pytest.raises(DataError, match=r"has 2 columns \('first' \| 'a b'\).*Choose three of 0 to 1"):
        prepared(tmp_path, train="first\ta b\n" * 9)


def test_columns_may_be_anywhere_and_text_may_hold_anything_but_tabs(tmp_path: Path) -> None:
    rows = [line.split("\t") for line in pair_table(40, seed=1).split("\n")[:-1]]
    moved = "".join(f"{second}\t7\t{label}\t{first} </s>\n" for label, first, second in rows)
    names = {name: moved for name in ("train", "dev", "test")}
    found = prepared(tmp_path, "data.columns=[2,3,0]", "data.tokenizer.vocab_size=33", **names)
    assert found.dev.sources[0] == f"{rows[0][1]} </s>\t{rows[0][2]}"
    eos_id = found.tokenizers.source.eos_id
    assert {ids.count(eos_id) for ids in sentences_of(found.train)} == {2}


def test_a_third_column_that_is_not_selected_is_pointed_at(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write_pairs(tmp_path)
    names = [f"data.{name}={tmp_path / name}.tsv" for name in ("train", "dev", "test")]
    small = [*PAIR_OVERRIDES[1:], *names, f"data.cache={tmp_path / 'cache'}"]
    prepare(load_config("train", ["data=labels", *small]).data)
    said = [record.message for record in caplog.records if "3 columns" in record.message]
    assert len(said) == 3
    assert all("data.columns=[0,1] for the second alone, or [0,1,2] for pairs" in line for line in said)
    caplog.clear()
    prepare(load_config("train", ["data=labels", *small, "data.columns=[0,1]"]).data)
    assert "columns" not in caplog.text


@each(
    "overrides, printed",
    [
        (["data=pairs", "model.pooling=mean", "model.n_segments=1"], "model.n_segments=1: data=pairs holds pairs"),
        (["data=labels", "data.columns=[0,1]", "model.n_segments=2"], "holds no pairs of texts"),
        (["data=labels", "model.pooling=segments"], "model.pooling=segments: is of the two texts of a pair"),
        (["data=pairs", "data.columns=[0,1,1]"], "must be two or three different ones"),
        (["data=pairs", "data.columns=[0,1,2,3]"], "must be two or three different ones"),
        (["data=files", "data.columns=[0,1,2]"], "must be two different ones"),
    ],
)
def test_settings_that_do_not_fit_are_refused(overrides: list[str], printed: str) -> None:
    with pytest.raises(ConfigError) as refused:
        load_config("train", [*overrides, "data.train=t.tsv", "data.source_lang=x", "data.target_lang=y"])
    assert printed in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("data", [slow(["data=pairs"]), ["data=labels", "data.columns=[0,1,2]"]])
def test_three_columns_take_the_recipe_of_pairs(data: list[str]) -> None:
    config = load_config("train", [*data, "data.train=t.tsv"])
    assert (config.model.name, config.model.n_segments) == ("classifier", 2)


# ---- Commands


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with tables, and what `tfm train` made of them."""
    folder = tmp_path_factory.mktemp("trained")
    names = [*write_pairs(folder, n_train=300), f"data.cache={folder / 'cache'}", f"runs={folder / 'runs'}"]
    steps = ["train.max_steps=60", "train.eval_every=30", "train.save_every=30", "model.dropout=0"]
    with contextlib.redirect_stdout(io.StringIO()):
        assert main(["train", *PAIR_OVERRIDES, *names, *steps, "model.pooling=segments", "name=a"]) == 0
    return folder


def test_training_learns_which_text_it_is_in_and_evaluate_counts_what_classify_answers(trained: Path, tfm: Run) -> None:
    model = ["--checkpoint", str(trained / "runs/a")]
    _, printed, _ = tfm("evaluate", "--json", *model)
    report = json.loads(printed)
    assert report["accuracy"]["score"] >= 90
    rows = [line.split("\t", 1) for line in (trained / "test.tsv").read_text().split("\n")[:-1]]
    status, out, _ = tfm("classify", *model, stdin="".join(f"{pair}\n" for _, pair in rows).encode())
    right = [line == label for line, (label, _) in zip(out.split("\n"), rows, strict=False)]
    assert (status, out.count("\n")) == (0, len(rows))
    assert 100 * sum(right) / len(rows) == pytest.approx(report["accuracy"]["score"])
    _, own, _ = tfm("evaluate", "--json", *model, "--source", str(trained / "test.tsv"))
    assert json.loads(own)["accuracy"] == report["accuracy"]


def test_blank_lines_stay_and_a_line_that_is_no_pair_ends_the_command_behind_those_before_it(
    trained: Path, tfm: Run
) -> None:
    model = ["--checkpoint", str(trained / "runs/a")]
    assert tfm("classify", *model, stdin=b"H a\tb\n\n \nb\tH a\n")[:2] == (0, "first\n\n\nsecond\n")
    for line, fault in (
        (b"a b", "has 0 tabs, not one"),
        (b"a\tb\tc", "has 2 tabs, not one"),
        (b"a\t ", "nothing after the tab"),
        (b"\tb", "nothing before the tab"),
    ):
        status, out, err = tfm("classify", *model, stdin=b"H a\tb\n\n" + line + b"\nH\tb\n")
        assert (status, out) == (3, "first\n\n")
        assert f"standard input:3: {fault}" in err
        assert err.count("\n") == 1


def test_probabilities_and_long_pairs(trained: Path, tfm: Run) -> None:
    model = ["--checkpoint", str(trained / "runs/a"), "--output-format", "jsonl"]
    _, out, err = tfm("classify", *model, stdin=b"H a\tb\n" + b"a " * 30 + b"\tH b\n")
    records = [json.loads(line) for line in out.split("\n")[:-1]]
    assert [sum(record["probabilities"].values()) for record in records] == pytest.approx([1, 1], abs=1e-5)
    assert [record["label"] for record in records] == ["first", "second"]
    assert "line 2: longer than the model's 20 tokens" in err


@pytest.mark.parametrize(
    ("command", "printed"),
    [
        (["embed"], "model.safetensors: classifies pairs of texts, and has no vector of one"),
        (["translate"], "this is a classifier; use `tfm classify`"),
        (["score"], "this is a classifier; use `tfm classify`"),
        (["attention", "a b"], "this is a classifier; use `tfm classify`"),
        (["export", "ctranslate2", "--output", "out"], "this is a classifier, and CTranslate2 gets none from tfm"),
        (["evaluate", "data=labels", "data.test=single.tsv"], "holds single texts, but this model classifies pairs"),
        (["evaluate", "--source", "single.tsv"], "single.tsv: has 2 columns"),
        (["evaluate"], "was trained on `pairs`, which is not here. Add data=NAME"),
    ],
)
def test_what_a_classifier_of_pairs_cannot_do_is_refused_in_a_line(
    tfm: Run, tmp_path: Path, command: list[str], printed: str
) -> None:
    written(tmp_path, pair_file())
    (tmp_path / "single.tsv").write_text("high\ta b\n" * 4)
    status, out, err = tfm(*command, "--checkpoint", "model.safetensors", stdin=b"a\n")
    assert status in (2, 3, 4)
    assert out == ""
    assert printed in err
    assert err.count("\n") == 1


def test_single_texts_are_not_scored_with_pairs(tfm: Run, tmp_path: Path) -> None:
    written(tmp_path, random_model())
    (tmp_path / "pairs.tsv").write_text("high\ta b\tc\n" * 4)
    status, _, err = tfm("evaluate", "--checkpoint", "model.safetensors", "data=pairs", "data.test=pairs.tsv")
    assert status == 2
    assert "data=pairs: holds pairs of texts, but this model classifies single texts" in err
    status, _, err = tfm("embed", "--pooling", "segments", "--checkpoint", "model.safetensors", stdin=b"a\n")
    assert (status, "--pooling segments: is for classifiers of pairs" in err) == (2, True)


# ---- A resumed run, and a model that training begins with


def test_a_resumed_run_is_the_run_that_was_never_stopped(tmp_path: Path) -> None:
    write_pairs(tmp_path)
    steps = ["train.max_steps=8", "train.save_every=2", "train.eval_every=4", "train.samples=0", "train.log_every=1"]
    config = config_of(tmp_path, *steps, "data.subword_dropout=0.1", "model.pooling=segments")
    toy_run.assert_resumes(tmp_path, config, stopped_before=5, corpus=prepare(config.data))


@pytest.mark.parametrize(
    ("begins_with", "pooling", "taken"),
    [
        (TRANSLATOR, "mean", ()),
        (SIZES, "mean", ("to_classes.weight", "to_classes.bias")),
        (SIZES, "segments", ()),
        (None, "mean", ("segment_embedding.weight", "to_classes.weight", "to_classes.bias")),
        (None, "segments", ("segment_embedding.weight",)),
    ],
)
def test_a_run_begins_with_what_fits_of_a_model(
    tmp_path: Path, begins_with: ModelConfig | None, pooling: str, taken: tuple[str, ...]
) -> None:
    """None: with a classifier of pairs, that pools the mean."""
    start = pair_file() if begins_with is None else random_model(begins_with)
    config = config_of(tmp_path, f"model.pooling={pooling}", "init.from=x", "model.n_encoder_layers=2")
    config = replace(config, model=replace(config.model, n_encoder_layers=start.config.n_encoder_layers))
    ids = replace(start.tokenizers, labels=random_model().tokenizers.labels)
    found = initial_weights(config, Initial(Path("x"), start, is_resumed=False), ids)
    encoder = {name for name in start.weights if name.startswith(("source_embedding.", "encoder."))}
    assert found.keys() == {*encoder, *taken}
    assert found.keys() <= pair_model(pooling).state_dict().keys()


def test_a_single_text_classifier_may_begin_with_one_of_pairs(tmp_path: Path) -> None:
    write_pairs(tmp_path)
    names = [f"data.train={tmp_path / 'train.tsv'}", "data=labels", "data.columns=[0,1]", "init.from=x"]
    config = load_config("train", [*PAIR_OVERRIDES[1:], *names, "model.n_encoder_layers=2"])
    start = pair_file()
    found = initial_weights(config, Initial(Path("x"), start, is_resumed=False), start.tokenizers)
    assert found.keys() == random_model().weights.keys()


def test_a_line_is_answered_the_same_whatever_its_neighbours(tmp_path: Path) -> None:
    file = pair_file("segments")
    lines = [line.split("\t", 1)[1] for line in pair_table(20, seed=3).split("\n")[:-1]]
    model = file.build_as(Classifier, CPU)
    alone = [LineEncoder(model, file, device=CPU, batch_tokens=4096).read([line])[0] for line in lines]
    for batch_tokens in (1, 60, 4096):
        together = LineEncoder(model, file, device=CPU, batch_tokens=batch_tokens).read(lines[::-1])[::-1]
        for one, other in zip(alone, together, strict=True):
            assert one is not None
            assert other is not None
            assert (one - other).abs().max() <= 1e-5
    assert read_model(written(tmp_path, file)).config.n_segments == 2
