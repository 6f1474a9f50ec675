"""Attention as one HTML page that needs no network: heads as lines, matrices, and where one token looks.

The page carries its style, its script and the weights themselves. Its content security policy allows just these two,
by their hashes, so that no token can bring in another.
"""

import base64
import hashlib
import html
import json
from importlib.resources import files
from string import Template

from torch import Tensor

from transformer_cli.attention_maps.maps import Looks


def render(looks: Looks) -> str:
    """The page for one sentence; the same looks always give the same text."""
    style, script = _asset("page.css"), _asset("page.js")
    weights = {"encoder": looks.encoder_YHSS, "decoder": looks.decoder_YHTT, "cross": looks.cross_YHTS}
    tokens = {"source": looks.source, "read": looks.read, "written": looks.written}
    shapes = {name: list(weight.shape) for name, weight in weights.items()}
    return Template(_asset("page.html")).substitute(
        title=html.escape(f"Attention: {looks.source_text}"),
        model=html.escape(looks.model),
        source_text=html.escape(looks.source_text),
        translation=html.escape(looks.translation),
        notes="\n".join(f'<p class="note">{html.escape(note)}</p>' for note in looks.notes),
        looks=_json({**tokens, "shapes": shapes}),
        style=style,
        style_hash=_hash(style),
        script=script,
        script_hash=_hash(script),
        **{name: _base64(weight) for name, weight in weights.items()},
    )


def _asset(name: str) -> str:
    return (files("transformer_cli.attention_maps") / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    """As a content security policy names an inline style or script."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _json(value: object) -> str:
    """ASCII that cannot end the element it stands in."""
    return json.dumps(value).replace("<", "\\u003c")


def _base64(weights: Tensor) -> str:
    """float32, little-endian, in the order of the dimensions."""
    return base64.b64encode(weights.contiguous().numpy().astype("<f4").tobytes()).decode()
