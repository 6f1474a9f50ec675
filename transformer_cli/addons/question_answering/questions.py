"""Questions about passages, and the pair of texts that a corpus holds of each.

The source is question<TAB>passage, the target a JSON array of answers, each `[start, text]`. White space that would end
a field or a line is one space for each character, so that offsets are those of the passage as it is written: they count
code points from 0, as SQuAD does.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass

from transformer_cli.data.pairs import texts_of

F1 = "f1"  # the metric of dev answers: F1 of their words, in percent
START, END = 0, 1  # outputs of the model
# Its labels name the outputs. Those of a model that may answer that there is no answer are others.
ENDS, ENDS_OR_NONE = ("start", "end"), ("start_or_none", "end_or_none")
_BREAKS = dict.fromkeys(map(ord, "\t\n\r"), " ")


def as_line(text: str) -> str:
    """The text on one line, in as many characters."""
    return text.translate(_BREAKS)


@dataclass(frozen=True)
class GoldAnswer:
    start: int  # as the corpus has it, in code points
    text: str

    def is_placed(self, passage: str) -> bool:
        """Whether it stands in the passage where it is said to."""
        return (
            self.start >= 0 and bool(self.text.strip()) and as_line(passage).startswith(as_line(self.text), self.start)
        )

    def is_placed_in_utf16(self, passage: str) -> bool:
        """Whether it does if its start counts UTF-16 code units, as programs in JavaScript or Java count."""
        units = passage.encode("utf-16-le")
        start = len(units[: 2 * self.start].decode("utf-16-le", errors="replace")) if self.start >= 0 else -1
        return GoldAnswer(start, self.text).is_placed(passage)


@dataclass(frozen=True)
class Question:
    question: str
    passage: str
    answers: Sequence[GoldAnswer] = ()  # none: the passage does not say it

    @classmethod
    def of(cls, source: str, target: str) -> "Question":
        """The question of a pair."""
        question, passage = texts_of(source)
        return cls(question, passage, [GoldAnswer(*answer) for answer in json.loads(target)])

    @property
    def source(self) -> str:
        return f"{as_line(self.question)}\t{as_line(self.passage)}"

    @property
    def target(self) -> str:
        return json.dumps([[answer.start, answer.text] for answer in self.answers], ensure_ascii=False)

    @property
    def placed(self) -> list[GoldAnswer]:
        """The answers that stand where they are said to."""
        return [answer for answer in self.answers if answer.is_placed(self.passage)]
