"""What reading another program's model gives."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from transformer_cli.addons.interop.parts import Weights
from transformer_cli.addons.interop.verify import Program
from transformer_cli.config.model import ModelConfig
from transformer_cli.data.tokenizer import Tokenizers


@dataclass(frozen=True)
class ReadOptions:
    """What the files of a model may leave open. Unset: what is found beside them."""

    source_lang: str | None = None
    target_lang: str | None = None
    vocabularies: Sequence[Path] = ()  # one, or source and target: dict.txt, vocab.yml
    segmenters: Sequence[Path] = ()  # one, or source and target: SentencePiece models, BPE codes


def files_like(names: Sequence[str], *patterns: str) -> list[str]:
    """The names that match one of the patterns, of files of a folder, but of no folder in it."""
    return [name for name in names if "/" not in name and any(fnmatchcase(name, pattern) for pattern in patterns)]


@dataclass(frozen=True)
class Imported:
    """A model of another program: all but the numbers of its weights, which are read when they are asked for.

    `program` loads the original, with its own names of its own tensors, to be compared with what becomes of it here; it
    is called before our model is built, so that there is never more than one of them in memory.
    """

    config: ModelConfig
    tokenizers: Tokenizers
    source_lang: str
    target_lang: str
    weights: Weights
    program: Callable[[], Program]
    program_name: str  # what was compared with: "transformers 5.2"
    files: Sequence[Path]  # that it was read from
    notes: Sequence[str] = ()  # what a user should know: what was left out, what differs
    max_positions: int | None = None  # tokens that a sentence may have in the original; None: any number
    known: Mapping[str, Any] = field(default_factory=dict)  # other fields of the ModelFile: step, data, …

    def with_provenance(self, facts: Mapping[str, Any]) -> "Imported":
        """The same, with what a card is to say of where it comes from."""
        return replace(self, known={**self.known, "provenance": {**self.known.get("provenance", {}), **facts}})
