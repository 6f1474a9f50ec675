"""The Python API: load a model and translate, score given translations, compute BLEU, train.

import transformer_cli as tfm
translator = tfm.load("runs/latest", engine="ctranslate2", beam_size=5)
print(translator.translate(["A cat sat down."])[0].text)
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

import torch

from transformer_cli.config.compose import from_plain
from transformer_cli.config.decode import DecodeConfig, LengthNormalization
from transformer_cli.config.tags import tags_in
from transformer_cli.config.train import Device
from transformer_cli.data.hashes import file_sha256
from transformer_cli.decoding.engines import AUTO, ENGINES, TORCH, engine_named
from transformer_cli.decoding.plan import check_given_tags
from transformer_cli.decoding.results import DEFAULT_OPTIONS, TranslateOptions
from transformer_cli.decoding.shared_engine import SharedEngine
from transformer_cli.decoding.shared_translator import SharedTranslator
from transformer_cli.decoding.translator import Translator
from transformer_cli.inference.precision import in_precision, on_device
from transformer_cli.logs import LOGGER
from transformer_cli.models.device import choose_device
from transformer_cli.models.ensemble import build_all, read_models
from transformer_cli.models.exported import Exported
from transformer_cli.models.file import ModelFile
from transformer_cli.models.locate import locate_models

if TYPE_CHECKING:
    from transformer_cli.config.train import TrainConfig
    from transformer_cli.evaluation.metrics import Score
    from transformer_cli.evaluation.scoring import ScoredTranslation
    from transformer_cli.training.result import TrainResult

BATCHES_AT_ONCE = 16
Checkpoint = str | Sequence[str] | None


@dataclass(frozen=True)
class Opened:
    """A model, or an ensemble: the files it was read from, what they hold, and an engine for it."""

    paths: Sequence[Path]
    models: Sequence[ModelFile | Exported]
    engine: str  # of ENGINES

    def sha256(self) -> list[str]:
        """The hash of each model's file; of an export, that of its weights."""
        return [
            file_sha256(model.weights if isinstance(model, Exported) else path)
            for path, model in zip(self.paths, self.models, strict=True)
        ]

    def decode_config(self, config: DecodeConfig, device: torch.device) -> DecodeConfig:
        """`config` with the precision that auto means on `device`; auto stays for an export, which has its own.

        A length penalty that is unset is that of the model, or the mean of those of several.

        Raises EnvironmentFault for a precision that the device lacks.
        """
        config = with_own_length_penalty(config, [model.length_penalty for model in self.models])
        on_it = on_device(config, device)
        return config if any(isinstance(model, Exported) for model in self.models) else on_it

    def translator(
        self,
        config: DecodeConfig,
        device: torch.device,
        *,
        seed: int = 1,
        options: TranslateOptions = DEFAULT_OPTIONS,
        parallel: bool = False,
    ) -> Translator:
        """`parallel` takes every CPU core, or captures CUDA graphs. Raises ConfigError, CheckpointError, DataError."""
        config = self.decode_config(config, device)
        kind = ENGINES[self.engine]()
        engine = kind.open(self.paths, self.models, config, device, options=options, parallel=parallel)
        return Translator(engine, config, seed=seed, options=options)


def with_own_length_penalty(config: DecodeConfig, own: Sequence[float | None]) -> DecodeConfig:
    """`config` with the mean of `own`, the length penalty of each model, where it has none itself.

    A model without one counts as the default. A line names the values if they differ.
    """
    if config.length_penalty is not None or config.length_normalization is not LengthNormalization.gnmt:
        return config
    if len(set(own)) == 1:  # also if no model has one: it stays unset
        return replace(config, length_penalty=own[0])
    # Rounded, so that the printed value, given as decode.length_penalty, is the same search.
    mean = round(fmean(config.alpha if alpha is None else alpha for alpha in own), 4)
    named = ", ".join(f"none, which counts as {config.alpha:g}" if alpha is None else f"{alpha:g}" for alpha in own)
    LOGGER.info(
        "length penalties of the models differ (%s), so their mean, %g, is used; decode.length_penalty sets another",
        named,
        mean,
    )
    return replace(config, length_penalty=mean)


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
    **decode: Any,
) -> SharedTranslator:
    """Open a run directory, a checkpoint, a model file, several of them as an ensemble, or a folder of `tfm export`.

    Any number of threads may call its `translate` at once, and coroutines its `translate_async`: what they ask for is
    batched together.
    `engine` is torch, ctranslate2 (converted on demand), or auto: ctranslate2 where it is installed and can do what is
    asked for. `tag` is put before every line that does not begin with one of the model's tags, as `<2de>`. `decode` are
    keys of the group `decode`, such as `beam_size=5`. Raises TfmError.
    """
    config: DecodeConfig = from_plain(DecodeConfig, decode)
    options = replace(options, tags=(*options.tags, *tags_in(tag)))
    opened = open_models(model_names(path), runs=runs, engine=engine, decode=config, options=options)
    translator = opened.translator(config, choose_device(Device(device)), seed=seed, options=options, parallel=parallel)
    # Many batches at once: an engine with processes of its own keeps them all busy.
    shared = SharedEngine(translator.engine, n_cached=0, batches_at_once=BATCHES_AT_ONCE if parallel else 1)
    return SharedTranslator(shared, translator.config, seed=seed, options=options)


