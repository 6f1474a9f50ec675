"""Keys of `tfm bench`."""

from dataclasses import dataclass
from enum import Enum
from typing import Any

from transformer_cli.config.checks import AUTO, REQUIRED, model_names, one_model_name
from transformer_cli.config.fields import key
from transformer_cli.config.shared import FROM, TO
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
    students = "students"  # models by each engine: size, speed, latency and quality


class Lengths(Enum):
    corpus = "corpus"  # the sentences of `data`
    wmt = "wmt"  # random sentences as long as those of WMT 14 en-de; no corpus is read


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
    checkpoint: Any = key(
        None,
        "The model of decode and start, or a list of those of students; unset: the newest finished run for students,"
        " and else random weights of `model`, and 20 tokens a sentence.",
        path=True,
        flag="--checkpoint",
        repeated=True,
    )
    source: str | None = key(None, "File to translate. decode and students only.", path=True)
    reference: str | None = key(None, "Its reference translation, for BLEU. decode and students only.", path=True)
    source_lang: str | None = key(None, f"{FROM} start, decode and students only.", flag="--from")
    target_lang: str | None = key(None, f"{TO} start, decode and students only.", flag="--to")
    n_lines: int = key(1000, "Lines of `source` that are translated, from the first. decode and students only.", low=1)
    ensemble: int = key(
        0, "So many of the models, from the first, are also measured together, by torch. students only.", low=0
    )
    picture: str | None = key(
        None, "File .png, .svg or .pdf for quality against speed, by matplotlib. students only.", path=True
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        compares = self.subject is BenchSubject.students
        self.checkpoint = model_names(self.checkpoint) if compares else one_model_name(self.checkpoint)
        if self.picture is not None and not compares:
            raise ConfigError(f"picture={self.picture}: is of `tfm bench students`. Leave it out")
        if self.ensemble and not (compares and 1 < self.ensemble <= len(self.checkpoints)):
            raise ConfigError(
                f"ensemble={self.ensemble}: is of `tfm bench students`, and of 2 or more models. Name them, each with"
                " --checkpoint"
            )
        if self.source is not None and self.checkpoint is None and not compares:
            raise ConfigError(f"source={self.source}: needs a model that can read it. Add checkpoint=PATH")
        for flag, language in (("--from", self.source_lang), ("--to", self.target_lang)):
            if language is not None and self.checkpoint is None and not compares:
                raise ConfigError(f"{flag} {language}: is asked of a model. Add --checkpoint")
        if self.reference is not None and self.source is None:
            raise ConfigError(f"reference={self.reference}: of which text? Add source=FILE")
        if self.train.max_tokens_per_microbatch == AUTO:
            raise ConfigError(
                "train.max_tokens_per_microbatch=auto: a benchmark measures one given size. Give a number"
            )
        if not self.data.trained.translates:
            raise ConfigError(f"data={self.data.name}: a benchmark translates. Choose parallel text")
        if self.train.sharding is not Sharding.none:
            raise ConfigError(
                f"train.sharding={self.train.sharding.name}: a benchmark has one process. Set train.sharding=none"
            )

    @property
    def checkpoints(self) -> list[str | None]:
        """The models of students."""
        return self.checkpoint if isinstance(self.checkpoint, list) else [self.checkpoint]
