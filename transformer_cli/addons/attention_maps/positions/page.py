"""Position encodings as one HTML page that needs no network: colour maps, curves and similarities, exact values."""

import base64
import json
from string import Template

import torch

from transformer_cli.addons.attention_maps.positions.encodings import PositionEncodings
from transformer_cli.addons.pages.document import document, escaped
from transformer_cli.config.model import Positions

SINUSOIDS = """
<p>The embedding of the token at position <i>p</i> gets this row added to it. A pair of dimensions is the sine and the
cosine of <i>p</i>·θ: a hand that turns by the same angle θ at every position. The first pair is the fastest and goes
round in 6.3 positions, the last in $last. Over these $length positions, $slow of $pairs pairs turn by less than a
tenth of a circle.</p>
<p>The interleaved layout is that of the paper's formula (section 3.5), the concatenated one that of tensor2tensor's
code.$theirs Both have the same numbers, in other columns: to a model that learns its weights they are alike. Nothing
here is learned.</p>"""
TENSOR2TENSOR = """ The θ are those of that code, too: they end at 1/10,000, which the formula does not quite
reach."""
_ROTARY = """
<p>Nothing is added to the embeddings. Each head turns every pair of dimensions (i, i + d_k/2) of its queries and keys
by an angle of <i>p</i>·θ, which is a colour here, and colours go round as angles do. The first pair goes round in 6.3
positions, the last in $last. Over these $length positions, $slow of $pairs pairs turn by less than a tenth of a circle.
Nothing here is learned.</p>"""
LEARNED = """
<p>The embedding of the token at position <i>p</i> gets this row added to it. Training has found these numbers: the
dimensions have no order and no wavelength. Rows beyond the longest sentence of the training were never trained.</p>"""
SIMILAR_SINUSOIDS = """The dot product of positions <i>p</i> and <i>q</i> is the sum of cos((<i>p</i> − <i>q</i>)·θ)
over the pairs: it depends on their distance alone, is d_model/2 at distance 0, and falls with ripples. These are the
bare encodings. Attention multiplies them, mixed with the embeddings, by learned matrices, so this is not what a head
does."""
SIMILAR_ROTARY = """The mean over the pairs of cos((<i>p</i> − <i>q</i>)·θ): what is left of the product q·k of a query
and an equal key, with as much in every pair, at this distance. Real queries and keys have more in some pairs than in
others, so this is not what a head does."""
SIMILAR_LEARNED = """A band along the diagonal means that training has made positions close to each other similar.
Attention multiplies the encodings, mixed with the embeddings, by learned matrices, so this is not what a head does."""


def render(encodings: PositionEncodings) -> str:
    """The page; equal encodings give equal text."""
    maps = [
        {"name": one.name, "used": one.used, "functions": one.functions, "dimensions": one.dimensions}
        for one in encodings.maps
    ]
    data = {
        "kind": encodings.kind.name,
        "first": encodings.first,
        "length": encodings.length,
        "wavelengths": encodings.wavelengths,
        "maps": maps,
        "similarities": [{"name": one.name, "dot": one.dot_LL is not None} for one in encodings.similarities],
    }
    matrices = [one.values_LC for one in encodings.maps]
    for one in encodings.similarities:
        matrices += [matrix for matrix in (one.cosine_LL, one.dot_LL) if matrix is not None]
    values = torch.cat([matrix.flatten() for matrix in matrices]).numpy().astype("<f4")
    return document(
        "transformer_cli.addons.attention_maps.positions",
        title=f"Position encodings: {encodings.title}",
        name=escaped(encodings.title),
        how=_explanation(encodings),
        similar={Positions.rotary: SIMILAR_ROTARY, Positions.learned: SIMILAR_LEARNED}.get(
            encodings.kind, SIMILAR_SINUSOIDS
        ),
        data=json.dumps(data).replace("<", "\\u003c"),
        values=base64.b64encode(values.tobytes()).decode(),
    )


def _explanation(encodings: PositionEncodings) -> str:
    if encodings.kind is Positions.learned:
        return LEARNED
    text = _ROTARY if encodings.kind is Positions.rotary else SINUSOIDS
    waves = sorted(set(encodings.wavelengths))
    slow = sum(encodings.length - 1 < wave / 10 for wave in waves)
    return Template(text).substitute(
        last=f"{waves[-1]:,.0f}",
        length=f"{encodings.length:,}",
        slow=f"{slow:,}",
        pairs=f"{len(waves):,}",
        theirs=TENSOR2TENSOR if encodings.kind is Positions.sinusoidal_tensor2tensor else "",
    )
