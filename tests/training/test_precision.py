"""The types in which values are computed, and how far the results are from float64."""

import copy
import math
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from tests.support.each import each
from tests.toy.run import CPU, MODEL, config, prepared, run, tokenizers
from transformer_cli.config.train import Precision
from transformer_cli.data.batching import Batch, micro_batches
from transformer_cli.errors import DivergedError, EnvironmentFault
from transformer_cli.training import trainer as learning
from transformer_cli.training.precision import choose_dtype, set_float32_products
from transformer_cli.training.trainer import Trainer, spec_of

CUDA = torch.device("cuda")


class Types(TorchDispatchMode):
    """The floating types that each operation read and wrote."""

    def __init__(self) -> None:
        super().__init__()
        self.read: dict[str, set[torch.dtype]] = defaultdict(set)
        self.written: dict[str, set[torch.dtype]] = defaultdict(set)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        name = func.overloadpacket.__name__
        for found, tree in ((self.read, (args, kwargs)), (self.written, result)):
            found[name] |= {x.dtype for x in tree_leaves(tree) if isinstance(x, Tensor) and x.is_floating_point()}
        return result


def learner_in(precision: Precision, **model: Any) -> Trainer:
    return Trainer(config(model=replace(MODEL, **{"dropout": 0.0, **model}), precision=precision), tokenizers(), CPU)


def batches(max_tokens: int = 1000) -> list[Batch]:
    return micro_batches(prepared().train, np.arange(30), tokenizers(), max_tokens=max_tokens)


@pytest.mark.parametrize("norm_kind", ["layer", "rms"])
def test_in_bf16_what_adds_up_many_small_numbers_stays_float32(norm_kind: str) -> None:
    trainer = learner_in(Precision.bf16, norm_kind=norm_kind)
    norms: set[torch.dtype] = set()
    for name, module in trainer.model.named_modules():
        if name.endswith("norm"):
            module.register_forward_hook(lambda _, inputs, output: norms.update({inputs[0].dtype, output.dtype}))
    with Types() as ops:
        stats = trainer.train_step(batches(40), step=1, lr=0.01)
    half, full = {torch.bfloat16}, {torch.float32}
    # Products are the 16-bit ones, or nothing below would be worth saying.
    assert ops.read["addmm"] == ops.read["mm"] == half
    attention = "_scaled_dot_product_flash_attention_for_cpu"
    assert ops.read[attention] == ops.read[f"{attention}_backward"] == full  # on a GPU it is of 16 bits
    assert norms == full  # the residual sum
    if norm_kind == "layer":
        assert ops.written["native_layer_norm"] == full  # also mean and deviation
    for name in ("_log_softmax", "exp_", "scatter_add_"):  # of the loss
        assert ops.read[name] == full, name
    assert {x.dtype for x in (stats.loss, stats.nll, stats.grad_norm)} == full
    assert ops.read["_foreach_norm"] == full
    assert ops.read["_fused_adam_"] == full
    assert {parameter.dtype for parameter in trainer.model.parameters()} == full
    assert {parameter.grad.dtype for parameter in trainer.model.parameters() if parameter.grad is not None} == full
    assert {tensor.dtype for tensor in trainer.optimizer_state().values()} == full


def loss_and_gradient(trainer: Trainer) -> tuple[float, Tensor]:
    """Nats per target token, and the direction to go."""
    (batch,) = batches()
    loss, _ = trainer.forward_backward(batch, seed=1, n_tokens=batch.n_target_tokens)
    gradients = [p.grad.double().flatten() for p in trainer.model.parameters() if p.grad is not None]
    return loss.item() / batch.n_target_tokens, torch.cat(gradients)


@each("precision, loss_error, angle", [(Precision.fp32, 1e-6, 1e-3), (Precision.bf16, 1e-3, 0.03)])
@each("n_layers", [1, 6])
def test_the_loss_and_its_gradient_are_near_those_in_float64(
    precision: Precision, loss_error: float, angle: float, n_layers: int
) -> None:
    """`loss_error` relative; `angle` between the gradients, in radians."""
    sizes = {"n_encoder_layers": n_layers, "n_decoder_layers": n_layers, "d_model": 64, "d_ff": 128}
    trainer, exact = learner_in(precision, **sizes), learner_in(Precision.fp32, **sizes)
    exact.model.double()
    (loss, gradient), (expected, direction) = loss_and_gradient(trainer), loss_and_gradient(exact)
    assert loss == pytest.approx(expected, rel=loss_error)
    cosine = torch.nn.functional.cosine_similarity(gradient, direction, dim=0).item()
    assert math.acos(min(1.0, cosine)) < angle


