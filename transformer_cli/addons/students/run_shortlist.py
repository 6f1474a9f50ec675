"""`tfm shortlist`: a lexical shortlist of a model from a text and its translation, for decode.shortlist."""

import random
from collections.abc import Sequence
from pathlib import Path

from transformer_cli.addons.students.keys import ShortlistConfig
from transformer_cli.addons.students.translation_table import MOST_PIECES, translation_table, unwritable
from transformer_cli.data.checks.languages import reads_like
from transformer_cli.data.lines import read_lines, shown
from transformer_cli.data.tokenizer import Tokenizers
from transformer_cli.decoding.shortlist import SHORTLIST_FILE, Shortlist
from transformer_cli.errors import CheckpointError, ConfigError, DataError
from transformer_cli.evaluation.model_test_sets import warn_of_other_language
from transformer_cli.logs import LOGGER
from transformer_cli.models.file import read_model, require
from transformer_cli.models.locate import locate_model
from transformer_cli.text_io import check_files

_MOST_HELD_OUT = 1000  # pairs that the lists are tried on
_IdPair = tuple[Sequence[int], Sequence[int]]
_Text = tuple[str, Sequence[str]]  # name of a file, and its lines


def run(config: ShortlistConfig) -> None:
    """Write the shortlist of a model. Raises TfmError."""
    for flag, name in (("--source", config.source), ("--translation", config.translation)):
        if name is None:
            raise ConfigError(f"{flag}: not given. Name two files, as --source train.en --translation train.de")
    assert config.source is not None
    assert config.translation is not None
    path = locate_model(config.checkpoint, config.runs)
    output = path.parent / SHORTLIST_FILE if config.output is None else Path(config.output)
    inputs = {"--source": config.source, "--translation": config.translation, "--checkpoint": str(path)}
    check_files(inputs, {"--output": str(output)}, overwrite=config.overwrite)
    model = read_model(path)
    require(model, path, "transformer")
    sizes = len(model.tokenizers.source), len(model.tokenizers.target)
    if max(sizes) > MOST_PIECES:
        raise CheckpointError(
            f"{path}: a vocabulary of {max(sizes):,} pieces; lists are made of {MOST_PIECES:,} at most"
        )
    languages = model.source_lang, model.target_lang
    sources, targets = read_lines(Path(config.source)).texts, read_lines(Path(config.translation)).texts
    refuse_exchanged((config.source, sources), (config.translation, targets), languages)
    pairs = ids_of_pairs(model.tokenizers, (config.source, sources), (config.translation, targets))
    print_trial(pairs, config)
    shortlist_of(pairs, sizes[0], config).write(output, model.tokenizers, languages)
    print(shown(str(output)))


def refuse_exchanged(source: _Text, target: _Text, languages: tuple[str, str]) -> None:
    """Warn of a text in another language than the model's. Raises DataError for two that are exchanged.

    One vocabulary may serve both languages, so that lists of exchanged texts would look sound.
    """
    found = [reads_like(lines, code) for (_, lines), code in zip((source, target), languages, strict=True)]
    if all(found):
        raise DataError(
            f"{shown(source[0])}: reads like {found[0]}, and {shown(target[0])} like {found[1]}, but the model"
            f" translates {languages[0]} into {languages[1]}. Give --source {shown(target[0])} --translation"
            f" {shown(source[0])}"
        )
    for (name, lines), code, way in zip((source, target), languages, ("from", "into"), strict=True):
        warn_of_other_language(name, lines, code, way)


def ids_of_pairs(tokenizers: Tokenizers, source: _Text, translation: _Text) -> list[_IdPair]:
    """The ids of the pairs of two texts, without those that are blank on a side. Raises DataError."""
    sources, targets = source[1], translation[1]
    if len(sources) != len(targets):
        raise DataError(
            f"{shown(translation[0])}: has {len(targets):,} lines, {shown(source[0])} {len(sources):,}. Make line n of"
            " one the translation of line n of the other"
        )
    source_ids = tokenizers.source.encode(sources)
    target_ids = tokenizers.target.without_tags().encode(targets, as_written=True)
    pairs: list[_IdPair] = [pair for pair in zip(source_ids, target_ids, strict=True) if all(pair)]
    if not pairs:
        raise DataError(f"{shown(source[0])}: no pair has text on both sides. Name two files of sentences")
    return pairs


def shortlist_of(pairs: Sequence[_IdPair], n_source: int, config: ShortlistConfig) -> Shortlist:
    return translation_table(pairs).shortlist(n_source, n_frequent=config.frequent, n_best=config.best)


def print_trial(pairs: Sequence[_IdPair], config: ShortlistConfig) -> None:
    """Say how long the lists are, and what they leave out, on some pairs that are held out of them."""
    shuffled = random.Random(1).sample(pairs, len(pairs))
    n_held_out = min(_MOST_HELD_OUT, len(pairs) // 10)
    held_out, rest = shuffled[:n_held_out], shuffled[n_held_out:]
    if not held_out:
        LOGGER.warning("%d pairs: too few to try the lists on others", len(pairs))
        return
    shortlist = shortlist_of(rest, 1 + max(max(source) for source, _ in pairs), config)
    n_tokens = sum(len(shortlist.of(source)) for source, _ in held_out) / len(held_out)
    lacking = [unwritable(shortlist, *pair) for pair in held_out]
    share = sum(map(len, lacking)) / sum(len(target) for _, target in held_out)
    LOGGER.info(
        "lists of %.0f tokens in the mean; of %s held-out translations they lack %.2f %% of the tokens, and some of"
        " %.1f %% of the lines",
        n_tokens,
        f"{len(held_out):,}",
        100 * share,
        100 * sum(map(bool, lacking)) / len(held_out),
    )
