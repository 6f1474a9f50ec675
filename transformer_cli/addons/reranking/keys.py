"""Keys of `tfm rerank`."""

from dataclasses import dataclass, field
from typing import Any

from transformer_cli.config.decode import DecodeConfig
from transformer_cli.config.fields import DEVICE, OVERWRITE, PLUGINS, SEED, check_ranges, key
from transformer_cli.config.train import Device
from transformer_cli.errors import ConfigError

TUNED_FOR = ("bleu", "chrf", "chrf++", "spbleu", "ter")  # which are computed from counts of each line


@dataclass
class RerankConfig:
    """`tfm rerank`."""

    lists: str | None = key(
        None,
        "N-best lists, as `tfm translate --n-best` writes them: as text, Moses' format or jsonl.",
        path=True,
        flag="--nbest",
        word=True,
    )
    reference: Any = key(
        None,
        "File of references, or several: tune the weights on them, and --save these.",
        path=True,
        flag="--reference",
        repeated=True,
    )
    weights: str | None = key(
        None, "File of weights that was saved: print the best of each list by them.", path=True, flag="--weights"
    )
    save: str | None = key(None, "Output file for the tuned weights.", path=True, flag="--save")
    source: str | None = key(
        None, "The text that was translated, for --forward and --reverse.", path=True, flag="--source"
    )
    forward: Any = key(
        None,
        "Model of the same direction, whose log-probability of a translation is a feature; several: one each.",
        path=True,
        flag="--forward",
        repeated=True,
    )
    reverse: Any = key(
        None,
        "Model of the reverse direction: the log-probability of the source, given a translation (noisy channel).",
        path=True,
        flag="--reverse",
        repeated=True,
    )
    language_model: Any = key(
        None,
        "Language model of the target language: the log-probability of a translation.",
        path=True,
        flag="--language-model",
        repeated=True,
    )
    features: list[str] = key(
        [],
        "Further features as NAME=FILE, with a line for each translation of the lists, in their order: a number, or"
        " what `tfm score --json` prints.",
        flag="--feature",
    )
    runs: str = key("runs", "Folder of the runs that models may be named by.", path=True)
    output: str | None = key(None, "Output file; unset: standard output.", path=True, flag="--output")
    overwrite: bool = key(False, OVERWRITE, flag="--overwrite")
    metric: str = key("bleu", "What the weights are tuned for, on all lines.", choices=TUNED_FOR, flag="--metric")
    target_lang: str | None = key(
        None, "Language of the translations, by which BLEU is tokenised; unset: as in 13a.", flag="--to"
    )
    restarts: int = key(20, "Starting points of the search for weights, beside the model's score alone.", low=0)
    seed: int = key(1, SEED, low=0, high=2**31 - 1)
    device: Device = key(Device.auto, DEVICE, flag="--device")
    plugins: list[str] = key([], PLUGINS)
    # Of which batch_tokens, max_source_length and precision are used, for scores by models.
    decode: DecodeConfig = field(default_factory=DecodeConfig)

    def __post_init__(self) -> None:
        for name in ("reference", "forward", "reverse", "language_model"):
            found = getattr(self, name)
            setattr(self, name, [] if found is None else [found] if isinstance(found, str) else list(found))
        check_ranges(self)

    def check(self) -> None:
        """Raise ConfigError for what is missing, and for what has no effect."""
        if self.lists is None:
            raise ConfigError("--nbest: not given. Name the n-best lists, as `tfm translate --n-best 8` writes them")
        if not self.reference and self.weights is None:
            raise ConfigError("--reference: not given, nor --weights. Tune weights on references, or give tuned ones")
        if self.reference and self.weights is not None:
            raise ConfigError(
                f"--weights {self.weights}: --reference tunes weights, and these are tuned. Leave one of them out"
            )
        if self.save is not None and self.weights is not None:
            raise ConfigError(f"--save {self.save}: is for weights that --reference tunes. Leave it out")
        if self.output is not None and self.reference:
            raise ConfigError(
                f"--output {self.output}: is for translations, which --weights gives. Leave it out, or name --save"
            )
        for name in self.features:
            if not all(name.partition("=")[::2]):
                raise ConfigError(f"--feature {name}: names no file. Write NAME=FILE, as reverse=scores.txt")
