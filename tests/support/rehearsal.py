"""Rehearsing on the meta device what a GPU would do: torch's *meta* tensors have shapes and no data.

Nothing can be read from them, so code that works on them never waits for a device; and they mix with tensors on the
CPU no more than tensors on a GPU do. `rehearse` reports each place where code on a GPU would wait for it, or fail.
"""

import importlib
import inspect
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from numbers import Number
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only

from tests.conftest import ROOT

META = torch.device("meta")
PACKAGE = ROOT / "transformer_cli"
TORCH = Path(inspect.getfile(torch)).parent
aten = torch.ops.aten

# How many elements they return, or whether their arguments are legal, is read from the device.
PINNED: dict[int, Tensor] = {}  # by the address of their memory, which they keep from being used again
WAITING = {
    *("nonzero", "masked_select", "_unique", "_unique2", "unique_dim", "unique_consecutive", "bincount", "equal"),
    *("allclose", "is_nonzero", "multinomial", "histogram", "_linalg_check_errors", "repeat_interleave"),
}
MOVING = {"copy_", "_to_copy", "_copy_from", "lift_fresh"}  # between devices
# What torch says of meta tensors, where nothing more precise is noticed before.
META_ERRORS = ("meta tensor", "Meta tensor", "meta device type", "device meta", "register_meta")
READERS = {Tensor.numpy, Tensor.__array__}
FROM_PYTHON = {torch.tensor, torch.as_tensor, torch.asarray, Tensor.new_tensor}
INDEXING = {Tensor.__getitem__, Tensor.__setitem__, Tensor.index_put_, Tensor.index_put, torch.index_put}

# Of torch.autocast for CUDA, what the package uses.
LOW_PRECISION = {"linear", "matmul", "__matmul__", "mm", "bmm", "addmm", "baddbmm", "scaled_dot_product_attention"}
FLOAT32 = {
    "softmax",
    "log_softmax",
    "logsumexp",
    "layer_norm",
    "rms_norm",
    "sum",
    "prod",
    "cumsum",
    "exp",
    "log",
    "pow",
}


class RehearsalError(AssertionError):
    """What a GPU would wait for, or fail at, and the place."""


@dataclass(frozen=True)
class Fault:
    """One place of the package, or of the test that has no line of the package below it."""

    what: str
    file: str
    line: int
    function: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.function}: {self.what}"


