"""The rehearsal reports what a GPU would wait for or fail at, with the place, and nothing else."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention.varlen import varlen_attn
from torch.utils.checkpoint import checkpoint

from tests.support.each import each
from tests.support.rehearsal import META, RehearsalError, rehearse
from transformer_cli.data.transfer import copies_asynchronously, to_device
from transformer_cli.models.attention_kernels import attention_weights
from transformer_cli.training.ema import Ema

X, NUMBER = torch.zeros(4, 8, device=META), torch.zeros((), device=META)
MASK, IDS = X[:, 0] > 0, torch.zeros(4, dtype=torch.long, device=META)
HOST, HOST_IDS = torch.zeros(4, 8), torch.zeros(4, dtype=torch.long)


def assign(x: Tensor, index: object, value: object) -> None:
    x[index] = value  # type: ignore[index]


WAITS: dict[str, Callable[[], object]] = {
    "item": lambda: NUMBER.item(),
    "if": lambda: 1 if NUMBER else 2,
    "float": lambda: float(NUMBER),
    "int": lambda: int(IDS[0]),
    "compare": lambda: max(NUMBER, 1.0),
    "slice by a tensor": lambda: X[: IDS[0]],
    "arange to a tensor": lambda: torch.arange(NUMBER, device=META),
    "full of a tensor": lambda: torch.full((2,), NUMBER, device=META),
    "alpha of a tensor": lambda: torch.add(X, X, alpha=NUMBER),
    "contains": lambda: 1 in X,
    "print": lambda: f"{NUMBER:.2f}",
    "repr": lambda: repr(X),
    "tolist": lambda: X.tolist(),
    "cpu": lambda: X.cpu(),
    "to the CPU": lambda: X.to("cpu"),
    "copy into the CPU": lambda: HOST.clone().copy_(X),
    "numpy": lambda: X.numpy(),
    "asarray": lambda: np.asarray(X),
    "nonzero": lambda: X.nonzero(),
    "argwhere": lambda: torch.argwhere(X),
    "where of one argument": lambda: torch.where(MASK),
    "masked_select": lambda: X.masked_select(X > 0),
    "boolean index": lambda: X[MASK],
    "boolean index of two dimensions": lambda: X[X > 0],
    "assignment to a boolean index": lambda: assign(X, MASK, NUMBER),
    "unique": lambda: torch.unique(X),
    "unique_consecutive": lambda: torch.unique_consecutive(X),
    "bincount": lambda: IDS.bincount(),
    "equal": lambda: torch.equal(X, X),
    "allclose": lambda: torch.allclose(X, X),
    "multinomial": lambda: X.softmax(-1).multinomial(1),
    "repeats of a tensor": lambda: X.repeat_interleave(IDS, dim=0),
    "tensor of a list": lambda: torch.tensor([1, 2], device=META),
    "tensor of a number": lambda: torch.tensor(1, device="meta"),
    "as_tensor": lambda: torch.as_tensor(np.zeros(2), device=META),
    "new_tensor": lambda: X.new_tensor([1.0]),
    "copy to the device": lambda: HOST.to(META),
    "copy of pinned memory to the device": lambda: HOST.pin_memory().to(META),
    "copy of other memory to the device": lambda: HOST.to(META, non_blocking=True),
    "copy into the device": lambda: X.copy_(HOST),
    "copy of other memory into the device": lambda: X.copy_(HOST, non_blocking=True),
    "copy to memory that is not pinned": lambda: HOST.clone().copy_(X, non_blocking=True),
    "move of a module": lambda: nn.Linear(2, 2).to(META),
    "index on the host": lambda: X[HOST_IDS],
    "index of a list": lambda: X[[0, 1]],
    "index of a list behind a slice": lambda: X[:, [0, 1]],
    "index of an array": lambda: X[np.array([0, 1])],
    "assignment to a list": lambda: assign(X, [0, 1], 1.0),
    "norm that is checked": lambda: nn.utils.get_total_norm([X], error_if_nonfinite=True),
}
MIXTURES: dict[str, Callable[[], object]] = {
    "sum": lambda: X + HOST,
    "product": lambda: F.linear(X, HOST),
    "in place": lambda: X.mul_(HOST),
    "where": lambda: torch.where(MASK[:, None], X, HOST),
    "gather": lambda: X.gather(1, HOST_IDS[:, None]),
    "index_select": lambda: X.index_select(0, HOST_IDS),
    "embedding": lambda: F.embedding(HOST_IDS, X),
    "cat": lambda: torch.cat([X, HOST]),
    "foreach": lambda: torch._foreach_add([X, HOST], [HOST, X]),
    "attention": lambda: F.scaled_dot_product_attention(X[None], HOST[None], HOST[None]),
}


@each("name", [*WAITS, *MIXTURES])
def test_what_a_gpu_waits_for_or_fails_at_is_reported_with_its_place(name: str) -> None:
    with pytest.raises(RehearsalError, match=r"^test_rehearsal_harness\.py:\d+: "), rehearse():
        (WAITS | MIXTURES)[name]()


def adam_step() -> None:
    layer = nn.Linear(3, 2, device=META)
    optimizer = torch.optim.Adam(layer.parameters(), fused=True)
    for parameter in layer.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.found_inf = torch.zeros((), device=META)  # type: ignore[attr-defined]
    optimizer.step()


def backward(autocast: bool = False) -> Tensor:
    layers = nn.Sequential(nn.Linear(8, 8, device=META), nn.LayerNorm(8, device=META), nn.Dropout(0.1))
    with torch.autocast("meta", torch.bfloat16, enabled=autocast):
        y = checkpoint(layers, X.clone().requires_grad_(), use_reentrant=False)
    y.float().sum().backward()
    assert layers[0].weight.grad is not None
    return y


ASYNCHRONOUS: dict[str, Callable[[], object]] = {
    "arithmetic": lambda: (X + 1) * NUMBER + torch.where(MASK[:, None], X, 0.0),
    "a number on the CPU": lambda: X * torch.tensor(2.0) + torch.where(MASK[:, None], X, torch.tensor(1.0)),
    "factories": lambda: torch.arange(3, device=META) + torch.full((3,), 2, device=META) + X.new_zeros(3),
    "tensor on the CPU": lambda: torch.tensor([1, 2]).tolist(),
    "all on the CPU": lambda: HOST[HOST[:, 0] == 0].sum().item(),
    "pinned copy to the device": lambda: HOST.pin_memory().to(META, non_blocking=True),
    "copy of a part": lambda: HOST.pin_memory()[1:].to(META, non_blocking=True),
    "copy into the device": lambda: X.clone().copy_(torch.zeros(4, 8, pin_memory=True), non_blocking=True),
    "to_device": lambda: to_device(HOST, META) + to_device(HOST.pin_memory(), META),
    "copy to pinned memory": lambda: torch.zeros(4, 8, pin_memory=True).copy_(X, non_blocking=True),
    "change of type": lambda: X.to(torch.bfloat16).float(),
    "index": lambda: (X[IDS], X[:, 0], X[None, 1:], X[IDS, None], X[1, ..., :2]),
    "assignment": lambda: assign(X.clone(), IDS, NUMBER),
    "fill of a boolean index": lambda: assign(X.clone(), MASK, 0.0),
    "masked_fill": lambda: X.masked_fill(MASK[:, None], 0.0),
    "gather, scatter": lambda: X.gather(1, IDS[:, None]).scatter(1, IDS[:, None], 1.0),
    "topk, sort": lambda: (X.topk(2), X.sort(dim=1), X.argmax(dim=1)),
    "repeats of known sum": lambda: X.repeat_interleave(IDS, dim=0, output_size=5),
    "repeats of a number": lambda: X.repeat_interleave(3, dim=0),
    "norm": lambda: nn.utils.get_total_norm([X, X]),
    "attention": lambda: F.scaled_dot_product_attention(X[None], X[None], X[None], MASK[None], dropout_p=0.1),
    "loss": lambda: F.cross_entropy(X, IDS),
    "optimizer": adam_step,
    "backward": backward,
    "backward in bf16": lambda: backward(autocast=True),
    "event": lambda: (event := torch.Event(META), event.record(), event.synchronize(), event.query()),
    "shapes": lambda: (len(X), X.shape, X.numel(), list(X), X.is_meta),
}


IN_INFERENCE = ["pinned copy to the device", "attention", "arithmetic", "index"]


@each("name, mode", [*((one, False) for one in ASYNCHRONOUS), *((one, True) for one in IN_INFERENCE)])
def test_what_a_gpu_does_by_itself_is_not_reported(name: str, mode: bool) -> None:
    with torch.inference_mode(mode), rehearse() as seen:
        ASYNCHRONOUS[name]()
    assert seen.faults == []


@each("name", ["copy to the device", "cpu", "boolean index", "item", "repeats of a tensor"])
def test_inference_mode_hides_nothing(name: str) -> None:
    with torch.inference_mode(), pytest.raises(RehearsalError), rehearse():
        WAITS[name]()


def test_memory_is_pinned_where_it_is_asked_for() -> None:
    with rehearse():
        assert not HOST.is_pinned()
        pinned = HOST.pin_memory()
        assert pinned.is_pinned()
        assert pinned.pin_memory() is pinned
        assert pinned.view(-1)[3:].is_pinned()
        assert not HOST.is_pinned()


def test_nothing_is_copied_in_the_background_on_a_cpu_or_a_mac() -> None:
    assert [copies_asynchronously(torch.device(name)) for name in ("cpu", "mps", "cuda", "meta")] == [0, 0, 1, 1]
    assert to_device(HOST, torch.device("cpu")) is HOST


def test_outside_of_a_rehearsal_torch_is_as_it_was() -> None:
    with rehearse():
        pass
    assert torch.tensor([1, 2], device=META).is_meta
    with pytest.raises(RuntimeError, match="autocast"):
        torch.autocast("meta", torch.bfloat16)


def test_the_place_is_the_innermost_line_of_the_package() -> None:
    ema = Ema(nn.Linear(2, 2, device=META), 0.5)
    with pytest.raises(RehearsalError, match=r"^transformer_cli/training/ema\.py:\d+: Ema\.weights: "), rehearse():
        ema.weights()


def test_faults_can_be_collected() -> None:
    def read() -> float:
        return X.sum().item() + float(NUMBER)

    with rehearse(collects=True) as seen:
        assert read() == 0
        assert X.tolist() == HOST.tolist()
        assert X[MASK].shape == X.shape
    here = inspect_line(read)
    assert [(fault.line, fault.function) for fault in seen.faults[:2]] == [(here + 1, "read")] * 2
    assert len(seen.faults) == 4
    assert seen.waits == {}


def inspect_line(function: Callable[..., object]) -> int:
    assert Path(function.__code__.co_filename) == Path(__file__)
    return function.__code__.co_firstlineno


def test_functions_that_may_wait_are_counted() -> None:
    def read() -> list[float]:
        return [x.item() for x in X[0]]

    with rehearse(allowed={"read": "as this test wants"}) as seen:
        assert read() == [0.0] * 8
    assert seen.waits == {"read": 8}
    assert seen.faults == []


def test_a_mixture_of_devices_is_never_allowed() -> None:
    def mix() -> Tensor:
        return X + HOST

    with (
        pytest.raises(RehearsalError, match="mixes tensors on the CPU"),
        rehearse(allowed={"mix": "no"}, collects=True),
    ):
        mix()


def test_kernels_of_attention_and_all_others_are_counted() -> None:
    x_THE = X.view(4, 2, 4).bfloat16().requires_grad_()
    offsets_N = torch.zeros(3, dtype=torch.int32, device=META)
    with rehearse() as seen:
        F.scaled_dot_product_attention(x_THE, x_THE, x_THE)
        varlen_attn(x_THE, x_THE, x_THE, offsets_N, offsets_N, 4, 4).sum().backward()
        varlen_attn(x_THE, x_THE, x_THE, offsets_N, offsets_N, 4, 4)
        HOST + HOST
    assert (seen.n_sdpa, seen.n_varlen) == (1, 2)
    with rehearse() as one:
        X + X
        HOST + HOST
    assert one.n_ops == 1 < seen.n_ops


def test_autocast_of_the_device_has_the_types_of_cuda() -> None:
    layer, norm = nn.Linear(8, 2, device=META), nn.LayerNorm(2, device=META)
    with rehearse():
        with torch.autocast("meta", torch.bfloat16):
            assert torch.is_autocast_enabled("meta")
            assert layer(X).dtype is torch.bfloat16
            assert norm(layer(X)).dtype is torch.float32
            assert attention_weights(X[None], X[None]).dtype is torch.float32  # a softmax
            with torch.autocast("meta", enabled=False):
                assert layer(X).dtype is torch.float32
        with torch.autocast("cpu", torch.bfloat16):
            assert nn.Linear(8, 2)(HOST).dtype is torch.bfloat16
        assert layer(X).dtype is torch.float32
