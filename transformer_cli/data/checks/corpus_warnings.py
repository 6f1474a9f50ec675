"""Probable faults of a corpus that can be prepared all the same; logged when it is prepared, and when training starts.

Training text that holds dev or test sentences, sides that are not in the languages that they are declared to be in,
text that is tokenized, and pairs that are no translations of each other.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from transformer_cli.config.data import DataConfig
from transformer_cli.config.tags import language_of, languages_of
from transformer_cli.config.tasks import Task
from transformer_cli.data.checks.languages import reads_like
from transformer_cli.data.checks.profiles import MIN_PROFILE, SEPARABLE, Profiles, cross_scores
from transformer_cli.data.checks.quick import TrainingPairs, percent
from transformer_cli.data.clean import CleanText
from transformer_cli.data.corpus import ParallelText, sentence_key
from transformer_cli.data.moses import tokenized_lines
from transformer_cli.data.normalization import canonical
from transformer_cli.data.splits import Splits
from transformer_cli.data.tags import split_tags
from transformer_cli.errors import quoted
from transformer_cli.languages import code_of_name, language_name

_SAMPLE = 2_000  # pairs of a split by which its languages are judged


@dataclass
class Leak:
    """Training pairs whose source sentence is in dev or test, however it is spaced or composed there."""

    split: str
    n_pairs: int = 0
    n_same_target: int = 0  # of these
    line: int = 0  # of the split, from 1: the first that was found
    text: str = ""

    def sentence(self, task: Task) -> str:
        what, same = task.leak
        text = self.text.replace("\t", " ")  # between words
        also = f" ({self.n_same_target:,} {same})" if task.has_source else ""
        return (
            f"data.{self.split}: {self.n_pairs:,} {what}{also}, such as line {self.line:,}, {quoted(text, 60)}:"
            " its scores will be too good. Remove them from data.train"
        )


@dataclass
class CorpusWarnings:
    """What was found when a corpus was prepared."""

    leaks: list[Leak] = field(default_factory=list)
    direction: list[str] = field(default_factory=list)
    n_read: list[int] = field(default_factory=list)  # pairs of each corpus before cleaning

    def sentences(self, task: Task) -> list[str]:
        return [*self.direction, *(leak.sentence(task) for leak in self.leaks)]


def find_warnings(train: CleanText, splits: Splits, config: DataConfig) -> CorpusWarnings:
    """The faults, found in one pass over the training text; in memory are dev and test, and a sample."""
    named = {"dev": splits.dev, "test": splits.test}
    held = {split: text for split, text in named.items() if text is not None and split not in splits.held}
    leaks = {split: Leak(split) for split in held}
    tags, key_of = config.all_tags, sentence_key(config)
    known = {split: _first_lines(text, tags, key_of) for split, text in held.items()}
    sample, every, counted = ParallelText(), 1 + len(train) // _SAMPLE, TrainingPairs()
    task, labels = config.trained, Counter[str]()
    for index, (line, target) in enumerate(train.each()):
        if index % every == 0:
            sample.sources.append(line)
            sample.targets.append(target)
        text = split_tags(line, tags)[1]
        counted.count(text, target)
        if task.has_labels:
            labels.update(task.labels_of(target))
        key = key_of(text)
        for split, lines in known.items():
            if key in lines:
                _count(leaks[split], key, lines[key][0], same=canonical(target) in lines[key][1])
    found = CorpusWarnings([leak for leak in leaks.values() if leak.n_pairs], n_read=list(train.text.sizes))
    if task.translates:
        texts = {
            f"data.{split}": text.pick(range(0, len(text), 1 + len(text) // _SAMPLE)) for split, text in held.items()
        }
        found.direction = [*_names_for_codes(config), *_direction(sample, texts, config)]
        found.direction += _tokenized({"data.train": sample, **texts})
        found.direction += counted.faults(_without_tags(sample, config), config)
    if labels:
        found.direction += task.label_faults(labels)
    return found


def _tokenized(texts: dict[str, ParallelText]) -> Iterator[str]:
    """One sentence for all the text that Moses has tokenized."""
    shares = {
        key: n_found / len(lines)
        for key, text in texts.items()
        if (n_found := tokenized_lines(lines := [*text.sources, *text.targets]))
    }
    if shares:
        yield (
            f"{' and '.join(shares)}: tokenized by Moses (`&apos;`, `&quot;`, `@-@` in {percent(max(shares.values()))}"
            " of the lines), so the model needs such text, and its scores are not those of plain text. Set"
            " data.detokenize=true"
        )


def _first_lines(
    text: ParallelText, tags: Sequence[str], key_of: Callable[[str], str]
) -> dict[str, tuple[int, set[str]]]:
    """The first line, from 1, of each source sentence, without its tags, and its translations."""
    found: dict[str, tuple[int, set[str]]] = {}
    for number, (source, target) in enumerate(text.each(), 1):
        if key := key_of(split_tags(source, tags)[1]):
            found.setdefault(key, (number, set()))[1].add(canonical(target))
    return found


def _count(leak: Leak, text: str, line: int, *, same: bool) -> None:
    leak.n_pairs += 1
    leak.n_same_target += same
    if leak.n_pairs == 1:
        leak.line, leak.text = line, text


def _names_for_codes(config: DataConfig) -> Iterator[str]:
    """A sentence for each language that is declared by its name, by which it is not known anywhere else."""
    for key, declared in (("data.source_lang", config.source_lang), ("data.target_lang", config.target_lang)):
        for language in languages_of(declared):
            if language_name(language) is None and (code := code_of_name(language.casefold())) is not None:
                yield (
                    f"{key}={declared}: {language} is the name of a language, and tokens of BLEU, ends of sentences and"
                    f" exports follow from its code. Write {code}"
                )


def _direction(train: ParallelText, held: dict[str, ParallelText], config: DataConfig) -> Iterator[str]:
    undoubted = dict(held)
    for key, text in {"data.train": train, **held}.items():
        for what, todo in unlike_declared(text, config):
            undoubted.pop(key, None)
            yield f"{key}: {what}. {todo}"
    train = _without_tags(train, config)
    undoubted = {key: _without_tags(text, config) for key, text in undoubted.items()}
    if not undoubted or len(train) < MIN_PROFILE:
        return
    source_scores, target_scores = cross_scores(train.sources, train.targets)
    if (source_scores * target_scores < 0).mean() < SEPARABLE:
        return
    profiles = Profiles(train.sources, train.targets)
    for key, text in undoubted.items():
        exchanged = (profiles.scores(text.sources) < 0) & (profiles.scores(text.targets) > 0)
        if 2 * exchanged.sum() > len(text):
            yield f"{key}: source and target are exchanged, compared with data.train. Exchange the two files of {key}"


def unlike_declared(text: ParallelText, config: DataConfig) -> Iterator[tuple[str, str]]:
    """The fault and its remedy, for each side that is clearly in another language than it is declared to be.

    Of several target languages, that of a pair is the one that its tags name.
    """
    by_language: dict[str, list[str]] = {}
    for source, target in text.each():
        by_language.setdefault(language_of(split_tags(source, config.all_tags)[0], config.target_lang), []).append(
            target
        )
    if len(by_language) > 1 or config.target_lang not in by_language:
        for language, lines in by_language.items():
            if (found := reads_like(lines, language)) is not None:
                yield (
                    f"the target side of {language} (by its tags in data.tags) reads like {found}",
                    "Give the tags in the order of the corpora",
                )
    sides = [("source", config.source_lang, _without_tags(text, config).sources)]
    if config.target_lang in by_language:
        sides.append(("target", config.target_lang, text.targets))
    for side, language, lines in sides:
        if (found := reads_like(lines, language)) is not None:
            yield (
                f"the {side} side is declared {language} (data.{side}_lang), but reads like {found}",
                "Name files, or the columns of a table (data.columns), in the order source, target, or correct the key",
            )


def _without_tags(text: ParallelText, config: DataConfig) -> ParallelText:
    return ParallelText([split_tags(line, config.all_tags)[1] for line in text.sources], text.targets)
