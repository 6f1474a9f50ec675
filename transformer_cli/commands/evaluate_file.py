"""`tfm evaluate` of a file of translations or labels, made by anything: no model, and no torch, is needed.

Without such a file the scores are those of a model (evaluate.py).
"""

import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from transformer_cli.addons.comparison.keys import CompareConfig
from transformer_cli.commands.evaluate.keys import EvaluateConfig
from transformer_cli.config.data import DataConfig, Task
from transformer_cli.data.corpus import ParallelText, TextPart, load_text
from transformer_cli.data.download import fetch
from transformer_cli.data.labels import real_lines
from transformer_cli.data.lines import Lines, read_lines, shown
from transformer_cli.data.moses import tokenized_lines
from transformer_cli.data.named_sets import LISTED, check_languages, check_set, set_files, set_names
from transformer_cli.data.prepare import prepare
from transformer_cli.data.tags import split_tags
from transformer_cli.data.words import split_words, words_of_line
from transformer_cli.errors import ConfigError, DataError, EnvironmentFault, quoted
from transformer_cli.evaluation.classification import class_report
from transformer_cli.evaluation.entities import OUTSIDE, are_bio, warn_not_bio
from transformer_cli.evaluation.metrics import SENTENCE_METRICS, CometSettings, MetricSettings, Translations
from transformer_cli.evaluation.report import (
    Provenance,
    Report,
    print_classes,
    print_report,
    print_reports,
    print_sets,
    sentence_lines,
)
from transformer_cli.evaluation.tokenization import Tokenization, tokenization
from transformer_cli.evaluation.translation import check_metrics, evaluate_parts, evaluate_sentences
from transformer_cli.evaluation.word_labels import word_report
from transformer_cli.files import resolve_link, wrap_os_errors, write_whole
from transformer_cli.logs import LOGGER
from transformer_cli.text_io import check_output, same_file


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


_LANGUAGE = re.compile(r"[A-Za-z]{2,3}([-_][A-Za-z]{2,4})?")
# Endings of text files that look like codes of languages.
_OF_OTHER_FILES = frozenset(
    ("bpe", "csv", "hyp", "out", "raw", "ref", "sgm", "spm", "src", "tgt", "tok", "trg", "tsv", "txt", "xml")
)


def run(config: EvaluateConfig) -> None:
    """Print the scores of the file --hypotheses; without one, those of a model."""
    if sys.stdout is None:
        raise EnvironmentFault("standard output: closed. Open it, for the scores to be printed")
    if config.test_set == [LISTED]:
        print_sets(listed_sets(config.languages), as_json=config.json)
        return
    check_metrics(config.metrics)
    check_sentence_scores(config)
    if not config.hypothesis_files:
        import_module("transformer_cli.commands.evaluate.run").run(config)
        return
    hypotheses, *others = [read_hypotheses(Path(file)) for file in config.hypothesis_files]
    if config.test_set:
        score_named_sets(config, [hypotheses, *others])
        return
    if config.data is None:
        print_report(score_translations(config, hypotheses, own_references(config, hypotheses)), as_json=config.json)
        return
    match config.data.task:
        case Task.translation:
            text = raw_test_set(config.data)
            check_lines(hypotheses, len(text), f"data={config.data.name}: its test set")
            sources = [split_tags(line, config.data.all_tags)[1] for line in text.sources]
            test = TestSet(f"{config.data.title}.test", sources, [text.targets], text.parts)
            print_report(score_translations(config, hypotheses, test), as_json=config.json)
        case Task.classification:
            score_labels(config, hypotheses, raw_test_set(config.data))
        case Task.token_classification:
            score_word_labels(config, hypotheses, raw_test_set(config.data))
        case Task.language_model:
            raise ConfigError(
                f"data={config.data.name}: text for a language model, which translates nothing. Choose parallel text"
            )


def read_hypotheses(file: Path) -> Lines:
    if not file.exists() and not file.is_symlink():
        raise DataError(
            f"{shown(file)}: no such file. --hypotheses is an input, translations that are scored as they are;"
            " --save names a file for those of a model"
        )
    hypotheses = read_lines(file)
    if hypotheses.n_crlf:
        LOGGER.info("%s: %s lines end in \\r\\n; the \\r was left out", shown(file), f"{hypotheses.n_crlf:,}")
    return hypotheses


