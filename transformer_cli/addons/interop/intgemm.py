"""Marian's binary files with weights of 8 bits, as intgemm multiplies them: what runs inside Firefox.

A product is computed in whole numbers: activations times 127 / a, where the activation a becomes 127, and weights times
127 / their largest. The factor of the activations is fixed for each product (QuantMultA, "alpha").

Shapes: V vocabulary, K inner width of a product, N outer width.
"""

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

IntgemmArray = npt.NDArray[Any]

ALPHA = "_QuantMultA"
OUTPUT = "none"  # whose alpha is that of the output layer over a shortlist: its selected rows have no name
INNER, COLUMNS = 64, 8  # of which inner and outer widths are multiples: the registers of the kernels
LARGEST = 127.0
PAIR = 129  # 254 · 129 is the most that 16 bits hold
FLOAT32, INT8, INTGEMM8 = 0x0404, 0x0101, 0x4101  # types of items
_VERSION = 1
_BLOCK = 256  # bytes: data begins at a multiple of it, and each item fills a multiple of it
_SHORTLIST_MAGIC = 0xF11A48D5013417F5


@dataclass(frozen=True)
class BinaryItem:
    """A named array as the file has it: `data` is what is stored, `shape` what it stands for."""

    name: str
    kind: int
    shape: tuple[int, ...]
    data: bytes


def is_product(name: str) -> bool:
    """Whether a weight is multiplied with activations, and not an embedding, a bias or a norm."""
    return name.rpartition("_")[2] in ("W", "Wf", "W1", "W2", "Wq", "Wk", "Wv", "Wo")


def quantised(weight: IntgemmArray, *, inner: int) -> tuple[IntgemmArray, np.float32]:
    """round(weight · m) in -127 … 127, a half to even, and m; `inner` is the axis that a product sums over.

    m is 127 / max |weight|, or less: kernels for AVX2 add two products beside each other on the inner axis in 16 bits,
    where an activation is 0 to 254, so that two weights of one sign that sum to more than 129 can overflow, and are cut
    there. With this m none can, and each machine computes the same.
    """
    weight = weight.astype(np.float32)
    largest = np.abs(weight).max()
    multiplier = np.float32(LARGEST / largest) if largest > 0 else np.float32(1)
    if pair := pair_sums(weight, inner=inner).max():
        multiplier = min(multiplier, np.float32(PAIR / pair))
    values = _rounded(weight, multiplier)
    while pair_sums(values, inner=inner).max() > PAIR:  # two roundings upwards
        multiplier = np.float32(multiplier * 0.999)
        values = _rounded(weight, multiplier)
    return values, multiplier


def _rounded(weight: IntgemmArray, multiplier: np.float32) -> IntgemmArray:
    rounded: IntgemmArray = np.clip(np.rint(weight * multiplier), -LARGEST, LARGEST).astype(np.int8)
    return rounded


def pair_sums(weight: IntgemmArray, *, inner: int) -> IntgemmArray:
    """The larger of the sums of positive and of negative parts, of each two weights that stand beside each other."""
    pairs = np.moveaxis(weight, inner, -1).astype(np.float32)
    pairs = pairs.reshape(*pairs.shape[:-1], -1, 2)
    sums: IntgemmArray = np.maximum(np.maximum(pairs, 0).sum(-1), np.maximum(-pairs, 0).sum(-1))
    return sums


def int8_item(name: str, weight: IntgemmArray, *, transpose: bool) -> BinaryItem:
    """The int8 values, [N, K] of a product and [V, K] of an embedding, then the multiplier."""
    values, multiplier = quantised(weight, inner=0 if transpose else 1)
    stored = np.ascontiguousarray(values.T if transpose else values)
    return BinaryItem(name, INTGEMM8, weight.shape, stored.tobytes() + struct.pack("<f", multiplier))


def float_item(name: str, values: IntgemmArray) -> BinaryItem:
    return BinaryItem(name, FLOAT32, values.shape, np.ascontiguousarray(values, dtype="<f4").tobytes())


def alpha_as_int8(name: str, alpha: float) -> BinaryItem:
    """An alpha as Marian's converter leaves it where the name has `Wemb` in it: 127 and its multiplier, 127 / alpha."""
    return BinaryItem(name, INTGEMM8, (1,), struct.pack("<bf", 127, LARGEST / alpha))


def options_item(name: str, text: bytes) -> BinaryItem:
    """YAML, a key a line, which a NUL ends."""
    text += b"\0"
    text += b"\0" * (-len(text) % _BLOCK)
    return BinaryItem(name, INT8, (len(text),), text)


def binary(items: Sequence[BinaryItem]) -> bytes:
    """Marian's container: sizes, names, shapes, a gap, data. Little-endian; data begins at multiples of 256."""
    padded = [item.data + b"\0" * (-len(item.data) % _BLOCK) for item in items]
    names = [item.name.encode() + b"\0" for item in items]
    parts = [struct.pack("<QQ", _VERSION, len(items))]
    for item, name, data in zip(items, names, padded, strict=True):
        parts.append(struct.pack("<QQQQ", len(name), item.kind, len(item.shape), len(data)))
    parts += names
    parts += [struct.pack(f"<{len(item.shape)}i", *item.shape) for item in items]
    head = b"".join(parts)
    gap = -(len(head) + 8) % _BLOCK
    return head + struct.pack("<Q", gap) + b"\0" * gap + b"".join(padded)


def read_binary(content: bytes) -> list[BinaryItem]:
    """The items of a container of ours; their data with what fills it up."""
    version, number = struct.unpack_from("<QQ", content)
    assert version == _VERSION
    heads = [struct.unpack_from("<QQQQ", content, 16 + 32 * i) for i in range(number)]
    at, names, shapes, items = 16 + 32 * number, [], [], []
    for length, *_ in heads:
        names.append(content[at : at + length].partition(b"\0")[0].decode())
        at += length
    for _, _, rank, _ in heads:
        shapes.append(struct.unpack_from(f"<{rank}i", content, at))
        at += 4 * rank
    at += 8 + struct.unpack_from("<Q", content, at)[0]
    for name, shape, (_, kind, _, length) in zip(names, shapes, heads, strict=True):
        items.append(BinaryItem(name, kind, shape, content[at : at + length]))
        at += length
    return items


def shortlist_file(lists: Sequence[Iterable[int]], *, first: int, best: int) -> bytes:
    """A shortlist: the target ids that each source id may become. The `first` target ids are in every list."""
    offsets, flat = [0], []
    for targets in lists:
        flat += sorted(set(targets))
        offsets.append(len(flat))
    body = struct.pack("<4Q", first, best, len(offsets), len(flat))
    body += np.array(offsets, dtype="<u8").tobytes() + np.array(flat, dtype="<u4").tobytes()
    return struct.pack("<2Q", _SHORTLIST_MAGIC, _checksum(body)) + body


def _checksum(body: bytes) -> int:
    """Marian's: a fold over the whole 64-bit words of what follows it."""
    seed, mask = 0, (1 << 64) - 1
    for word in np.frombuffer(body[: len(body) // 8 * 8], dtype="<u8").tolist():
        seed ^= (word + 0x9E3779B9 + (seed << 6) + (seed >> 2)) & mask
    return seed
