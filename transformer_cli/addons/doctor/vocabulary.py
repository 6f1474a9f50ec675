"""Checks of the vocabulary: unknown characters, text that changes in a round trip, unused pieces."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from transformer_cli.addons.doctor.findings import Section, listed
from transformer_cli.config.train import TrainConfig
from transformer_cli.data.cache import Array
from transformer_cli.data.checks.quick import percent
from transformer_cli.data.corpus import ParallelText
from transformer_cli.data.normalization import canonical
from transformer_cli.data.prepare import Prepared
from transformer_cli.data.sentencepiece_model import SPACE
from transformer_cli.data.tokenizer import Tokenizer

_SAMPLE = 20_000  # lines of a side of dev or test
MANY_UNKNOWN = 0.001  # of the tokens
RARE = 5  # occurrences in the training text, below which an embedding is hardly trained
MANY_LONG = 0.005  # of the source lines of dev or test
MANY_RARE = 0.5  # of the vocabulary
_IDS_AT_A_TIME = 1 << 23


def check_tokenizer(config: TrainConfig, prepared: Prepared, section: Section) -> None:
    """Findings and figures on the tokenizers of both sides."""
    _check_vocabulary(prepared, section, is_given=config.init.from_ is not None)
    _report_lengths(prepared, section)
    for name, text in (("dev", prepared.dev), ("test", prepared.test)):
        if text is not None:
            _check_split(f"data.{name}", text, prepared, config, section)


def _check_vocabulary(prepared: Prepared, section: Section, *, is_given: bool) -> None:
    """How much of the vocabulary the training text uses: no fault of one that is given."""
    corpus, tokenizers = prepared.train, prepared.tokenizers
    sides = [("source", tokenizers.source, [corpus.source_ids]), ("target", tokenizers.target, [corpus.target_ids])]
    if tokenizers.joint:
        sides = [("joint", tokenizers.source, [corpus.source_ids, corpus.target_ids])]
    for name, tokenizer, texts in sides:
        counts = np.sum([_counts(ids, len(tokenizer)) for ids in texts], axis=0)
        special = [tokenizer.pad_id, tokenizer.unk_id, tokenizer.bos_id, tokenizer.eos_id]
        pieces = np.delete(counts, special)
        n_rare = int((pieces < RARE).sum())
        section.figures[name] = {
            "size": len(tokenizer),
            "used": int((pieces > 0).sum()) + len(special),
            "rare": n_rare,
            "unknown_in_train": int(counts[tokenizer.unk_id]),
        }
        what = f"{name} vocabulary of {len(tokenizer):,}: {int((pieces == 0).sum()):,} pieces never seen in training"
        what += f", {n_rare:,} fewer than {RARE} times ({percent(n_rare / len(tokenizer))})"
        if n_rare > MANY_RARE * len(tokenizer) and not is_given:
            fewer = max(100, round(0.5 * (len(tokenizer) - n_rare), -2))
            todo = f"Try data.tokenizer.vocab_size={fewer:.0f}: the embeddings of rare pieces are hardly trained"
            section.warn("vocabulary", what, todo)
        else:
            section.ok("vocabulary", what)


def _counts(ids: Array, vocab_size: int) -> Array:
    counts = np.zeros(vocab_size, np.int64)
    for first in range(0, len(ids), _IDS_AT_A_TIME):
        counts += np.bincount(ids[first : first + _IDS_AT_A_TIME], minlength=vocab_size)
    return counts


def _report_lengths(prepared: Prepared, section: Section) -> None:
    source, target = prepared.train.source_lengths, prepared.train.target_lengths
    means = round(float(source.mean()) - 1, 2), round(float(target.mean()) - 1, 2)  # EOS is no part of the line
    longest = int(source.max()), int(target.max())
    section.figures["train"] = {
        "source_tokens_per_line": means[0],
        "target_tokens_per_line": means[1],
        "longest_source": longest[0],
        "longest_target": longest[1],
    }
    what = f"{means[0]:.1f} source and {means[1]:.1f} target tokens a line, {longest[0]:,} and {longest[1]:,} at most"
    section.ok("data.train", what)


@dataclass(frozen=True)
class _Side:
    """One side of dev or test in tokens; `figures` is where its numbers are written down."""

    key: str
    name: str
    tokenizer: Tokenizer
    lines: Sequence[str]
    sentences: Sequence[Sequence[int]]
    figures: dict[str, Any]


def _check_split(key: str, text: ParallelText, prepared: Prepared, config: TrainConfig, section: Section) -> None:
    """Both sides of dev or test: a warning for each fault, and one line for all checks that passed."""
    section.figures[key] = {}
    fine: list[str] = []
    for name, tokenizer, lines in (
        ("source", prepared.tokenizers.source, text.sources[:_SAMPLE]),
        ("target", prepared.tokenizers.target, text.targets[:_SAMPLE]),
    ):
        sentences = tokenizer.encode(lines, as_written=True)
        figures = {"tokens_per_line": round(sum(map(len, sentences)) / max(1, len(lines)), 2)}
        section.figures[key][name] = figures
        side = _Side(key, name, tokenizer, lines, sentences, figures)
        fine += [*_check_unknown(side, section), *_check_round_trip(side, section)]
        if name == "source":
            fine += _check_long(side, config.decode.max_source_length or config.data.max_length - 1, section)
    if fine:
        first = f"the first {_SAMPLE:,} lines: " if len(text) > _SAMPLE else ""
        section.ok(key, f"{first}{', '.join(fine)}")


def _check_unknown(side: _Side, section: Section) -> Iterator[str]:
    n_tokens = sum(map(len, side.sentences))
    unknown_ids = side.tokenizer.unknown_ids
    n_unknown = sum(token in unknown_ids for ids in side.sentences for token in ids)
    rate = n_unknown / max(1, n_tokens)
    side.figures["unknown_rate"] = rate
    if rate > MANY_UNKNOWN and n_unknown > 2 and not side.tokenizer.has_words_only:
        has_bytes = len(unknown_ids) > 1
        named = "bytes of characters that the vocabulary does not have" if has_bytes else "unknown"
        what = f"{n_unknown:,} of {n_tokens:,} {side.name} tokens are {named} ({percent(rate)})"
        spell = "" if has_bytes else "Set data.tokenizer.byte_fallback=true, or c"
        todo = f"{spell or 'C'}heck that the text is in the language of training"
        section.warn(side.key, f"{what}, as {_unknown_characters(side)}", todo)
    else:
        yield f"{n_unknown:,} of {n_tokens:,} {side.name} tokens unknown"


def _unknown_characters(side: _Side) -> str:
    """The characters that the vocabulary has not, most frequent first."""
    unknown_ids = side.tokenizer.unknown_ids
    with_unknown = (
        line for line, ids in zip(side.lines, side.sentences, strict=True) if not unknown_ids.isdisjoint(ids)
    )
    frequent = [character for character, _ in Counter("".join(map(canonical, with_unknown))).most_common()]
    encoded = zip(frequent, side.tokenizer.encode(frequent, as_written=True), strict=True)
    unknown = [character for character, ids in encoded if not unknown_ids.isdisjoint(ids)]
    return listed(
        f"U+{ord(character):04X}{f' {character}' if character.isprintable() else ''}" for character in unknown
    )


def _check_round_trip(side: _Side, section: Section) -> Iterator[str]:
    """Lines without unknown tokens must come back as they stand in the file, but for white space."""
    known = [i for i, ids in enumerate(side.sentences) if side.tokenizer.unk_id not in ids]
    changed: list[int] = []
    respelled: list[int] = []
    for i in known:
        line = _text_of(side, " ".join(side.lines[i].split()))
        back = _text_of(side, side.tokenizer.decode(side.sentences[i]))
        if back != line:
            is_same = canonical(back) == canonical(line) and SPACE not in line
            (respelled if is_same else changed).append(i + 1)
    side.figures["changed_by_round_trip"], side.figures["respelled_by_round_trip"] = len(changed), len(respelled)
    for lines, how, todo in (
        (changed, "changed", "Look for ▁ and control characters there: the model can never write them"),
        (
            respelled,
            "without format characters, or with letters composed in another way,",
            "Metrics compare characters: write those letters in one way in all of the text",
        ),
    ):
        if lines:
            what = f"{len(lines):,} of {len(known):,} known {side.name} lines come back {how} from their tokens"
            section.warn(side.key, f"{what}: line {listed(lines)}", todo)
    if not changed and not respelled:
        yield "all come back from their tokens"


def _text_of(side: _Side, line: str) -> str:
    """The line without its tags, where they are tokens of languages: not all of them come back."""
    tags = side.tokenizer.tags if side.tokenizer.languages else ()
    while line.partition(" ")[0] in tags:
        line = line.partition(" ")[2]
    return line


def _check_long(side: _Side, longest: int, section: Section) -> Iterator[str]:
    """Source lines that translation would split or cut."""
    long = [i + 1 for i, ids in enumerate(side.sentences) if len(ids) > longest]
    side.figures["over_max_source_length"] = len(long)
    if len(long) > MANY_LONG * len(side.lines):
        what = f"{len(long):,} source lines over decode.max_source_length={longest}: line {listed(long)}"
        section.warn(side.key, what, "Raise it, or they are translated in parts")
    else:
        yield f"{len(long):,} too long to translate whole"
