"""Keys of `tfm answer`."""

from dataclasses import dataclass
from enum import Enum
from typing import Any

from transformer_cli.config.checks import AUTO, one_model_name
from transformer_cli.config.fields import (
    BATCH_TOKENS,
    CHECKPOINT,
    DEVICE,
    OVERWRITE,
    PLUGINS,
    RUNS,
    STRICT,
    check_ranges,
    key,
)
from transformer_cli.config.shared import OutputFormat
from transformer_cli.config.train import Device
from transformer_cli.errors import ConfigError


class QuestionFormat(Enum):
    text = "text"  # question<TAB>passage; with a passage in a file, question
    jsonl = "jsonl"  # objects with question and passage


@dataclass
class AnswerConfig:
    """`tfm answer`."""

    checkpoint: Any = key(None, CHECKPOINT, path=True, flag="--checkpoint", repeated=True)
    runs: str = key("runs", RUNS, path=True)
    passage: str | None = key(
        None, "Text file with the passage of all questions; unset: each line has its own.", path=True, flag="--passage"
    )
    question: str | None = key(None, "The question; unset: lines of --input or standard input.", flag="--question")
    input: str | None = key(None, "Input file; unset: standard input.", path=True, flag="--input")
    output: str | None = key(
        None, "Output file, written whole or not at all; unset: standard output.", path=True, flag="--output"
    )
    overwrite: bool = key(False, OVERWRITE, flag="--overwrite")
    strict: bool = key(False, STRICT, flag="--strict")
    format: QuestionFormat = key(
        QuestionFormat.text,
        "Lines of question<TAB>passage, or of questions with --passage (text), or JSON objects with `question` and"
        " `passage` (jsonl).",
        flag="--format",
    )
    probabilities: bool = key(False, "Print the probability of each answer after it.", flag="--probabilities")
    output_format: OutputFormat = key(
        OutputFormat.text,
        "A line with the answer, or a JSON object with its place in the passage, scores and the n best (jsonl).",
        flag="--output-format",
    )
    n_best: int = key(1, "Answers to each question in jsonl, the best first.", low=1, high=1000, flag="--n-best")
    max_answer: int = key(30, "Tokens that an answer may have.", low=1, high=100_000)
    stride: int | None = key(
        None, "Tokens from the beginning of one window to that of the next; unset: as in training.", low=1
    )
    none_threshold: float = key(
        0.0,
        "No answer is given if its score is higher than that of the best span by more than this; for models that were"
        " trained on questions without an answer.",
        low=-1e9,
        high=1e9,
    )
    batch_tokens: Any = key(AUTO, BATCH_TOKENS, low=1, auto=True)
    device: Device = key(Device.auto, DEVICE, flag="--device")
    plugins: list[str] = key([], PLUGINS)

    def __post_init__(self) -> None:
        self.checkpoint = one_model_name(self.checkpoint)
        check_ranges(self)
        if self.output_format is OutputFormat.moses:
            raise ConfigError("output_format=moses: for translations. Choose text or jsonl")
        if self.n_best > 1 and self.output_format is OutputFormat.text:
            raise ConfigError(f"n_best={self.n_best}: a line of text has one answer. Add --output-format jsonl")
        if self.probabilities and self.output_format is OutputFormat.jsonl:
            raise ConfigError("probabilities=true: JSON lines have them already. Leave one of them out")
        if self.question is not None and self.passage is None:
            raise ConfigError("--question: needs its passage. Name a text file with --passage")
        if self.question is not None and not self.question.strip():
            raise ConfigError("--question: is blank. Write a question")
        if self.question is not None and self.input is not None:
            raise ConfigError(f"--input {self.input}: --question is the input. Leave one of them out")
        if self.passage is not None and self.format is QuestionFormat.jsonl:
            raise ConfigError(
                f"--passage {self.passage}: --format jsonl has the passage of each question. Leave one of them out"
            )
