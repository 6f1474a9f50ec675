"""Attention maps as one HTML page that needs no network: heads as lines, matrices, and one token in every head.

The page carries its style, its script and the weights themselves. Its content security policy allows only this style
and this script, by their hashes, so a token cannot inject another.
"""

import base64
import hashlib
import html
import json
from importlib.resources import files
from string import Template

from torch import Tensor

from transformer_cli.attention_maps.maps import AttentionMaps


def render(maps: AttentionMaps) -> str:
    """The page for one sentence; equal maps give equal text."""
    style, script = _asset("page.css"), _asset("page.js")
    weights = {"encoder": maps.encoder_YHSS, "decoder": maps.decoder_YHTT, "cross": maps.cross_YHTS}
    tokens = {"source": maps.source, "read": maps.read, "written": maps.written}
    shapes = {name: list(weight.shape) for name, weight in weights.items()}
    return Template(_asset("page.html")).substitute(
        title=html.escape(f"Attention: {maps.source_text}"),
        model=html.escape(maps.model),
        source_text=html.escape(maps.source_text),
        translation=html.escape(maps.translation),
        notes="\n".join(f'<p class="note">{html.escape(note)}</p>' for note in maps.notes),
        maps=_json({**tokens, "shapes": shapes}),
        style=style,
        style_hash=_hash(style),
        script=script,
        script_hash=_hash(script),
        **{name: _base64(weight) for name, weight in weights.items()},
    )


def _asset(name: str) -> str:
    return (files("transformer_cli.attention_maps") / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    """Source expression of an inline style or script in a content security policy."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _json(value: object) -> str:
    """ASCII JSON that cannot close the surrounding element."""
    return json.dumps(value).replace("<", "\\u003c")


def _base64(weights: Tensor) -> str:
    """float32, little-endian, in the order of the dimensions."""
    return base64.b64encode(weights.contiguous().numpy().astype("<f4").tobytes()).decode()