def score_named_sets(config: EvaluateConfig, hypotheses: Sequence[Lines]) -> None:
    """The file of each set, in their order."""
    assert config.languages is not None
    tests = named_test_sets(config.test_set, config.languages)
    for lines, test in zip(hypotheses, tests, strict=True):
        check_lines(lines, len(test.sources), test.name)
    reports = [score_translations(config, *pair) for pair in zip(hypotheses, tests, strict=True)]
    print_reports(reports, as_json=config.json)


def score_translations(config: EvaluateConfig, hypotheses: Lines, test: TestSet) -> Report:
    if test.languages is not None:
        source_lang, target_lang = test.languages
    elif config.data is not None:
        source_lang, target_lang = config.data.source_lang, config.data.target_lang
    else:
        source_lang, target_lang = language_of(config.source), language_of(reference_files(config)[0])

    def settings_of(language: str) -> MetricSettings:
        comet = CometSettings.of(config.comet, config.device)
        return MetricSettings(tokens_for(config, language or target_lang), source_lang, language or target_lang, comet)

    translations = Translations(hypotheses.texts, test.references, test.sources)
    results = evaluate_parts(translations, test.parts, settings_of, config.metrics, test=test.name)
    sentences = save_sentence_scores(config, translations, test, settings_of)
    provenance = Provenance(test.name, len(hypotheses), hypotheses.name, sentences=sentences)
    return Report(results, provenance)


def check_sentence_scores(config: EvaluateConfig) -> None:
    """Refuse a --sentence-scores that would fail, or destroy a file, before anything is scored."""
    if config.sentence_scores is None:
        return
    if not set(config.metrics) & set(SENTENCE_METRICS.names()):
        choices = ", ".join(SENTENCE_METRICS.names())
        raise ConfigError(f"--sentence-scores: none of metrics={','.join(config.metrics)} has any. Choose of {choices}")
    inputs: dict[str, str | None] = {"--source": config.source}
    inputs |= {f"--hypotheses {name}": name for name in config.hypothesis_files}
    inputs |= {f"--reference {name}": name for name in reference_files(config)}
    there = {flag: name for flag, name in inputs.items() if name is not None and Path(name).exists()}
    check_output(Path(config.sentence_scores), "--sentence-scores", there, overwrite=config.overwrite)
    if config.save is not None and same_file(config.save, config.sentence_scores):
        raise ConfigError(f"{config.save}: both --save and --sentence-scores. Choose two files")


def save_sentence_scores(
    config: EvaluateConfig, translations: Translations, test: TestSet, settings_of: Callable[[str], MetricSettings]
) -> dict[str, object]:
    """Write the file that --sentence-scores names, if it does; what is in it, for the report."""
    if config.sentence_scores is None:
        return {}
    scores = evaluate_sentences(translations, test.parts, settings_of, config.metrics)
    file = Path(config.sentence_scores)
    with wrap_os_errors(file, "save the scores of each line"):
        text = "".join(f"{line}\n" for line in sentence_lines(translations, scores))
        write_whole(resolve_link(file), text.encode(), replace=config.overwrite)
    if not config.json:
        for one in scores.values():
            LOGGER.info("%s: %s of each line, %s", shown(file), one.name, one.signature)
    return {"file": str(file), "signatures": {name: one.signature for name, one in scores.items()}}


def tokens_for(config: EvaluateConfig | CompareConfig, language: str, *, of_model: str | None = None) -> Tokenization:
    """The tokens of BLEU and TER: by --tokenize, the corpus that is named, the model's corpus or the language.

    Raises EnvironmentFault if what --tokenize or the corpus names is not installed.
    """
    if config.tokenize is not None:
        return tokenization(language, config.tokenize, asked_by=f"--tokenize {config.tokenize}")
    if config.data is not None and (name := config.data.bleu_tokenize) is not None:
        return tokenization(language, name, asked_by=f"data.bleu_tokenize={name}")
    return tokenization(language, of_model)


def score_labels(config: EvaluateConfig, hypotheses: Lines, text: ParallelText) -> None:
    """Labels against labels. The file has one for each line of the test set, or for each that is not blank."""
    assert config.data is not None
    if config.tokenize is not None:
        raise ConfigError(f"--tokenize {config.tokenize}: for BLEU of translations; these are labels. Leave it out")
    config.refuse_metrics("these are labels")
    name, real = f"{config.data.title}.test", real_lines(text)
    if len(hypotheses) != len(real):
        check_lines(hypotheses, len(text), f"data={config.data.name}: its test set", what="the label")
    has_blank = len(hypotheses) == len(text)
    predicted = [label.strip() for label in hypotheses.texts]
    predicted = [predicted[i] for i in real] if has_blank else predicted
    wanted = [text.targets[i] for i in real]
    if not wanted:
        raise DataError(f"{name}: holds no sentence with a class. Write label<TAB>text")
    known = set(wanted)
    strange = [label for label in predicted if label not in known]
    if strange:
        LOGGER.warning(
            "%s: %d of %d labels are none of the test set's, as %s",
            *(hypotheses.name, len(strange), len(predicted), quoted(strange[0])),
        )
    report = class_report(predicted, wanted, sorted({*predicted, *wanted}), seed=config.seed)
    print_classes(report, Provenance(name, len(predicted), hypotheses.name), as_json=config.json)


