"""What a checkpoint names → the models, and an engine that translates with them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean

import torch

from transformer_cli.config.decode import DecodeConfig, LengthNormalization
from transformer_cli.config.shared import AUTO_ENGINE, TORCH
from transformer_cli.config.tasks import TASKS, Task
from transformer_cli.data.hashes import file_sha256
from transformer_cli.decoding.engines import engine_kind, other_engines
from transformer_cli.decoding.plan import check_given_tags
from transformer_cli.decoding.results import DEFAULT_OPTIONS, TranslateOptions
from transformer_cli.decoding.shortlist import shortlist_path
from transformer_cli.decoding.translator import Translator
from transformer_cli.inference.precision import on_device
from transformer_cli.logs import LOGGER
from transformer_cli.models.ensemble import read_models
from transformer_cli.models.exported import Exported
from transformer_cli.models.file import ModelFile
from transformer_cli.models.locate import locate_models, place_named

_Checkpoint = str | Sequence[str] | None


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

    @property
    def task(self) -> Task:
        """What the models were trained for; those of another program translate."""
        first = self.models[0]
        return first.task if isinstance(first, ModelFile) else TASKS["translation"]

    @property
    def length_penalties(self) -> list[float | None]:
        """The own ones of the models; none where the engine has no use for them."""
        has_use = not engine_kind(self.engine).own_arithmetic
        return [model.length_penalty if has_use else None for model in self.models]

    def decode_config(self, config: DecodeConfig, device: torch.device) -> DecodeConfig:
        """`config` with the precision that auto means on `device`; auto stays for an export, which has its own.

        A shortlist that is auto is the one beside the model. An engine with arithmetic of its own has the rest of
        `config` as it is.

        A length penalty that is unset is that of the model, or the mean of those of several.

        Raises EnvironmentFault for a precision that the device lacks.
        """
        if config.shortlist is not None:
            config = replace(config, shortlist=str(shortlist_path(config.shortlist, self.paths[0])))
        if engine_kind(self.engine).own_arithmetic:
            return config
        config = with_own_length_penalty(config, self.length_penalties)
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
        check_given_tags(options.tags, self.models[0].tokenizers.source.tags)  # before an engine converts anything
        config = self.decode_config(config, device)
        kind = engine_kind(self.engine)
        engine = kind.open(self.paths, self.models, config, device, options=options, parallel=parallel)
        return Translator(engine, config, seed=seed, options=options)


def open_models(
    checkpoint: _Checkpoint,
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
    only = place_named(names[0]) if len(names) == 1 and names[0] is not None else None
    others = other_engines(engine)
    for name, kind in others.items():
        if only is not None and kind.recognises(only, is_chosen=engine == name):
            if engine in (None, AUTO_ENGINE):
                LOGGER.info("%s: %s, so engine=%s", names[0], kind.own_format, name)
            exported = kind.read(only, decode, options)
            return Opened([exported.directory], [exported], name)
    if engine in others:
        others[engine].check(len(names), decode, options)
        kinds = ("transformer",)
    paths = locate_models(None if checkpoint is None else [str(name) for name in names], runs)
    models = read_models(paths, kinds)
    if engine in others:
        return Opened(paths, models, engine)
    better = (
        name for name, kind in others.items() if engine == AUTO_ENGINE and kind.is_better(models, decode, options)
    )
    return Opened(paths, models, next(better, TORCH))


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
