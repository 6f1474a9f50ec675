"""Checks of the text of a prepared corpus for faults that spoil a training run without stopping it.

Each limit below was set on real corpora (Multi30k, Tatoeba, IWSLT, Europarl, WMT news, TED, Tanaka), with room between
the worst of the sound ones, whose figure is given, and the same text broken on purpose.
"""

import os
import re
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from transformer_cli.addons.doctor.findings import Section, listed
from transformer_cli.addons.doctor.length_ratios import length_outliers, spread
from transformer_cli.config.data import DataConfig
from transformer_cli.data.cache import Array
from transformer_cli.data.checks.corpus_warnings import unlike_declared
from transformer_cli.data.checks.lengths import WINDOW, alignment_slips, shown_lag
from transformer_cli.data.checks.overlap import MANY_LEAKED_PAIRS, MANY_LEAKED_SOURCES, leaks
from transformer_cli.data.checks.profiles import MIN_PROFILE, SEPARABLE, Floats, Profiles, cross_scores
from transformer_cli.data.checks.quick import MANY_BY_CHANCE, MANY_COPIES, MANY_FOREIGN, foreign_lines, percent
from transformer_cli.data.clean import CleaningReport
from transformer_cli.data.corpus import ParallelText, Text, input_files, stream_text
from transformer_cli.data.normalization import canonical
from transformer_cli.data.prepare import Prepared
from transformer_cli.data.readers import Split
from transformer_cli.data.tags import split_tags
from transformer_cli.data.tokenizer import Tokenizer
from transformer_cli.environment import folder_named
from transformer_cli.errors import DataError

MAX_READ_BYTES = 1 << 27  # of training files; larger ones are not read again but sampled from the prepared text

MANY_DROPPED = 0.1  # of the training pairs, by one filter
MANY_REPEATED = 0.05  # of a dev or test set; 1 % at most in sound ones
MANY_DAMAGED = 0.001  # lines with broken characters
FEW_PAIRS = 100  # in dev or test: BLEU of fewer moves by points at random

MANY_OUTLIERS = 0.01  # in length ratio; 0.3 % of sound text; 2 % of a TED talk whose segments slipped by one

_MANY_SWAPPED = 0.002  # pairs whose sides are each classified as the other; none at all


# U+FFFD, controls of C1 (Windows-1252 read as Latin-1), and UTF-8 read as Latin-1 or Windows-1252.
_DAMAGE = re.compile("[\ufffd\x80-\x84\x86-\x9f]|Ã[\x80-\xbf€‚ƒ„…†‡ˆ‰Š‹Œ‘’“”•–—™š›œžŸ]|â€[\x80-\xbf™œ˜]")


@dataclass(frozen=True)
class Excerpt:
    """Pairs of a split: all of them, or some from all over it; with the lengths of all, in characters or in tokens."""

    key: str
    text: ParallelText
    numbers: Array  # of each pair in its split, from 1
    unit: str  # what the numbers count
    source_lengths: Array
    target_lengths: Array

    @property
    def n_all(self) -> int:
        return len(self.source_lengths)

    @property
    def of_how_many(self) -> str:
        n = len(self.text)
        return f"{n:,}" if n == self.n_all else f"{n:,} sampled from {self.n_all:,}"

    def named(self, found: Array) -> str:
        """The numbers of the pairs at the indices `found`."""
        return f"{self.unit} {listed(int(number) for number in self.numbers[found])}"


def check_text(config: DataConfig, prepared: Prepared, section: Section) -> None:
    """Findings and figures on every split. `prepared` is what `config` was made into."""
    excerpts = list(_excerpts(config, prepared))
    train, *held = excerpts
    _check_kept(prepared.report, section)
    for excerpt in excerpts:
        section.figures[excerpt.key] = {"pairs": excerpt.n_all, "looked_at": len(excerpt.text)}
        _check_split(excerpt, section, is_aligned=not config.truncate_source)
    exchanged = _check_languages(train, held, section)
    for excerpt in excerpts:
        for what, todo in unlike_declared(excerpt.text, config) if excerpt.key not in exchanged else ():
            section.warn(excerpt.key, what, todo)
    for excerpt, (pairs, sources) in zip(held, leaks([excerpt.text for excerpt in held], prepared), strict=True):
        _check_leaks(excerpt, pairs, sources, section)


