"""`tfm classify`, `tfm train` and `tfm evaluate` of a classifier: lines, files, what is refused, and a resumed run."""

import io
import json
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.addons.classification.toy_classifier import (
    LABELS,
    OVERRIDES,
    SIZES,
    random_model,
    table,
    write_tables,
    written,
)
from tests.conftest import Run
from tests.support.contract import is_text
from tests.toy import run as toy_run
from transformer_cli.addons.classification.classifier import Classifier
from transformer_cli.addons.classification.keys import ClassifyConfig
from transformer_cli.addons.classification.run_classify import response_text
from transformer_cli.addons.embedding.encode import LineEncoder
from transformer_cli.addons.embedding.encoder_filter import EncodedLine, EncoderFilter
from transformer_cli.config.compose import load_config
from transformer_cli.config.model import ModelConfig
from transformer_cli.data.prepare import prepare
from transformer_cli.models.file import read_model

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with tables, and what `tfm train` made of them."""
    folder = tmp_path_factory.mktemp("trained")
    toy_run.train_command(folder, *OVERRIDES, *write_tables(folder, n_train=400), max_steps=120, every=60)
    return folder


# ---- Training and evaluating


def test_training_learns_the_classes_and_reports_the_test_set(trained: Path) -> None:
    result = json.loads((trained / "runs/a/result.json").read_bytes())
    assert result["best"]["dev_accuracy"] >= 90
    printed = (trained / "printed").read_text().split("\n")
    assert printed[0] == f"labels.test, 40 lines, {trained / 'runs/a/model.safetensors'}"
    assert printed[1].startswith("accuracy")
    assert len((trained / "runs/a/hypotheses.labels.test.label").read_text().split("\n")) == 41


def test_the_log_counts_sentences(trained: Path) -> None:
    assert "sentences/s" in (trained / "runs/a/tfm.log").read_text()
    lines = (trained / "runs/a/metrics.jsonl").read_text().split("\n")
    entry = next(entry for line in lines if line and (entry := json.loads(line))["kind"] == "train")
    # Updates hold about 200 source tokens of sentences of 3 to 8, BOS and EOS counted.
    assert 10 * 200 / 8 <= entry["sentences"] <= 10 * 200 / 3
    assert "tokens" not in entry


def test_evaluate_says_what_training_said_and_counts_what_classify_answers(trained: Path, tfm: Run) -> None:
    model = ["--checkpoint", str(trained / "runs/a")]
    _, out, _ = tfm("evaluate", *model)
    assert out.split("\n")[1:] == (trained / "printed").read_text().split("\n")[1:]
    _, out, _ = tfm("evaluate", *model, "--json", "--source", str(trained / "test.tsv"), "--save", "printed")
    found = json.loads(out)
    rows = [line.split("\t") for line in (trained / "test.tsv").read_text().split("\n")[:-1]]
    _, answers, _ = tfm("classify", *model, stdin="".join(f"{text}\n" for _, text in rows).encode())
    assert answers == Path("printed").read_text()
    n_right = sum(label == answer for (label, _), answer in zip(rows, answers.split("\n"), strict=False))
    assert found["accuracy"]["score"] == pytest.approx(100 * n_right / 40)
    assert sum(map(sum, found["confusion"])) == found["lines"] == 40
    assert [c["label"] for c in found["classes"]] == list(LABELS)


def test_a_held_out_test_set_is_found_again_and_only_by_its_own_model(trained: Path, tfm: Run) -> None:
    model = ["--checkpoint", str(trained / "runs/a/model.safetensors")]
    data = [*OVERRIDES[:4], f"data.train={trained / 'train.tsv'}", "data.cache=cache", "data.holdout=20"]
    status, _, err = tfm("evaluate", *model, *data)
    assert status == 3
    assert "is not the text that the model was trained on" in err


@pytest.mark.parametrize(
    ("table_text", "printed"),
    [
        ("high\ta b\nlow a b\n", "own.tsv:2: no tab between label and text: 'low a b'. Write label<TAB>text"),
        ("high\ta b\nhihg\ta b\n", "own.tsv:2: class 'hihg' is not in the training text; did you mean `high`?"),
        ("a b\thigh\n", "own.tsv:1: class 'a b' is not in the training text"),
        ("\n\n", "own.tsv: holds no sentence with a class. Write label<TAB>text"),
        ("", "own.tsv"),
    ],
)
def test_a_table_that_cannot_be_scored_is_refused_in_a_line(
    trained: Path, tfm: Run, tmp_path: Path, table_text: str, printed: str
) -> None:
    (tmp_path / "own.tsv").write_text(table_text)
    status, out, err = tfm("evaluate", "--checkpoint", str(trained / "runs/a"), "--source", "own.tsv")
    assert (status, out) == (3, "")
    assert printed in err
    assert err.count("\n") == 1


def test_a_corpus_whose_place_is_not_told_is_explained(tfm: Run) -> None:
    status, _, err = tfm("train", "data=trec")
    assert status == 3
    assert "data.root" in err
    assert "docs/classifying.md" in err
    assert err.count("\n") == 1


# ---- A resumed run


def test_a_resumed_run_is_the_run_that_was_never_stopped(tmp_path: Path) -> None:
    names = [*write_tables(tmp_path), f"data.cache={tmp_path / 'cache'}"]
    steps = ["train.max_steps=12", "train.save_every=3", "train.eval_every=6", "train.samples=0", "train.log_every=1"]
    config = load_config("train", [*OVERRIDES, *names, *steps, "data.subword_dropout=0.1"])
    toy_run.assert_resumes(tmp_path, config, stopped_before=8, corpus=prepare(config.data))


# ---- Lines


def encoded(data: bytes) -> list[EncodedLine]:
    """The lines of `data` with a random classifier's outputs."""
    model, rows = random_model(), list[EncodedLine]()
    reader = LineEncoder(model.build_as(Classifier, CPU), model, device=CPU, batch_tokens=100)
    source = io.BufferedReader(io.BytesIO(data))  # type: ignore[arg-type]
    EncoderFilter(reader, rows.extend, None, strict=False).process_stream(source)
    return rows


