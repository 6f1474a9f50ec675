"""The test set of `tfm compare` that the command line names, and the settings of its metrics."""

from dataclasses import replace
from pathlib import Path

from transformer_cli.addons.comparison.keys import CompareConfig
from transformer_cli.data.lines import Lines, read_lines
from transformer_cli.errors import ConfigError, DataError
from transformer_cli.evaluation.metrics import MetricSettings
from transformer_cli.evaluation.test_sets import TestSet, named_test_sets, reference_files, tokens_for


def test_set_of(config: CompareConfig) -> TestSet | None:
    """The test set that is named on the command line, by files or as one of sacrebleu; None where it is a corpus."""
    if config.test_set is not None:
        if config.languages is None:
            raise ConfigError(f"--languages: not given. Say the direction of --test-set {config.test_set}, as en-de")
        return named_test_sets([config.test_set], config.languages)[0]
    if config.reference is None:
        return None
    sources = [] if config.source is None else [read_lines(Path(config.source))]
    references = [read_lines(Path(file)) for file in reference_files(config)]
    first, *others = [*sources, *references]
    for other in others:
        check_n_lines(other, len(first), first.name)
    name = ", ".join(Path(file).name for file in ([config.source] if config.source else reference_files(config)))
    return TestSet(name, sources[0].texts if sources else [], [lines.texts for lines in references])


def settings_for(
    config: CompareConfig, test: TestSet, languages: tuple[str, str], *, of_model: str | None = None
) -> MetricSettings:
    """`languages` are those of source and target; `of_model` is the tokenizer that the corpus of a model was given."""
    targets = [part.target_lang for part in test.parts] or [languages[1]]
    tokens = list(dict.fromkeys(tokens_for(config, target, of_model=of_model) for target in targets))
    used = tokens[0]
    if len(tokens) > 1:
        listed = " and ".join(dict.fromkeys(one.bleu for one in tokens))
        missing = f"its languages take the tokenizers {listed}, so there is no BLEU of all of them together"
        used = replace(used, missing=missing)
    return MetricSettings(used, *languages, config)


def check_n_lines(lines: Lines, n_lines: int, where: str) -> None:
    """Raise DataError unless a file has one line for each of the test set."""
    if len(lines) != n_lines:
        raise DataError(
            f"{lines.name}: has {len(lines):,} lines, {where} {n_lines:,}, so nothing is compared."
            " Make line n of one the translation of line n of the other"
        )
