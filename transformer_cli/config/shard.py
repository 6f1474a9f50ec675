"""A part of some work that several processes or machines share: the value of the keys `shard`, as 2/8."""

import re
from dataclasses import dataclass

from transformer_cli.errors import ConfigError


@dataclass(frozen=True, order=True)
class Shard:
    """Part `number` of `n`, counted from 1."""

    number: int
    n: int

    @classmethod
    def parse(cls, text: str) -> "Shard":
        """Parses `2/8`. Raises ConfigError."""
        match = re.fullmatch(r"([1-9][0-9]{0,5})/([1-9][0-9]{0,5})", text)
        if match is None or int(match[1]) > int(match[2]):
            several = "; several need -m, as in `-m shard=1/2,2/2`" if "," in text else ""
            raise ConfigError(f"shard={text}: must be I/N with I from 1 to N, as 2/8{several}. Correct it")
        return cls(int(match[1]), int(match[2]))

    def __str__(self) -> str:
        return f"{self.number}/{self.n}"


WHOLE = Shard(1, 1)
