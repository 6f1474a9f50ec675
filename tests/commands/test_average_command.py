"""`tfm average`: the mean of the weights, its metadata, and what has no mean."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tests.support.contract import refused, run
from tests.support.each import each
from tests.toy.run import MODEL, config, model_file, packed
from tests.toy.run import run as train
from transformer_cli.config.model import Activation
from transformer_cli.models.file import ModelFile, read_model

A, B, C = (model_file(seed=n, step=n) for n in (1, 2, 3))
THREE = ["average", "--checkpoint", "a", "--checkpoint", "b", "--checkpoint", "c"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, model in {"a": A, "b": B, "c": C}.items():
        (tmp_path / name).write_bytes(packed(model))
    return tmp_path


def metadata(file: Path) -> dict[str, object]:
    content = file.read_bytes()
    header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
    metadata: dict[str, object] = json.loads(header["__metadata__"]["tfm"])
    return metadata


def test_every_weight_is_the_mean_and_the_file_says_of_what(folder: Path) -> None:
    ran = run([*THREE, "--output", "mean"], folder)
    assert (ran.code, ran.out) == (0, b""), ran.err
    assert ran.err.endswith(b"mean: the average of 3 models (step 1 of a, step 2 of b, step 3 of c)\n")
    mean = read_model(folder / "mean")
    assert mean.weights.keys() == A.weights.keys()
    for name, weight in mean.weights.items():
        expected = torch.stack([model.weights[name].double() for model in (A, B, C)]).mean(dim=0).float()
        assert torch.equal(weight, expected)
    assert metadata(folder / "mean")["averaged"] == mean.averaged == ["step 1 of a", "step 2 of b", "step 3 of c"]
    assert (mean.step, mean.config, mean.scores) == (3, A.config, {}), "of other weights"
    assert "averaged" not in metadata(folder / "a")


def test_a_mean_was_trained_on_single_sentences_only_if_all_its_models_were(folder: Path) -> None:
    for name, share in (("a", 0.02), ("b", 0.3)):
        (folder / name).write_bytes(packed(replace(A, multi_sentence_share=share)))
    assert run([*THREE[:5], "--output", "mean"], folder).code == 0
    assert read_model(folder / "mean").multi_sentence_share == 0.3
    assert run([*THREE, "--output", "other"], folder).code == 0
    assert read_model(folder / "other").multi_sentence_share is None, "unknown for c"


def test_the_mean_of_two_translates(folder: Path) -> None:
    assert run([*THREE[:5], "--output", "mean"], folder).code == 0
    ran = run(["translate", "--checkpoint", "mean", "--device", "cpu"], folder, stdin=b"a b\n\nc\n")
    assert (ran.code, ran.out.count(b"\n")) == (0, 3)


def test_the_last_checkpoints_of_a_run_are_averaged(tmp_path: Path) -> None:
    train(tmp_path / "runs" / "r", config(keep_last=3, average_last=2))
    steps = sorted(path.name for path in (tmp_path / "runs/r/checkpoints").iterdir())[-2:]
    parts = [read_model(tmp_path / "runs/r/checkpoints" / step / "model.safetensors") for step in steps]
    for arguments in ([], ["--checkpoint", "runs/r"], ["checkpoint=runs/r"]):
        command = ["average", *arguments, "--last", "2", "--output", "mean", "--overwrite"]
        assert run(command, tmp_path).code == 0
        mean = read_model(tmp_path / "mean")
        assert mean.averaged == [f"step {part.step} of r" for part in parts]
        assert mean.fingerprint == parts[0].fingerprint != ""
        for name, weight in mean.weights.items():
            assert torch.equal(
                weight, (parts[0].weights[name].double() + parts[1].weights[name].double()).div(2).float()
            )
    too_many = ["average", "--last", "99", "--output", "x"]
    refused(too_many, tmp_path, code=2, says=["--last 99: but runs/r holds"], working=True)
    (tmp_path / "runs/r/checkpoints" / steps[0] / "model.safetensors").write_bytes(b"damaged")
    refused(["average", "--last", "2", "--output", "x"], tmp_path, code=4, says=[steps[0], "bytes, not"], working=True)


@each(
    "other, says",
    [
        (model_file(d_model=8), "model.d_model=8, but a has 16"),
        (model_file(activation=Activation.gelu), "model.activation=gelu, but a has relu"),
        (model_file(joint=False), "its target vocabulary has SHA-256"),
    ],
)
def test_models_without_a_mean_are_named_and_nothing_is_written(folder: Path, other: ModelFile, says: str) -> None:
    (folder / "b").write_bytes(packed(other))
    refused([*THREE, "--output", "mean"], folder, code=4, says=["b: ", says])


def test_another_dropout_or_name_of_the_model_is_no_hindrance(folder: Path) -> None:
    assert MODEL.dropout == 0.1
    (folder / "b").write_bytes(packed(model_file(seed=2, dropout=0.3, preset="small")))
    assert run([*THREE, "--output", "mean"], folder).code == 0


def test_what_is_not_the_same_in_all_is_left_out(folder: Path) -> None:
    (folder / "b").write_bytes(packed(model_file(seed=2)))
    for name, corpus in (("a", "one"), ("c", "two")):
        model = model_file(seed=3)
        model.data["name"] = corpus
        (folder / name).write_bytes(packed(model))
    assert run([*THREE, "--output", "mean"], folder).code == 0
    assert read_model(folder / "mean").data == {}


def test_D16_no_file_is_written_over_unasked(folder: Path) -> None:
    (folder / "there").write_text("kept", encoding="utf-8")
    refused([*THREE, "--output", "there"], folder, code=2, says=["there: exists already. Add --overwrite"])
    refused([*THREE, "--output", "b", "--overwrite"], folder, code=2, says=["b: both a model to average and --output"])
    refused([*THREE, "--output", ".", "--overwrite"], folder, code=2, says=[".: not a plain file"])
    assert run([*THREE, "--output", "there", "--overwrite"], folder).code == 0
    assert read_model(folder / "there").averaged


def test_D16_what_an_output_links_to_is_written_and_the_link_stays(folder: Path) -> None:
    (folder / "link").symlink_to("mean")
    assert run([*THREE, "--output", "link"], folder).code == 0
    assert (folder / "link").is_symlink()
    assert read_model(folder / "mean").averaged


def test_D17_a_place_that_cannot_be_written_is_said_first(folder: Path) -> None:
    refused([*THREE, "--output", "no/mean"], folder, code=5, says=["no: no such folder"])
    refused(THREE, folder, code=2, says=["--output: not given"])


def test_what_names_too_few_models_is_refused(folder: Path) -> None:
    one = ["average", "--checkpoint", "a"]
    refused([*one, "--output", "x"], folder, code=2, says=["a: one model has no average. Repeat --checkpoint"])
    refused(
        [*one, "--checkpoint", "./a", "--output", "x"], folder, code=2, says=["--checkpoint: names one model twice"]
    )
    refused([*one, "--last", "2", "--output", "x"], folder, code=4, says=["a: no run directory"])
    refused([*THREE, "--last", "2", "--output", "x"], folder, code=2, says=["--last 2: of one run"])
    refused([*one, "--last", "1", "--output", "x"], folder, code=2, says=["last=1: out of range"])
    refused([*one, "--checkpoint", "none", "--output", "x"], folder, code=4, says=["none: no such file"])