def score(
    pairs: Sequence[tuple[str, str]],
    path: str | Path | Sequence[str | Path] | None = None,
    *,
    device: str = "auto",
    runs: str = "runs",
    tag: str = "",
    **decode: Any,
) -> "list[ScoredTranslation]":
    """The log-probability of each translation, for (source, translation) pairs, in their order.

    `path`, `tag` and `decode` are as in `load`; several models are an ensemble. Raises TfmError.
    """
    from transformer_cli.evaluation.scoring import score_translations

    config: DecodeConfig = from_plain(DecodeConfig, decode)
    place = choose_device(Device(device))
    models = read_models(locate_models(model_names(path), runs))
    model = in_precision(build_all(models, place), config.precision, place)
    tags = tags_in(tag)
    check_given_tags(tags, models[0].tokenizers.source.tags)
    return score_translations(model, models, config, place, pairs, tags=tags)


def bleu(hypotheses: Sequence[str], references: Sequence[Sequence[str]], *, language: str = "") -> "Score":
    """BLEU as sacrebleu computes it, with its signature: `references[k][i]` is the k-th reference of line i.

    `language` is the code of the target language, which decides the tokenizer. Raises DataError, EnvironmentFault.
    """
    from transformer_cli.evaluation import metrics
    from transformer_cli.evaluation.tokenization import tokenization

    tokens = tokenization(language, asked_by="bleu" if language else None)
    return metrics.bleu(hypotheses, references, tokens)


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

    config = overrides if isinstance(overrides, TrainConfig) else load_config("train", list(overrides))
    follow_home(config)
    run = train_run(Start.of(config), Ranks(StopRequest()))
    assert run is not None  # only other ranks have none
    return run.result


def model_names(path: str | Path | Sequence[str | Path] | None) -> str | list[str] | None:
    if path is None or isinstance(path, str | Path):
        return None if path is None else str(path)
    return [str(one) for one in path]


def open_models(
    checkpoint: Checkpoint,
    *,
    runs: str = "runs",
    engine: str | None = None,
    decode: DecodeConfig,
    options: TranslateOptions = DEFAULT_OPTIONS,
    kinds: Sequence[str] = ("transformer",),
) -> Opened:
    """Locate and read what `checkpoint` names, and choose the engine; unset, torch but for another's own folders.

    Models of other `kinds` than a transformer are opened with torch. Raises ConfigError for what the engine does not
    have, CheckpointError for a model that cannot be used, and EnvironmentFault where the engine is not installed.
    """
    names = [checkpoint] if checkpoint is None or isinstance(checkpoint, str) else list(checkpoint)
    only = names[0] if len(names) == 1 else None
    engine = None if engine is None else engine_named(engine)
    others = {name: ENGINES[name]() for name in ENGINES.names() if name != TORCH and engine in (None, AUTO, name)}
    for name, kind in others.items():
        if only is not None and kind.recognises(Path(only), is_chosen=engine == name):
            if engine is None:
                LOGGER.info("%s: %s, so engine=%s", only, kind.own_format, name)
            exported = kind.read(Path(only), decode, options)
            return Opened([exported.directory], [exported], name)
    if engine in others:
        others[engine].check(len(names), decode, options)
        kinds = ("transformer",)
    paths = locate_models(None if checkpoint is None else [str(name) for name in names], runs)
    models = read_models(paths, kinds)
    if engine in others:
        return Opened(paths, models, engine)
    better = (name for name, kind in others.items() if engine == AUTO and kind.is_better(models, decode, options))
    return Opened(paths, models, next(better, TORCH))
