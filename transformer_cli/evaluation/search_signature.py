"""The search that made translations, as a signature beside their scores and as a part of a file name."""

import hashlib
import re
from dataclasses import fields
from enum import Enum
from typing import Any

from transformer_cli.config.decode import DecodeConfig, SearchKind

LONGEST_OPTIONS = 100  # characters: names of files have at most 255 bytes
NOT_OF_THE_SEARCH = ("search", "batch_tokens")
OF_BEAM = ("beam_size", "length_penalty")
OF_SAMPLING = ("n_samples",)


def search_signature(decode: DecodeConfig, *, seed: int) -> str:
    """`search:beam|beam_size:4|length_penalty:0.6`: the kind, its sizes, each option that is not the default."""
    always = {SearchKind.beam: OF_BEAM, SearchKind.mbr: OF_SAMPLING}.get(decode.search, ())
    options = {name: getattr(decode, name) for name in always}
    options |= {name: value for name, value in changed_options(decode).items() if name not in (*OF_BEAM, *OF_SAMPLING)}
    if is_random(decode):
        options["seed"] = seed
    return "|".join([f"search:{decode.search.name}", *(f"{name}:{shown(value)}" for name, value in options.items())])


def search_name(decode: DecodeConfig, *, seed: int) -> str:
    """The kind of search and each option that is not the default, as a part of a file name."""
    kind = decode.search
    size = {SearchKind.beam: decode.beam_size, SearchKind.mbr: decode.n_samples}.get(kind, "")
    changed = changed_options(decode)
    parts = [f"{name}={shown(value)}" for name, value in changed.items() if name not in ("beam_size", "n_samples")]
    if is_random(decode) and seed != 1:
        parts.append(f"seed={seed}")
    options = ",".join(parts)
    if len(options) > LONGEST_OPTIONS or not re.fullmatch(r"[\w.,=+-]*", options):
        options = hashlib.sha256(options.encode()).hexdigest()[:12]
    return f"{kind.name}{size}{options and '-'}{options}"


def changed_options(decode: DecodeConfig) -> dict[str, Any]:
    default = DecodeConfig()
    values = {field.name: getattr(decode, field.name) for field in fields(decode)}
    return {
        name: value
        for name, value in values.items()
        if value != getattr(default, name) and name not in NOT_OF_THE_SEARCH
    }


def is_random(decode: DecodeConfig) -> bool:
    return decode.search in (SearchKind.sample, SearchKind.mbr)


def shown(value: object) -> str:
    return value.name if isinstance(value, Enum) else str(value)
