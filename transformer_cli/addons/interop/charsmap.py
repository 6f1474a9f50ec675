"""The table of spellings in a SentencePiece model: its entries, which the library only applies.

A double array (Aoe 1989), as darts-clone writes it: one number of 32 bits for each state. The children of a state are
at its place XOR its offset XOR the byte that leads to them.
"""

import struct

import numpy as np

_IS_VALUE = 1 << 31
_HAS_VALUE = 1 << 8


def charsmap_keys(table: bytes) -> list[str]:
    """The texts that `precompiled_charsmap` rewrites; of an empty table none."""
    if not table:
        return []
    (n_bytes,) = struct.unpack_from("<I", table)
    states = np.frombuffer(table, np.dtype("<u4"), n_bytes // 4, offset=4).astype(np.int64)
    children = np.arange(len(states)) ^ ((states >> 10) << ((states & (1 << 9)) >> 6))  # their place, but for the byte
    leads_here = np.where(states & _IS_VALUE, -1, np.arange(len(states)) ^ (states & 0xFF))
    order = np.argsort(leads_here, kind="stable")
    starts, ends = (np.searchsorted(leads_here[order], children, side) for side in ("left", "right"))
    found, open_states = list[bytes](), [(0, b"")]
    while open_states:
        state, text = open_states.pop()
        for child in order[starts[state] : ends[state]].tolist():
            if byte := int(states[child]) & 0xFF:
                longer = text + bytes([byte])
                open_states.append((child, longer))
                if states[child] & _HAS_VALUE:
                    found.append(longer)
    return [text.decode() for text in found]
