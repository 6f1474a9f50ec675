"""The matrix products of a training step, and the rate at which the machine computes them on their own.

Shapes: M rows, K in, N out; D width, F feed-forward, V vocabulary.
"""

from collections import Counter
from dataclasses import dataclass

import torch
from torch import nn

from transformer_cli.addons.benchmarks.timing import best
from transformer_cli.models.embeddings import NarrowEmbedding
from transformer_cli.models.linear import project
from transformer_cli.models.transformer import Transformer


@dataclass(frozen=True, order=True)
class Projection:
    """The shape of a linear layer applied to `m` rows."""

    m: int
    k: int
    n: int

    @property
    def flops(self) -> int:
        """Operations of its three products: forward, gradient of the input, gradient of the weight."""
        return 6 * self.m * self.k * self.n

    def __str__(self) -> str:
        return f"{self.m:,} × {self.k:,} × {self.n:,}"


def count_projections(model: Transformer, *, n_source: int, n_target: int) -> Counter[Projection]:
    """Projections of a forward pass over so many tokens a side, without the products of attention (a few percent)."""
    found: Counter[Projection] = Counter()

    def add(module: nn.Linear, *, on_source: bool) -> None:
        found[Projection(n_source if on_source else n_target, module.in_features, module.out_features)] += 1

    for stack in ("encoder", "decoder"):
        for name, module in model.get_submodule(stack).named_modules():
            if isinstance(module, nn.Linear):
                add(module, on_source=stack == "encoder" or name.endswith("to_kv"))
    for embedding, on_source in ((model.source_embedding, True), (model.target_embedding, False)):  # may be one
        if isinstance(embedding, NarrowEmbedding):
            add(embedding.project_in, on_source=on_source)
    output = model.output_embedding
    if isinstance(output, NarrowEmbedding) and output.project_out is not None:
        add(output.project_out, on_source=False)
    vocab_size, width = output.weight.shape
    found[Projection(n_target, width, vocab_size)] += 1
    return found


def flops(found: Counter[Projection]) -> int:
    return sum(count * projection.flops for projection, count in found.items())


def seconds_alone(projection: Projection, *, dtype: torch.dtype, device: torch.device) -> float:
    """Fastest time of its three products on their own, with the library that training uses."""
    x_MK, w_NK, grad_MN = (
        torch.randn(shape, dtype=dtype, device=device)
        for shape in ((projection.m, projection.k), (projection.n, projection.k), (projection.m, projection.n))
    )
    found = best(lambda: project(x_MK, w_NK), device)
    for factor in (x_MK, w_NK):
        factor.requires_grad_()
        y_MN = project(x_MK, w_NK)
        found += best(lambda: torch.autograd.grad(y_MN, factor, grad_MN, retain_graph=True), device)  # noqa: B023
        factor.requires_grad_(False)
    return found


def peak_rate(dtype: torch.dtype, device: torch.device) -> float:
    """FLOP/s of a large square product of random numbers; zeros would be faster."""
    size = 8192 if device.type == "cuda" else 1024
    a, b = (torch.randn(size, size, device=device).to(dtype) for _ in range(2))
    return 2 * size**3 / best(lambda: a @ b, device)
