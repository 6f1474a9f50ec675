"""The record of `decoding.explain` as tables for a person."""

import sys
from collections.abc import Iterator, Sequence
from itertools import groupby
from unicodedata import combining, east_asian_width

from transformer_cli.decoding.explain import Record
from transformer_cli.errors import printable

_MARKS = {"kept": "+", "finished": "=", "dropped": "-"}
LAST = 6  # tokens of a hypothesis that stand before its continuations
RANKED = 10  # hypotheses of the final ranking


def explanation_table(number: int, source: str, explanation: Record) -> str:
    """The steps of every segment of a line, its beams, and its reference."""
    segments, reference = explanation["segments"], explanation.get("reference")
    lines = [f"line {number}: {source}"]
    for n, segment in enumerate(segments, start=1):
        part = f" (part {n} of {len(segments)}: {' '.join(segment['source'])})" if len(segments) > 1 else ""
        lines += [f"translation: {segment['translation']}{part}", "", *_steps_table(segment["steps"])]
        if any(one["fate"] == "dropped" for one in segment["hypotheses"]):
            lines += ["", *_beam_table(segment["hypotheses"], segment["path"])]
        if len(segment["ranking"]) > 1:
            lines += ["", *_ranking_table(segment["ranking"])]
        lines.append("")
    if not segments:
        lines += ["translation: nothing, as the line is blank", ""]
    if reference is not None:
        lines += [*_reference_table(reference), ""]
    return "\n".join(printable(line, limit=sys.maxsize) for line in lines) + "\n"


def _steps_table(steps: Sequence[Record]) -> Iterator[str]:
    is_drawn = any("drawn" in step for step in steps)
    rows = [["step", "token", "p", "log p", *(["drawn with"] if is_drawn else []), "likeliest tokens"]]
    for n, step in enumerate(steps, start=1):
        drawn = [_probability(step["drawn"])] if is_drawn else []
        numbers = [_probability(step["probability"]), f"{step['token_log_prob']:.3f}", *drawn]
        rows.append([str(n), step["token"], *numbers, _likeliest(step["likeliest"])])
    yield from _aligned(rows, left=(1, len(rows[0]) - 1))
    yield f"sum of log p: {sum(step['token_log_prob'] for step in steps):.3f}"


def _likeliest(options: Sequence[Record]) -> str:
    return "  ".join(
        f"{one['token']} {_probability(one['probability'])}{'' if one.get('allowed', True) else ' (banned)'}"
        for one in options
    )


def _beam_table(hypotheses: Sequence[Record], path: Sequence[int]) -> Iterator[str]:
    """The continuations of each step, indented under the hypotheses that they continue."""
    marks = ", ".join(f"{mark} {fate}" for fate, mark in _MARKS.items())
    yield f"hypotheses: {marks}, * part of the translation; log p and score are those of the whole hypothesis"
    tokens = {0: ["<s>"]}
    rows = [["", "", "p", "log p", "score"]]
    for step, of_step in groupby(hypotheses, key=lambda one: int(one["step"])):
        rows.append([f"step {step}", "", "", "", ""])
        considered = sorted(of_step, key=lambda one: int(one["parent"]))  # stable: the best first
        for parent, continuations in groupby(considered, key=lambda one: int(one["parent"])):
            known = tokens[parent]
            rows.append([f"  {'… ' if len(known) > LAST else ''}{' '.join(known[-LAST:])}", f"#{parent}", "", "", ""])
            for one in continuations:
                tokens[one["id"]] = [*known, one["token"]]
                lacks = " (lacks a term)" if one.get("lacks_terms") else ""
                rows.append(
                    [
                        f"  {'*' if one['id'] in path else ' '} {_MARKS[one['fate']]} {one['token']}{lacks}",
                        f"#{one['id']}",
                        _probability(one["probability"]),
                        f"{one['log_prob']:.3f}",
                        f"{one['score']:.3f}",
                    ]
                )
    yield from _aligned(rows, left=(0,))


def _ranking_table(ranking: Sequence[Record]) -> Iterator[str]:
    rows = [["rank", "", "score", "log p", "translation"]]
    for n, one in enumerate(ranking[:RANKED], start=1):
        end = "" if one["finished"] else " … (not finished)"
        numbers = [f"{one['score']:.3f}", f"{one['log_prob']:.3f}"]
        rows.append(
            [f"{n}{' *' if one['returned'] else '  '}", f"#{one['hypothesis']}", *numbers, f"{one['translation']}{end}"]
        )
    yield "final ranking (* is returned):"
    yield from _aligned(rows, left=(4,))
    if len(ranking) > RANKED:
        yield f"and {len(ranking) - RANKED} more"


def _reference_table(reference: Record) -> Iterator[str]:
    smoothing, steps = reference["label_smoothing"], reference["steps"]
    yield f"reference: {reference['translation']}"
    yield ""
    cells = [
        {
            "step": str(n),
            "target": step["token"],
            "one-hot": "1",
            **({} if smoothing is None else {"smoothed": _probability(step["smoothed"])}),
            "p": _probability(step["probability"]),
            "rank": str(step["rank"]),
            "-log p": f"{-step['token_log_prob']:.3f}",
            **({} if smoothing is None else {"loss": f"{step['loss']:.3f}"}),
            "likeliest tokens": _likeliest(step["likeliest"]),
        }
        for n, step in enumerate(steps, start=1)
    ]
    if cells:
        yield from _aligned([list(cells[0]), *(list(one.values()) for one in cells)], left=(1, len(cells[0]) - 1))
    yield f"log-probability of the reference, as `tfm score` gives it: {reference['log_prob']:.4f}"
    if smoothing is None:
        yield "The smoothed targets are not known: the model file does not say its label smoothing"
    else:
        yield (
            f"Every other token of the {reference['vocabulary']:,}: one-hot 0, smoothed"
            f" {smoothing / reference['vocabulary']:.3g} (train.label_smoothing={smoothing})"
        )


def _probability(p: float) -> str:
    return f"{p:.3f}" if p >= 0.0005 else f"{p:.0e}"


def _aligned(rows: Sequence[Sequence[str]], *, left: Sequence[int]) -> Iterator[str]:
    """Columns of equal width: those of `left` begin together, the others end together."""
    widths = [max(map(_width, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = []
        for n, (cell, width) in enumerate(zip(row, widths, strict=True)):
            gap = " " * (width - _width(cell))
            cells.append(cell + gap if n in left else gap + cell)
        yield "  ".join(cells).rstrip()


def _width(text: str) -> int:
    """Columns of a terminal."""
    return sum(0 if combining(c) else 2 if east_asian_width(c) in "WF" else 1 for c in text)
