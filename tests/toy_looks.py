"""Looks of no model: tokens of any kind and weights drawn with a seed."""

from collections.abc import Sequence

import torch

from transformer_cli.attention_maps.maps import Looks

# What could break out of a page, or be shown otherwise than it is.
HOSTILE = [
    *(
        "▁</script><script>window.broken=1</script>",
        "▁&amp;",
        "\"quote'",
        "▁<s>",
        "<!--",
        "]]>",
        "<img onerror=broken()>",
    ),
    *("▁שלום", "▁مرحبا", "▁👩‍👩‍👧‍👦", "▁", "▁a\u2028b", "$looks", "${style}", "\\u003c", "</s>"),
]


def words(count: int, *, long: bool = False) -> list[str]:
    """Every second token begins a word; the last is </s>."""
    stem = "Rindfleischetikettierungsgesetz" if long else "ab"
    return [*(f"{'' if i % 2 else '▁'}{stem}{i}" for i in range(count - 1)), "</s>"]


def toy_looks(
    source: Sequence[str],
    written: Sequence[str],
    *,
    n_layers: int = 2,
    n_heads: int = 4,
    text: str = "ab",
    seed: int = 1,
) -> Looks:
    generator = torch.Generator().manual_seed(seed)

    def draw(rows: int, columns: int) -> torch.Tensor:
        return 3 * torch.randn(n_layers, n_heads, rows, columns, generator=generator)

    n_source, n_target = len(source), len(written)
    later = torch.ones(n_target, n_target).triu(1).bool()
    return Looks(
        source=list(source),
        read=["<s>", *written[:-1]],
        written=list(written),
        encoder_YHSS=draw(n_source, n_source).softmax(-1),
        decoder_YHTT=draw(n_target, n_target).masked_fill(later, -torch.inf).softmax(-1),
        cross_YHTS=draw(n_target, n_source).softmax(-1),
        source_text=text,
        translation=text,
        model=text,
        notes=[text],
    )
