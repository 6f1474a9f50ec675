"""lora.rank: thin matrices beside the projections are trained, and the model file has their product in its weights."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.conftest import slow
from tests.toy import run as toy_run
from tests.toy.run import CPU, MODEL, model_file, tokenizers
from transformer_cli.config.model import Activation
from transformer_cli.config.train import InitConfig, LoraConfig, TrainConfig
from transformer_cli.errors import ConfigError
from transformer_cli.inference.prepack import can_prepack, prepack
from transformer_cli.models.file import read_model
from transformer_cli.models.linear import Linear
from transformer_cli.models.transformer import Transformer
from transformer_cli.training import lora as lora_module
from transformer_cli.training.checkpoints import CheckpointStore
from transformer_cli.training.freezing import describe
from transformer_cli.training.lora import LoraLinear, add_adapters, load_model_weights, merged_in_place, model_weights
from transformer_cli.training.saver import Copies
from transformer_cli.training.trainer import Trainer

RANK = 3


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return toy_run.written_model(tmp_path, name="source", seed=5, norm=MODEL.norm, activation=Activation.swiglu)


def config(
    source: Path, *, lora: dict[str, Any] | None = None, freeze: tuple[str, ...] = (), **train: Any
) -> TrainConfig:
    model = replace(MODEL, activation=Activation.swiglu)
    return replace(
        toy_run.config(model=model, **train),
        init=InitConfig(from_=str(source), freeze=list(freeze)),
        lora=LoraConfig(**{"rank": RANK, **(lora or {})}),
    )


def adapted(*, seed: int = 3, **lora: Any) -> Transformer:
    """A model whose adapters do something."""
    model = model_file(seed=5, activation=Activation.swiglu).build(CPU)
    torch.manual_seed(seed)
    add_adapters(model, LoraConfig(**{"rank": RANK, **lora}))
    for name, parameter in model.named_parameters():
        if name.endswith("lora_b"):
            torch.nn.init.normal_(parameter)
    return model.eval()


def logits(model: torch.nn.Module) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(4, len(tokenizers().source), (3, 7), generator=generator)
    with torch.no_grad():
        found: torch.Tensor = model(ids, ids)
    return found


def test_adapters_add_nothing_at_first() -> None:
    plain = model_file(seed=5).build(CPU)
    model = model_file(seed=5).build(CPU)
    add_adapters(model, LoraConfig(rank=RANK))
    assert torch.equal(logits(plain), logits(model.eval()))


def test_the_merged_matrix_is_the_sum_by_hand_for_each_projection_that_shares_it() -> None:
    torch.manual_seed(1)
    linear = LoraLinear(Linear(5, 7, parts=[3, 4]), LoraConfig(rank=2, alpha=6.0))
    torch.nn.init.normal_(linear.lora_b)
    a, b = linear.lora_a.tolist(), linear.lora_b.tolist()
    for row in range(7):
        of_part = 0 if row < 3 else 2  # the first row of A of this projection
        for column in range(5):
            product = sum(b[row][i] * a[of_part + i][column] for i in range(2))
            expected = linear.weight[row, column].item() + 6 / 2 * product
            assert linear.matrix()[row, column].item() == pytest.approx(expected, abs=1e-5)


def test_a_merged_model_is_the_same_function() -> None:
    model = adapted()
    merged = model_file(seed=5, activation=Activation.swiglu).build(CPU)
    assert not torch.allclose(logits(merged), logits(model), atol=0.1)
    merged.load_state_dict(model_weights(model))  # every name, and no other
    assert torch.allclose(logits(merged), logits(model), atol=1e-4)


@pytest.mark.parametrize("has_onednn", [True, False])
def test_a_model_merged_in_place_is_that_of_its_file_and_comes_back(
    has_onednn: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lora_module, "has_onednn", lambda: has_onednn)
    model = adapted()
    before, wanted = {name: x.clone() for name, x in model.state_dict().items()}, dict(model_weights(model))
    merged = model_file(seed=5, activation=Activation.swiglu).build(CPU)
    merged.load_state_dict(wanted)
    in_16_bits = torch.autocast("cpu", torch.bfloat16)
    with merged_in_place(model):
        assert all(torch.equal(x, wanted[name]) for name, x in model_weights(model).items())
        assert torch.equal(logits(model), logits(merged))
        with in_16_bits:  # in which the sum of the matrices is none of 16 bits
            assert torch.equal(logits(model), logits(merged))
        if can_prepack(model):
            assert torch.equal(logits(prepack(model)), logits(prepack(merged)))
    assert model.state_dict().keys() == before.keys()
    assert all(torch.equal(x, before[name]) for name, x in model.state_dict().items())


def test_what_is_saved_is_the_model_as_it_was_and_frozen_weights_are_not_copied(source: Path) -> None:
    trainer = Trainer(config(source, lora={"also": ["*.norm"]}), tokenizers(), CPU)
    weights = model_weights(trainer.model)
    wanted = {name: x.clone() for name, x in weights.items()}
    copied = Copies().of(weights, "model")
    with torch.no_grad():
        for parameter in trainer.model.parameters():
            if parameter.requires_grad:
                parameter += 1
    assert all(torch.equal(x, wanted[name]) for name, x in copied.items())
    projection, embedding = "encoder.layers.0.feed_forward.to_out.weight", "source_embedding.weight"
    assert not torch.equal(weights[projection], wanted[projection])
    assert copied[embedding].data_ptr() == weights[embedding].data_ptr()


def test_loaded_weights_are_the_models_whatever_the_adapters_were() -> None:
    model, plain = adapted(), model_file(seed=8, activation=Activation.swiglu).build(CPU)
    load_model_weights(model, plain.state_dict())
    assert torch.equal(logits(model), logits(plain))
    with pytest.raises(RuntimeError, match="size mismatch"):
        load_model_weights(model, model_file(d_ff=8).weights)


def test_only_adapters_are_trained_and_files_have_the_names_of_any_model(source: Path, tmp_path: Path) -> None:
    toy_run.run(tmp_path / "run", config(source, max_steps=2))
    before = read_model(source).weights
    store = CheckpointStore(tmp_path / "run")
    checkpoint = store.load(2)
    assert checkpoint.model.weights.keys() == before.keys()
    changed = {name for name, x in before.items() if not torch.equal(x, checkpoint.model.weights[name])}
    projections = {name for name in before if re.search(r"to_\w+\.weight$", name)}
    assert changed == projections
    base = {name.removeprefix("lora_base/"): x for name, x in checkpoint.optimizer.items() if "base/" in name}
    assert base.keys() == projections
    assert all(torch.equal(x, before[name]) for name, x in base.items())  # W itself has not moved
    moments = {name.partition("/")[2] for name in checkpoint.optimizer if name.startswith("exp_avg/")}
    assert moments == {f"{name.removesuffix('weight')}lora_{one}" for name in projections for one in "ab"}


def test_what_is_scored_is_what_is_shipped(source: Path, tmp_path: Path) -> None:
    """The dev score of a checkpoint, as training wrote it down, is that of its model file in a run of its own."""
    toy_run.run(tmp_path / "run", config(source, max_steps=4))
    found = [entry for entry in toy_run.metrics(tmp_path / "run") if entry["kind"] == "dev" and entry["step"] == 4]
    again = replace(
        toy_run.config(max_steps=1, eval_every=1), init=InitConfig(from_=str(CheckpointStore(tmp_path / "run").path(4)))
    )
    again = replace(again, model=replace(MODEL, activation=Activation.swiglu))
    toy_run.run(tmp_path / "again", again)
    first = toy_run.metrics(tmp_path / "again")[0]
    assert (first["step"], first["kind"]) == (0, "dev")
    assert first["dev_nll"] == found[0]["dev_nll"]


@pytest.mark.parametrize("lora", [slow({}), {"dropout": 0.2, "also": ["embeddings", "*.norm"]}], ids=["plain", "also"])
def test_a_resumed_run_is_the_run_that_was_not_stopped(lora: dict[str, Any], source: Path, tmp_path: Path) -> None:
    settings = config(source, lora=lora, save_every=1)
    toy_run.assert_resumes(tmp_path, settings, stopped_before=6, meanwhile=source.unlink)
    shipped = [toy_run.sha256(tmp_path / name / "model.safetensors") for name in ("whole", "stopped")]
    assert shipped[0] == shipped[1]


def test_parts_can_be_trained_too_and_adapters_frozen(source: Path, tmp_path: Path) -> None:
    settings = config(source, lora={"also": ["embeddings"]}, freeze=("encoder",), max_steps=2)
    toy_run.run(tmp_path / "run", settings)
    before, after = read_model(source).weights, CheckpointStore(tmp_path / "run").load_model(2).weights
    changed = {name for name, x in before.items() if not torch.equal(x, after[name])}
    assert "source_embedding.weight" in changed
    assert changed - {"source_embedding.weight"} == {
        name for name in before if re.search(r"^decoder.*to_\w+\.weight$", name)
    }


def test_how_much_is_trained_is_said(source: Path) -> None:
    settings = config(source)
    trainer = Trainer(settings, tokenizers(), CPU)
    d, f = MODEL.d_model, MODEL.d_ff
    # Queries, keys, values and output of three attentions; the gate, the value and the output of two layers.
    n_adapters = 3 * 4 * RANK * (d + d) + 2 * 3 * RANK * (d + f)
    n_all = sum(x.numel() for x in trainer.model.parameters())
    assert describe(trainer.model, settings) == f"{n_adapters:,} of {n_all:,} parameters; frozen: all but LoRA"


def test_settings_that_do_not_go_together_are_refused(source: Path) -> None:
    with pytest.raises(ConfigError, match=r"lora\.rank=17: larger than the 16 .* Choose at most 16"):
        Trainer(config(source, lora={"rank": 17}), tokenizers(), CPU)
    with pytest.raises(ConfigError, match=r"optimizer=muon: is for the matrices .* Set optimizer=adamw"):
        Trainer(config(source, optimizer="muon"), tokenizers(), CPU)
    with pytest.raises(ConfigError, match=r"train\.ema=0\.9: averages weights, .* Set train\.ema=null"):
        config(source, ema=0.9)
    with pytest.raises(ConfigError, match=r"lora\.also=\[embeddings\]: without lora\.rank all is trained"):
        replace(config(source), lora=LoraConfig(also=["embeddings"]))
    with pytest.raises(ConfigError, match=r"lora\.rank=3: there is no model that training begins with"):
        replace(config(source), init=InitConfig())
