"""A plugin's model is of the kind of its class in every command, and is refused by name where its code is not."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from torch import Tensor

from tests.addons.classification import toy_classifier
from tests.addons.tagging import toy_tagger
from tests.support.contract import run
from tests.toy import run as toy_run
from tests.toy.models import random_file
from tests.toy.run import model_file
from transformer_cli.addons.interop.registries import EXPORTERS
from transformer_cli.config.tasks import TASKS
from transformer_cli.config.train import InitConfig, LoraConfig
from transformer_cli.errors import ConfigError
from transformer_cli.models.embeddings import TokenEmbedding
from transformer_cli.models.file import ModelFile, read_model, write_model
from transformer_cli.models.registry import MODELS
from transformer_cli.models.transformer import Stack, TokenModel, Transformer
from transformer_cli.tasks.translation import Translation
from transformer_cli.training.freezing import check_patterns

LINES = b"a b c\nd e\n"


@pytest.fixture(autouse=True)
def own_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """The registry with what a plugin called `mine` has registered: a model of each kind that has an encoder."""
    monkeypatch.setattr(MODELS, "_entries", dict(MODELS._entries))
    monkeypatch.setattr("transformer_cli.models.file.loaded_plugins", lambda: ["mine"])
    for name in ("transformer", "classifier", "tagger"):
        built = MODELS[name]
        MODELS.register(f"my_{name}")(
            lambda config, source, target, options, built=built: built(config, source, target, options)
        )


def of_plugin(model: ModelFile) -> ModelFile:
    return replace(model, config=replace(model.config, name=f"my_{model.config.name}"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A working folder with a translator of the plugin, and the same one of tfm."""
    write_model(tmp_path / "ours.safetensors", model_file())
    write_model(tmp_path / "mine.safetensors", of_plugin(model_file()))
    (tmp_path / "text").write_bytes(LINES)
    return tmp_path


@pytest.mark.parametrize("names", [["mine", "ours"], ["ours", "mine"]])
def test_translators_of_a_plugin_and_of_tfm_are_an_ensemble(folder: Path, names: list[str]) -> None:
    """Both have the same weights, so the mean of their probabilities is that of one."""
    alone = run(["translate", "--checkpoint", "ours.safetensors", "device=cpu"], folder, stdin=LINES)
    checkpoints = [word for name in names for word in ("--checkpoint", f"{name}.safetensors")]
    both = run(["translate", *checkpoints, "device=cpu"], folder, stdin=LINES)
    assert (both.code, both.out) == (0, alone.out), both.err