# ---- What is examined


def _excerpts(config: DataConfig, prepared: Prepared) -> Iterator[Excerpt]:
    """Training text first, then dev and test."""
    files = input_files(config, "train")
    if sum(path.stat().st_size for path in files) <= MAX_READ_BYTES:
        yield _training_excerpt(config)
    else:
        yield _prepared_excerpt(prepared, config.all_tags)
    texts: list[tuple[Split, ParallelText | None]] = [("dev", prepared.dev), ("test", prepared.test)]
    for split, text in texts:
        if text is not None:
            is_own = config.has_own_test if split == "test" else config.builtin is not None or config.dev is not None
            yield _excerpt(f"data.{split}", text, "line" if is_own else "held-out pair", config.all_tags)


def _training_excerpt(config: DataConfig) -> Excerpt:
    """The training text as it is in its files, which need more room than memory should give."""
    with TemporaryDirectory(prefix=".doctor-", dir=_writable(folder_named(config.cache))) as spool:
        text = stream_text(config, Path(spool))
        return _excerpt("data.train", text, "line" if text.n_bad == 0 else "readable pair", config.all_tags)


def _writable(folder: Path) -> Path | None:
    """`folder`, or None for that of temporary files."""
    return folder if os.access(folder, os.W_OK | os.X_OK) else None


def _excerpt(key: str, text: Text, unit: str, tags: Sequence[str]) -> Excerpt:
    """Pairs from all over a text, without the tags of their sources."""
    n = sum(text.sizes)
    lengths = array("i"), array("i")
    chosen = spread(n)
    is_chosen = np.zeros(n, np.bool_)
    is_chosen[chosen] = True
    sample = ParallelText()
    for index, (line, target) in enumerate(text.each()):
        source = split_tags(line, tags)[1]
        lengths[0].append(len(source))
        lengths[1].append(len(target))
        if is_chosen[index]:
            sample.sources.append(source)
            sample.targets.append(target)
    return Excerpt(key, sample, chosen + 1, unit, *(np.array(side, np.int32) for side in lengths))


def _prepared_excerpt(prepared: Prepared, tags: Sequence[str]) -> Excerpt:
    """The training text as it was prepared: decoded here and there, its lengths in tokens."""
    corpus, tokenizers = prepared.train, prepared.tokenizers
    chosen = spread(len(corpus))

    def decoded(tokenizer: Tokenizer, ids: Array, offsets: Array) -> list[str]:
        return [tokenizer.decode(ids[offsets[i] : offsets[i + 1]].tolist()) for i in chosen]

    tagged = decoded(tokenizers.source, corpus.source_ids, corpus.source_offsets)
    sources = [split_tags(line, tags)[1] for line in tagged]
    targets = decoded(tokenizers.target, corpus.target_ids, corpus.target_offsets)
    text, unit = ParallelText(sources, targets), "prepared pair"
    return Excerpt("data.train", text, chosen + 1, unit, corpus.source_lengths, corpus.target_lengths)


# ---- One split by itself


def _check_kept(report: CleaningReport, section: Section) -> None:
    """What the filters dropped, of all training pairs."""
    dropped = {
        "unreadable": (report.n_bad, 0.001, "Correct those lines: they are named above"),
        "blank": (report.n_blank, MANY_DROPPED, "Check that the files belong together"),
        # What was held out for a score of the model that training begins with is no fault, however much it is.
        "held out before": (report.n_left_out, 1, ""),
        "repeated": (report.n_duplicate, MANY_DROPPED, "Set data.drop_duplicates=false if they should count"),
        f"over {report.max_length} tokens": (report.n_long, MANY_DROPPED, "Raise data.max_length or split the lines"),
        f"over a length ratio of {report.max_ratio:g}": (
            report.n_uneven,
            MANY_DROPPED,
            "Check the alignment, or raise data.max_ratio",
        ),
    }
    section.figures["filters"] = {
        "read": report.n_read,
        "kept": report.n_kept,
        "not_utf8": report.n_bad,
        "blank": report.n_blank,
        "held_out_before": report.n_left_out,
        "repeated": report.n_duplicate,
        "long": report.n_long,
        "uneven": report.n_uneven,
        "control_characters": report.n_control,
        "format_characters": report.n_format,
        "truncated": report.n_truncated,
    }
    parts = [f"{count:,} {name} ({percent(count / report.n_read)})" for name, (count, _, _) in dropped.items() if count]
    what = f"{report.n_kept:,} of {report.n_read:,} pairs kept; dropped: {', '.join(parts) or 'none'}"
    advice = [todo for count, most, todo in dropped.values() if count > most * report.n_read]
    if advice:
        section.warn("data.train", what, ". ".join(advice))
    else:
        section.ok("data.train", what)


