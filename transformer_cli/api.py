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

from transformer_cli.addons.interop.conversions import converted, is_convertible
from transformer_cli.addons.interop.exported import Exported, read_export
from transformer_cli.config.compose import from_plain
from transformer_cli.config.decode import DecodeConfig, LengthNormalization
from transformer_cli.config.shared import Engine
from transformer_cli.config.tags import tags_in
from transformer_cli.config.train import Device
from transformer_cli.data.hashes import file_sha256
from transformer_cli.decoding.ctranslate2_engine import CAPABILITIES, WITH_TORCH, CTranslate2Engine, check_lengths
from transformer_cli.decoding.engine import check_supported
from transformer_cli.decoding.plan import check_given_tags
from transformer_cli.decoding.results import DEFAULT_OPTIONS, TranslateOptions
from transformer_cli.decoding.shared_engine import SharedEngine
from transformer_cli.decoding.shared_translator import SharedTranslator
from transformer_cli.decoding.torch_engine import TorchEngine, torch_translator
from transformer_cli.decoding.training_text import training_text
from transformer_cli.decoding.translator import Translator
from transformer_cli.errors import ConfigError, EnvironmentFault
from transformer_cli.extras import imported
from transformer_cli.inference.precision import in_precision, on_device
from transformer_cli.logs import LOGGER
from transformer_cli.models.device import choose_device
from transformer_cli.models.ensemble import build_all, read_models
from transformer_cli.models.file import ModelFile
from transformer_cli.models.locate import EXPORT_FILE, exported_for, locate_model, locate_models

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
    engine: Engine  # torch or ctranslate2

    def sha256(self) -> list[str]:
        """The hash of each model's file; of an export, that of its weights."""
        return [
            file_sha256(path / "model.bin" if isinstance(model, Exported) else path)
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
        if self.engine is Engine.ctranslate2:
            (model,) = self.models
            capabilities = CAPABILITIES if isinstance(model, Exported) else WITH_TORCH
            check_supported(capabilities, config, options)  # before a conversion
            exported = model if isinstance(model, Exported) else converted(self.paths[0], quantize=config.quantize)
            check_lengths(config, exported.directory, exported.max_positions)
            text = training_text([exported], max_positions=exported.max_positions)
            engine = CTranslate2Engine(
                exported.directory,
                exported.tokenizers,
                text=text,
                device=device,
                quantize=config.quantize,
                precision=config.precision,
                with_torch=None if isinstance(model, Exported) else lambda: self._torch_engine(config, device),
            )
            return Translator(engine, config, seed=seed, options=options)
        files = [model for model in self.models if isinstance(model, ModelFile)]
        return torch_translator(
            build_all(files, device),
            files[0].tokenizers,
            config,
            device=device,
            seed=seed,
            options=options,
            text=training_text(files),
            parallel=parallel,
        )

    def _torch_engine(self, config: DecodeConfig, device: torch.device) -> TorchEngine:
        """For what CTranslate2 does not have."""
        files = [model for model in self.models if isinstance(model, ModelFile)]
        return TorchEngine(
            build_all(files, device),
            files[0].tokenizers,
            device=device,
            text=training_text(files),
            precision=config.precision,
        )


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
    chosen = None if engine is None else named_engine(engine)
    opened = open_models(model_names(path), runs=runs, engine=chosen, decode=config, options=options)
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
    from transformer_cli.data.prepare import prepare
    from transformer_cli.training.initialisation import (
        initial_tokenizers,
        left_out_for,
        read_initial_model,
        with_initial_sizes,
    )
    from transformer_cli.training.loop import train as train_in
    from transformer_cli.training.main_process import MainProcess
    from transformer_cli.training.ranks import Ranks
    from transformer_cli.training.run_directory import chosen_before, open_run, with_values
    from transformer_cli.training.signals import StopRequest
    from transformer_cli.training.state import check_components

    config = overrides if isinstance(overrides, TrainConfig) else load_config("train", list(overrides))
    follow_home(config)
    device, start = choose_device(config.device), read_initial_model(config)
    config = with_initial_sizes(config, start)
    check_components(config, device)
    with open_run(config) as run_dir:
        config = with_values(config, chosen_before(config, run_dir))
        tokenizers = initial_tokenizers(config, start)
        prepared = prepare(config.data, tokenizers=tokenizers, left_out=left_out_for(start))
        for warning in prepared.warnings:
            LOGGER.warning("%s", warning)
        result = train_in(config, prepared, MainProcess(run_dir, Ranks(StopRequest())), device=device)
        assert result is not None  # only a worker has none
        return result


def model_names(path: str | Path | Sequence[str | Path] | None) -> str | list[str] | None:
    if path is None or isinstance(path, str | Path):
        return None if path is None else str(path)
    return [str(one) for one in path]


def named_engine(name: str) -> Engine:
    if name not in Engine.__members__:
        raise ConfigError(f"engine={name}: unknown. Choose {', '.join(Engine.__members__)}")
    return Engine[name]


def open_models(
    checkpoint: Checkpoint,
    *,
    runs: str = "runs",
    engine: Engine | None = None,
    decode: DecodeConfig,
    options: TranslateOptions = DEFAULT_OPTIONS,
    kinds: Sequence[str] = ("transformer",),
) -> Opened:
    """Locate and read what `checkpoint` names, and choose the engine; unset, ctranslate2 for its own folders only.

    Models of other `kinds` than a transformer are opened with torch. Raises ConfigError for what the engine does not
    have, CheckpointError for a model that cannot be used, and EnvironmentFault where ctranslate2 is not installed.
    """
    names = [checkpoint] if checkpoint is None or isinstance(checkpoint, str) else list(checkpoint)
    only = names[0] if len(names) == 1 else None
    if engine is not Engine.torch and only is not None and _is_export(Path(only), engine):
        if engine is None:
            LOGGER.info("%s: was exported for CTranslate2, so engine=ctranslate2", only)
        check_supported(CAPABILITIES, decode, options)
        exported = read_export(Path(only), program=Engine.ctranslate2.name)
        return Opened([exported.directory], [exported], Engine.ctranslate2)
    if engine is Engine.ctranslate2:
        if len(names) > 1:
            raise ConfigError("--checkpoint: names several, and engine=ctranslate2 joins none. Name one")
        check_supported(WITH_TORCH, decode, options)
        imported("ctranslate2", needs="engine=ctranslate2")
        path = locate_model(only, runs)
        return Opened([path], read_models([path]), Engine.ctranslate2)
    paths = locate_models(None if checkpoint is None else [str(name) for name in names], runs)
    models = read_models(paths, kinds)
    if engine is Engine.auto and _ctranslate2_can(models, decode, options):
        return Opened(paths, models, Engine.ctranslate2)
    return Opened(paths, models, Engine.torch)


def _is_export(folder: Path, engine: Engine | None) -> bool:
    """Whether `folder` is one of `tfm export`; where CTranslate2 is asked for, also a damaged one, to be refused."""
    program = exported_for(folder)
    damaged = (folder / "model.bin").exists() or ((folder / EXPORT_FILE).exists() and program != "huggingface")
    return program == Engine.ctranslate2.name or (engine is Engine.ctranslate2 and damaged)


def _ctranslate2_can(models: Sequence[ModelFile], decode: DecodeConfig, options: TranslateOptions) -> bool:
    try:
        imported("ctranslate2", needs="engine=ctranslate2")
        check_supported(WITH_TORCH, decode, options)
    except (ConfigError, EnvironmentFault):
        return False
    return len(models) == 1 and is_convertible(models[0])
