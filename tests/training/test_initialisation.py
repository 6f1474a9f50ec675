"""init.from: a classifier that begins with a trained encoder."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.addons.classification.test_classify_command import TRANSLATOR
from tests.addons.classification.toy_classifier import OVERRIDES, random_model, write_tables, written
from transformer_cli.cli import main
from transformer_cli.config.compose import load_config
from transformer_cli.data.prepare import prepare
from transformer_cli.models.file import ModelFile, read_model
from transformer_cli.training.checkpoints import CheckpointStore
from transformer_cli.training.initialisation import Initial, initial_tokenizers, read_initial_model, with_initial_sizes
from transformer_cli.training.trainer import Trainer

STEPS = ["train.max_steps=4", "train.eval_every=2", "train.save_every=1", "train.samples=0", "name=a"]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    written(tmp_path, random_model(TRANSLATOR), "translator.safetensors")
    return tmp_path


def arguments(*overrides: str, n_train: int = 100) -> list[str]:
    return ["train", *OVERRIDES, *write_tables(Path(), n_train), *STEPS, *overrides]


def first_weights(monkeypatch: pytest.MonkeyPatch) -> dict[str, torch.Tensor]:
    """The initial weights, filled in when training begins."""
    found: dict[str, torch.Tensor] = {}
    update = Trainer.train_step

    def watched(self: Trainer, *args: Any, **kwargs: Any) -> Any:
        if kwargs["step"] == 1:
            found.update({name: x.detach().clone() for name, x in self.whole_model.state_dict().items()})
        return update(self, *args, **kwargs)

    monkeypatch.setattr(Trainer, "train_step", watched)
    return found


def test_the_encoder_is_taken_over_to_the_last_bit_and_nothing_else(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = first_weights(monkeypatch)
    assert main(arguments("init.from=translator.safetensors", "model.d_model=32", "train.ema=0.9")) == 0
    start = read_model(place / "translator.safetensors")
    taken = {name for name in start.weights if name.startswith(("source_embedding.", "encoder."))}
    assert taken == found.keys() - {"to_classes.weight", "to_classes.bias"}
    assert all(torch.equal(found[name], start.weights[name]) for name in taken)
    shipped = read_model(place / "runs/a/model.safetensors")
    assert shipped.tokenizers.source.sha256 == start.tokenizers.source.sha256
    assert shipped.config.d_model == TRANSLATOR.d_model
    err = capsys.readouterr().err
    assert "init.from=translator.safetensors: text → xx, step 7, with its tokenizer" in err
    assert "as there: model.d_model=16 (not 32), model.norm=post (not pre)" in err


def test_a_resumed_run_does_not_begin_again(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command = arguments("init.from=translator.safetensors")
    assert main(command) == 0
    whole = read_model(CheckpointStore(place / "runs/a").path(4) / "model.safetensors")
    for step in (3, 4):
        folder = CheckpointStore(place / "runs/a").path(step)
        for file in sorted(folder.iterdir()):
            file.unlink()
        folder.rmdir()
    found = first_weights(monkeypatch)
    assert main(command) == 0
    again = read_model(CheckpointStore(place / "runs/a").path(4) / "model.safetensors")
    assert found == {}  # there was no first update
    assert all(torch.equal(x, again.weights[name]) for name, x in whole.weights.items())


def test_another_tokenizer_is_another_corpus_and_the_same_one_the_same(place: Path) -> None:
    names = write_tables(Path())
    config = load_config("train", [*OVERRIDES, *names, "init.from=translator.safetensors"])
    start = read_initial_model(config)
    assert start is not None
    own, taken, again = (
        prepare(config.data, tokenizers=tokenizers) for tokenizers in (None, *[initial_tokenizers(config, start)] * 2)
    )
    assert own.fingerprint != taken.fingerprint == again.fingerprint
    # One that was trained on this very text gives the very same corpus.
    assert prepare(config.data, tokenizers=own.tokenizers).fingerprint == own.fingerprint


def test_a_held_out_test_set_is_found_again(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = [word for word in arguments("init.from=translator.safetensors") if "data.test" not in word]
    assert main([*command, "data.holdout=5"]) == 0
    message = capsys.readouterr().out
    assert main(["evaluate", "--checkpoint", "runs/a", "device=cpu", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert message.startswith("labels.test, 5 lines")
    assert found["lines"] == 5


def test_sizes_are_the_models_and_dropout_is_ones_own() -> None:
    start = Initial(Path("x"), random_model(TRANSLATOR), is_resumed=False)
    config = load_config("train", [*OVERRIDES, "data.train=x", "model.dropout=0.4", "init.from=x"])
    derived = with_initial_sizes(config, start).model
    assert (derived.n_encoder_layers, derived.d_ff, derived.norm) == (1, 32, TRANSLATOR.norm)
    assert (derived.name, derived.dropout, derived.pooling) == ("classifier", 0.4, config.model.pooling)
    assert with_initial_sizes(config, None) is config


def decoder_alone(**changes: Any) -> ModelFile:
    return random_model(replace(TRANSLATOR, name="decoder", n_decoder_layers=3, **changes))


def test_the_layers_of_a_language_model_become_the_encoder(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    start, found = decoder_alone(d_embedding=6), first_weights(monkeypatch)
    written(place, start, "decoder.safetensors")
    assert main(arguments("init.from=decoder.safetensors", "train.ema=null")) == 0
    names = {"embedding.weight": "source_embedding.weight", "embedding.project_in.": "source_embedding.project_in."}
    for name, weight in start.weights.items():
        if not name.startswith("embedding.project_out."):
            for theirs, ours in {**names, "decoder.": "encoder."}.items():
                name = ours + name.removeprefix(theirs) if name.startswith(theirs) else name
            assert torch.equal(found[name], weight), name
    assert read_model(place / "runs/a/model.safetensors").config.n_encoder_layers == 3


def test_the_layers_of_a_language_model_can_be_fewer_and_frozen(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    start, found = decoder_alone(), first_weights(monkeypatch)
    written(place, start, "decoder.safetensors")
    assert main(arguments("init.from=decoder.safetensors", "init.encoder_layers=2", "init.freeze=[encoder]")) == 0
    shipped = read_model(place / "runs/a/model.safetensors")
    assert shipped.config.n_encoder_layers == 2
    for new, old in enumerate((0, 2)):  # evenly spaced
        for part in ("self_attention.to_out.weight", "feed_forward.to_hidden.weight"):
            expected = start.weights[f"decoder.layers.{old}.{part}"]
            assert torch.equal(found[f"encoder.layers.{new}.{part}"], expected)
            assert torch.equal(shipped.weights[f"encoder.layers.{new}.{part}"], expected)


def test_what_is_no_encoder_for_it_is_refused(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    written(place, random_model(replace(TRANSLATOR, name="tagger")), "tagger.safetensors")
    kinds = "a classifier, a translator, a masked language model or a language model"
    for name, message in (
        ("nowhere", f"init.from: nowhere: no such file or folder. Choose {kinds}"),
        (
            "tagger.safetensors",
            f"init.from: tagger.safetensors: this is a tagger, and data.task=classification needs {kinds}. Choose one",
        ),
        ("train.tsv", "init.from: train.tsv: cut short or not a safetensors file"),
    ):
        assert main(arguments(f"init.from={name}")) == 4
        err = capsys.readouterr().err
        assert message in err
        assert "--checkpoint" not in err
        assert err.count("\n") == 1
