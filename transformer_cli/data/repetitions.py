"""Values that come again in an array of hashes, with bounded memory."""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

_HASHES_AT_A_TIME = 1 << 20  # sorted together
_MOST_PARTS = 255  # by one byte of each hash

Rows = npt.NDArray[np.int64]


def repetitions(hashes: npt.NDArray[np.uint64]) -> Iterator[tuple[Rows, Rows]]:
    """Indices of values that occur earlier, and for each that of the last equal value before it; in several parts."""
    n_parts = min(_MOST_PARTS, 1 + len(hashes) // _HASHES_AT_A_TIME)
    one_byte = hashes.view(np.uint8)[::8]  # of each
    for part in range(n_parts):
        rows = np.flatnonzero(one_byte % n_parts == part)
        rows = rows[np.argsort(hashes[rows], kind="stable")]
        again = hashes[rows[1:]] == hashes[rows[:-1]]
        yield rows[1:][again], rows[:-1][again]
