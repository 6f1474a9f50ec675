"""The key of a prepared corpus in the cache: input files, and all options that change what is made of them."""

import hashlib
import json
from enum import Enum
from itertools import chain
from typing import Any

from transformer_cli.config.checks import AUTO
from transformer_cli.config.data import DataConfig
from transformer_cli.config.fields import values_that_affect
from transformer_cli.config.options import options_that_affect
from transformer_cli.data.cleaning.base import chosen_filters, filter_versions
from transformer_cli.data.cleaning.filters import VERSION as FILTERS_VERSION
from transformer_cli.data.corpus import input_files, load_text, text_sha256
from transformer_cli.data.hashes import Hashes
from transformer_cli.data.lines import open_text
from transformer_cli.data.readers import READERS, Split, reader_of
from transformer_cli.data.tokenizer import Tokenizers

_FORMAT = 3  # to be raised when the same key would give other files
_SPLITS: tuple[Split, ...] = ("train", "dev", "test")
# Options that are in the keys of all caches, also with their default. Only these are: the list is complete.
_FIRST = frozenset(
    {
        *("source_lang", "target_lang", "builtin", "train", "dev", "test", "seed", "holdout", "on_bad", "tokenizer"),
        *("max_length", "max_ratio", "drop_duplicates"),
        *("kind", "vocab_size", "joint", "character_coverage", "byte_fallback", "max_sentences"),  # of the tokenizer
    }
)


def input_hashes(config: DataConfig, hashes: Hashes) -> dict[Split, list[list[str]]]:
    """Name and SHA-256 of each file that a split is read from; of text without files, no name and its own SHA-256."""
    files = {split: input_files(config, split) for split in _SPLITS}
    paths = list(dict.fromkeys(chain.from_iterable(files.values())))
    if not paths:
        texts = {split: load_text(config, split) for split in _SPLITS}
        return {split: [["", text_sha256(text)]] for split, text in texts.items() if text is not None}
    for path in paths:
        with open_text(path):  # says what is wrong with a folder, a FIFO or a file that may not be read
            pass
    sha256 = dict(zip(paths, hashes.of(paths), strict=True))
    return {split: [[path.name, sha256[path]] for path in files[split]] for split in _SPLITS}


def cache_key(
    config: DataConfig,
    inputs: dict[Split, list[list[str]]],
    tokenizers: Tokenizers | None = None,
    left_out: frozenset[str] = frozenset(),
) -> str:
    """SHA-256 of the input files' bytes and of every option that changes what is made of them."""
    options = _chosen(values_that_affect("text", config), values_that_affect("text", type(config)()))
    for name, values in vocabulary_sizes(config).items():
        options["tokenizer"][name] = values if len(values) > 1 else values[0]
    for name in ("multiple_of", "model"):  # are in the sizes, and in `tokenizers`
        options["tokenizer"].pop(name, None)
    if not config.is_swapped:
        options.pop("languages", None)  # without effect unless the sides are swapped
    for name in ("clean", "clean_models"):
        options.pop(name, None)
    versions = filter_versions(config)
    if config.filters:
        options["clean"] = [FILTERS_VERSION, chosen_filters(config.filters), *([versions] if versions else [])]
    options.pop("options", None)
    if config.reader is not None:
        options["reader"] = [config.reader, reader_of(config).version]
        options["options"] = options_that_affect("text", READERS, config.reader, config.options)
    if "inline_tags" in options:
        options["inline_tags"] = [config.inline_tags, "spaced"]
    if is_mixed(config):
        options["parts.json"] = True
    if tokenizers is not None:
        options["tokenizer"] = tokenizers.source.sha256
        if not tokenizers.joint:
            options["tokenizer"] = [tokenizers.source.sha256, tokenizers.target.sha256]
    if left_out:
        options["left_out"] = sorted(left_out)
    everything = json.dumps([_FORMAT, options, list(inputs.values())], default=_enum_name, sort_keys=True)
    return hashlib.sha256(everything.encode()).hexdigest()


def _chosen(values: dict[str, Any], defaults: dict[str, Any]) -> dict[str, Any]:
    """The options that are in the key: a default is left out, but for _FIRST, so that later options keep older keys."""
    return {
        name: _chosen(value, defaults[name]) if name == "tokenizer" else value
        for name, value in values.items()
        if name in _FIRST or value != defaults[name]
    }


def vocabulary_sizes(config: DataConfig) -> dict[str, list[Any]]:
    """Whether a vocabulary has bytes, and its size, which follow from other options; of each, if sizes differ."""
    has_list = isinstance(config.tokenizer.vocab_size, list | tuple)
    each = [config.tokenizer.of_side(side) for side in ((0, 1) if has_list else (0,))]
    return {
        "byte_fallback": [one.byte_fallback if one.is_auto else one.has_bytes for one in each],
        "vocab_size": [AUTO if one.is_auto else one.size for one in each],
    }


def _enum_name(value: object) -> str:
    assert isinstance(value, Enum)
    return value.name


def is_mixed(config: DataConfig) -> bool:
    """Whether corpora of the training text are seen more or less often than once an epoch."""
    return bool(config.weights) or config.temperature != 1
