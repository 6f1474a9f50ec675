"""Attention maps as one HTML page that needs no network: heads as lines, matrices, and one token in every head.

The page carries the weights themselves.
"""

import base64
import json
from collections.abc import Mapping
from typing import Any

from torch import Tensor

from transformer_cli.addons.attention_maps.keys import AttentionKind
from transformer_cli.addons.attention_maps.maps import AttentionMaps, strongest_heads, view
from transformer_cli.addons.pages.document import document, escaped


def render(maps: AttentionMaps, explanation: Mapping[str, Any] | None = None) -> str:
    """The page for one sentence; equal maps give equal text.

    `explanation` are the steps of the search, or of a given translation, as the module `explanation` makes them.
    """
    weights = {"encoder": maps.encoder_YHSS, "decoder": maps.decoder_YHTT, "cross": maps.cross_YHTS}
    tokens = {"source": maps.source, "read": maps.read, "written": maps.written}
    shapes = {name: list(weight.shape) for name, weight in weights.items()}
    opening = {}
    for kind in AttentionKind:
        layer, heads = strongest_heads(view(maps, kind), is_self=kind is not AttentionKind.cross)
        opening[kind.name] = {"layer": layer, "heads": heads}
    return document(
        "transformer_cli.addons.attention_maps",
        title=f"Attention: {maps.source_text}",
        model=escaped(maps.model),
        source_text=escaped(maps.source_text),
        translation=escaped(maps.translation),
        notes="\n".join(f'<p class="note">{escaped(note)}</p>' for note in maps.notes),
        maps=_json({**tokens, "shapes": shapes, "opening": opening}),
        explanation=_json(explanation),
        **{name: _base64(weight) for name, weight in weights.items()},
    )


def _json(value: object) -> str:
    """ASCII JSON that cannot close the surrounding element."""
    return json.dumps(value).replace("<", "\\u003c")


def _base64(weights: Tensor) -> str:
    """float32, little-endian, in the order of the dimensions."""
    return base64.b64encode(weights.contiguous().numpy().astype("<f4").tobytes()).decode()
