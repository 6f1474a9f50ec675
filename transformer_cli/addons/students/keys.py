"""Keys of `tfm shortlist` and `tfm distill`."""

from dataclasses import dataclass
from typing import Any

from transformer_cli.config.checks import model_names, one_model_name
from transformer_cli.config.fields import CHECKPOINT, OVERWRITE, PLUGINS, RUNS, check_ranges, key
from transformer_cli.config.shared import ENGINE, engine_names
from transformer_cli.config.train import TrainConfig
from transformer_cli.errors import ConfigError

# --size → the files of recipe and of model
STUDENTS = {
    "tiny": ("student", "student_tiny"),
    "small": ("student", "student_small"),
    "mini": ("student_mini", "student_mini"),
    "deep": ("student_deep", "deep_shallow"),
}
RUN = "run"  # the training in the folder of a student


@dataclass
class ShortlistConfig:
    """`tfm shortlist`."""

    checkpoint: Any = key(None, CHECKPOINT, path=True, flag="--checkpoint", repeated=True)
    runs: str = key("runs", RUNS, path=True)
    source: str | None = key(None, "Text in the source language, one sentence a line.", path=True, flag="--source")
    translation: str | None = key(
        None,
        "File whose line n translates line n of `source`, best a distilled one.",
        path=True,
        flag="--translation",
    )
    frequent: int = key(50, "Tokens that every list has: the most frequent ones.", low=0, high=100_000)
    best: int = key(50, "Tokens for each token of the source: its likeliest translations.", low=1, high=10_000)
    output: str | None = key(
        None, "Output file; unset: shortlist.safetensors beside the model.", path=True, flag="--output"
    )
    overwrite: bool = key(False, OVERWRITE, flag="--overwrite")
    plugins: list[str] = key([], PLUGINS)

    def __post_init__(self) -> None:
        self.checkpoint = one_model_name(self.checkpoint)
        check_ranges(self)


@dataclass
class DistillConfig(TrainConfig):
    """`tfm distill`: the config of the student's training, and what it learns from."""

    teacher: Any = key(
        None,
        "Model that translates the text, or a list of them for an ensemble; unset: the newest finished run.",
        path=True,
        flag="--teacher",
        repeated=True,
        word=True,
    )
    input: str | None = key(
        None, "Text in the source language, one sentence a line.", path=True, flag="--input", word=True
    )
    size: str | None = key(
        None,
        "Size of the student: tiny or small, for Firefox's engine; mini or deep, a deep encoder and one decoder layer,"
        " for CTranslate2 and torch.",
        choices=tuple(STUDENTS),
        flag="--size",
    )
    teacher_beam: int = key(4, "Beam of the teacher.", low=1, high=64, flag="--beam")
    engine: str | None = key(None, ENGINE, choices=engine_names, flag="--engine")
    bench_lines: int = key(
        100, "Lines that teacher and student translate by each engine, for a table at the end; 0: no table.", low=0
    )
    output: str = key("student", "Folder of the text, the run and the exports.", path=True, flag="--output")

    def __post_init__(self) -> None:
        super().__post_init__()
        self.teacher = model_names(self.teacher)
        if not self.data.trained.translates:
            raise ConfigError(f"data={self.data.name}: a student translates. Choose data=files")
