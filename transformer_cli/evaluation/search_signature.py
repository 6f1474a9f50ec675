"""The search that made translations, as a signature beside their scores and as a part of a file name."""

import hashlib
import re
from collections.abc import Sequence
from dataclasses import fields, replace
from enum import Enum
from pathlib import Path
from typing import Any

from transformer_cli.config.decode import LENGTH_PENALTY, DecodeConfig, DecodePrecision, LengthNormalization
from transformer_cli.config.fields import keys_that_affect
from transformer_cli.config.shared import TORCH
from transformer_cli.data.hashes import file_sha256
from transformer_cli.decoding.search import SEARCHES

LONGEST_OPTIONS = 100  # characters: names of files have at most 255 bytes
SIZES = ("beam_size", "n_samples")  # each of one search only
ALWAYS = ("precision", "batch_invariant")  # named after the others, default or not
HASH_LENGTH = 12  # hexadecimal digits of a model's SHA-256: enough to tell models apart


def search_signature(decode: DecodeConfig, *, seed: int, engine: str = TORCH, models: Sequence[str] = ()) -> str:
    """`search:beam|beam_size:4|length_penalty:0.6|engine:torch|precision:fp32|batch_invariant:no|model:1f2e3d4c5b6a`.

    After the kind of search come its sizes and each option that is not the default. Engine, precision and batch
    invariance decide how numbers are rounded, so that a few translations may differ. `decode` has the precision of the
    device (auto for an export, which has its own); `models` are the SHA-256 of the model's files.
    """
    method = SEARCHES[decode.search]
    options = {name: getattr(decode, name) for name in SIZES if name in method.options}
    if "beam_size" in options and decode.length_normalization is LengthNormalization.gnmt:
        options["length_penalty"] = decode.alpha
    options |= {name: value for name, value in changed_options(decode).items() if name not in ALWAYS}
    if method.draws:
        options["seed"] = seed
    is_invariant = "yes" if decode.batch_invariant else "no"
    options |= {"engine": engine, "precision": decode.precision, "batch_invariant": is_invariant}
    if models:
        options["model"] = "+".join(model[:HASH_LENGTH] for model in models)
    return "|".join([f"search:{method.name}", *(f"{name}:{_shown(value)}" for name, value in options.items())])


def search_name(decode: DecodeConfig, *, seed: int, engine: str = TORCH) -> str:
    """The kind of search and each option that is not the default, as a part of a file name."""
    method = SEARCHES[decode.search]
    parts = [f"{name}={_shown(value)}" for name, value in changed_options(decode).items()]
    if method.draws and seed != 1:
        parts.append(f"seed={seed}")
    if engine != TORCH:
        parts.append(f"engine={engine}")
    options = ",".join(parts)
    if len(options) > LONGEST_OPTIONS or not re.fullmatch(r"[\w.,=+-]*", options):
        options = hashlib.sha256(options.encode()).hexdigest()[:12]
    return f"{method.label(decode)}{options and '-'}{options}"


def changed_options(decode: DecodeConfig) -> dict[str, Any]:
    """The options that are not the default, but for the sizes of a search. fp32 is what auto is without a GPU."""
    default = DecodeConfig(length_penalty=LENGTH_PENALTY)
    decode = replace(decode, length_penalty=decode.alpha)
    values = {field.name: getattr(decode, field.name) for field in fields(decode)}
    unnamed = ("search", *SIZES, *keys_that_affect(DecodeConfig, "speed"))
    if decode.precision is DecodePrecision.fp32:
        del values["precision"]
    if decode.shortlist is not None and Path(decode.shortlist).is_file():
        values["shortlist"] = file_sha256(Path(decode.shortlist))[:HASH_LENGTH]  # which file it is says little
    return {name: value for name, value in values.items() if value != getattr(default, name) and name not in unnamed}


def _shown(value: object) -> str:
    return value.name if isinstance(value, Enum) else str(value)
