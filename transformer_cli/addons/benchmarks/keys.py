"""Keys of `tfm bench`."""

from dataclasses import dataclass, field
from enum import Enum

from transformer_cli.config.checks import AUTO, REQUIRED
from transformer_cli.config.data import Task
from transformer_cli.config.fields import check_ranges, key
from transformer_cli.config.train import Sharding, TrainConfig
from transformer_cli.errors import ConfigError


class BenchSubject(Enum):
    machine = "machine"  # speed of its processor, memory and kernel launches
    train = "train"  # whole updates, beside other programs
    loss = "loss"
    attention = "attention"
    data = "data"  # making batches
    start = "start"  # `tfm train` to its first update; with a checkpoint, `tfm translate` to its first line
    decode = "decode"  # translating, beside other programs with the same weights
    layers = "layers"  # time and memory of attention, recurrence and convolution over length and width


class Lengths(Enum):
    corpus = "corpus"  # the sentences of `data`
    wmt = "wmt"  # random sentences as long as those of WMT 14 en-de; no corpus is read


class Clock(Enum):
    wall = "wall"
    processor = "processor"  # processor time of this process, all threads added, while other programs may run


@dataclass
class LayersConfig:
    """`tfm bench layers`: the sizes at which layers are timed."""

    n: list[int] = key([128, 256, 512, 1024, 2048], "Sentence lengths in tokens.")
    d: list[int] = key([64, 128, 256], "Widths d_model; multiples of the width of a head.")
    window: int = key(32, "Positions that restricted attention attends to, half of them on either side.", low=1)
    kernel: int = key(3, "Kernel width of the convolution; odd.", low=1)
    clock: Clock = key(Clock.wall, "Wall-clock time, or processor time of this process.")
    plot: str | None = key(None, "File for a plot of times and memory: .svg or .png.", path=True)

    def __post_init__(self) -> None:
        for name in ("n", "d"):
            sizes = getattr(self, name)
            if len(set(sizes)) < max(2, len(sizes)) or min(sizes) < 1:
                raise ConfigError(
                    f"layers.{name}={sizes}: an exponent is fitted to two sizes or more. Give different ones, from 1 up"
                )
        check_ranges(self, "layers")
        if self.kernel % 2 == 0:
            raise ConfigError(
                f"layers.kernel={self.kernel}: even, but a convolution sees as much before a position as after it."
                f" Choose {self.kernel - 1} or {self.kernel + 1}"
            )
        if self.plot is not None and not self.plot.endswith((".svg", ".png")):
            raise ConfigError(f"layers.plot={self.plot}: neither .svg nor .png. Choose a name that ends in one of them")


@dataclass
class BenchConfig(TrainConfig):
    """`tfm bench`: the config of the run that is measured, and how."""

    subject: BenchSubject = key(REQUIRED, "What is measured.", word=True)
    name: str | None = key(None, "Of `tfm train`; not used.")
    rounds: int = key(5, "Times that each program is measured, in turn.", low=1, high=1000)
    n_updates: int = key(1, "Updates in a round.", low=1, high=1000)
    lengths: Lengths = key(Lengths.corpus, "Sentences of `data`, or random ones with the lengths of WMT 14 en-de.")
    rivals: bool = key(True, "Measure other programs, too, where they are installed.")
    json: bool = key(False, "Print JSON.", flag="--json")
    checkpoint: str | None = key(
        None,
        "The model of decode and start; unset: random weights of `model`, and 20 tokens a sentence.",
        path=True,
        flag="--checkpoint",
    )
    source: str | None = key(None, "File to translate. decode only.", path=True)
    reference: str | None = key(None, "Its reference translation, for BLEU. decode only.", path=True)
    n_lines: int = key(1000, "Lines of `source` that are translated, from the first. decode only.", low=1)
    layers: LayersConfig = field(default_factory=LayersConfig)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.source is not None and self.checkpoint is None:
            raise ConfigError(f"source={self.source}: needs a model that can read it. Add checkpoint=PATH")
        if self.reference is not None and self.source is None:
            raise ConfigError(f"reference={self.reference}: of which text? Add source=FILE")
        if self.train.max_tokens_per_microbatch == AUTO:
            raise ConfigError(
                "train.max_tokens_per_microbatch=auto: a benchmark measures one given size. Give a number"
            )
        if self.data.task is not Task.translation:
            raise ConfigError(f"data={self.data.name}: a benchmark translates. Choose parallel text")
        if self.train.sharding is not Sharding.none:
            raise ConfigError(
                f"train.sharding={self.train.sharding.name}: a benchmark has one process. Set train.sharding=none"
            )
        if self.subject is BenchSubject.layers and any(d % self.model.key_width for d in self.layers.d):
            width = self.model.key_width
            raise ConfigError(
                f"layers.d={self.layers.d}: not all are multiples of {width}, the width of a head. Choose multiples of"
                f" {width}, or set model.d_k"
            )
