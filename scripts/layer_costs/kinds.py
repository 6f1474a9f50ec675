"""The layers of table 1 of the paper, applied to one sentence.

Shapes: B batch, L length, D width, H heads, E head width, C blocks, N queries of a block, M keys of a block.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from scripts.layer_costs.settings import Settings
from transformer_cli.addons.benchmarks.reference import check_error, tolerances
from transformer_cli.config.train import Precision
from transformer_cli.models.attention import SelfAttention, attend
from transformer_cli.models.attention_kernels import attention_weights, window_mask
from transformer_cli.models.layouts import PaddedLayout
from transformer_cli.training.precision import choose_dtype

MIN_BLOCK = 32  # queries: smaller blocks would be many small matrix products


class Row(NamedTuple):
    """A row of table 1: complexity, sequential operations and maximum path length of a layer."""

    complexity: str
    sequential: str
    path: str


TABLE_1 = {
    "self-attention": Row("O(n²·d)", "O(1)", "O(1)"),
    "recurrent": Row("O(n·d²)", "O(n)", "O(n)"),
    "convolution": Row("O(k·n·d²)", "O(1)", "O(log_k n)"),
    "restricted": Row("O(r·n·d)", "O(1)", "O(n/r)"),
}
ALONE, AT_ONCE = ", no projections", ", products at once"
KINDS = {  # layer → its row of table 1, which does not count the projections
    "self-attention": "self-attention",
    "self-attention" + ALONE: "self-attention",
    "written out": "self-attention",
    "written out" + ALONE: "self-attention",
    "restricted": "restricted",
    "restricted" + ALONE: "restricted",
    "LSTM": "recurrent",
    "LSTM" + AT_ONCE: None,
    "GRU": "recurrent",
    "GRU" + AT_ONCE: None,
    "convolution": "convolution",
}
RECURRENT = {"LSTM": 4, "GRU": 3}  # number of gates, each with a matrix for the input and one for the state
LAYERS = ("self-attention", "restricted", *RECURRENT, "convolution")  # alternatives to each other in a model


Kernel = Callable[[Tensor, Tensor, Tensor], Tensor]  # of queries, keys and values, [B, L, H, E]


def fused(q_BLHE: Tensor, k_BLHE: Tensor, v_BLHE: Tensor) -> Tensor:
    """Attention as the models compute it."""
    layout = PaddedLayout(q_BLHE.size(1))
    return attend(q_BLHE, k_BLHE, v_BLHE, layout, layout)


def written_out(q_BLHE: Tensor, k_BLHE: Tensor, v_BLHE: Tensor) -> Tensor:
    """Attention that materialises its weights, as equation 1 is written."""
    q_BHLE, k_BHLE, v_BHLE = (x.transpose(1, 2) for x in (q_BLHE, k_BLHE, v_BLHE))
    return (attention_weights(q_BHLE, k_BHLE) @ v_BHLE).transpose(1, 2)


@dataclass(frozen=True)
class Windowed:
    """Each position attends to `window` // 2 positions on either side (section 4 of the paper): O(n), not O(n²).

    Adjacent queries form a block, which attends to its own keys and half a window around them.
    """

    length: int
    window: int
    device: torch.device

    @property
    def block(self) -> int:
        return max(self.window // 2, MIN_BLOCK)

    @cached_property
    def mask_C1NM(self) -> Tensor:
        """True for keys in the window of a query. The padding of the last block attends to itself only."""
        half, n_blocks = self.window // 2, -(-self.length // self.block)
        query_CN1 = torch.arange(n_blocks * self.block, device=self.device).view(n_blocks, self.block, 1)
        first_C11 = query_CN1[:, :1] - half
        key_C1M = first_C11 + torch.arange(self.block + 2 * half, device=self.device)
        is_near = (query_CN1 - key_C1M).abs() <= half
        is_real = (key_C1M >= 0) & (key_C1M < self.length)
        return (is_near & (is_real | (query_CN1 >= self.length))).unsqueeze(1)

    def __call__(self, q_BLHE: Tensor, k_BLHE: Tensor, v_BLHE: Tensor) -> Tensor:
        half, rest = self.window // 2, -self.length % self.block

        def around(x_BLHE: Tensor) -> Tensor:
            """The keys or values that each block attends to, [B·C, H, M, E]."""
            x_BCHEM = F.pad(x_BLHE, (0, 0, 0, 0, half, half + rest)).unfold(1, self.block + 2 * half, self.block)
            return x_BCHEM.flatten(0, 1).transpose(2, 3)

        q_BCNHE = torch.unflatten(F.pad(q_BLHE, (0, 0, 0, 0, 0, rest)), 1, (-1, self.block))
        q_KHNE = q_BCNHE.flatten(0, 1).transpose(1, 2)
        mask_K1NM = self.mask_C1NM.repeat(len(q_BLHE), 1, 1, 1)
        y_KHNE = F.scaled_dot_product_attention(q_KHNE, around(k_BLHE), around(v_BLHE), mask_K1NM)
        return y_KHNE.transpose(1, 2).reshape(*q_BLHE.shape[:1], -1, *v_BLHE.shape[2:])[:, : self.length]


class AttentionBy(nn.Module):
    """The projections of self-attention around another kernel."""

    def __init__(self, attention: SelfAttention, kernel: Kernel) -> None:
        super().__init__()
        self.attention, self.kernel = attention, kernel

    def forward(self, x_BLD: Tensor) -> Tensor:
        y_BLHE = self.kernel(*self.attention.project(x_BLD, rotation=None))
        y_BLD: Tensor = self.attention.to_out(y_BLHE.flatten(-2))
        return y_BLD


class Recurrent(nn.Module):
    """The outputs of a unidirectional nn.LSTM or nn.GRU."""

    def __init__(self, kind: type[nn.LSTM] | type[nn.GRU], d_model: int) -> None:
        super().__init__()
        self.rnn = kind(d_model, d_model, batch_first=True)

    def forward(self, x_BLD: Tensor) -> Tensor:
        y_BLD: Tensor = self.rnn(x_BLD)[0]
        return y_BLD


class AtOnce(nn.Module):
    """The matrix products of a recurrent layer, for all positions at once."""

    def __init__(self, d_model: int, n_matrices: int) -> None:
        super().__init__()
        self.of_input, self.of_state = (nn.Linear(d_model, n_matrices * d_model) for _ in range(2))

    def forward(self, x_BLD: Tensor) -> Tensor:
        y_BLG: Tensor = self.of_input(x_BLD) + self.of_state(x_BLD)
        return y_BLG


class Convolution(nn.Module):
    """nn.Conv1d over positions, with padding."""

    def __init__(self, d_model: int, kernel: int) -> None:
        super().__init__()
        self.filters = nn.Conv1d(d_model, d_model, kernel, padding=kernel // 2)

    def forward(self, x_BLD: Tensor) -> Tensor:
        y_BLD: Tensor = self.filters(x_BLD.transpose(1, 2)).transpose(1, 2)
        return y_BLD


class Layer:
    """A layer applied to one sentence; `leaves` are the input and parameters, whose gradients are computed."""

    def __init__(self, run: Callable[[], Tensor], leaves: list[Tensor]) -> None:
        self.run, self.leaves = run, leaves
        with torch.no_grad():
            self.grad = torch.randn_like(run())

    @torch.no_grad()
    def forward(self) -> Tensor:
        """The forward pass of inference, which saves nothing for the backward pass."""
        return self.run()

    def forward_and_backward(self) -> tuple[Tensor, ...]:
        return torch.autograd.grad(self.run(), self.leaves, self.grad)

    def bytes_held(self, device: torch.device) -> int:
        """The peak memory of both passes on a GPU; on a CPU, the tensors saved for backward, input included."""
        if device.type == "cuda":
            torch.cuda.synchronize(device)
            torch.cuda.reset_peak_memory_stats(device)
            before = torch.cuda.memory_allocated(device)
            self.forward_and_backward()
            return torch.cuda.max_memory_allocated(device) - before
        parameters = {leaf.untyped_storage().data_ptr() for leaf in self.leaves if isinstance(leaf, nn.Parameter)}
        kept: dict[int, int] = {}  # views of the same memory count once

        def keep(x: Tensor) -> Tensor:
            memory = x.untyped_storage()
            if memory.data_ptr() not in parameters:
                kept[memory.data_ptr()] = memory.nbytes()
            return x.detach()  # avoids a reference cycle, which would never be freed

        with torch.autograd.graph.saved_tensors_hooks(keep, lambda x: x):
            y = self.run()
        del y
        return sum(kept.values())


def layers_on(n: int, d: int, settings: Settings, device: torch.device) -> dict[str, Layer]:
    """Each of `KINDS` for a sentence of `n` positions of width `d`, with heads of width `settings.head`."""
    dtype, width = choose_dtype(Precision[settings.precision], device), settings.head
    torch.manual_seed(settings.seed)
    x_1LD = torch.randn(1, n, d).to(device, dtype).requires_grad_()
    qkv_1LHE = [torch.randn(1, n, d // width, width).to(device, dtype).requires_grad_() for _ in range(3)]
    found: dict[str, Layer] = {}

    def add(name: str, module: nn.Module) -> None:
        module = module.to(device, dtype)
        found[name] = Layer(partial(module, x_1LD), [x_1LD, *module.parameters()])

    attention = SelfAttention(d, d // width, d_k=width, d_v=width, dropout=0.0, bias=True)
    kernels: dict[str, Kernel] = {
        "self-attention": fused,
        "written out": written_out,
        "restricted": Windowed(n, settings.window, device),
    }
    for name, kernel in kernels.items():
        add(name, AttentionBy(attention, kernel))
        found[name + ALONE] = Layer(partial(kernel, *qkv_1LHE), qkv_1LHE)
    for name, kind in (("LSTM", nn.LSTM), ("GRU", nn.GRU)):
        add(name, Recurrent(kind, d))
        add(name + AT_ONCE, AtOnce(d, RECURRENT[name]))
    add("convolution", Convolution(d, settings.kernel))
    return {name: found[name] for name in KINDS}


def check_attention(settings: Settings, device: torch.device) -> None:
    """Compare each attention kernel at the smallest size with masked attention in float64. Raises EnvironmentFault."""
    n, d = min(settings.n), min(settings.d)
    layers = layers_on(n, d, settings, device)
    near_LL = window_mask(n, settings.window, causal=False, device=device)
    for name, mask in (("self-attention", None), ("written out", None), ("restricted", near_LL)):
        layer = layers[name + ALONE]
        exact = [leaf.detach().double().requires_grad_() for leaf in layer.leaves]
        q_1HLE, k_1HLE, v_1HLE = (x.transpose(1, 2) for x in exact)
        y_1LHE = F.scaled_dot_product_attention(q_1HLE, k_1HLE, v_1HLE, mask).transpose(1, 2)
        wanted = torch.autograd.grad(y_1LHE, exact, layer.grad.double())
        pairs = zip(layer.forward_and_backward(), wanted, strict=True)
        error = max(float((found - right).abs().max() / right.abs().max()) for found, right in pairs)
        check_error(f"the gradient of {name}", error, tolerances(Precision[settings.precision], device)[1])
