"""Keys of `tfm augment`."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from transformer_cli.config.checks import model_names
from transformer_cli.config.decode import DecodeConfig
from transformer_cli.config.fields import DEVICE, PLUGINS, RUNS, SEED, check_ranges, key
from transformer_cli.config.shard import Shard
from transformer_cli.config.shared import ENGINE, FROM, TAG, TO, engine_names
from transformer_cli.config.train import Device
from transformer_cli.errors import ConfigError
from transformer_cli.registry import did_you_mean


class AugmentMethod(Enum):
    back_translate = "back-translate"  # target text → pairs with synthetic sources
    distill = "distill"  # source text → pairs with a teacher's translations
    merge = "merge"  # the shards of either → one corpus


class Choose(Enum):
    score = "score"  # the best hypothesis of the search
    chrf = "chrf"  # of the n-best list that which is most similar to the reference
    all = "all"  # every hypothesis of the n-best list, as a pair of its own


METHODS = tuple(one.value for one in AugmentMethod)


FOR_A_MERGE = ("method", "output", "overwrite", "plugins")


MIN_SCORE = -3.0


@dataclass
class AugmentConfig:
    """`tfm augment`."""

    method: str | None = key(
        None, "What is made: back-translate or distill; or merge, of shards.", choices=METHODS, word=True
    )
    checkpoint: Any = key(
        None,
        "Model that translates the input (of back-translate: from the target language), or a list of them for an"
        " ensemble; unset: the newest finished run.",
        path=True,
        flag="--checkpoint",
        repeated=True,
    )
    runs: str = key("runs", RUNS, path=True)
    input: str | None = key(None, "Text file, one sentence a line.", path=True, flag="--input")
    reference: str | None = key(
        None, "File whose line n translates line n of the input, for choose=chrf.", path=True, flag="--reference"
    )
    output: str | None = key(
        None,
        "Name of the corpus: NAME.SOURCE and NAME.TARGET, by the languages, and NAME.json.",
        path=True,
        flag="--output",
    )
    overwrite: bool = key(False, "Make the corpus again if it exists.", flag="--overwrite")
    shard: str = key("1/1", "Part of the input that is used, I/N: a byte range of whole lines.", flag="--shard")
    choose: Choose = key(
        Choose.score,
        "Which of the decode.n_best translations of a line make pairs: the best by score, the most similar to the"
        " reference by sentence chrF, or all.",
        flag="--choose",
    )
    max_ratio: float | None = key(
        3.0,
        "Length-ratio filter, in tokens with EOS: pairs with a larger one are dropped; null: none.",
        low=1,
        high=1000,
    )
    drop_copies: bool = key(True, "Drop translations that are copies of their line, but for a model of one language.")
    drop_loops: bool = key(True, "Drop translations that repeat themselves.")
    drop_unfinished: bool = key(True, "Drop translations that were truncated, and those of lines that were cut.")
    forward: Any = key(
        None,
        "Model from source to target, or a list of them for an ensemble, that scores each synthetic pair;"
        " back-translate only.",
        path=True,
        flag="--forward",
        repeated=True,
    )
    min_score: float = key(
        MIN_SCORE,
        "Least log-probability per token that `forward` gives the line; pairs below are dropped.",
        low=-1000,
        high=0,
        flag="--min-score",
    )
    block_lines: int = key(
        1000, "Lines of a block, after each of which the work can be resumed.", low=1, high=1_000_000
    )
    tag: str | None = key(None, TAG, flag="--tag")
    source_lang: str | None = key(None, FROM, flag="--from")
    target_lang: str | None = key(None, TO, flag="--to")
    strict: bool = key(False, "Stop at a line that is not UTF-8, instead of dropping it.", flag="--strict")
    engine: str | None = key(None, ENGINE, choices=engine_names, flag="--engine")
    seed: int = key(1, SEED, low=0, high=2**31 - 1)
    device: Device = key(Device.auto, DEVICE, flag="--device")
    plugins: list[str] = key([], PLUGINS)
    decode: DecodeConfig = field(default_factory=DecodeConfig)

    def __post_init__(self) -> None:
        self.checkpoint, self.forward = model_names(self.checkpoint), model_names(self.forward)
        if self.method is not None:
            self.method = self.method.replace("_", "-")
            if self.method == "loop":
                raise ConfigError("loop: is a command with other keys. Write it first, as `tfm augment loop`")
            if self.method not in METHODS:
                near = did_you_mean(self.method, METHODS) or f". Choose {', '.join(METHODS)}"
                raise ConfigError(f"method={self.method}: unknown{near}")
        check_ranges(self)
        Shard.parse(self.shard)
        is_distilled = self.method == AugmentMethod.distill.value
        if self.choose is Choose.chrf and (not is_distilled or self.reference is None):
            raise ConfigError("choose=chrf: compares with references. Use it with distill, and give --reference")
        if self.reference is not None and self.choose is not Choose.chrf:
            raise ConfigError(f"--reference {self.reference}: is not used. Add --choose chrf, or leave it out")
        if self.choose is not Choose.score and self.decode.n_best == 1:
            raise ConfigError(
                f"choose={self.choose.name}: needs several translations of a line. Set decode.n_best to 2 or more"
            )
        if self.choose is Choose.score and self.decode.n_best > 1:
            raise ConfigError(
                f"decode.n_best={self.decode.n_best}: all but the best are unused. Add --choose all or chrf, or leave"
                " it out"
            )
        if self.forward is not None and self.method != AugmentMethod.back_translate.value:
            raise ConfigError("--forward: scores back-translations alone. Leave it out")
        if self.forward is None and self.min_score != MIN_SCORE:
            raise ConfigError(f"min_score={self.min_score:g}: is of the model of --forward. Name one, or leave it out")

    @property
    def corpus(self) -> str:
        """What the command writes, as messages name it; no two runs of a sweep may write the same."""
        return f"{self.output} (shard={self.shard})"

    def refuse_given(self, keys: Iterable[str]) -> None:
        """Raise ConfigError for a key of making pairs, among those given, where shards are merged."""
        for name in keys:
            if self.method == AugmentMethod.merge.value and name.split(".")[0] not in FOR_A_MERGE:
                raise ConfigError(f"{name}: of pairs that are made, and merge joins finished shards. Leave it out")