def _check_split(excerpt: Excerpt, section: Section, *, is_aligned: bool) -> None:
    """Checks of one split: a warning for each fault, and one line for all checks that passed.

    Unless it `is_aligned`, lengths say nothing: those of summaries do not follow from those of their sources.
    """
    if excerpt.n_all < FEW_PAIRS and excerpt.key != "data.train":
        what = f"{excerpt.n_all:,} pairs: too few for a score that can be trusted"
        section.warn(excerpt.key, what, "Use a few hundred or more")
    fine = [*_check_lines(excerpt, section)]
    if is_aligned:
        fine += _check_lengths(excerpt, section)
        _check_alignment(excerpt, section)
    if fine:
        section.ok(excerpt.key, f"{excerpt.of_how_many} pairs examined: {', '.join(fine)}")


def _check_lines(excerpt: Excerpt, section: Section) -> Iterator[str]:
    """Blank, repeated, copied and damaged lines: a warning, or a few words for what is fine."""
    pairs = list(zip(excerpt.text.sources, excerpt.text.targets, strict=True))
    n = len(pairs)
    keys = [(canonical(source), canonical(target)) for source, target in pairs]
    blank = np.array([not (source and target) for source, target in keys], bool)
    copied = np.array([source == target for source, target in keys], bool) & ~blank
    damaged = np.array([bool(_DAMAGE.search(source) or _DAMAGE.search(target)) for source, target in pairs], bool)
    first: dict[tuple[str, str], int] = {}
    repeated = np.array([first.setdefault(pair, i) != i for i, pair in enumerate(keys)], bool) & ~blank
    for name, words, mask, most, todo in (
        ("blank", "blank", blank, 0.0, "Remove them on both sides: they distort every score"),
        ("repeated", "repeated", repeated, MANY_REPEATED, "Remove the repetitions: they count twice in every score"),
        ("copied", "with equal sides", copied, MANY_COPIES, "Translate or drop them; is one file named twice?"),
        ("damaged", "with damaged characters", damaged, MANY_DAMAGED, "Decode the text with its true encoding"),
    ):
        if excerpt.key == "data.train" and name in ("blank", "repeated"):  # the filters have counted and dropped them
            continue
        indices = np.flatnonzero(mask)
        section.figures[excerpt.key][name] = len(indices)
        if len(indices) > max(most * n, MANY_BY_CHANCE if most else 0):
            what = f"{len(indices):,} of {excerpt.of_how_many} pairs {words} ({percent(len(indices) / n)})"
            section.warn(excerpt.key, f"{what}: {excerpt.named(indices)}", todo)
        else:
            yield f"{len(indices):,} {words}"


def _check_lengths(excerpt: Excerpt, section: Section) -> Iterator[str]:
    """Pairs whose lengths are out of proportion, among all of the split: often no translations of each other."""
    n_outliers, worst = length_outliers(excerpt.source_lengths, excerpt.target_lengths)
    section.figures[excerpt.key]["uneven"] = n_outliers
    section.figures[excerpt.key]["most_uneven"] = [index + 1 for index in worst[:5]]
    examples = f": {excerpt.unit} {listed(index + 1 for index in worst)}" if worst else ""
    share = n_outliers / max(1, excerpt.n_all)
    if share > MANY_OUTLIERS and n_outliers > MANY_BY_CHANCE:
        what = f"{n_outliers:,} of {excerpt.n_all:,} pairs of an unlikely length ratio ({percent(share)}){examples}"
        section.warn(excerpt.key, what, "Check those lines: are they translations of each other?")
    else:
        yield f"{n_outliers:,} of an unlikely length ratio{examples}"


