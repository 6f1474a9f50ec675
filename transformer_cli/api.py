"""The Python API: load a model and translate, classify or tag, score given translations, compute BLEU, train.

import transformer_cli as tfm
translator = tfm.load("runs/latest", engine="ctranslate2", beam_size=5)
print(translator.translate(["A cat sat down."])[0].text)
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from transformer_cli.config.checks import AUTO, check_choice, check_number_or_auto, one_model_name
from transformer_cli.config.compose import from_plain
from transformer_cli.config.decode import DecodeConfig
from transformer_cli.config.train import Device
from transformer_cli.data.lines import list_of_texts
from transformer_cli.decoding.directions import asked_tags
from transformer_cli.decoding.opening import open_models
from transformer_cli.decoding.plan import check_given_tags
from transformer_cli.decoding.results import DEFAULT_OPTIONS, TranslateOptions
from transformer_cli.decoding.shared_engine import SharedEngine
from transformer_cli.decoding.shared_translator import SharedTranslator
from transformer_cli.errors import ConfigError
from transformer_cli.inference.precision import in_precision
from transformer_cli.models.device import choose_device
from transformer_cli.models.ensemble import build_all, read_models
from transformer_cli.models.file import read_model, require_command
from transformer_cli.models.labelling import SentenceTagger, TextClassifier
from transformer_cli.models.locate import locate_model, locate_models

if TYPE_CHECKING:
    from transformer_cli.config.train import TrainConfig
    from transformer_cli.evaluation.metrics import Score
    from transformer_cli.evaluation.scoring import ScoredTranslation
    from transformer_cli.training.result import TrainResult

BATCHES_AT_ONCE = 16


def load(
    path: str | Path | Sequence[str | Path] | None = None,
    *,
    engine: str | None = None,
    device: str = "auto",
    runs: str = "runs",
    seed: int = 1,
    options: TranslateOptions = DEFAULT_OPTIONS,
    parallel: bool = True,
    tag: str = "",
    source: str | None = None,
    target: str | None = None,
    **decode: Any,
) -> SharedTranslator:
    """Open a run directory, a checkpoint, a model file, several of them as an ensemble, or a folder of `tfm export`.

    Any number of threads may call its `translate` at once, and coroutines its `translate_async`: what they ask for is
    batched together.
    `engine` is torch, ctranslate2 or firefox (converted on demand), or auto: ctranslate2 where it is installed and can
    do what is asked for. `tag` is put before every line that does not begin with one of the model's tags, as `<2de>`.
    `source` and `target` are a direction of a model that has several, as `fr` or `fra_Latn`. `decode` are keys of the
    group `decode`, such as `beam_size=5`. Raises TfmError.
    """
    config: DecodeConfig = from_plain(DecodeConfig, decode)
    place = _chosen(device)
    opened = open_models(_model_names(path), runs=runs, engine=engine, decode=config, options=options)
    options = replace(options, tags=asked_tags(opened.models[0], " ".join([*options.tags, tag]), source, target))
    translator = opened.translator(config, place, seed=seed, options=options, parallel=parallel)
    # Many batches at once: an engine with processes of its own keeps them all busy.
    shared = SharedEngine(translator.engine, n_cached=0, batches_at_once=BATCHES_AT_ONCE if parallel else 1)
    return SharedTranslator(shared, translator.config, seed=seed, options=options)


def load_classifier(
    path: str | Path | None = None, *, device: str = "auto", runs: str = "runs", batch_tokens: int | str = AUTO
) -> TextClassifier:
    """Open a run directory, a checkpoint or a model file of a classifier; its `classify` takes a list of texts.

    `batch_tokens` is that of `tfm classify`. Raises TfmError.
    """
    found: TextClassifier = _labeller(path, "classify", device=device, runs=runs, batch_tokens=batch_tokens)
    return found


def load_tagger(
    path: str | Path | None = None, *, device: str = "auto", runs: str = "runs", batch_tokens: int | str = AUTO
) -> SentenceTagger:
    """Open a run directory, a checkpoint or a model file of a tagger; its `tag` takes a list of sentences.

    `batch_tokens` is that of `tfm tag`. Raises TfmError.
    """
    found: SentenceTagger = _labeller(path, "tag", device=device, runs=runs, batch_tokens=batch_tokens)
    return found


def _labeller(path: str | Path | None, command: str, *, device: str, runs: str, batch_tokens: int | str) -> Any:
    """What labels as `command` does. Raises CheckpointError for a model of another command."""
    check_number_or_auto("batch_tokens", batch_tokens, 1)
    place = _chosen(device)
    found = locate_model(one_model_name(_model_names(path)), runs)
    model = read_model(found)
    require_command(model, found, command)
    return model.task.labeller(model, place, batch_tokens)


def score(
    pairs: Sequence[tuple[str, str]],
    path: str | Path | Sequence[str | Path] | None = None,
    *,
    device: str = "auto",
    runs: str = "runs",
    tag: str = "",
    source: str | None = None,
    target: str | None = None,
    **decode: Any,
) -> "list[ScoredTranslation]":
    """The log-probability of each translation, for (source, translation) pairs, in their order.

    `path`, `tag`, `source`, `target` and `decode` are as in `load`; several models are an ensemble. Raises TfmError.
    """
    from transformer_cli.evaluation.scoring import score_translations

    config: DecodeConfig = from_plain(DecodeConfig, decode)
    place = _chosen(device)
    models = read_models(locate_models(_model_names(path), runs))
    model = in_precision(build_all(models, place), config.precision, place)
    tags = asked_tags(models[0], tag, source, target)
    check_given_tags(tags, models[0].tokenizers.source.tags)
    return score_translations(model, models, config, place, pairs, tags=tags)


def bleu(hypotheses: Sequence[str], references: Sequence[Sequence[str]], *, language: str = "") -> "Score":
    """BLEU as sacrebleu computes it, with its signature: `references[k][i]` is the k-th reference of line i.

    `language` is the code of the target language, which decides the tokenizer. Raises DataError, EnvironmentFault.
    """
    from transformer_cli.evaluation import metrics
    from transformer_cli.evaluation.tokenization import tokenization

    tokens = tokenization(language, asked_by="bleu" if language else None)
    lines = list_of_texts(hypotheses, "hypotheses")
    of_each = [list_of_texts(one, f"reference {k}") for k, one in enumerate(list_of_texts(references, "references"), 1)]
    return metrics.bleu(lines, of_each, tokens)


def train(overrides: "Sequence[str] | TrainConfig" = ()) -> "TrainResult":
    """Train in this process, or resume, as `tfm train` with these overrides; the test set is not translated.

    Several GPUs need the command under torchrun. Raises TfmError.
    """
    from transformer_cli.config.compose import load_config
    from transformer_cli.config.fields import follow_home
    from transformer_cli.config.train import TrainConfig
    from transformer_cli.training.ranks import Ranks
    from transformer_cli.training.run import Start, train_run
    from transformer_cli.training.signals import StopRequest

    if isinstance(overrides, TrainConfig):
        config = overrides
    else:
        config = load_config("train", list_of_texts(overrides, "overrides"))
    follow_home(config)
    run = train_run(Start.of(config), Ranks(StopRequest()))
    assert run is not None  # only other ranks have none
    return run.result


def _chosen(device: str) -> torch.device:
    """The device that is called so. Raises ConfigError, EnvironmentFault."""
    check_choice("device", device, list(Device.__members__))
    return choose_device(Device(device))


def _model_names(path: str | Path | Sequence[str | Path] | None) -> str | list[str] | None:
    """The names as `checkpoint` has them. Raises ConfigError for an empty one, which would be the working folder."""
    if path == "" or (path is not None and not isinstance(path, str | Path) and "" in path):
        raise ConfigError("path: an empty name. Name a file or folder, or leave it out")
    if path is None or isinstance(path, str | Path):
        return None if path is None else str(path)
    return [str(one) for one in path]
