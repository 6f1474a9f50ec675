"""Keys of `tfm attention`."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from transformer_cli.config.checks import model_names
from transformer_cli.config.decode import DecodeConfig, Quantize
from transformer_cli.config.fields import CHECKPOINT, DEVICE, OVERWRITE, PLUGINS, RUNS, SEED, check_ranges, key
from transformer_cli.config.model import Positions
from transformer_cli.config.shared import FROM, TAG, TO
from transformer_cli.config.train import Device
from transformer_cli.errors import ConfigError


class AttentionKind(Enum):
    encoder = "encoder"  # self-attention of the source
    decoder = "decoder"  # causal self-attention of the translation
    cross = "cross"  # the translation attends to the source


@dataclass
class PositionsModel:
    """Keys of `model` on which position encodings depend, for `tfm attention --positions` without a trained model."""

    d_model: int | None = key(
        None, "Width of the embeddings; unset: that of the paper's base model. Only with --positions."
    )
    positions: Positions | None = key(
        None, "Position encoding that is drawn; unset: the paper's. Only with --positions."
    )
    first_position: int | None = key(None, "Position of the first token in the sinusoids. Only with --positions.")
    n_heads: int | None = key(None, "Attention heads, whose width rotary positions have. Only with --positions.")
    d_k: int | None = key(None, "Width of a head's queries and keys, for rotary positions. Only with --positions.")

    def given(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if value is not None}


# Keys that have a meaning with --positions; no sentence is translated then.
WITH_POSITIONS = ("positions", "model", "checkpoint", "runs", "output", "overwrite", "device", "plugins")


@dataclass
class AttentionConfig:
    """`tfm attention`."""

    sentence: str | None = key(None, "The sentence to translate.", word=True)
    input: str | None = key(
        None, "File with a sentence on each line, or sentence<TAB>translation.", path=True, flag="--input"
    )
    translation: str | None = key(None, "Translation to show, instead of the model's own.", flag="--translation")
    tag: str | None = key(None, TAG, flag="--tag")
    source_lang: str | None = key(None, FROM, flag="--from")
    target_lang: str | None = key(None, TO, flag="--to")
    checkpoint: Any = key(None, CHECKPOINT, path=True, flag="--checkpoint", repeated=True)
    runs: str = key("runs", RUNS, path=True)
    positions: int | None = key(
        None,
        "Draw the encodings of this many positions instead: those of `model`, or of a trained one with --checkpoint.",
        low=1,
        high=512,
        flag="--positions",
    )
    output: str | None = key(
        None,
        "Output file: .html, .png, .svg, .pdf or .json; of a file, one for each line, with its number in the name;"
        " unset: attention.html, or positions.html with --positions.",
        path=True,
        flag="--output",
    )
    overwrite: bool = key(False, OVERWRITE, flag="--overwrite")
    words: bool = key(False, "Merge the subwords of each word.", flag="--words")
    link: str | None = key(
        None, 'Two words, as "it chair": print the head with the largest weight between them.', flag="--link"
    )
    kind: AttentionKind | None = key(
        None, "Attention that is drawn; unset: cross. .png, .svg and .pdf only.", flag="--kind"
    )
    layer: int | None = key(
        None, "Layer that is drawn, from 1; unset: all. .png, .svg and .pdf only.", low=1, high=512, flag="--layer"
    )
    head: int | None = key(
        None, "Head that is drawn, from 1; unset: all. .png, .svg and .pdf only.", low=1, high=1_000_000, flag="--head"
    )
    mean: bool = key(False, "Draw the mean of the heads of each layer. .png, .svg and .pdf only.", flag="--mean")
    seed: int = key(1, SEED, low=0, high=2**31 - 1)
    device: Device = key(Device.auto, DEVICE, flag="--device")
    plugins: list[str] = key([], PLUGINS)
    model: PositionsModel = field(default_factory=PositionsModel)
    decode: DecodeConfig = field(default_factory=DecodeConfig)

    def __post_init__(self) -> None:
        self.checkpoint = model_names(self.checkpoint)
        check_ranges(self)
        for name, value in self.model.given().items():
            text = f"model.{name}={value.name if isinstance(value, Enum) else value}"
            if self.positions is None:
                raise ConfigError(f"{text}: only with --positions; a sentence needs a trained model. Leave it out")
            if self.checkpoint is not None:
                raise ConfigError(f"{text}: and --checkpoint names a model with its own. Leave one of them out")
        if self.mean and self.head is not None:
            raise ConfigError(f"--head {self.head}: and --mean is over all heads. Leave one of them out")
        if self.decode.quantize is not Quantize.none:
            raise ConfigError(
                f"decode.quantize={self.decode.quantize.name}: translates with rounded weights, and other ones would be"
                " shown. Leave it out"
            )

    @property
    def output_file(self) -> str:
        if self.output is not None:
            return self.output
        return "attention.html" if self.positions is None else "positions.html"

    def refuse_given(self, keys: Iterable[str]) -> None:
        """Raise ConfigError for a key of a translated sentence, among those given, where positions are drawn."""
        for name in keys:
            if self.positions is not None and name.split(".")[0] not in WITH_POSITIONS:
                raise ConfigError(
                    f"{name}: of a sentence's attention weights, and --positions {self.positions} draws position"
                    " encodings. Leave one of them out"
                )
