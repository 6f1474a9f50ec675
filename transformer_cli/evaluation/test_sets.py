"""Test sets from a set of sacrebleu by name, from files, or from a corpus. No torch is needed."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from transformer_cli.config.data import DataConfig
from transformer_cli.config.evaluate import EvaluateConfig
from transformer_cli.data.context import Context
from transformer_cli.data.corpus import ParallelText, TextPart, load_text
from transformer_cli.data.download import fetch
from transformer_cli.data.lines import FIRST_LINES, Lines, read_lines, shown, warn_of_columns
from transformer_cli.data.moses import tokenized_lines
from transformer_cli.data.named_sets import check_languages, check_set, set_files, set_names
from transformer_cli.data.prepare import prepare
from transformer_cli.errors import ConfigError, DataError
from transformer_cli.evaluation.tokenization import Tokenization, tokenization
from transformer_cli.logs import LOGGER


class NamesReferences(Protocol):
    """The keys of a command that scores translations, which say what with."""

    reference: Any
    tokenize: str | None
    data: DataConfig | None


@dataclass(frozen=True)
class TestSet:
    """Lines to translate or to classify, and one or more reference translations, or the label, of each.

    Where translations are given there need be no lines to translate.
    """

    name: str
    sources: Sequence[str]
    references: Sequence[Sequence[str]]
    parts: Sequence[TextPart] = ()  # which are scored by themselves, too; none of most
    languages: tuple[str, str] | None = None  # of the sources and the references, where the set itself says so
    contexts: Sequence[Context] = ()  # of each source, where they do not stand before it in the set


_LANGUAGE = re.compile(r"[A-Za-z]{2,3}([-_][A-Za-z]{2,4})?")
# Endings of text files that look like codes of languages.
_OF_OTHER_FILES = frozenset(
    ("bpe", "csv", "hyp", "out", "raw", "ref", "sgm", "spm", "src", "tgt", "tok", "trg", "tsv", "txt", "xml")
)


def named_test_sets(names: Sequence[str], languages: str) -> list[TestSet]:
    """Test sets that sacrebleu has, by their names, in the direction `languages`, as en-de; downloaded if need be.

    Raises ConfigError for a name or a direction that there is not, EnvironmentFault for a set that cannot be had.
    """
    pair = check_languages(languages)
    for name in names:  # before any is downloaded
        check_set(name, languages, asked_by=f"--test-set {name}")
    found: list[TestSet] = []
    for name in names:
        files = set_files(name, languages, asked_by=f"--test-set {name}")
        found.append(TestSet(files.title, *files.read(), languages=pair))
    return found


def listed_sets(languages: str | None) -> dict[str, list[str]]:
    """The sets that there are, with their language pairs. Raises ConfigError if none has the pair `languages`."""
    if languages is not None:
        check_languages(languages)
    found = set_names(languages)
    if not found:
        raise ConfigError(f"--languages {languages}: no test set of sacrebleu has it. Leave it out to print all")
    return found


def own_files(config: EvaluateConfig) -> TestSet:
    """--source and --reference."""
    source = Path(str(config.source))
    sources = read_lines(source)
    references = [read_lines(Path(file)) for file in reference_files(config)]
    for reference in references:
        if len(reference) != len(sources):
            raise DataError(
                f"{reference.name}: has {len(reference):,} lines, {sources.name} {len(sources):,}, so nothing is"
                " scored. Make line n of one the translation of line n of the other"
            )
    warn_of_tokens([sources, *references])
    for lines in (sources, *references):
        warn_of_columns(lines.name, list(map(str.encode, lines.texts[:FIRST_LINES])), "scored")
    warn_of_blanks(sources, references)
    for file in reference_files(config):
        if source.samefile(file):
            LOGGER.warning("%s: is both --source and --reference, which says nothing of a translation", shown(file))
    return TestSet(source.name, sources.texts, [reference.texts for reference in references])


def own_references(config: EvaluateConfig, hypotheses: Lines) -> TestSet:
    """--reference, and --source for its number of lines and for metrics of sources."""
    files = reference_files(config)
    for file in files:
        if Path(file).exists() and Path(config.hypothesis_files[0]).samefile(file):
            LOGGER.warning("%s: is both --hypotheses and --reference, which says nothing of a translation", shown(file))
    references = [read_lines(Path(file)) for file in files]
    sources = [read_lines(Path(config.source))] if config.source is not None else []
    for lines in (*references, *sources):
        check_lines(hypotheses, len(lines), lines.name)
    warn_of_tokens([hypotheses, *references])
    for lines in (hypotheses, *references, *sources):
        warn_of_columns(lines.name, list(map(str.encode, lines.texts[:FIRST_LINES])), "scored")
    warn_of_blanks(sources[0] if sources else hypotheses, references)
    name = ", ".join(Path(file).name for file in files)
    return TestSet(name, sources[0].texts if sources else [], [lines.texts for lines in references])


def raw_test_set(data: DataConfig) -> ParallelText:
    """The text of its files; where none is named, the pairs held out of the training text."""
    if data.has_own_test:
        fetch(data, progress=True)
        text = load_text(data, "test")
    else:
        text = prepare(data, progress=True).test
    if text is None:
        raise ConfigError(f"data.test: {data.name} has no test set. Name one, or give --reference")
    return text


def reference_files(config: NamesReferences) -> list[str]:
    return [config.reference] if isinstance(config.reference, str) else [str(file) for file in config.reference or []]


def check_lines(hypotheses: Lines, n_lines: int, where: str, *, what: str = "the translation") -> None:
    """Raise DataError unless there are as many lines as in the test set; `what` each of them is."""
    if len(hypotheses) != n_lines:
        raise DataError(
            f"{hypotheses.name}: has {len(hypotheses):,} lines, {where} {n_lines:,}, so nothing is scored."
            f" Make line n of one {what} of line n of the other"
        )


def warn_of_tokens(files: Sequence[Lines]) -> None:
    """Warn of text that Moses has tokenized, which is scored as if its tokens were words."""
    if found := [lines.name for lines in files if tokenized_lines(lines.texts)]:
        LOGGER.warning(
            "%s: tokenized by Moses (`&apos;`, `@-@`), so the scores are not those of plain text. Detokenize it; for"
            " training there is data.detokenize=true",
            " and ".join(dict.fromkeys(found)),
        )


def warn_of_blanks(scored: Lines, references: Sequence[Lines]) -> None:
    """Warn of lines that no reference has, but the text that was translated or the translation: all of it is wrong."""
    rows = enumerate(zip(scored.texts, *(lines.texts for lines in references), strict=True), 1)
    if blank := [number for number, (text, *found) in rows if text.strip() and not "".join(found).strip()]:
        LOGGER.warning(
            "%s: %s of %s lines are blank where %s has text, the first is line %d, and are scored as they are. Leave"
            " such lines out of all files",
            " and ".join(lines.name for lines in references),
            *(f"{len(blank):,}", f"{len(scored):,}", scored.name, blank[0]),
        )


# ---- Languages and tokens


def language_of_file(file: str | None) -> str:
    """The ending where it can be a language, as in news.de or news.pt_BR.gz; empty of test.txt and test.ref."""
    ending = Path((file or "").removesuffix(".gz")).suffix.removeprefix(".")
    return ending if _LANGUAGE.fullmatch(ending) and ending.lower() not in _OF_OTHER_FILES else ""


def tokens_for(config: NamesReferences, language: str, *, of_model: str | None = None) -> Tokenization:
    """The tokens of BLEU and TER: by --tokenize, the corpus that is named, the model's corpus or the language.

    Raises EnvironmentFault if what --tokenize or the corpus names is not installed.
    """
    if config.tokenize is not None:
        return tokenization(language, config.tokenize, asked_by=f"--tokenize {config.tokenize}")
    if config.data is not None and (name := config.data.bleu_tokenize) is not None:
        return tokenization(language, name, asked_by=f"data.bleu_tokenize={name}")
    return tokenization(language, of_model)
