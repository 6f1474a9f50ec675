"""What a search and a cache in static buffers know of each other, so that whole steps can be captured.

Shapes: R rows, V vocabulary.
"""

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import Protocol, TypeVar, runtime_checkable

from torch import Tensor


@dataclass(frozen=True)
class ModelStep:
    """What a search does with a model, on all rows of a batch."""

    logits: Callable[[Tensor], Tensor]  # newest token of each row -> logits_RV of the next one
    reorder: Callable[[Tensor], None]  # keep these rows


class StaticProgram(Protocol):
    """The steps of a search on static buffers."""

    def take(self) -> None:
        """One step, which depends on nothing but tensors that keep their addresses."""

    def tensors(self) -> Iterable[Tensor]:
        """The tensors of the program."""


ProgramT = TypeVar("ProgramT", bound=StaticProgram)


@runtime_checkable
class StaticSteps(Protocol):
    """A cache in static buffers, on which whole steps are captured, and replayed by later searches."""

    n_sentences: int  # those behind the last live one are fillers

    def fits_smaller(self, n_live: int) -> bool:
        """Whether `reorder` to so many sentences would go on with fewer fillers."""

    def program(self, key: Hashable, new: Callable[[ModelStep], ProgramT]) -> ProgramT:
        """The program of an earlier search with this key for as many sentences, or a new one."""

    def take_step(self, program: StaticProgram) -> None:
        """Take a step of `program`: replay it, if it is captured."""
