"""Keys of `tfm bench`."""

from dataclasses import dataclass, field
from enum import Enum

from omegaconf import MISSING

from transformer_cli.config.checks import AUTO, check_range
from transformer_cli.config.data import Task
from transformer_cli.config.train import Sharding, TrainConfig
from transformer_cli.errors import ConfigError


class BenchSubject(Enum):
    machine = "machine"  # what its processor, memory and launches allow
    train = "train"  # whole updates, beside rivals
    loss = "loss"
    attention = "attention"
    data = "data"  # making batches
    start = "start"  # of `tfm train`, to its first update; with a checkpoint, of `tfm translate` to its first line
    decode = "decode"  # translating, beside other programs with the same weights
    layers = "layers"  # attention, recurrence and convolution: how time and memory grow with length and width


class Lengths(Enum):
    corpus = "corpus"  # the sentences of `data`
    wmt = "wmt"  # random sentences as long as those of WMT 14 en-de; no corpus is read


class Clock(Enum):
    wall = "wall"
    processor = "processor"  # time that this process had of the processor, all threads added: others may run beside


@dataclass
class LayersConfig:
    """`tfm bench layers`: the sizes at which layers are timed."""

    n: list[int] = field(default_factory=lambda: [128, 256, 512, 1024, 2048])  # positions of a sentence
    d: list[int] = field(default_factory=lambda: [64, 128, 256])  # width
    window: int = 32  # of restricted attention: half of it to either side
    kernel: int = 3  # positions that a convolution sees
    clock: Clock = Clock.wall
    plot: str | None = None  # .svg or .png to draw times and memory into

    def __post_init__(self) -> None:
        for key in ("n", "d"):
            sizes = getattr(self, key)
            if len(set(sizes)) < max(2, len(sizes)) or min(sizes) < 1:
                raise ConfigError(
                    f"layers.{key}={sizes}: an exponent is fitted to two sizes or more. Give different ones, from 1 up"
                )
        check_range("layers.window", self.window, 1)
        check_range("layers.kernel", self.kernel, 1)
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

    subject: BenchSubject = MISSING
    rounds: int = 5  # of each contestant, in turn
    n_updates: int = 1  # in a round
    lengths: Lengths = Lengths.corpus
    rivals: bool = True
    json: bool = False
    checkpoint: str | None = None  # of decode: the model; unset: random weights of `model`, and 20 tokens a sentence
    source: str | None = None  # of decode: file to translate
    reference: str | None = None  # of decode: its translation, for BLEU
    n_lines: int = 1000  # of decode: the first ones of `source`
    layers: LayersConfig = field(default_factory=LayersConfig)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range("rounds", self.rounds, 1, 1000)
        check_range("n_updates", self.n_updates, 1, 1000)
        check_range("n_lines", self.n_lines, 1)
        if self.source is not None and self.checkpoint is None:
            raise ConfigError(f"source={self.source}: needs a model that can read it. Add checkpoint=PATH")
        if self.reference is not None and self.source is None:
            raise ConfigError(f"reference={self.reference}: of which text? Add source=FILE")
        if self.train.tokens_per_batch == AUTO:
            raise ConfigError("train.tokens_per_batch=auto: a benchmark tells of a size that is known. Give a number")
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
