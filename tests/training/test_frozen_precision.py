"""train.frozen_precision=bf16: what is not trained is in memory in 16 bits, and all else is as it was."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.conftest import slow
from tests.toy import run as toy_run
from tests.toy.run import CPU, MODEL, tokenizers
from transformer_cli.config.train import FrozenPrecision, InitConfig, LoraConfig, Precision, Sharding, TrainConfig
from transformer_cli.errors import ConfigError
from transformer_cli.inference.precision import converted, dtype_of
from transformer_cli.inference.prepack import can_prepack, prepack
from transformer_cli.models import linear as linear_module
from transformer_cli.models.embeddings import TokenEmbedding
from transformer_cli.models.file import read_model, write_model
from transformer_cli.models.linear import Linear, has_onednn, project
from transformer_cli.models.transformer import Transformer
from transformer_cli.training.checkpoints import CheckpointStore
from transformer_cli.training.freezing import describe
from transformer_cli.training.trainer import Trainer

FROZEN = {"lora": {"lora": {"rank": 3}}, "encoder": {"freeze": ["encoder"]}, "embeddings": {"freeze": ["embeddings"]}}


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return toy_run.written_model(tmp_path, name="source", seed=5, norm=MODEL.norm)


def config(
    source: Path,
    *,
    freeze: list[str] | None = None,
    lora: dict[str, Any] | None = None,
    kept: FrozenPrecision = FrozenPrecision.bf16,
    **train: Any,
) -> TrainConfig:
    plain = toy_run.config(**train)
    return replace(
        plain,
        train=replace(plain.train, frozen_precision=kept),
        init=InitConfig(from_=str(source), freeze=freeze or []),
        lora=LoraConfig(**(lora or {})),
    )


def rounded(weights: Tensor) -> Tensor:
    return weights.bfloat16().float()


def matrices(model: nn.Module) -> dict[str, nn.Parameter]:
    """The weights of projections and embeddings, by name."""
    modules = model.named_modules()
    return {f"{name}.weight": one.weight for name, one in modules if isinstance(one, Linear | TokenEmbedding)}


def with_rounded(source: Path, names: list[str]) -> Path:
    """A model file in which these weights are numbers of 16 bits."""
    model = read_model(source)
    weights = {name: rounded(x) if name in names else x for name, x in model.weights.items()}
    path = source.with_name("rounded.safetensors")
    write_model(path, replace(model, weights=weights))
    return path


@pytest.mark.parametrize("frozen", FROZEN.values(), ids=FROZEN)
def test_what_is_frozen_is_in_16_bits_and_what_is_trained_in_32(frozen: dict[str, Any], source: Path) -> None:
    trainer = Trainer(config(source, **frozen), tokenizers(), CPU)
    narrow = {name for name, x in trainer.model.named_parameters() if x.dtype is torch.bfloat16}
    assert narrow == {name for name, x in matrices(trainer.model).items() if not x.requires_grad}
    assert narrow
    assert {x.dtype for x in trainer.model.parameters()} == {torch.bfloat16, torch.float32}


@pytest.mark.parametrize("frozen", FROZEN.values(), ids=FROZEN)
def test_frozen_weights_stay_the_rounded_ones_that_were_loaded(
    frozen: dict[str, Any], source: Path, tmp_path: Path
) -> None:
    settings = config(source, **frozen, max_steps=2)
    narrow = [name for name, x in matrices(Trainer(settings, tokenizers(), CPU).model).items() if not x.requires_grad]
    toy_run.run(tmp_path / "run", settings)
    before, checkpoint = read_model(source).weights, CheckpointStore(tmp_path / "run").load(2)
    after = checkpoint.model.weights
    assert {x.dtype for x in after.values()} == {torch.float32}  # as in any model file
    base = {name.removeprefix("lora_base/"): x for name, x in checkpoint.optimizer.items() if "base/" in name}
    assert {x.dtype for x in base.values()} <= {torch.bfloat16}
    for name in narrow:
        assert torch.equal(base.get(name, after[name]).float(), rounded(before[name])), name
        assert (name in base) != torch.equal(after[name], rounded(before[name])), name


@pytest.mark.parametrize(
    ("frozen", "precision", "by_onednn"),
    [
        ("lora", Precision.fp32, True),
        ("lora", Precision.bf16, False),
        ("embeddings", Precision.fp32, False),
        slow("lora", Precision.fp32, False),
        slow("embeddings", Precision.fp32, True),
        slow("embeddings", Precision.bf16, False),
        slow("encoder", Precision.fp32, False),
        slow("encoder", Precision.fp32, True),
        slow("encoder", Precision.bf16, False),
    ],
)
def test_a_run_is_to_the_last_bit_the_one_of_rounded_weights_in_32_bits(
    frozen: str,
    precision: Precision,
    by_onednn: bool,
    source: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Losses, dev scores, averages and the exported model are the same: only what is in memory is another."""
    if by_onednn and not has_onednn():
        pytest.skip("oneDNN does not compute on this processor")
    monkeypatch.setattr(linear_module, "prefers_onednn", lambda: by_onednn)
    settings = config(source, **FROZEN[frozen], precision=precision, max_steps=8)
    narrow = [name for name, x in matrices(Trainer(settings, tokenizers(), CPU).model).items() if not x.requires_grad]
    toy_run.run(tmp_path / "narrow", settings)
    wide = config(
        with_rounded(source, narrow), **FROZEN[frozen], kept=FrozenPrecision.fp32, precision=precision, max_steps=8
    )
    toy_run.run(tmp_path / "wide", wide)
    assert toy_run.metrics(tmp_path / "narrow") == toy_run.metrics(tmp_path / "wide")
    one, other = (read_model(tmp_path / name / "model.safetensors").weights for name in ("narrow", "wide"))
    assert one.keys() == other.keys()
    assert all(torch.equal(x, other[name]) for name, x in one.items())


