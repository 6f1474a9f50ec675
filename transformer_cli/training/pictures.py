"""Attention as a picture (Vaswani et al. 2017, figures 3 to 5): one square for each head, one row for each layer.

Shapes: B batch, H heads, T target, S source.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

_CELL, _FRAME = 10, 4  # pixels
_GREY = 128


def attention_picture(layers_BHTS: Sequence[Tensor]) -> NDArray[np.uint8]:
    """The first sentence's weights in grey, [height, width]: black is 1, rows are queries, columns are keys."""
    rows = [
        np.concatenate([_head(weights_TS.float().cpu().numpy()) for weights_TS in layer_BHTS[0]], axis=1)
        for layer_BHTS in layers_BHTS
    ]
    return np.concatenate(rows, axis=0)


def _head(weights_TS: NDArray[np.float32]) -> NDArray[np.uint8]:
    shades = np.rint(255 * (1 - weights_TS)).astype(np.uint8)
    return np.pad(shades.repeat(_CELL, axis=0).repeat(_CELL, axis=1), _FRAME, constant_values=_GREY)
