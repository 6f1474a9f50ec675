"""Keys of `tfm fill`, and the options of a masked language model."""

from dataclasses import dataclass

from transformer_cli.config.fields import key
from transformer_cli.config.filter import FilterConfig, ResponseFormat
from transformer_cli.errors import ConfigError


@dataclass
class FillConfig(FilterConfig):
    """`tfm fill`."""

    text: str | None = key(
        None, "The text with a [mask] in it; unset: --input, or standard input.", flag="--text", word=True
    )
    html: str | None = key(None, "File for a page with the words of every mask, too.", path=True, flag="--html")
    top: int = key(5, "Fillings of each line, the likeliest first.", low=1, high=1000, flag="--top")
    pieces: int = key(
        1, "Longest word that a mask may stand for, in pieces of the vocabulary.", low=1, high=8, flag="--pieces"
    )
    output_format: ResponseFormat = key(
        ResponseFormat.text,
        "Lines of probability<TAB>text, or a JSON object for each line of the input (jsonl).",
        flag="--output-format",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.text is not None and self.input is not None:
            raise ConfigError(f"--input {self.input}: and a text is given. Leave one of them out")


@dataclass
class Masking:
    """The shares of the tokens that are masked."""

    mask_share: float = key(
        0.15, "Share of the tokens that the model has to predict.", low=0.01, high=0.9, part="training"
    )
    random_share: float = key(
        0.1, "Share of these that are replaced by a random token, not by the mask.", low=0, high=1, part="training"
    )
    kept_share: float = key(0.1, "Share of these that stay as they are.", low=0, high=1, part="training")

    def __post_init__(self) -> None:
        if self.random_share + self.kept_share > 1:
            raise ConfigError(
                f"model.options.random_share={self.random_share:g}: with model.options.kept_share={self.kept_share:g}"
                " it is more than all. Lower one of them"
            )