@pytest.mark.parametrize("frozen", [FROZEN["lora"], slow(FROZEN["encoder"]), slow(FROZEN["embeddings"])])
def test_a_resumed_run_is_the_run_that_was_not_stopped(frozen: dict[str, Any], source: Path, tmp_path: Path) -> None:
    settings = config(source, **frozen, save_every=1)
    toy_run.assert_resumes(tmp_path, settings, stopped_before=6, meanwhile=source.unlink)


def test_the_loss_is_close_to_that_of_32_bits(source: Path, tmp_path: Path) -> None:
    found = {}
    for kept in FrozenPrecision:
        toy_run.run(tmp_path / kept.name, config(source, kept=kept, lora={"rank": 3}, max_steps=4))
        found[kept] = [entry["loss"] for entry in toy_run.metrics(tmp_path / kept.name) if entry["kind"] == "train"]
    for loss, wide in zip(found[FrozenPrecision.bf16], found[FrozenPrecision.fp32], strict=True):
        assert loss == pytest.approx(wide, rel=0.01)
    assert found[FrozenPrecision.bf16] != found[FrozenPrecision.fp32]


def test_nothing_but_the_narrow_matrix_is_kept_for_the_backward_pass() -> None:
    x = torch.randn(3, 8, requires_grad=True)
    weight, bias = nn.Parameter(torch.randn(5, 8).bfloat16(), requires_grad=False), nn.Parameter(torch.randn(5))
    kept: list[Tensor] = []

    def keep(tensor: Tensor) -> Tensor:
        kept.append(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, keep):
        y = project(x, weight, bias)
    assert [one.data_ptr() for one in kept] == [weight.data_ptr()]
    grad = torch.randn(3, 5)
    y.backward(grad)
    assert x.grad is not None
    assert bias.grad is not None
    assert torch.allclose(y, x.detach() @ weight.float().T + bias, atol=1e-6)
    assert torch.allclose(x.grad, grad @ weight.float(), atol=1e-6)
    assert torch.allclose(bias.grad, grad.sum(0))


def test_a_model_for_decoding_is_in_one_precision(source: Path) -> None:
    trainer = Trainer(config(source, lora={"rank": 3}), tokenizers(), CPU)
    ids = torch.tensor([[5, 6, 7]])
    with trainer.whole() as model, torch.no_grad():
        assert isinstance(model, Transformer)
        assert dtype_of(model) is torch.float32
        wanted = model.eval()(ids, ids)
        assert wanted.dtype is torch.float32
        if can_prepack(model):
            assert torch.allclose(prepack(model)(ids, ids), wanted, atol=1e-5)
        narrow = converted(model, torch.bfloat16)
        assert {x.dtype for x in narrow.parameters()} == {torch.bfloat16}
        assert torch.allclose(narrow(ids, ids).float(), wanted, atol=0.1)
        rows = model.output_embedding.restricted(ids, torch.zeros_like(ids, dtype=torch.bool))
        assert rows.weight_BKD.dtype is torch.float32


def test_what_makes_no_sense_is_refused(source: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"train\.frozen_precision=bf16: nothing is frozen\. Set lora\.rank or init\.f"
    ):
        config(source)
    with pytest.raises(ConfigError, match=r"train\.frozen_precision=bf16: init\.freeze=\[\*\.norm\] freezes no matrix"):
        Trainer(config(source, freeze=["*.norm"]), tokenizers(), CPU)
    with pytest.raises(
        ConfigError, match=r"train\.frozen_precision=bf16: needs the whole model, .*frozen_precision=fp32"
    ):
        config(source, freeze=["encoder"], sharding=Sharding.full, max_tokens_per_microbatch=16)


def test_the_log_says_what_is_in_16_bits(source: Path) -> None:
    settings = config(source, freeze=["encoder"])
    found = describe(Trainer(settings, tokenizers(), CPU).model, settings)
    assert found is not None
    assert found.endswith("frozen: encoder, matrices in 16 bits")
