"""The robustness suite of `tfm evaluate --robustness`, and of the end of `tfm train`."""

import json
import sys
from pathlib import Path

from tqdm import tqdm

from transformer_cli.addons.robustness.robustness import RobustnessReport, make_suite, robustness_report
from transformer_cli.commands.evaluate_file import TestSet
from transformer_cli.decoding.translator import Translator
from transformer_cli.evaluation.report import Provenance
from transformer_cli.files import wrap_os_errors, write_whole
from transformer_cli.logs import LOGGER
from transformer_cli.models.locate import ROBUSTNESS_FILE


def measure_robustness(
    translator: Translator,
    test: TestSet,
    hypotheses: list[str],
    *,
    languages: tuple[str, str],
    n_lines: int,
    seed: int,
) -> RobustnessReport | None:
    """Translate perturbed lines of `test`, whose translations are `hypotheses`; None, with a warning, if all are blank.

    `languages` are those of the lines and of their translations. All perturbations are translated in one call, so that
    batches are full.
    """
    tags = translator.tokenizers.source.tags
    suite = make_suite(test.sources, n_lines=n_lines, seed=seed, tags=tags, languages=languages)
    sources = suite.sources
    if not sources:
        LOGGER.warning("%s: no line that could be perturbed, so nothing is said of robustness", test.name)
        return None
    LOGGER.info("%s: translating %s perturbed lines", test.name, f"{len(sources):,}")
    with tqdm(total=len(sources), unit="line", desc="robustness", disable=None, leave=False, file=sys.stderr) as bar:
        results = translator.translate(sources, on_progress=bar.update)
    return robustness_report(suite, hypotheses, [result.text for result in results], test.references)


def log_robustness(report: RobustnessReport, provenance: Provenance, run_dir: Path) -> None:
    """What `tfm train` says of it: a few lines; the table is in robustness.json, for people, programs and the card."""
    file = run_dir / ROBUSTNESS_FILE
    facts = {"test_set": provenance.test_set, "search": provenance.search, "model_sha256": provenance.model_sha256}
    content = json.dumps({**facts, **report.as_dict()}, indent=1)
    with wrap_os_errors(file, "save the robustness of the model"):
        write_whole(file, f"{content}\n".encode())
    for line in report.short_lines():
        LOGGER.info("%s", line)
