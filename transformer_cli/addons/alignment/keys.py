"""Keys of `tfm align`."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from transformer_cli.config.checks import AUTO, one_model_name
from transformer_cli.config.fields import BATCH_TOKENS, DEVICE, OVERWRITE, PLUGINS, RUNS, check_ranges, key
from transformer_cli.config.shared import FROM, TAG, TO
from transformer_cli.config.train import Device
from transformer_cli.errors import ConfigError

_OF_MODEL = ("tag", "source_lang", "target_lang", "device", "batch_tokens", "runs")  # read with --checkpoint alone


@dataclass
class AlignConfig:
    """`tfm align`."""

    source: str | None = key(None, "Text, one sentence a line.", path=True, flag="--source", word=True)
    translation: str | None = key(
        None, "File whose line n translates line n of `source`.", path=True, flag="--translation", word=True
    )
    checkpoint: Any = key(
        None,
        "Model file, checkpoint or run directory whose attention aligns; unset: an aligner estimated on the text.",
        path=True,
        flag="--checkpoint",
        repeated=True,
    )
    runs: str = key("runs", RUNS, path=True)
    output: str | None = key(None, "Output file; unset: standard output.", path=True, flag="--output")
    overwrite: bool = key(False, OVERWRITE, flag="--overwrite")
    tag: str | None = key(None, TAG, flag="--tag")
    source_lang: str | None = key(None, FROM, flag="--from")
    target_lang: str | None = key(None, TO, flag="--to")
    batch_tokens: Any = key(AUTO, BATCH_TOKENS, low=1, auto=True)
    device: Device = key(Device.auto, DEVICE, flag="--device")
    plugins: list[str] = key([], PLUGINS)

    def __post_init__(self) -> None:
        self.checkpoint = one_model_name(self.checkpoint)
        check_ranges(self)

    def refuse_given(self, keys: Iterable[str]) -> None:
        """Raise ConfigError for a key of models, among those given, where none is named."""
        for name in keys:
            if name in _OF_MODEL and self.checkpoint is None:
                raise ConfigError(f"{name}: of a model, and none is named. Give --checkpoint, or leave it out")
