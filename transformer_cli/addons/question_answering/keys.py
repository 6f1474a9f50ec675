"""Keys of `tfm answer`."""

from dataclasses import dataclass
from enum import Enum

from transformer_cli.config.fields import key
from transformer_cli.config.filter import FilterConfig, ResponseFormat
from transformer_cli.errors import ConfigError


class QuestionFormat(Enum):
    text = "text"  # question<TAB>passage; with a passage in a file, question
    jsonl = "jsonl"  # objects with question and passage


@dataclass
class AnswerConfig(FilterConfig):
    """`tfm answer`."""

    passage: str | None = key(
        None, "Text file with the passage of all questions; unset: each line has its own.", path=True, flag="--passage"
    )
    question: str | None = key(None, "The question; unset: lines of --input or standard input.", flag="--question")
    input: str | None = key(None, "Input file; unset: standard input.", path=True, flag="--input")
    format: QuestionFormat = key(
        QuestionFormat.text,
        "Lines of question<TAB>passage, or of questions with --passage (text), or JSON objects with `question` and"
        " `passage` (jsonl).",
        flag="--format",
    )
    probabilities: bool = key(False, "Print the probability of each answer after it.", flag="--probabilities")
    output_format: ResponseFormat = key(
        ResponseFormat.text,
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

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.n_best > 1 and self.output_format is ResponseFormat.text:
            raise ConfigError(f"n_best={self.n_best}: a line of text has one answer. Add --output-format jsonl")
        if self.probabilities and self.output_format is ResponseFormat.jsonl:
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
