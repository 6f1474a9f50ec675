"""`tfm rerank`: weights of features tuned on n-best lists of a dev set, and the best candidate of each list by them."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from transformer_cli.addons.reranking.keys import TUNED_FOR, RerankConfig
from transformer_cli.addons.reranking.nbest import SCORE, NBest, read_nbest, read_values
from transformer_cli.addons.reranking.tuning import FloatArray, Lists, best_of, starting_points, tune
from transformer_cli.data.lines import read_lines, shown
from transformer_cli.errors import ConfigError, DataError
from transformer_cli.evaluation.metrics import MetricSettings, MetricUnavailable, Translations
from transformer_cli.evaluation.significance import statistics_of
from transformer_cli.evaluation.tokenization import PLAIN, tokenization
from transformer_cli.files import wrap_os_errors, write_whole
from transformer_cli.logs import LOGGER
from transformer_cli.text_io import STDOUT, check_files, open_output, write_responses
from transformer_cli.version import __version__

_FORMAT = 1  # of a file of weights


@dataclass(frozen=True)
class Tuned:
    """Tuned weights by feature, the score of dev before and after, and the signature of its metric."""

    weights: Mapping[str, float]
    before: float
    after: float
    metric: str
    signature: str


def run(config: RerankConfig) -> None:
    """Tune weights, or print the translations that weights choose. Raises TfmError."""
    config.check()
    names = {f"--reference {name}": name for name in config.reference}
    inputs = {"--nbest": config.lists, "--source": config.source, "--weights": config.weights, **names}
    check_files(inputs, {"--save": config.save, "--output": config.output}, overwrite=config.overwrite)
    weights = None if config.weights is None else read_weights(Path(config.weights))
    nbest = read_nbest(Path(str(config.lists)))
    references = [read_lines(Path(name)).texts for name in config.reference]
    for name, lines in zip(config.reference, references, strict=True):
        _check_lines(name, len(lines), nbest)
    for entry in config.features:
        name, _, file = entry.partition("=")
        nbest.add_feature(name, read_values(Path(file)), shown(file))
    if config.forward or config.reverse or config.language_model:
        _add_scores_of_models(nbest, config)
    if weights is None:
        _report(tuned(nbest, references, config), nbest, config)
        return
    best = rerank(nbest, weights)
    with open_output(config.output, replace=config.overwrite) as sink:
        write_responses(sink, (f"{line}\n" for line in best), config.output or STDOUT, first_line=1)


def _check_lines(name: str, n_lines: int, nbest: NBest) -> None:
    if n_lines != len(nbest):
        raise DataError(
            f"{shown(name)}: has {n_lines:,} lines, and {nbest.name} lists of {len(nbest):,} sentences. Make line n of"
            " one belong to list n of the other"
        )


def _add_scores_of_models(nbest: NBest, config: RerankConfig) -> None:
    from transformer_cli.addons.reranking.model_scores import each_score  # which needs torch

    sources: list[str] = []
    if config.forward or config.reverse:
        if config.source is None:
            raise ConfigError("--source: not given, and models score translations of it. Name the text")
        lines = read_lines(Path(config.source)).texts
        _check_lines(config.source, len(lines), nbest)
        sources = nbest.of_each(lines)
    for name, values in each_score(nbest.texts, sources, config):
        nbest.add_feature(name, values, name)


def rerank(nbest: NBest, weights: Mapping[str, float]) -> list[str]:
    """The best candidate of each list; of equal ones the first. Raises DataError for a feature that is not there."""
    if missing := [name for name in weights if name not in nbest.features]:
        raise DataError(
            f"{nbest.name}: has no feature {missing[0]}, which the weights are for (features:"
            f" {', '.join(nbest.features)}). Give it as in tuning, with --feature or a model"
        )
    if unused := [name for name in nbest.features if name not in weights]:
        LOGGER.warning("%s: the weights do not use the features %s", nbest.name, ", ".join(unused))
    chosen = best_of(_table(nbest, list(weights)), nbest.starts, np.array(list(weights.values())))
    return [nbest.texts[start + n] for start, n in zip(nbest.starts[:-1], chosen, strict=True)]


def _table(nbest: NBest, names: Sequence[str]) -> FloatArray:
    """[C, F]: the features by candidate."""
    return np.array([nbest.features[name] for name in names]).T


def tuned(nbest: NBest, references: Sequence[Sequence[str]], config: RerankConfig) -> Tuned:
    """The weights of all features with which the best of each list score highest. Raises ConfigError."""
    ends = nbest.starts[1:]
    longest = max(end - start for start, end in zip(nbest.starts[:-1], ends, strict=True))
    ranks = [
        [min(start + n, end - 1) for start, end in zip(nbest.starts[:-1], ends, strict=True)] for n in range(longest)
    ]
    tokens = PLAIN if config.target_lang is None else tokenization(config.target_lang, asked_by="--to")
    settings = MetricSettings(tokens, "", config.target_lang or "", config)
    by_rank = [Translations([nbest.texts[row] for row in rows], references) for rows in ranks]
    try:
        statistics = statistics_of(config.metric, by_rank, settings)
    except MetricUnavailable as unavailable:
        raise ConfigError(f"--metric {config.metric}: {unavailable.reason}. Choose another") from unavailable
    counts = np.empty((len(nbest.texts), len(statistics.rows[0][0])))
    for rows, of_rank in zip(ranks, statistics.rows, strict=True):
        counts[rows] = of_rank
    sign = 1.0 if statistics.higher_is_better else -1.0
    names = list(nbest.features)
    lists = Lists(_table(nbest, names), counts, nbest.starts, lambda sums: sign * float(statistics.score_of(sums)))
    first = np.array([1.0 if name == SCORE else 0.0 for name in names])
    found, after = tune(lists, starting_points(lists.features_CF, first, config.restarts, config.seed))
    found = found / (np.abs(found).sum() or 1.0)  # only their ratios matter
    weights = dict(zip(names, found.tolist(), strict=True))
    return Tuned(weights, sign * lists.score(first), sign * after, statistics.name, statistics.signature({}))


def _report(found: Tuned, nbest: NBest, config: RerankConfig) -> None:
    """Print the weights, and save them."""
    if config.save is not None:
        content = {
            "format": _FORMAT,
            "tfm": __version__,
            "metric": config.metric,
            "signature": found.signature,
            "dev": {"lists": len(nbest), "candidates": len(nbest.texts), "before": found.before, "after": found.after},
            "weights": dict(found.weights),
        }
        with wrap_os_errors(Path(config.save), "save the weights"):
            write_whole(Path(config.save), f"{json.dumps(content, indent=1)}\n".encode(), replace=config.overwrite)
    width = max(map(len, found.weights))
    for name, weight in found.weights.items():
        print(f"{name:<{width}}  {weight:+.6f}")
    print(f"{found.metric} of {len(nbest):,} lines: {found.before:.2f} by the score alone, {found.after:.2f} reranked")
    print(found.signature)
    LOGGER.info("these lines are those that the weights were tuned on: measure the gain on others")


def read_weights(path: Path) -> dict[str, float]:
    """The weights of a file that `tfm rerank --save` has written. Raises DataError."""
    try:
        content = json.loads("\n".join(read_lines(path).texts))
        weights = {str(name): float(weight) for name, weight in content["weights"].items()}
        if content["format"] != _FORMAT or not weights or not np.isfinite(list(weights.values())).all():
            raise ValueError
        if content["metric"] not in TUNED_FOR:
            raise ValueError
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataError(f"{shown(path)}: no file of weights. Make it with `tfm rerank --save`") from error
    return weights
