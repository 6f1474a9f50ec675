"""`tfm bench loss` and `tfm bench attention`: parts of a training step, beside other implementations of them.

Shapes: K target tokens, D width, V vocabulary, N sentences, L length, H heads, E head width.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from transformer_cli.addons.benchmarks.keys import BenchConfig
from transformer_cli.addons.benchmarks.reference import check_error, tolerances
from transformer_cli.addons.benchmarks.report import Measured
from transformer_cli.addons.benchmarks.timing import Spread, in_turn, ratio
from transformer_cli.config.train import Compile
from transformer_cli.data.batching import Batch, Run
from transformer_cli.models.attention import attend
from transformer_cli.models.attention_kernels import attention_weights
from transformer_cli.models.embeddings import TokenEmbedding
from transformer_cli.models.kernel_choice import PackedKernel, choose_kernel
from transformer_cli.models.layouts import PackedLayout
from transformer_cli.training.forward import inputs
from transformer_cli.training.loss import masked_smoothed_nll, smoothed_nll
from transformer_cli.training.precision import choose_dtype
from transformer_cli.training.trainer import VOCAB_MULTIPLE, may_compile

TFM, COMPILED, IN_PARTS = "tfm", "F.cross_entropy, compiled", "F.cross_entropy, compiled, in 4 parts"
HEADINGS = ("", "ms, forward and backward", "tfm is faster by", "largest error of a gradient")

Way = Callable[[], Tensor]  # computes a summed loss, whose backward pass sets the gradients of the leaves


def bench_loss(config: BenchConfig, device: torch.device) -> Measured:
    """Forward and backward of output projection and loss."""
    n_tokens = min(config.train.max_tokens_per_microbatch, config.train.tokens_per_update)
    vocab_size, d_model = config.data.tokenizer.vocab_size, config.model.d_model
    torch.manual_seed(config.seed)
    may_be_compiled = supports_compile(config, device)
    multiple_of = VOCAB_MULTIPLE if device.type != "cpu" else 1
    output = TokenEmbedding(vocab_size, d_model, pad_id=0, scaled=False, multiple_of=multiple_of).to(device)
    x_KD = torch.randn(n_tokens, d_model).to(device).requires_grad_()
    targets_K = torch.randint(vocab_size, (n_tokens,)).to(device)
    leaves: list[Tensor] = [x_KD, output.weight]
    exact = [x.detach().double().requires_grad_() for x in leaves]
    smoothing = config.train.label_smoothing
    loss = F.cross_entropy(F.linear(*exact), targets_K, label_smoothing=smoothing, reduction="sum")
    loss.backward()  # type: ignore[no-untyped-call]
    trained = trained_loss(output, config, device, may_be_compiled=may_be_compiled)
    ways = {TFM: lambda: trained(x_KD, targets_K), **baseline_losses(x_KD, output.weight, targets_K, config, device)}
    return _compare("loss", ways, leaves, [gradient(x) for x in exact], config, device)


def trained_loss(
    output: TokenEmbedding, config: BenchConfig, device: torch.device, *, may_be_compiled: bool
) -> Callable[[Tensor, Tensor], Tensor]:
    """The loss of x_KD and targets_K as training computes it."""
    dtype, smoothing = choose_dtype(config.train.precision, device), config.train.label_smoothing
    is_compiled = may_be_compiled and config.train.compile is not Compile.none
    of_logits = masked_smoothed_nll if is_compiled else smoothed_nll

    def loss(x_KD: Tensor, targets_K: Tensor) -> Tensor:
        with torch.autocast(device.type, dtype, enabled=dtype is not torch.float32):
            logits_KV = output.training_logits(x_KD)
        return of_logits(logits_KV, targets_K, smoothing=smoothing)[0]

    return torch.compile(loss, dynamic=False) if is_compiled else loss


def supports_compile(config: BenchConfig, device: torch.device) -> bool:
    """Whether training compiles here, with all sentences in one call of attention. Raises what `chosen_ways` raises."""
    if not may_compile(config, device):
        return False
    from transformer_cli.training.compiled import chosen_ways  # imports torch's compiler

    return chosen_ways(config, device, choose_dtype(config.train.precision, device)).compiles


def baseline_losses(
    x_KD: Tensor, weight_VD: Tensor, targets_K: Tensor, config: BenchConfig, device: torch.device
) -> dict[str, Way]:
    """The implementations of torch: eager, fused and compiled."""
    dtype, smoothing = choose_dtype(config.train.precision, device), config.train.label_smoothing

    def plain(x_KD: Tensor, targets_K: Tensor) -> Tensor:
        with torch.autocast(device.type, dtype, enabled=dtype is not torch.float32):
            logits_KV = F.linear(x_KD, weight_VD)
        return F.cross_entropy(logits_KV.float(), targets_K, label_smoothing=smoothing, reduction="sum")

    ways: dict[str, Way] = {"F.cross_entropy": lambda: plain(x_KD, targets_K)}
    linear_cross_entropy = getattr(F, "linear_cross_entropy", None)  # torch 2.13 and later
    if linear_cross_entropy is not None:
        ways["F.linear_cross_entropy"] = lambda: linear_cross_entropy(
            x_KD.to(dtype), weight_VD.to(dtype), targets_K, label_smoothing=smoothing, reduction="sum"
        )
    if device.type == "cuda":
        compiled = torch.compile(plain)
        ways[COMPILED] = lambda: compiled(x_KD, targets_K)
        ways[IN_PARTS] = lambda: torch.stack(  # logits are recomputed in the backward pass
            [
                checkpoint(compiled, x, targets, use_reentrant=False)
                for x, targets in zip(x_KD.chunk(4), targets_K.chunk(4), strict=True)
            ]
        ).sum()
    return ways


def bench_attention(config: BenchConfig, device: torch.device) -> Measured:
    """Self-attention on a batch of sentences of equal length, at three lengths.

    There is no padding, which favours the implementations that would compute it.
    """
    dtype = choose_dtype(config.train.precision, device)
    n_tokens = min(config.train.max_tokens_per_microbatch, config.train.tokens_per_update)
    found = Measured("attention", HEADINGS)
    for length in (15, 30, 100):
        n, n_heads = max(1, n_tokens // length), config.model.n_heads
        generator = torch.Generator().manual_seed(config.seed)
        shape = (n * length, n_heads, config.model.key_width)
        qkv_KHE = [torch.randn(shape, generator=generator).to(device, dtype).requires_grad_() for _ in range(3)]
        exact = [x.detach().double().requires_grad_() for x in qkv_KHE]
        written_out(exact, length).square().sum().backward()  # type: ignore[no-untyped-call]
        ways = attention_ways(qkv_KHE, length, config, device)
        part = _compare("attention", ways, qkv_KHE, [gradient(x) for x in exact], config, device)
        found.rows += [[f"{row[0]}, {length} tokens", *row[1:]] for row in part.rows]
        found.ratios |= {f"{name}, {length} tokens": value for name, value in part.ratios.items()}
        found.figures |= {f"{name}, {length} tokens": value for name, value in part.figures.items()}
    return found


def attention_ways(qkv_KHE: list[Tensor], length: int, config: BenchConfig, device: torch.device) -> dict[str, Way]:
    """Attention as in training, with a padding mask, and with materialized weights."""
    q_KHE, k_KHE, v_KHE = qkv_KHE
    n = len(q_KHE) // length
    layout = trained_layout(n, length, config, device)
    mask_N11L = torch.ones(n, 1, 1, length, dtype=torch.bool, device=device)

    def with_mask() -> Tensor:
        q_NHLE, k_NHLE, v_NHLE = (_sentences(x, length) for x in qkv_KHE)
        return F.scaled_dot_product_attention(q_NHLE, k_NHLE, v_NHLE, mask_N11L).square().sum()

    return {
        TFM: lambda: attend(q_KHE, k_KHE, v_KHE, layout, layout).square().sum(),
        "with a mask": with_mask,
        "written out": lambda: written_out(qkv_KHE, length).square().sum(),
    }


def trained_layout(n: int, length: int, config: BenchConfig, device: torch.device) -> PackedLayout:
    """The layout that training uses for `n` sentences of one length."""
    lengths = Run(n, length, length)
    kernel = choose_kernel(config.model, device, choose_dtype(config.train.precision, device))
    if supports_compile(config, device):
        kernel = PackedKernel.varlen
    ids = torch.zeros(n * length, dtype=torch.long)
    return inputs(Batch(ids, ids, ids, [lengths]), device, kernel).source


def written_out(qkv_KHE: list[Tensor], length: int) -> Tensor:
    q_NHLE, k_NHLE, v_NHLE = (_sentences(x, length) for x in qkv_KHE)
    return attention_weights(q_NHLE, k_NHLE) @ v_NHLE


def _sentences(x_KHE: Tensor, length: int) -> Tensor:
    """[K, H, E] as [N, H, L, E], for sentences of equal length."""
    n_tokens, n_heads, width = x_KHE.shape
    return x_KHE.view(n_tokens // length, length, n_heads, width).transpose(1, 2)


def _compare(
    subject: str,
    ways: dict[str, Way],
    leaves: list[Tensor],
    expected: list[Tensor],
    config: BenchConfig,
    device: torch.device,
) -> Measured:
    """Time each implementation in interleaved rounds, and compare its gradients with float64.

    Raises EnvironmentFault if those of tfm are wrong.
    """

    def run(way: Way) -> None:
        for leaf in leaves:
            leaf.grad = None
        way().backward()  # type: ignore[no-untyped-call]

    errors = {}
    for name, way in ways.items():
        run(way)
        pairs = zip(leaves, expected, strict=True)
        errors[name] = max(float((gradient(x) - wanted).abs().max() / wanted.abs().max()) for x, wanted in pairs)
    check_error(f"the gradient of {subject}", errors[TFM], tolerances(config.train.precision, device)[1])
    taken = in_turn({name: lambda way=way: run(way) for name, way in ways.items()}, rounds=config.rounds, device=device)  # type: ignore[misc]
    found = Measured(subject, HEADINGS)
    for name, times in taken.items():
        faster = ratio(times, taken[TFM])
        if name != TFM:
            found.ratios[f"tfm to {name}"] = faster
        milliseconds = Spread.of([1e3 * time for time in times]).shown(",.2f")
        found.rows.append([name, milliseconds, "" if name == TFM else faster.shown(".2f"), f"{errors[name]:.1e}"])
        found.figures[name] = times
    return found


def gradient(x: Tensor) -> Tensor:
    assert x.grad is not None
    return x.grad
