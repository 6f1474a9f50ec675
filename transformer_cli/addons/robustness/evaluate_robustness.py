"""The robustness suite of `tfm evaluate --robustness`, and of the end of `tfm train`."""

import sys

from tqdm import tqdm

from transformer_cli.addons.robustness.robustness import RobustnessReport, make_suite, robustness_report
from transformer_cli.data.context import Context, contexts_of
from transformer_cli.evaluation.extra_reports import ReportRequest
from transformer_cli.logs import LOGGER


def measure_robustness(request: ReportRequest) -> RobustnessReport | None:
    """Translate perturbed lines of the test set; None, with a warning, if all are blank.

    All perturbations are translated in one call, so that batches are full.
    """
    translator, test, config = request.translator, request.test, request.config
    tags, n_lines = translator.tokenizers.source.tags, config.robustness_lines
    suite = make_suite(test.sources, n_lines=n_lines, seed=config.seed, tags=tags, languages=request.languages)
    sources = suite.sources
    if not sources:
        LOGGER.warning("%s: no line that could be perturbed, so nothing is said of robustness", test.name)
        return None
    contexts: list[Context] | None = None
    if n_context := translator.text.context_sentences:  # what is before a line is not perturbed
        of_test = test.contexts or list(contexts_of(test.sources, n_context, tags))
        contexts = [of_test[number] for row in suite.rows for number in row.numbers]
    LOGGER.info("%s: translating %s perturbed lines", test.name, f"{len(sources):,}")
    with tqdm(total=len(sources), unit="line", desc="robustness", disable=None, leave=False, file=sys.stderr) as bar:
        results = translator.translate(sources, on_progress=bar.update, contexts=contexts)
    return robustness_report(suite, request.hypotheses, [result.text for result in results], test.references)
