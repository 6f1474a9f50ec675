"""The engines that run models, by the names that `engine` may have: torch here, others by add-ons."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from transformer_cli.config.checks import check_choice
from transformer_cli.config.shared import AUTO_ENGINE, ENGINES, TORCH, engine_names

if TYPE_CHECKING:
    import torch

    from transformer_cli.config.decode import DecodeConfig
    from transformer_cli.decoding.engine import Engine
    from transformer_cli.decoding.results import TranslateOptions
    from transformer_cli.models.exported import Exported
    from transformer_cli.models.file import ModelFile


class EngineKind:
    """What models an engine runs, and how it opens them. Here: it has no format of its own, and is never chosen."""

    own_format = ""  # what is said of a folder in it: "was exported for CTranslate2"
    own_arithmetic = False  # whether decode.precision and a length penalty have no effect: neither is filled in

    def recognises(self, folder: Path, *, is_chosen: bool) -> bool:
        """Whether a folder is in its own format; if the user has chosen the engine, also where it is damaged."""
        return False

    def read(self, folder: Path, decode: "DecodeConfig", options: "TranslateOptions") -> "Exported":
        """A folder that it recognises. Raises ConfigError for settings that it lacks, and CheckpointError."""
        raise NotImplementedError

    def check(self, n_models: int, decode: "DecodeConfig", options: "TranslateOptions") -> None:
        """Raise ConfigError for what it lacks for model files, and EnvironmentFault where it is not installed."""

    def is_better(self, models: "Sequence[ModelFile]", decode: "DecodeConfig", options: "TranslateOptions") -> bool:
        """Whether `engine=auto` is to choose it for these models: it is installed, and lacks nothing."""
        return False

    def open(
        self,
        paths: Sequence[Path],
        models: "Sequence[ModelFile | Exported]",
        decode: "DecodeConfig",
        device: "torch.device",
        *,
        options: "TranslateOptions",
        parallel: bool,
    ) -> "Engine":
        """The engine for models that were read from `paths`; several are an ensemble. Raises TfmError."""
        raise NotImplementedError


@ENGINES.register(TORCH)
class TorchKind(EngineKind):
    """Model files of ours, and ensembles of them."""

    def open(
        self,
        paths: Sequence[Path],
        models: "Sequence[ModelFile | Exported]",
        decode: "DecodeConfig",
        device: "torch.device",
        *,
        options: "TranslateOptions",
        parallel: bool,
    ) -> "Engine":
        from transformer_cli.decoding.torch_engine import torch_engine
        from transformer_cli.models.file import ModelFile

        files = [model for model in models if isinstance(model, ModelFile)]
        shortlist = None if decode.shortlist is None else Path(decode.shortlist)
        return torch_engine(files, decode, device, parallel=parallel, shortlist=shortlist)


def engine_kind(name: str) -> EngineKind:
    """The entry of this name. Raises ConfigError."""
    check_choice("engine", name, [one for one in engine_names() if one != AUTO_ENGINE])
    kind: EngineKind = ENGINES[name]()
    return kind


def other_engines(name: str | None) -> dict[str, EngineKind]:
    """The engines but torch that `engine` leaves to choose from: all, unless it names one. Raises ConfigError."""
    if name is not None:
        check_choice("engine", name, engine_names())
    return {one: engine_kind(one) for one in ENGINES.names() if one != TORCH and name in (None, AUTO_ENGINE, one)}
