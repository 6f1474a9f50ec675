"""A part of some work that several processes or machines share: the value of the keys `shard`, as 2/8."""

from dataclasses import dataclass

from transformer_cli.config.checks import part_of
from transformer_cli.errors import ConfigError


@dataclass(frozen=True, order=True)
class Shard:
    """Part `number` of `n`, counted from 1."""

    number: int
    n: int

    @classmethod
    def parse(cls, text: str) -> "Shard":
        """Parses `2/8`. Raises ConfigError."""
        found = part_of(text)
        if found is None:
            several = "; several need -m, as in `-m shard=1/2,2/2`" if "," in text else ""
            raise ConfigError(f"shard={text}: must be I/N with I from 1 to N, as 2/8{several}. Correct it")
        return cls(*found)

    def __str__(self) -> str:
        return f"{self.number}/{self.n}"


WHOLE = Shard(1, 1)