PIECES = [b"a", b"H", b" ", b"\n", b"\r", b"\r\n", b"\xe2\x80\xa8", b"\xc2\x85", b"\x0b", b"\xff", b"\x00", b"\t"]


@settings(max_examples=40, deadline=None, database=None)
@given((st.binary(max_size=60) | st.lists(st.sampled_from(PIECES)).map(b"".join)).filter(is_text))
def test_as_many_lines_come_out_as_went_in_for_any_bytes(data: bytes) -> None:
    rows = encoded(data)
    out = "".join(response_text(row, labels=LABELS, config=ClassifyConfig()) for row in rows)
    assert out.count("\n") == data.count(b"\n") + (not data.endswith(b"\n") and data != b"")
    assert [row.line.number for row in rows] == list(range(1, len(rows) + 1))
    assert set(out.split("\n")) <= {*LABELS, ""}


def test_each_line_gets_its_own_answer_in_order(trained: Path, tfm: Run) -> None:
    model = ["--checkpoint", str(trained / "runs/a")]
    status, out, _ = tfm("classify", *model, stdin=b"a H c\n\nb O\nM a c d\n")
    assert (status, out) == (0, "high\n\nlow\nmiddle\n")


def test_probabilities_are_those_of_every_class_and_add_up(trained: Path, tfm: Run) -> None:
    command = ["classify", "--checkpoint", str(trained / "runs/a")]
    _, text, err = tfm(*command, "--probabilities", stdin=b"a H c\n\nb O\n")
    _, records, _ = tfm(*command, "--output-format", "jsonl", stdin=b"a H c\n\nb O\n")
    assert "probabilities in the order high, low, middle" in err
    first, blank, third = map(json.loads, records.split("\n")[:-1])
    assert blank == {"line": 2, "label": None, "probabilities": None}
    for line, record in zip(text.split("\n")[::2], (first, third), strict=False):
        label, *shares = line.split("\t")
        assert label == record["label"] == max(record["probabilities"], key=record["probabilities"].get)
        assert [float(share) for share in shares] == pytest.approx(list(record["probabilities"].values()), abs=1e-9)
        assert sum(map(float, shares)) == pytest.approx(1, abs=5e-6)
    assert (text.split("\n")[1], list(third["probabilities"])) == ("", list(LABELS))


