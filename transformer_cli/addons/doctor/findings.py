"""Findings of checks, and the report that collects them, as text and as JSON."""

import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from transformer_cli.errors import TfmError

_LEVEL_WIDTH, _WHERE_WIDTH = 9, 12


class Level(Enum):
    ok = "ok"
    warning = "warning"  # training works, but perhaps not as intended
    error = "error"  # training would fail, or what it measures would mean nothing


@dataclass(frozen=True)
class Finding:
    """`where` is a key or a split; `todo` is empty when nothing is to be done."""

    level: Level
    where: str
    what: str
    todo: str = ""
    kind: type[TfmError] | None = None  # of an error: it decides the exit status

    @property
    def sentence(self) -> str:
        return f"{self.what}. {self.todo}" if self.todo else self.what


@dataclass
class CheckReport:
    """Findings in the order of the checks, by section, and the figures behind them."""

    figures: dict[str, Any] = field(default_factory=dict)  # section → name → what JSON can hold
    sections: dict[str, list[Finding]] = field(default_factory=dict)

    def section(self, name: str) -> "Section":
        return Section(self.sections.setdefault(name, []), self.figures.setdefault(name, {}))

    def findings(self) -> Iterator[Finding]:
        for findings in self.sections.values():
            yield from findings

    def count(self, level: Level) -> int:
        return sum(finding.level is level for finding in self.findings())

    def first_error(self) -> Finding | None:
        return next((finding for finding in self.findings() if finding.level is Level.error), None)

    def as_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        return {
            "ok": self.first_error() is None,
            "errors": self.count(Level.error),
            "warnings": self.count(Level.warning),
            "findings": [
                {
                    "section": name,
                    "level": finding.level.name,
                    "where": finding.where,
                    "what": finding.what,
                    "todo": finding.todo,
                    "exit_code": finding.kind.exit_code if finding.kind else 0,
                }
                for name, findings in self.sections.items()
                for finding in findings
            ],
            "figures": self.figures,
        }

    def lines(self, width: int | None) -> Iterator[str]:
        """One line for each finding, or several where the text is wider than `width` columns."""
        for name, findings in self.sections.items():
            yield ""
            yield name
            for finding in findings:
                head = f"{finding.level.name:<{_LEVEL_WIDTH}}{finding.where:<{_WHERE_WIDTH}} "
                yield from _wrapped(f"  {head}", finding.sentence, width)


@dataclass
class Section:
    """The output of the checks of one kind."""

    _findings: list[Finding]
    figures: dict[str, Any]

    def ok(self, where: str, what: str) -> None:
        self._findings.append(Finding(Level.ok, where, what))

    def warn(self, where: str, what: str, todo: str) -> None:
        self._findings.append(Finding(Level.warning, where, what, todo))

    def error(self, where: str, what: str, todo: str, kind: type[TfmError]) -> None:
        self._findings.append(Finding(Level.error, where, what, todo, kind))


def _wrapped(head: str, text: str, width: int | None) -> list[str]:
    if width is None:
        return [head + text]
    room = max(width, len(head) + 40)
    return textwrap.wrap(
        text, room, initial_indent=head, subsequent_indent=" " * len(head), break_on_hyphens=False
    ) or [head]


def listed(items: Iterable[Any], n: int = 5) -> str:
    """The first `n` items, and … for the rest."""
    shown = [f"{item:,}" if isinstance(item, int) else str(item) for item in items]
    return ", ".join([*shown[:n], *(["…"] if len(shown) > n else [])])
