"""The engines that run models, by the names that `engine` may have: torch here, others by add-ons."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from transformer_cli.errors import ConfigError
from transformer_cli.registry import Registry

if TYPE_CHECKING:
    import torch

    from transformer_cli.config.decode import DecodeConfig
    from transformer_cli.decoding.engine import Engine
    from transformer_cli.decoding.results import TranslateOptions
    from transformer_cli.models.exported import Exported
    from transformer_cli.models.file import ModelFile

TORCH = "torch"
AUTO = "auto"  # another engine where it is installed and has all that is asked for, else torch


class EngineKind:
    """What models an engine runs, and how it opens them. Here: it has no format of its own, and is never chosen."""

    own_format = ""  # what is said of a folder in it: "was exported for CTranslate2"

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


ENGINES: Registry[Callable[[], EngineKind]] = Registry("engine")


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
        return torch_engine(files, decode, device, parallel=parallel)


def engine_named(name: str) -> str:
    """The engine of this name, or AUTO. Raises ConfigError."""
    if name != AUTO and name not in ENGINES.names():
        raise ConfigError(f"engine={name}: unknown. Choose {', '.join([*ENGINES.names(), AUTO])}")
    return name