def test_long_lines_are_named_and_bad_bytes_counted(tfm: Run, tmp_path: Path) -> None:
    model = written(tmp_path, random_model(max_length=6))
    status, out, err = tfm("classify", "--checkpoint", str(model), stdin=b"a\na b c d e f g\n\xff\n" + b"a " * 9)
    assert (status, out.count("\n")) == (0, 4)
    assert "lines 2, 4: longer than the model's 6 tokens; the rest is not read" in err
    assert "1 of 4 lines were not UTF-8" in err
    status, _, err = tfm("classify", "--checkpoint", str(model), "--strict", stdin=b"a\n\xff\n")
    assert status == 3
    assert "standard input:2: byte 0xff" in err


def test_an_output_is_whole_or_not_there(tfm: Run, tmp_path: Path) -> None:
    model = written(tmp_path, random_model())
    (tmp_path / "text").write_bytes(b"a H\n\xff\n")
    command = ["classify", "--checkpoint", str(model), "--input", "text", "--output", "out"]
    assert tfm(*command, "--strict")[0] == 3
    assert not (tmp_path / "out").exists()
    assert tfm(*command)[:2] == (0, "")
    assert (tmp_path / "out").read_bytes().count(b"\n") == 2
    status, _, err = tfm(*command)
    assert status == 2
    assert "out: exists already. Add --overwrite" in err
    assert tfm(*command, "--overwrite")[0] == 0


def test_an_empty_input_has_no_answer(tfm: Run, tmp_path: Path) -> None:
    assert tfm("classify", "--checkpoint", str(written(tmp_path, random_model())))[:2] == (0, "")


# ---- What is refused


TRANSLATOR = ModelConfig(n_encoder_layers=1, n_decoder_layers=1, d_model=16, n_heads=2, d_ff=32)


@pytest.mark.parametrize(
    ("config", "command", "printed"),
    [
        (SIZES, ["translate"], "model.safetensors: this is a classifier; use `tfm classify`"),
        (SIZES, ["score"], "model.safetensors: this is a classifier; use `tfm classify`"),
        (TRANSLATOR, ["classify"], "model.safetensors: this is a translator; use `tfm translate`"),
        (TRANSLATOR, ["evaluate", "--source", "text"], "--reference: not given, but --source is"),
        (
            SIZES,
            ["evaluate", "--source", "t", "--reference", "t"],
            "--reference: for translations; of a classifier, --source is all",
        ),
        (SIZES, ["evaluate", "--source", "nowhere"], "nowhere: no such file. Check --source"),
        (SIZES, ["evaluate", "data=demo_en_fr"], "data=demo_en_fr: has no classes, but this is a classifier"),
        (SIZES, ["evaluate"], "was trained on `labels`, which is not here. Add data=NAME"),
        (SIZES, ["classify", "--checkpoint", "other"], "several models, where one is asked. Name one"),
        (SIZES, ["classify", "--input", "nowhere"], "nowhere: no such file. Check --input"),
    ],
)
def test_a_command_that_does_not_suit_the_model_says_so_in_a_line(
    tfm: Run, tmp_path: Path, config: ModelConfig, command: list[str], printed: str
) -> None:
    written(tmp_path, random_model(config))
    status, out, err = tfm(command[0], "--checkpoint", "model.safetensors", *command[1:], stdin=b"a\n")
    assert status in (2, 3, 4)
    assert out == ""
    assert printed in err
    assert err.count("\n") == 1


def test_two_classifiers_are_not_evaluated_as_one(tfm: Run, tmp_path: Path) -> None:
    written(tmp_path, random_model())
    written(tmp_path, random_model(seed=2), "b.safetensors")
    (tmp_path / "own.tsv").write_text(table(4, seed=1))
    models = ["--checkpoint", "model.safetensors", "--checkpoint", "b.safetensors"]
    status, _, err = tfm("evaluate", *models, "--source", "own.tsv")
    assert status == 2
    assert "b.safetensors: a second classifier; they answer one at a time" in err


def test_a_model_file_keeps_its_classes(tmp_path: Path) -> None:
    assert read_model(written(tmp_path, random_model())).tokenizers.labels == LABELS


def test_doctor_tries_a_classifier_and_looks_for_no_pairs(tfm: Run, tmp_path: Path) -> None:
    status, out, err = tfm("doctor", *OVERRIDES, *write_tables(tmp_path), "train.max_steps=4")
    assert (status, "aligned" in err) == (0, False)
    assert "4 updates are 0.6 of an epoch of 7 updates" in out
