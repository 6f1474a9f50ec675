"""`tfm train`: prepare, train or resume, and report dev and test scores."""

import math
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path

import torch

from transformer_cli.commands.evaluate.run import OTHER_KINDS, report_test_set
from transformer_cli.commands.translate.keys import TranslateConfig
from transformer_cli.config.data import MODEL_OF, Task
from transformer_cli.config.tags import language_of, languages_of, tags_in
from transformer_cli.config.train import BLEU, TrainConfig
from transformer_cli.data.checks.overlap import warn_of_overlap
from transformer_cli.data.prepare import Prepared
from transformer_cli.data.tags import split_tags
from transformer_cli.evaluation.usable import CHANCE
from transformer_cli.files import follow
from transformer_cli.logs import LOGGER, is_first_rank
from transformer_cli.models.locate import LATEST
from transformer_cli.training.main_process import Observer
from transformer_cli.training.ranks import join_ranks
from transformer_cli.training.result import TrainResult
from transformer_cli.training.run import Start, train_run
from transformer_cli.training.schedules import ends_at_max_steps
from transformer_cli.training.signals import stop_signals
from transformer_cli.training.validation import LABELS


@dataclass(frozen=True)
class Trained:
    """The result of a run. `scores` has those that a table of runs shows, `test_scores` the whole report, by name."""

    run_dir: Path
    dev_score: float
    step: int
    scores: dict[str, float | None]  # None: not a number
    is_new: bool  # False: an earlier command had finished it
    test_scores: dict[str, float | None] = field(default_factory=dict)


def run(config: TrainConfig) -> float | None:
    """Train `config` in its run directory; return the dev score, which a sweeper optimises.

    Under torchrun every rank runs this, and all but the first return None.
    """
    trained = train_and_report(config)
    return None if trained is None else trained.dev_score


def train_and_report(config: TrainConfig, observe: Observer | None = None) -> Trained | None:
    """Train, and print the scores of the test set; None on every rank but the first.

    `observe` is called with the step and the dev scores of each evaluation.
    """
    start = Start.of(config)
    with (
        stop_signals(speaks=is_first_rank()) as request,
        join_ranks(request, device_type=start.device.type, timeout_s=config.train.rank_timeout) as ranks,
    ):
        run = train_run(start, ranks, observe, owns_process=True)
        if run is None:
            return None
        config, result = run.config, run.result
        request.note_end()
        test_scores, unusable = _report(config, run.prepared, result, run.device)
        for line in _next(config, result, unusable):
            LOGGER.info("%s", line)
        dev_score = result.dev_score if math.isfinite(result.dev_score) else None
        return Trained(
            run.run_dir,
            result.dev_score,
            result.step,
            {f"dev {LABELS.get(result.metric, result.metric)}": dev_score, **_in_tables(test_scores)},
            result.is_new,
            test_scores,
        )


def _next(config: TrainConfig, result: TrainResult, unusable: str) -> Iterator[str]:
    """The commands for what people do next with the model, or why it is of no use yet."""
    goes_on = not ends_at_max_steps(config.schedule.name)
    if unusable:
        longer = f"raise {result.to_raise} and run the same command" if goes_on else "train a new run with more updates"
        yield f"not usable yet: {unusable}. Train longer ({longer}), or on more text"
        return
    newest = follow(Path(TranslateConfig().runs) / LATEST)
    is_newest = newest.exists() and newest.resolve() == result.model_path.parent.resolve()
    which = "" if is_newest else f" --checkpoint {shlex.quote(str(result.model_path.parent))}"
    match config.data.task:
        case Task.translation:
            tags = _example_tags(config)
            which += f" --tag {shlex.quote(' '.join(tags))}" if tags else ""
            text, translation, test, reference = _example_files(config, tags)
            yield f"next: tfm translate{which} < {text} > {translation}"
            yield f"      tfm evaluate{which} --source {test} --reference {reference}"
        case Task.classification:
            of_pairs = "pairs.txt    (first<TAB>second on each line)" if config.data.n_texts == 2 else "lines.txt"
            yield f"next: tfm classify{which} < {of_pairs}"
        case Task.token_classification:
            yield f"next: tfm tag{which} < sentences.txt"
        case Task.language_model:
            yield f'next: tfm generate{which} "The beginning"'
    if goes_on:
        yield f"      the same command with a larger {result.to_raise} goes on"


def _example_tags(config: TrainConfig) -> list[str]:
    """Tags for a text without any: those that name a language where there are several, else those of all corpora."""
    entries, target = list(config.data.tags), config.data.target_lang
    if len(languages_of(target)) > 1:
        entries = [entry for entry in entries if language_of(tags_in(entry), target)]
    return tags_in(entries[0]) if entries and "" not in entries else []


def _example_files(config: TrainConfig, tags: Sequence[str]) -> Iterator[str]:
    """Names of a text, its translation, a test set and its reference: four files, also within one language."""
    target = language_of(tags, config.data.target_lang) or languages_of(config.data.target_lang)[0]
    sources = languages_of(config.data.source_lang)
    source = next((one for one in sources if one.casefold() != target.casefold()), sources[0])
    is_one = source.casefold() == target.casefold()
    for name, language in (
        ("text", source),
        ("translation" if is_one else "text", target),
        ("test", source),
        ("reference" if is_one else "test", target),
    ):
        yield shlex.quote(f"{name}.{language}")


def _in_tables(test_scores: dict[str, float | None]) -> dict[str, float | None]:
    """Of translations, the scores of the whole report that are comparable between languages."""
    if "test chrF2" not in test_scores:
        return test_scores
    names = {"test BLEU": "test BLEU", "test chrF2": "test chrF"}
    return {shown: test_scores[name] for name, shown in names.items() if name in test_scores}


def _report(
    config: TrainConfig, prepared: Prepared, result: TrainResult, device: torch.device
) -> tuple[dict[str, float | None], str]:
    """Print the scores of the test set, as `tfm evaluate` does; return them, and why the model is not usable yet."""
    kind = MODEL_OF[config.data.task]
    if kind in OTHER_KINDS:
        scores: dict[str, float | None]
        scores, unusable = import_module(OTHER_KINDS[kind]).report_training(config, prepared, result, device)
        return scores, unusable
    if prepared.test is None:
        LOGGER.info("no test set, so no scores: name one with data.test, or give tfm evaluate --source and --reference")
        is_chance = result.metric == BLEU and result.dev_score < CHANCE["BLEU"]
        return {}, f"dev BLEU is {result.dev_score:.2f}, which is no more than chance" if is_chance else ""
    name = f"{config.data.title}.test"
    if config.data.test is not None:  # what is held out is in no training pair
        sources = [split_tags(line, config.data.all_tags)[1] for line in prepared.test.sources]
        warn_of_overlap(name, sources, [prepared.test.targets], prepared)
    found = report_test_set(
        result.model_path,
        prepared.test,
        # Of a choice of length penalties the model has the best, as for `tfm evaluate`.
        replace(config.decode, length_penalty=None) if config.train.length_penalties else config.decode,
        name=name,
        device=device,
        seed=config.seed,
        robustness_lines=config.train.robustness_lines,
    )
    return {f"test {score.name}": score.value for score in found.scores}, found.unusable
