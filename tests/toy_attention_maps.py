"""Attention maps without a model: any tokens, and random weights."""

from collections.abc import Sequence

import torch

from transformer_cli.attention_maps.maps import AttentionMaps

# Tokens that could inject markup into a page, or be shown wrongly.
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
    *("▁שלום", "▁مرحبا", "▁👩‍👩‍👧‍👦", "▁", "▁a\u2028b", "$maps", "${style}", "\\u003c", "</s>"),
]


def words(count: int, *, long: bool = False) -> list[str]:
    """Every second token begins a word; the last is </s>."""
    stem = "Rindfleischetikettierungsgesetz" if long else "ab"
    return [*(f"{'' if i % 2 else '▁'}{stem}{i}" for i in range(count - 1)), "</s>"]


def toy_maps(
    source: Sequence[str],
    written: Sequence[str],
    *,
    n_layers: int = 2,
    n_heads: int = 4,
    text: str = "ab",
    seed: int = 1,
) -> AttentionMaps:
    generator = torch.Generator().manual_seed(seed)

    def scores(rows: int, columns: int) -> torch.Tensor:
        return 3 * torch.randn(n_layers, n_heads, rows, columns, generator=generator)

    n_source, n_target = len(source), len(written)
    later = torch.ones(n_target, n_target).triu(1).bool()
    return AttentionMaps(
        source=list(source),
        read=["<s>", *written[:-1]],
        written=list(written),
        encoder_YHSS=scores(n_source, n_source).softmax(-1),
        decoder_YHTT=scores(n_target, n_target).masked_fill(later, -torch.inf).softmax(-1),
        cross_YHTS=scores(n_target, n_source).softmax(-1),
        source_text=text,
        translation=text,
        model=text,
        notes=[text],
    )