def _check_alignment(excerpt: Excerpt, section: Section) -> None:
    """Stretches where line i of one side goes with another line of the other, or with none."""
    slips = alignment_slips(excerpt.source_lengths, excerpt.target_lengths)
    section.figures[excerpt.key]["misaligned_windows"] = len(slips)
    if not slips:
        return
    start, lag = slips[0]
    how = "lengths of source and target have nothing to do with each other"
    if lag:
        how = shown_lag(lag)
    where = f"from about {excerpt.unit} {start + 1:,}" + (
        f", in {len(slips)} stretches of {WINDOW}" if len(slips) > 1 else ""
    )
    todo = "Find a line that is missing or doubled on one side shortly before"
    section.error(excerpt.key, f"the sides are not aligned {where}: {how}", todo, DataError)


# ---- Which language is where


def _check_languages(train: Excerpt, held: list[Excerpt], section: Section) -> set[str]:
    """Sides that are exchanged or mixed, by the trigram profiles of the two sides of the training text.

    Returns the keys of the splits that are exchanged as a whole.
    """
    sources, targets = train.text.sources, train.text.targets
    if len(sources) < MIN_PROFILE:
        section.ok("languages", f"not compared: {len(sources):,} training pairs are too few for language profiles")
        return set()
    source_scores, target_scores = cross_scores(sources, targets)
    apart = float((source_scores * target_scores < 0).mean())
    section.figures["told_apart"] = round(apart, 4)
    if apart < SEPARABLE:
        what = f"in only {percent(apart)} of the training pairs the sides are classified as two languages"
        section.warn("languages", what, "Check both files: is one language on both sides, or both on each?")
        return set()
    section.ok("languages", f"in {apart:.1%} of the training pairs the sides are classified as two languages")
    _check_sides(train, source_scores, target_scores, section)
    profiles, exchanged = Profiles(sources, targets), set()
    for excerpt in held:
        text = excerpt.text
        if not _check_sides(excerpt, profiles.scores(text.sources), profiles.scores(text.targets), section):
            exchanged.add(excerpt.key)
    return exchanged


def _check_sides(excerpt: Excerpt, source_scores: Floats, target_scores: Floats, section: Section) -> bool:
    """Whether the sides are where they should be but for some pairs."""
    swapped = np.flatnonzero((source_scores < 0) & (target_scores > 0))
    foreign = [
        (side, other, np.flatnonzero(found)) for side, other, found in foreign_lines(source_scores, target_scores)
    ]
    n = max(1, len(source_scores))
    figures = section.figures[excerpt.key]
    figures["swapped"] = len(swapped)
    figures |= {f"{side}_like_{other}": len(lines) for side, other, lines in foreign}
    of = f"of {excerpt.of_how_many}"
    if 2 * len(swapped) > n:
        what = f"source and target are exchanged, compared with data.train ({len(swapped):,} {of} pairs)"
        section.error(excerpt.key, what, f"Exchange the two files of {excerpt.key}", DataError)
        return False
    if len(swapped) > max(MANY_BY_CHANCE, _MANY_SWAPPED * n):
        what = f"{len(swapped):,} {of} pairs have their sides exchanged: {excerpt.named(swapped)}"
        section.warn(excerpt.key, what, "Exchange the sides of those lines, or drop them")
    for side, other, lines in foreign:
        if len(lines) > max(MANY_BY_CHANCE, MANY_FOREIGN * n):
            share = percent(len(lines) / n)
            what = f"{len(lines):,} {of} {side} lines are in the {other} language ({share}): {excerpt.named(lines)}"
            section.warn(excerpt.key, what, "Drop the pairs that are not translated")
    return True


# ---- What is in two splits


def _check_leaks(excerpt: Excerpt, pairs: Array, sources: Array, section: Section) -> None:
    """Dev or test sentences that are trained on, among all prepared training pairs."""
    n = max(1, len(excerpt.text))
    n_pairs, n_sources = len(pairs), len(sources)
    section.figures[excerpt.key] |= {"pairs_in_train": n_pairs, "sources_in_train": n_sources}
    what = f"{n_pairs:,} of {excerpt.of_how_many} pairs are in data.train ({percent(n_pairs / n)})"
    what += f", {n_sources:,} by their source alone ({percent(n_sources / n)})"
    if n_pairs > MANY_LEAKED_PAIRS * n or n_sources > MANY_LEAKED_SOURCES * n:
        what += f": {excerpt.named(pairs if n_pairs else sources)}"
        section.warn(excerpt.key, what, "Remove them from the training text, or scores will be too good")
    else:
        section.ok(excerpt.key, what)