def score_word_labels(config: EvaluateConfig, hypotheses: Lines, text: ParallelText) -> None:
    """Labels against labels: a line for each sentence, with the labels of its words."""
    assert config.data is not None
    if config.tokenize is not None:
        raise ConfigError(f"--tokenize {config.tokenize}: for BLEU of translations; these are labels. Leave it out")
    config.refuse_metrics("these are labels")
    name, wanted = f"{config.data.title}.test", [split_words(target) for target in text.targets]
    check_lines(hypotheses, len(wanted), f"data={config.data.name}: its test set", what="the labels")
    predicted = [words_of_line(line) for line in hypotheses.texts]
    for number, (ours, theirs) in enumerate(zip(predicted, wanted, strict=True), 1):
        if len(ours) != len(theirs):
            raise DataError(
                f"{hypotheses.name}:{number}: {len(ours)} labels, but sentence {number} of {name} has {len(theirs)}"
                " words. Write a label for each word, with spaces between them"
            )
    labels = sorted({label for one in (*predicted, *wanted) for label in one})
    decisive = {label for one in wanted for label in one} - {OUTSIDE} or labels
    has_entities = are_bio(decisive)
    if has_entities:
        warn_not_bio(labels, hypotheses.name)
    report = word_report(predicted, wanted, labels, seed=config.seed, has_entities=has_entities)
    print_classes(report, Provenance(name, len(predicted), hypotheses.name), as_json=config.json)


def check_lines(hypotheses: Lines, n_lines: int, where: str, *, what: str = "the translation") -> None:
    """Raise DataError unless there are as many lines as in the test set; `what` each of them is."""
    if len(hypotheses) != n_lines:
        raise DataError(
            f"{hypotheses.name}: has {len(hypotheses):,} lines, {where} {n_lines:,}, so nothing is scored."
            f" Make line n of one {what} of line n of the other"
        )


# ---- Test sets


def listed_sets(languages: str | None) -> dict[str, list[str]]:
    """The sets that there are, with their language pairs. Raises ConfigError if none has the pair `languages`."""
    if languages is not None:
        check_languages(languages)
    found = set_names(languages)
    if not found:
        raise ConfigError(f"--languages {languages}: no test set of sacrebleu has it. Leave it out to print all")
    return found


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
    name = ", ".join(Path(file).name for file in files)
    return TestSet(name, sources[0].texts if sources else [], [lines.texts for lines in references])


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
    return TestSet(source.name, sources.texts, [reference.texts for reference in references])


def warn_of_tokens(files: Sequence[Lines]) -> None:
    """Warn of text that Moses has tokenized, which is scored as if its tokens were words."""
    if found := [lines.name for lines in files if tokenized_lines(lines.texts)]:
        LOGGER.warning(
            "%s: tokenized by Moses (`&apos;`, `@-@`), so the scores are not those of plain text. Detokenize it; for"
            " training there is data.detokenize=true",
            " and ".join(dict.fromkeys(found)),
        )


def reference_files(config: EvaluateConfig) -> list[str]:
    return [config.reference] if isinstance(config.reference, str) else [str(file) for file in config.reference or []]


def language_of(file: str | None) -> str:
    """The ending where it can be a language, as in news.de or news.pt_BR.gz; empty of test.txt and test.ref."""
    ending = Path((file or "").removesuffix(".gz")).suffix.removeprefix(".")
    return ending if _LANGUAGE.fullmatch(ending) and ending.lower() not in _OF_OTHER_FILES else ""


def raw_test_set(data: DataConfig) -> ParallelText:
    """The text of its files; where none is named, the pairs held out of the training text."""
    if data.test is not None or data.builtin is not None:
        fetch(data, progress=True)
        text = load_text(data, "test")
    else:
        text = prepare(data, progress=True).test
    if text is None:
        raise ConfigError(f"data.test: {data.name} has no test set. Name one, or give --reference")
    return text
