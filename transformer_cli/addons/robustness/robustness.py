"""The robustness suite: how far translations change, degenerate or lose something when source lines are perturbed.

Each row of its table is one perturbation of the same lines of a test set. Two tables are comparable if their suite,
seed, test set and number of lines are the same.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random

from transformer_cli.addons.robustness.perturbations import PERTURBATIONS, Perturbation, Perturbed, perturbed
from transformer_cli.data.tags import split_tags
from transformer_cli.decoding.quality import repeats_itself
from transformer_cli.evaluation.metrics import METRICS, MetricSettings, Score, Translations
from transformer_cli.evaluation.text_statistics import is_copy
from transformer_cli.files import wrap_os_errors, write_whole
from transformer_cli.logs import LOGGER
from transformer_cli.models.locate import ROBUSTNESS_FILE

VERSION = 3  # of the perturbations and of how they are compared: another one gives other numbers
_PLAIN = "plain"
LONGEST_LINE = 5000  # characters. A longer one is a document or damage, and each line is translated eleven times


@dataclass(frozen=True)
class SuiteRow:
    """One perturbation of lines of the test set. Row `i` of each list belongs to its line `numbers[i]`, from 0."""

    perturbation: Perturbation
    numbers: Sequence[int]
    lines: Sequence[Perturbed]
    sources: Sequence[str]  # what is translated: the lines, with the tags of the plain ones


@dataclass(frozen=True)
class Suite:
    seed: int
    plain: Mapping[int, str]  # the lines of the test set that were chosen, without tags
    languages: tuple[str, str]  # of the source and of the translations: codes, as in data.source_lang
    rows: Sequence[SuiteRow]

    @property
    def sources(self) -> list[str]:
        """All that is translated."""
        return [source for row in self.rows for source in row.sources]


@dataclass(frozen=True)
class PerturbationFigures:
    """Figures of one perturbation; counts are of lines. None: nothing to compare with, or nothing inserted."""

    name: str
    n_lines: int
    chrf_plain: float | None
    chrf_reference: float | None
    length: float | None
    n_loops: int
    n_copies: int
    n_empty: int
    n_lost: int | None

    def as_dict(self) -> dict[str, object]:
        names = {"n_lines": "lines", "n_loops": "loops", "n_copies": "copies", "n_empty": "empty", "n_lost": "lost"}
        return {names.get(key, key): value for key, value in asdict(self).items()}


@dataclass(frozen=True)
class RobustnessReport:
    seed: int
    n_lines: int
    n_test_lines: int
    rows: Sequence[PerturbationFigures]  # that of the plain lines first
    signature: str  # of chrF

    @property
    def title(self) -> str:
        of_all = f" of {self.n_test_lines:,}" if self.n_lines < self.n_test_lines else ""
        return f"robustness suite {VERSION}, seed {self.seed}, {self.n_lines:,} lines{of_all}"

    def as_dict(self) -> dict[str, object]:
        """The report for programs; rates are counts of lines."""
        return {
            "suite": VERSION,
            "seed": self.seed,
            "lines": self.n_lines,
            "test_lines": self.n_test_lines,
            "chrf": self.signature,
            "rows": [row.as_dict() for row in self.rows],
        }

    def lines(self) -> list[str]:
        """The table; loops, copies, empty and lost are percentages of the lines of their row."""
        head = ("", "lines", "chrF/plain", "chrF/reference", "length", "loops", "copies", "empty", "lost")
        cells = [head, *map(_cells, self.rows)]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        aligned = [
            "  ".join(
                [f"{first:<{widths[0]}}", *(f"{cell:>{width}}" for cell, width in zip(rest, widths[1:], strict=True))]
            )
            for first, *rest in cells
        ]
        legend = "length: against that of the plain translations; loops, copies, empty and lost: % of the lines"
        return [self.title, *map(str.rstrip, aligned), f"chrF: {self.signature}", legend]

    def short_lines(self) -> list[str]:
        """The same in a few lines, for the log."""
        _, *perturbed_rows = self.rows
        compared = ", ".join(f"{row.name} {row.chrf_plain:.1f}" for row in perturbed_rows if row.chrf_plain is not None)
        found = [f"{self.title}: chrF against the plain translations: {compared}"]
        for what, name in (("n_loops", "loops"), ("n_copies", "copies"), ("n_empty", "empty"), ("n_lost", "lost")):
            counts = {row: getattr(row, what) for row in self.rows}
            shares = [f"{row.name} {_percent(n, row.n_lines)}" for row, n in counts.items() if n]
            found.append(f"{name}: {', '.join(shares) or 'none'}")
        return [found[0], "; ".join(found[1:])]

    def keep(self, run_dir: Path, provenance: Mapping[str, object]) -> None:
        """What `tfm train` does with it: robustness.json has the table, for people, programs and the model card."""
        file = run_dir / ROBUSTNESS_FILE
        facts = {name: provenance[name] for name in ("test_set", "search", "model_sha256")}
        content = json.dumps({**facts, **self.as_dict()}, indent=1)
        with wrap_os_errors(file, "save the robustness of the model"):
            write_whole(file, f"{content}\n".encode())
        for line in self.short_lines():
            LOGGER.info("%s", line)


def make_suite(
    sources: Sequence[str],
    *,
    n_lines: int,
    seed: int,
    tags: Sequence[str] = (),
    languages: tuple[str, str] = ("", ""),
) -> Suite:
    """At most `n_lines` of the lines that are not blank, drawn by `seed`, in their order, and perturbed.

    None is longer than `LONGEST_LINE` characters.

    `tags` are those of the model: a line keeps the ones that it begins with.
    """
    texts = {i: split_tags(line, tags)[1] for i, line in enumerate(sources)}
    numbers = [i for i, text in texts.items() if text.strip() and len(text) <= LONGEST_LINE]
    if len(numbers) > n_lines:
        numbers = sorted(Random(seed).sample(numbers, n_lines))
    rows = []
    for perturbation in PERTURBATIONS:
        found: dict[int, Perturbed] = {}
        once: set[str] = set()  # a word that several lines have is translated once
        for i in numbers:
            line = perturbed(perturbation, texts[i], languages[0], seed=seed)
            if line is not None and not (perturbation.compared is None and line.line in once):
                found[i] = line
                once.add(line.line)
        tagged = [sources[i].removesuffix(texts[i]) + line.line for i, line in found.items()]
        rows.append(SuiteRow(perturbation, [*found], [*found.values()], tagged))
    return Suite(seed, {i: texts[i] for i in numbers}, languages, rows)


def robustness_report(
    suite: Suite, hypotheses: Sequence[str], outputs: Sequence[str], references: Sequence[Sequence[str]]
) -> RobustnessReport:
    """The table of `outputs`, the translations of `suite.sources`.

    `hypotheses` are the translations of the test set's lines, and `references[k][i]` is the k-th reference of line i.
    """
    plain, wanted = [hypotheses[i] for i in suite.plain], [[lines[i] for i in suite.plain] for lines in references]
    score = _chrf(plain, wanted)
    length = _length(plain, wanted[0])
    rows = [
        PerturbationFigures(
            _PLAIN, len(plain), None, score.value, length, *_degenerate(plain, [*suite.plain.values()]), None
        )
    ]
    start = 0
    for row in suite.rows:
        texts = outputs[start : start + len(row.lines)]
        start += len(row.lines)
        rows.append(_row(row, texts, hypotheses, references, suite.languages[1]))
    return RobustnessReport(suite.seed, len(plain), len(hypotheses), rows, score.signature)


def _row(
    row: SuiteRow, texts: Sequence[str], hypotheses: Sequence[str], references: Sequence[Sequence[str]], language: str
) -> PerturbationFigures:
    """`language` is that of the texts."""
    how, sources = row.perturbation, [line.line for line in row.lines]
    n_loops, n_copies, n_empty = _degenerate(texts, sources)
    if how.compared is None:
        n_copies = sum(map(_is_same_word, texts, sources))
        return PerturbationFigures(
            how.name, len(texts), None, None, _length(texts, sources), n_loops, n_copies, n_empty, None
        )
    compared, n_lost = list(texts), None
    if how.removed is not None:
        compared = [how.removed(text, line.inserted) for text, line in zip(texts, row.lines, strict=True)]
        n_lost = sum(text == before for text, before in zip(compared, texts, strict=True))  # nothing to be removed
    compared = [how.compared(text, language) for text in compared]
    plain, *wanted = (
        [how.compared(" ".join([lines[i]] * how.times), language) for i in row.numbers]
        for lines in (hypotheses, *references)
    )
    return PerturbationFigures(
        how.name,
        len(texts),
        chrf_plain=_chrf(compared, [plain]).value if texts else None,
        chrf_reference=_chrf(compared, wanted).value if texts else None,
        length=_length(compared, plain),
        n_loops=n_loops,
        n_copies=n_copies,
        n_empty=n_empty,
        n_lost=n_lost,
    )


def _chrf(texts: Sequence[str], references: Sequence[Sequence[str]]) -> Score:
    (score,) = METRICS["chrf"](Translations(texts, references), MetricSettings())
    return score


def _degenerate(texts: Sequence[str], sources: Sequence[str]) -> tuple[int, int, int]:
    """Lines with loops, copies of the source, and empty lines."""
    n_empty = sum(not text.strip() for text in texts)
    return sum(map(repeats_itself, texts, sources)), sum(map(is_copy, texts, sources)), n_empty


def _length(texts: Sequence[str], expected: Sequence[str]) -> float | None:
    """Characters but blanks of `texts` for each of `expected`."""
    n_ours, n_expected = (len("".join("".join(lines).split())) for lines in (texts, expected))
    return n_ours / n_expected if n_expected else None


def _is_same_word(text: str, source: str) -> bool:
    return text.strip(" .!?。").lower() == source.lower()


def _percent(count: int, n_lines: int) -> str:
    return f"{100 * count / n_lines:.0f} %" if 100 * count >= n_lines else "< 1 %"


def _cells(row: PerturbationFigures) -> list[str]:
    def share(count: int | None) -> str:
        return "" if count is None or not row.n_lines else f"{100 * count / row.n_lines:.1f}"

    figures = [f"{value:.1f}" if value is not None else "" for value in (row.chrf_plain, row.chrf_reference)]
    length = "" if row.length is None else f"{row.length:.2f}"
    rates = map(share, (row.n_loops, row.n_copies, row.n_empty, row.n_lost))
    return [row.name, f"{row.n_lines:,}", *figures, length, *rates]
