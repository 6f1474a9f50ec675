"""Keys of `tfm score`."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from transformer_cli.config.checks import model_names
from transformer_cli.config.decode import DecodeConfig
from transformer_cli.config.fields import CHECKPOINTS, DEVICE, PLUGINS, RUNS, STRICT, key
from transformer_cli.config.shared import FROM, TAG, TO
from transformer_cli.config.train import Device
from transformer_cli.errors import ConfigError

# The keys of a search that scores follow from, too.
READ = tuple(
    f"decode.{name}"
    for name in ("length_penalty", "length_normalization", "max_source_length", "batch_tokens", "precision")
)


@dataclass
class ScoreConfig:
    """`tfm score`."""

    checkpoint: Any = key(None, CHECKPOINTS, path=True, flag="--checkpoint", repeated=True)
    runs: str = key("runs", RUNS, path=True)
    source: str | None = key(
        None,
        "Source file; unset: standard input with source<TAB>translation on each line, or text for a language model.",
        path=True,
        flag="--source",
    )
    translation: str | None = key(
        None,
        "File whose line n translates line n of `source`; not for a language model.",
        path=True,
        flag="--translation",
    )
    tag: str | None = key(None, TAG, flag="--tag")
    source_lang: str | None = key(None, FROM, flag="--from")
    target_lang: str | None = key(None, TO, flag="--to")
    json: bool = key(False, "Print a JSON object for each line, with the score of each token.", flag="--json")
    strict: bool = key(False, STRICT, flag="--strict")
    device: Device = key(Device.auto, DEVICE, flag="--device")
    plugins: list[str] = key([], PLUGINS)
    # Of which those of READ are used.
    decode: DecodeConfig = field(default_factory=DecodeConfig)

    def __post_init__(self) -> None:
        self.checkpoint = model_names(self.checkpoint)
        if self.source is None and self.translation is not None:
            raise ConfigError("--source: not given, but --translation is. Give both files, or neither")

    def refuse_given(self, keys: Iterable[str]) -> None:
        """Raise ConfigError for a key, among those given, of the search for a translation: the translation is given."""
        for name in keys:
            if name.startswith("decode.") and name not in READ:
                raise ConfigError(
                    f"{name}: of the search for translations, and `tfm score` has them. It reads {', '.join(READ)}."
                    " Leave it out"
                )
