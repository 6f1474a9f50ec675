"""Keys of `tfm generate`."""

from dataclasses import dataclass, field
from typing import Any

from transformer_cli.config.checks import one_model_name
from transformer_cli.config.decode import DecodeConfig, Quantize
from transformer_cli.config.fields import CHECKPOINT, DEVICE, PLUGINS, RUNS, SEED, STRICT, check_ranges, key
from transformer_cli.config.train import Device
from transformer_cli.errors import ConfigError


@dataclass
class GenerateConfig:
    """`tfm generate`."""

    prompt: str | None = key(
        None, "The text to continue; unset: standard input, one prompt a line.", flag="--prompt", word=True
    )
    checkpoint: Any = key(None, CHECKPOINT, path=True, flag="--checkpoint", repeated=True)
    runs: str = key("runs", RUNS, path=True)
    strict: bool = key(False, STRICT, flag="--strict")
    seed: int = key(1, SEED, low=0, high=2**31 - 1, flag="--seed")
    device: Device = key(Device.auto, DEVICE, flag="--device")
    plugins: list[str] = key([], PLUGINS)
    # Its max_length counts the tokens after the prompt, and is 256 when unset.
    decode: DecodeConfig = field(default_factory=DecodeConfig)

    def __post_init__(self) -> None:
        self.checkpoint = one_model_name(self.checkpoint)
        check_ranges(self)
        for setting, is_set in (
            (f"decode.coverage_penalty={self.decode.coverage_penalty}", self.decode.coverage_penalty > 0),
            ("decode.batch_invariant=true", self.decode.batch_invariant),
            (f"decode.quantize={self.decode.quantize.name}", self.decode.quantize is not Quantize.none),
        ):
            if is_set:
                raise ConfigError(f"{setting}: for translations only. Leave it out")