# fp16 and its scaler: on a CPU only here, as it has nothing to gain there


@pytest.fixture
def fp16(monkeypatch: pytest.MonkeyPatch) -> Trainer:
    monkeypatch.setattr(learning, "choose_dtype", lambda *_: torch.float16)
    trainer = learner_in(Precision.fp16)
    assert trainer.scaler.is_enabled()
    return trainer


def tensors(trainer: Trainer) -> dict[str, Tensor]:
    return {name: x.clone() for name, x in {**trainer.model.state_dict(), **trainer.optimizer_state()}.items()}


def test_fp16_learns_what_float32_learns(fp16: Trainer) -> None:
    fp32 = learner_in(Precision.fp32)
    for step in range(1, 4):
        half, full = (trainer.train_step(batches(40), step=step, lr=0.01) for trainer in (fp16, fp32))
        assert half.loss.item() == pytest.approx(full.loss.item(), rel=5e-3)
        assert half.grad_norm.item() == pytest.approx(full.grad_norm.item(), rel=2e-2)  # without the scale
    assert fp16.scaler.get_scale() == 65536


def overflow(trainer: Trainer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the gradient, not the loss, be too large in the next update."""
    forward_backward = Trainer.forward_backward

    def overflowing(self: Trainer, batch: Batch, **kwargs: Any) -> Tensor:
        sums = forward_backward(self, batch, **kwargs)
        gradient = next(self.model.parameters()).grad
        assert gradient is not None
        gradient[0, 0] = math.inf
        return sums

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "forward_backward", overflowing)
        trainer.train_step(batches(40), step=2, lr=0.01)


def test_a_rank_without_a_batch_has_a_scale_too(fp16: Trainer) -> None:
    assert fp16.scaler._get_scale_async() is not None


def test_each_rank_prepares_its_own_batches_for_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    trainer, update = learner_in(Precision.fp32), batches(40)[:5]
    monkeypatch.setattr(trainer, "_ready", lambda batch: replace(batch, runs=[]))
    for rank, own in ((0, [0, 3]), (1, [1, 4]), (2, [2])):
        monkeypatch.setattr(trainer, "ranks", SimpleNamespace(rank=rank, world_size=3))
        ready = trainer.ready(update)
        assert [i for i, batch in enumerate(ready) if batch.runs == []] == own
        assert all(ready[i] is update[i] for i in range(5) if i not in own)


def test_a_gradient_too_large_for_fp16_changes_no_bit_and_halves_the_scale(
    fp16: Trainer, monkeypatch: pytest.MonkeyPatch
) -> None:
    fp16.train_step(batches(40), step=1, lr=0.01)
    before = tensors(fp16)
    overflow(fp16, monkeypatch)
    assert all(torch.equal(x, before[name]) for name, x in tensors(fp16).items())
    assert fp16.scaler.get_scale() == 32768
    assert fp16.nonfinite.counts() == [0, 0]  # which is the scaler's business, and no sign of divergence
    fp16.train_step(batches(40), step=3, lr=0.01)
    assert not all(torch.equal(x, before[name]) for name, x in tensors(fp16).items())


def broken(trainer: Trainer, monkeypatch: pytest.MonkeyPatch, n_updates: int, *, loss: bool) -> list[float]:
    """Updates whose loss, or else whose gradient alone, is not finite; the scale after each."""
    forward_backward = Trainer.forward_backward

    def breaking(self: Trainer, batch: Batch, **kwargs: Any) -> Tensor:
        sums = forward_backward(self, batch, **kwargs)
        for parameter in self.model.parameters():
            assert parameter.grad is not None
            parameter.grad.fill_(math.nan)
        return sums * math.nan if loss else sums

    scales = []
    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "forward_backward", breaking)
        for step in range(2, 2 + n_updates):
            trainer.train_step(batches(40), step=step, lr=0.01)
            scales.append(trainer.scaler.get_scale())
    return scales


@pytest.mark.slow
def test_B11_a_gradient_that_never_fits_into_fp16_is_counted_once_the_scale_is_one(
    fp16: Trainer, monkeypatch: pytest.MonkeyPatch
) -> None:
    fp16.train_step(batches(40), step=1, lr=0.01)
    before = tensors(fp16)
    scales = broken(fp16, monkeypatch, 20, loss=False)
    assert scales == [2.0**power for power in range(15, 0, -1)] + [1.0] * 5  # 65,536 is 2 to the 16th
    assert fp16.nonfinite.counts() == [4, 4]  # 16 have searched for the scale
    assert all(torch.equal(x, before[name]) for name, x in tensors(fp16).items())


def test_B11_a_loss_that_is_not_finite_is_counted_at_any_scale_and_leaves_it(
    fp16: Trainer, monkeypatch: pytest.MonkeyPatch
) -> None:
    fp16.train_step(batches(40), step=1, lr=0.01)
    assert broken(fp16, monkeypatch, 3, loss=True) == [65536.0] * 3
    assert fp16.nonfinite.counts() == [3, 3]


def test_B11_fp16_learns_nothing_after_too_many_in_a_row_either(fp16: Trainer, monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU reads the count an update later."""
    fp16.train_step(batches(40), step=1, lr=0.01)
    broken(fp16, monkeypatch, fp16.settings.max_nonfinite_steps, loss=True)
    before = tensors(fp16)
    fp16.train_step(batches(40), step=50, lr=0.01)
    assert all(torch.equal(x, before[name]) for name, x in tensors(fp16).items())


@pytest.mark.parametrize("loss", [True, False])
def test_B11_a_diverging_fp16_run_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, loss: bool) -> None:
    monkeypatch.setattr(learning, "choose_dtype", lambda *_: torch.float16)
    forward_backward = Trainer.forward_backward

    def breaking(self: Trainer, batch: Batch, **kwargs: Any) -> Tensor:
        sums = forward_backward(self, batch, **kwargs)
        for parameter in self.model.parameters():
            assert parameter.grad is not None
            parameter.grad.fill_(math.inf)
        return sums * math.inf if loss else sums

    monkeypatch.setattr(Trainer, "forward_backward", breaking)
    settings = config(precision=Precision.fp16, max_steps=40, eval_every=40, save_every=40, max_nonfinite_steps=3)
    with pytest.raises(DivergedError, match="step 3:" if loss else "step 19:"):
        run(tmp_path, settings)


