"""Reports that `tfm evaluate` can add to the scores of a test set: add-ons register them."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

from transformer_cli.registry import Registry


class ExtraReport(Protocol):
    """What was measured beside the scores."""

    def as_dict(self) -> dict[str, object]:
        """The report for `json.dumps`."""

    def lines(self) -> list[str]:
        """The report for people."""

    def keep(self, run_dir: Path, provenance: Mapping[str, object]) -> None:
        """Write it beside the model of a run that was just trained, and log it in a few lines.

        `provenance` names the test set, the search and the SHA-256 of the model's file.
        """


# Measures it, of a translator, a test set and its translations; None, with a warning, where there is nothing to say.
# Keyword arguments: the languages of both sides, and how many lines are drawn by which seed.
EXTRA_REPORTS: Registry[Callable[..., ExtraReport | None]] = Registry("extra report")
