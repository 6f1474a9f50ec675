"""`tfm compare`: which of several systems translates better, whether by chance, and where.

Files of translations need no model, and no torch; models are opened and asked in compare_models.py.
"""

import json
import os
from pathlib import Path

from transformer_cli.addons.comparison.keys import CompareConfig
from transformer_cli.addons.comparison.measure import Background, Measures, TestText, compare
from transformer_cli.addons.comparison.report import (
    BOLD,
    LEGEND,
    comparison_as_dict,
    comparison_lines,
    comparison_tables,
    findings,
    headline,
    signature_lines,
)
from transformer_cli.addons.comparison.results import Comparison, System
from transformer_cli.addons.comparison.systems import is_model, read_translations, short_names
from transformer_cli.addons.comparison.test_set import check_n_lines, settings_for, test_set_of
from transformer_cli.data.lines import Lines, shown
from transformer_cli.data.tags import split_tags
from transformer_cli.errors import ConfigError
from transformer_cli.evaluation.metrics import SENTENCE_METRICS, MetricSettings
from transformer_cli.evaluation.significance import Resampling
from transformer_cli.evaluation.test_sets import TestSet, language_of_file, raw_test_set, reference_files
from transformer_cli.evaluation.tokenization import warn_of_script
from transformer_cli.evaluation.translation import check_metrics, prepare_metrics
from transformer_cli.logs import LOGGER
from transformer_cli.standard_streams import require_stdout
from transformer_cli.tables import TableFormat, print_tables
from transformer_cli.text_io import check_output, open_output

PAGE = "compare.html"
SACREBLEU_SEED = "SACREBLEU_SEED"  # environment variable that sacrebleu takes its seed from


def run(config: CompareConfig) -> None:
    """Print a table, or JSON, and write the page. Raises TfmError."""
    require_stdout("the comparison")
    if len(config.systems) < 2:
        given = f"only {shown(config.systems[0])} is given" if config.systems else "none is given"
        raise ConfigError(f"systems: {given}. Name two or more, of which the first is the baseline")
    measures = measures_of(config)
    needed = [*config.metrics, config.sentence_metric]
    prepare_metrics(needed, MetricSettings(config=config))  # refuses before anything is translated
    page = page_file(config)
    files = {name: read_translations(Path(name)) for name in config.systems if not is_model(Path(name))}
    names = short_names(config.systems)
    if len(files) == len(set(config.systems)):
        test, settings = test_of_files(config, files)
        systems = [
            System(name, path, "translations", files[path].texts)
            for name, path in zip(names, config.systems, strict=True)
        ]
        background = Background()
    else:
        from transformer_cli.addons.comparison.compare_models import translated

        systems, test, settings, background = translated(config, names, files)
    warn_of_script(test.references, settings.tokens, where=test.name, key="--tokenize ")
    comparison = compare(systems, test, settings, measures, background)
    if config.json:
        print(json.dumps(comparison_as_dict(comparison), indent=2, ensure_ascii=False), flush=True)
    elif config.table is not None:
        print_tables(
            comparison_tables(comparison),
            config.table,
            notes=[
                headline(comparison),
                LEGEND,
                *([BOLD] if config.table is TableFormat.latex else []),
                *signature_lines(comparison),
            ],
            more=findings(comparison),
        )
    else:
        print("\n".join(comparison_lines(comparison)), flush=True)
    if page is not None:  # last: a disk that is full costs the page alone
        write_page(comparison, page, replace=config.overwrite)
        LOGGER.info("page: %s", shown(page))


# ---- What is asked for


def measures_of(config: CompareConfig) -> Measures:
    check_metrics([*config.metrics, config.sentence_metric])
    for key, name in (*(("metrics", name) for name in config.metrics), ("sentence_metric", config.sentence_metric)):
        if name not in SENTENCE_METRICS.names():
            choices = ", ".join(SENTENCE_METRICS.names())
            raise ConfigError(f"{key}={name}: has no scores of single lines, which the tests need. Choose of {choices}")
    return Measures(
        config.metrics,
        config.sentence_metric,
        config.sentences,
        Resampling(seed_of(config), config.samples, config.trials),
        finds_best=config.table is TableFormat.latex,
    )


def seed_of(config: CompareConfig) -> int | None:
    """The seed of the tests: --seed, or as sacrebleu's own; None to draw at random."""
    if config.seed is not None:
        return config.seed
    text = os.environ.get(SACREBLEU_SEED, "12345")
    if text.lower() == "none":
        return None
    if not text.isdecimal() or int(text) == 0:  # with which sacrebleu draws at random, too
        raise ConfigError(f"{SACREBLEU_SEED}={text}: no seed. Set it to a number from 1 up, or give --seed")
    return int(text)


def page_file(config: CompareConfig) -> str | None:
    """The file of the page, or None if no page is written. Raises what `check_output` does."""
    name = config.output or (None if config.json or config.table is not None else PAGE)
    if name is not None:
        inputs: dict[str, str | None] = {"--source": config.source}
        inputs |= {f"--reference {file}": file for file in reference_files(config)}
        inputs |= {f"system {system}": system for system in config.systems}
        there = {flag: file for flag, file in inputs.items() if file is not None and Path(file).exists()}
        check_output(Path(name), "--output", there, overwrite=config.overwrite)
    return name


# ---- Test sets


def test_of_files(config: CompareConfig, files: dict[str, Lines]) -> tuple[TestText, MetricSettings]:
    """The test set for translations that are all in files, and the settings of its languages."""
    test = test_set_of(config)
    if test is not None:
        languages = test.languages or (
            language_of_file(config.source),
            language_of_file((reference_files(config) or [""])[0]),
        )
    elif config.data is not None:
        if not config.data.trained.translates:
            raise ConfigError(f"data={config.data.name}: has no translations. Choose parallel text")
        text = raw_test_set(config.data)
        sources = [split_tags(line, config.data.all_tags)[1] for line in text.sources]
        test = TestSet(config.data.test_name, sources, [text.targets], text.parts)
        languages = config.data.source_lang, config.data.target_lang
    else:
        raise ConfigError("--reference: not given, and no system is a run with a test set. Name a file, or data=NAME")
    for lines in files.values():
        check_n_lines(lines, len(test.references[0]), test.name)
    return TestText(test.name, test.references, test.sources), settings_for(config, test, languages)


def write_page(comparison: Comparison, name: str, *, replace: bool) -> None:
    from transformer_cli.addons.comparison.page import render  # which only a page needs

    with open_output(name, replace=replace) as sink:
        sink.write(render(comparison).encode())