def test_A17_the_scaler_is_restored_with_its_scale_and_its_count(
    fp16: Trainer, monkeypatch: pytest.MonkeyPatch
) -> None:
    fp16.train_step(batches(40), step=1, lr=0.01)
    overflow(fp16, monkeypatch)
    fp16.train_step(batches(40), step=3, lr=0.01)
    again = learner_in(Precision.fp16)
    state = copy.deepcopy(fp16.optimizer_state())
    again.load(fp16.model.state_dict(), state, {name: spec_of(x) for name, x in state.items()})
    again.restore(copy.deepcopy(fp16.state()))
    assert (again.scaler.get_scale(), again.scaler.state_dict()["_growth_tracker"]) == (32768, 1)
    for trainer in (fp16, again):
        trainer.train_step(batches(40), step=4, lr=0.01)
    assert all(torch.equal(x, tensors(fp16)[name]) for name, x in tensors(again).items())


# tf32


def test_B15_tf32_on_a_device_that_lacks_it_names_what_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(EnvironmentFault) as refused:
        choose_dtype(Precision.tf32, CPU)
    assert str(refused.value) == (
        "train.precision=tf32: needs a GPU; a CPU has fp32 and bf16. Use train.precision=fp32"
    )
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: False)
    monkeypatch.setattr(torch.cuda, "is_tf32_supported", lambda: False)
    with pytest.raises(EnvironmentFault, match=r"train\.precision=tf32: this GPU does not have it\. Use .*=fp32"):
        choose_dtype(Precision.tf32, CUDA)
    monkeypatch.setattr(torch.cuda, "is_tf32_supported", lambda: True)
    assert choose_dtype(Precision.tf32, CUDA) is torch.float32  # autocast stays off


@pytest.mark.parametrize("precision", list(Precision))
def test_only_tf32_lets_a_gpu_round_the_factors_of_float32_products(
    monkeypatch: pytest.MonkeyPatch, precision: Precision
) -> None:
    logged: list[str] = []
    monkeypatch.setattr(torch, "set_float32_matmul_precision", logged.append)
    set_float32_products(precision, CUDA)
    set_float32_products(precision, CPU)
    assert logged == ["high" if precision is Precision.tf32 else "highest"]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_tf32_rounds_to_ten_bits_and_fp32_does_not() -> None:
    torch.manual_seed(0)
    a, b = (torch.randn(256, 256, device=CUDA) for _ in range(2))
    exact, errors = a.double() @ b.double(), {}
    for precision in (Precision.tf32, Precision.fp32):
        set_float32_products(precision, CUDA)
        errors[precision] = ((a @ b).double() - exact).abs().max().item() / exact.abs().max().item()
    assert errors[Precision.fp32] < 1e-6
    assert 1e-5 < errors[Precision.tf32] < 2e-3
