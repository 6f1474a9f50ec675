"""Keys of `tfm classify`."""

from dataclasses import dataclass

from transformer_cli.config.fields import key
from transformer_cli.config.filter import FilterConfig, ResponseFormat


@dataclass
class ClassifyConfig(FilterConfig):
    """`tfm classify`."""

    probabilities: bool = key(False, "Print the probability of every class after each label.", flag="--probabilities")
    output_format: ResponseFormat = key(
        ResponseFormat.text,
        "Lines of text, or a JSON object for each line with all probabilities (jsonl).",
        flag="--output-format",
    )
    html: str | None = key(
        None,
        "Page that shows the weights of each line's tokens, of a model with such a pooling (self_attentive).",
        path=True,
        flag="--html",
    )