@dataclass
class Rehearsal:
    """What has happened so far."""

    allowed: Mapping[str, str]  # function → why it may wait
    collects: bool
    integers: Mapping[str, int] = field(default_factory=dict)  # function → what it reads, if not 0
    n_ops: int = 0  # kernels, or views, as torch's dispatcher sees them
    n_sdpa: int = 0  # calls of scaled_dot_product_attention
    n_varlen: int = 0  # calls of variable-length attention, torch's or ours
    faults: list[Fault] = field(default_factory=list)
    waits: Counter[str] = field(default_factory=Counter)  # of the functions that are allowed to

    def wait(self, what: str, *, has_stand_in: bool = True) -> None:
        """A place that would wait for the device; the caller continues with a stand-in for what it would read."""
        function = place()[2]
        if function in self.allowed and has_stand_in:
            self.waits[function] += 1
        else:
            self.fault(what, is_fatal=not has_stand_in)

    def stand_in(self, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        """A tensor on the CPU in place of one that is read from the device."""
        is_integer = not dtype.is_floating_point and dtype is not torch.bool
        return torch.full(tuple(shape), self.integers.get(place()[2], 0) if is_integer else 0, dtype=dtype)

    def fault(self, what: str, *, is_fatal: bool = False) -> None:
        fault = Fault(what, *place())
        self.faults.append(fault)
        if is_fatal or not self.collects:
            raise RehearsalError(str(fault))


@contextmanager
def rehearse(
    *, allowed: Mapping[str, str] | None = None, collects: bool = False, integers: Mapping[str, int] | None = None
) -> Iterator[Rehearsal]:
    """Raise RehearsalError at each place where a GPU in place of the meta device would be waited for, or would fail.

    `allowed` are functions that may wait, by their qualified name, each with the reason; what they read is False, 0.0
    and 0, or what `integers` has under their name.
    With `collects` nothing is raised that need not be, and the faults are listed. Pinned memory is ordinary memory
    that is remembered as pinned.
    """
    importlib.import_module("torch._dynamo")  # modes do it: not while what it imports itself is replaced
    seen = Rehearsal(allowed or {}, collects, integers or {})
    with ExitStack() as stack:
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        _give_kernels(patch)
        stack.enter_context(_Dispatch(seen))
        stack.enter_context(_Functions(seen))
        yield seen


def place() -> tuple[str, int, str]:
    """File, line and function of the innermost frame in the package; without one, of that nearest to torch."""
    frame: FrameType | None = sys._getframe(1)
    nearest: FrameType | None = None
    while frame is not None:
        file = Path(frame.f_code.co_filename)
        if file.is_relative_to(PACKAGE):
            return str(file.relative_to(PACKAGE.parent)), frame.f_lineno, _name(frame)
        if nearest is None and file != Path(__file__) and not file.is_relative_to(TORCH) and "<" not in str(file):
            nearest = frame
        frame = frame.f_back
    assert nearest is not None
    return Path(nearest.f_code.co_filename).name, nearest.f_lineno, _name(nearest)


def _name(frame: FrameType) -> str:
    """Lambdas and comprehensions belong to the function around them."""
    parts = frame.f_code.co_qualname.split(".<locals>.")
    while len(parts) > 1 and parts[-1].startswith("<"):
        parts.pop()
    return parts[-1]


def tensors_of(args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Tensor]:
    """The tensors among the arguments, also those in lists, as operators take them."""
    found: list[Tensor] = []
    for value in (*args, *kwargs.values()):
        found += [one for one in (value if isinstance(value, list | tuple) else (value,)) if isinstance(one, Tensor)]
    return found


def on_device(value: object) -> bool:
    return isinstance(value, Tensor) and value.is_meta


def on_host(value: object) -> bool:
    """Numbers on the CPU are handed to kernels by value, so a tensor without dimensions may be there."""
    return isinstance(value, Tensor) and value.is_cpu and value.dim() > 0


def is_pinned(tensor: Tensor) -> bool:
    return tensor.is_cpu and tensor.untyped_storage().data_ptr() in PINNED


def as_pinned(tensor: Tensor) -> Tensor:
    PINNED[tensor.untyped_storage().data_ptr()] = tensor
    return tensor


def as_device(value: object) -> torch.device | None:
    return None if value is None else torch.device(value)  # type: ignore[call-overload]


class _Functions(TorchFunctionMode):
    """What can be seen only as it was written in Python."""

    def __init__(self, seen: Rehearsal) -> None:
        super().__init__()
        self.seen = seen

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func is Tensor.pin_memory:
            return args[0] if is_pinned(args[0]) else as_pinned(args[0].clone())
        if func is Tensor.is_pinned:
            return is_pinned(args[0])
        if func in READERS and on_device(args[0]):
            self.seen.wait("the host reads a tensor")
            return self.seen.stand_in(args[0].shape, args[0].dtype).numpy()
        if func in (Tensor.__format__, Tensor.__repr__) and on_device(args[0]):
            self.seen.wait("a tensor is printed")
            return "?"
        if func in FROM_PYTHON:
            self._check_creation(func, args, kwargs)
        elif func in INDEXING and on_device(args[0]):
            self._check_index(func, args)
        elif func is F.scaled_dot_product_attention:
            self.seen.n_sdpa += on_device(args[0])
        try:
            return func(*args, **kwargs)
        except RehearsalError:
            raise
        except (RuntimeError, TypeError, ValueError) as error:
            if any(part in str(error) for part in META_ERRORS):
                self.seen.fault(f"{_called(func)} depends on data of the device ({error})", is_fatal=True)
            tensors = tensors_of(args, kwargs)
            if any(map(on_device, tensors)) and any(map(on_host, tensors)):
                self.seen.fault(f"{_called(func)} mixes tensors on the CPU with the device's ({error})", is_fatal=True)
            raise

    def _check_creation(self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        device = as_device(kwargs.get("device"))
        if device is None and func is Tensor.new_tensor:
            device = args[0].device
        if device == META and not on_device(args[0] if func is not Tensor.new_tensor else args[1]):
            self.seen.wait(f"{func.__name__} copies data of Python to the device and waits for it")

    def _check_index(self, func: Callable[..., Any], args: tuple[Any, ...]) -> None:
        index = args[1] if isinstance(args[1], tuple) else (args[1],)
        index = tuple(args[1]) if func.__name__.startswith("index_put") else index
        if any(isinstance(one, list | range | np.ndarray) or on_host(one) for one in index):
            self.seen.wait("an index on the host is copied to the device, which is waited for")
        if any(on_device(one) and one.dtype is torch.bool for one in index):
            is_filled = func is Tensor.__setitem__ and isinstance(args[2], Number)  # torch makes `masked_fill_` of it
            if not is_filled:
                self.seen.wait("indexing with a boolean mask: how many are True is read from the device")


def _called(func: Callable[..., Any]) -> str:
    return getattr(func, "__name__", str(func))


class _Dispatch(TorchDispatchMode):
    """The kernels, whatever has called them: Python, autograd, an optimizer, torch itself."""

    def __init__(self, seen: Rehearsal) -> None:
        super().__init__()
        self.seen = seen

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        asks_for_pinned = bool(kwargs.pop("pin_memory", False))
        name = func._schema.name.split("::")[1]
        tensors = tensors_of(args, kwargs)
        to = as_device(kwargs.get("device"))
        if not any(map(on_device, tensors)) and to != META:
            found = func(*args, **kwargs)
            return as_pinned(found) if asks_for_pinned else found
        if torch.is_inference_mode_enabled():  # where operators arrive that autograd would have taken apart
            with self:
                found = func.decompose(*args, **kwargs)
            if found is not NotImplemented:
                return found
        self.seen.n_ops += 1
        self.seen.n_varlen += "varlen_att" in name and "backward" not in name
        if name == "_local_scalar_dense":
            self.seen.wait("the host reads a number: .item(), bool(), float() or an if")
            return self.seen.stand_in((), args[0].dtype).item()
        if name in MOVING:
            return self._move(func, name, args, kwargs, to)
        if name in WAITING and not (name == "repeat_interleave" and kwargs.get("output_size") is not None):
            return self._wait(name, args)
        if any(map(on_host, tensors)):
            shapes = ", ".join(str(list(one.shape)) for one in tensors if on_host(one))
            self.seen.fault(f"{name} mixes tensors on the CPU ({shapes}) with the device's", is_fatal=True)
        return func(*_without_masks(func, args), **kwargs)

    def _move(
        self, func: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], to: torch.device | None
    ) -> Any:
        into, source = (args[0], args[1]) if name == "copy_" else (None, args[0])
        is_nonblocking = kwargs.get("non_blocking") or (name == "copy_" and len(args) > 2 and args[2])
        # To memory that is not pinned there is no copy in the background; torch pins what `to` returns.
        is_asynchronous = is_nonblocking and (into is None or on_device(into) or is_pinned(into))
        target = into.device if into is not None else to or source.device
        if on_device(source) and target.type == "cpu":
            if not is_asynchronous:
                self.seen.wait("a tensor is copied to the host, which waits")
            if into is not None:
                return into.copy_(self.seen.stand_in(into.shape, source.dtype))
            return self.seen.stand_in(source.shape, source.dtype).to(kwargs.get("dtype"))
        if not on_device(source) and target == META and not (is_asynchronous and is_pinned(source)):
            why = "from memory that is not pinned" if is_asynchronous else "without non_blocking=True"
            self.seen.wait(f"a tensor on the host is copied to the device, which is waited for, {why}")
        return func(*args, **kwargs)

    def _wait(self, name: str, args: tuple[Any, ...]) -> Any:
        self.seen.wait(f"{name}: what it returns is counted on the device", has_stand_in=name == "nonzero")
        return torch.empty(args[0].numel(), args[0].dim(), dtype=torch.long, device=META)  # as if all were


def _without_masks(func: Any, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Boolean indices as if all of them were True: they have been reported already."""
    if func is not aten.index.Tensor:
        return args
    indices: list[Tensor | None] = []
    for one in args[1]:
        is_mask = one is not None and one.dtype is torch.bool
        indices += [torch.empty(one.numel(), dtype=torch.long, device=META)] * one.dim() if is_mask else [one]
    return args[0], indices


class _Autocast(TorchFunctionMode):
    """torch.autocast has none for the meta device; this one has the types of CUDA's."""

    enabled, now = False, torch.bfloat16  # of the innermost

    def __init__(
        self, device_type: str, dtype: torch.dtype = torch.bfloat16, enabled: bool = True, **rest: Any
    ) -> None:
        super().__init__()
        self.mine = enabled, dtype

    def __enter__(self) -> "_Autocast":
        self.before = _Autocast.enabled, _Autocast.now
        _Autocast.enabled, _Autocast.now = self.mine
        super().__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        _Autocast.enabled, _Autocast.now = self.before

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        name, kwargs = getattr(func, "__name__", ""), kwargs or {}
        dtype = _Autocast.now if name in LOW_PRECISION else torch.float32 if name in FLOAT32 else None
        if _Autocast.enabled and dtype is not None and kwargs.get("dtype") is None:

            def cast(x: Tensor) -> Tensor:
                return x.to(dtype) if x.is_floating_point() and x.is_meta else x

            args, kwargs = tree_map_only(Tensor, cast, (args, kwargs))
        return func(*args, **kwargs)


class _Event(torch.Event):
    """An event of the meta device, which records nothing."""

    def record(self, stream: Any = None) -> None:
        if self.device != META:
            super().record(stream)


def _give_kernels(patch: pytest.MonkeyPatch) -> None:
    """Let torch have on the meta device what it has on a GPU: events, fused optimizers, and autocast everywhere."""
    optimizers: Any = sys.modules[torch.optim.Optimizer.__module__]
    fused = ["meta", *optimizers._get_fused_kernels_supported_devices()]
    patch.setattr(torch, "Event", _Event)
    patch.setattr(optimizers, "_get_fused_kernels_supported_devices", lambda: list(fused))
    for module, name, stand_in in (
        (torch, "autocast", _Autocast),
        (torch.amp, "autocast", _Autocast),
        (torch, "is_autocast_enabled", lambda kind: _Autocast.enabled),
        (torch, "get_autocast_dtype", lambda kind: _Autocast.now),
        (torch.amp, "is_autocast_available", lambda kind: True),
    ):
        patch.setattr(module, name, _for_meta(stand_in, getattr(module, name)))


def _for_meta(stand_in: Callable[..., Any], real: Callable[..., Any]) -> Callable[..., Any]:
    def chosen(*args: Any, **kwargs: Any) -> Any:
        kind = args[0] if args else kwargs.get("device_type")
        return stand_in(*args, **kwargs) if kind == META.type else real(*args, **kwargs)

    return chosen