@pytest.mark.parametrize("form", EXPORTERS.names())
def test_an_export_of_a_plugin_s_model_is_refused_before_it_is_converted(
    folder: Path, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("transformer_cli.addons.interop.run_export.imported", lambda package, needs: None)
    ran = run(["export", form, "--checkpoint", "mine.safetensors", "--output", "out"], folder)
    assert ran.code == 4, ran.err
    assert ran.err.decode().endswith(
        f"mine.safetensors: its model 'my_transformer' is a plugin's, and tfm export {form} has only those of tfm"
        " itself. Use it with engine=torch\n"
    )
    assert not (folder / "out").exists()


def test_a_plugin_s_model_is_not_converted_for_another_engine(folder: Path) -> None:
    pytest.importorskip("ctranslate2")
    ran = run(["translate", "--checkpoint", "mine.safetensors", "engine=ctranslate2"], folder, stdin=LINES)
    assert ran.code == 4, ran.err
    assert b"mine.safetensors: its model 'my_transformer' is a plugin's, and engine=ctranslate2 has only" in ran.err


def test_a_run_that_begins_with_a_model_names_the_plugin_that_it_needs(folder: Path) -> None:
    del MODELS._entries["my_transformer"]
    (folder / "fr").write_bytes(LINES.upper())
    data = ["data=files", "data.source_lang=en", "data.target_lang=fr", "data.train=[text,fr]"]
    ran = run(["train", *data, "init.from=mine.safetensors", "device=cpu"], folder)
    assert ran.code == 4, ran.err
    assert ran.err.decode().endswith(
        "init.from: mine.safetensors: its model 'my_transformer' comes from the plugin mine, which is code of its own."
        " If you have it and trust it, add --plugin mine\n"
    )


@pytest.mark.parametrize("kind", ["classifier", "tagger"])
def test_a_plugin_s_model_of_labels_is_scored_and_embeds_as_the_same_one_of_tfm(kind: str, tmp_path: Path) -> None:
    if kind == "classifier":
        model, text = toy_classifier.random_model(), toy_classifier.table(20, seed=3)
    else:
        model, text = toy_tagger.random_model(), toy_tagger.conll(20, seed=3)
    (tmp_path / "text").write_text(text, encoding="utf-8")
    commands = (["evaluate", "--source", "text", "--json"], ["embed"])
    found = []
    for one in (model, of_plugin(model)):
        write_model(tmp_path / "model.safetensors", one)
        ran = [run([*c, "--checkpoint", "model.safetensors", "device=cpu"], tmp_path, stdin=LINES) for c in commands]
        assert [one.code for one in ran] == [0, 0], [one.err for one in ran]
        found.append([one.out for one in ran])
    assert found[0] == found[1]


class Wrapped(TokenModel):
    """A translator that is no Transformer, and computes what the one in it does."""

    kind = "wrapped"

    def __init__(self, inner: Transformer) -> None:
        super().__init__()
        self.inner = inner

    @property
    def stacks(self) -> Sequence[Stack]:
        return self.inner.stacks

    @property
    def output_embedding(self) -> TokenEmbedding:
        return self.inner.output_embedding

    def padded_states(self, source_BS: Tensor, target_in_BT: Tensor) -> Tensor:
        return self.inner.padded_states(source_BS, target_in_BT)


class Wrapping(Translation):
    model = "wrapped"


def test_a_model_of_tokens_that_is_no_transformer_scores_translations(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TASKS, "_entries", dict(TASKS._entries))
    TASKS.register("wrapping")(Wrapping())
    MODELS.register("wrapped")(lambda *args: Wrapped(MODELS["transformer"](*args)))
    model = model_file()
    weights = {f"inner.{name}": weight for name, weight in model.weights.items()}
    write_model(
        folder / "wrapped.safetensors", replace(model, weights=weights, config=replace(model.config, name="wrapped"))
    )
    files = ["--source", "text", "--translation", "text", "device=cpu"]
    scored = [run(["score", "--checkpoint", f"{name}.safetensors", *files], folder) for name in ("ours", "wrapped")]
    assert [ran.code for ran in scored] == [0, 0], scored[1].err
    assert scored[0].out == scored[1].out


def test_a_part_that_a_plugin_s_model_calls_otherwise_is_not_proposed() -> None:
    config = toy_run.config()
    config = replace(config, init=InitConfig(from_="x"), lora=LoraConfig(rank=3, also=["embeddings"]))
    with pytest.raises(ConfigError, match=r"`embeddings` is the name of no part .*\. Choose among inner, or"):
        check_patterns(["inner.source_embedding.weight"], config)


def test_adapters_of_a_plugin_s_model_resume_to_the_last_bit(tmp_path: Path) -> None:
    model = replace(toy_run.MODEL, name="my_transformer")
    write_model(tmp_path / "source", random_file(model, toy_run.tokenizers(), seed=5))
    settings = replace(
        toy_run.config(model=model, max_steps=3, save_every=1, eval_every=3),
        init=InitConfig(from_=str(tmp_path / "source")),
        lora=LoraConfig(rank=3, dropout=0.2, also=["*source_embedding"]),
    )
    toy_run.assert_resumes(tmp_path, settings, stopped_before=3, meanwhile=(tmp_path / "source").unlink)
    assert read_model(tmp_path / "whole" / "model.safetensors").config.name == "my_transformer"
