"""What cleaning did to a corpus as one HTML page that needs no network: counts of each filter, and pairs as examples.

All texts come from files of anyone's: each is escaped, and isolated in its direction.
"""

import re
from collections.abc import Iterable, Sequence
from difflib import SequenceMatcher
from typing import Any

from transformer_cli.addons.pages.document import document, escaped
from transformer_cli.config.data import DataConfig
from transformer_cli.data.clean import CleaningReport
from transformer_cli.data.cleaning.clean_corpora import FilteringReport, FilterReport
from transformer_cli.data.cleaning.filters import FILTERS

_NOTHING = "–"  # in a cell without a value
_TOKENS = re.compile(r"\w+|\W")
_MOST_TOKENS = 1000  # of a side in which what differs is marked: the time grows with their square


def render(filtering: FilteringReport | None, cleaning: CleaningReport, config: DataConfig) -> str:
    """The page; equal reports give equal text."""
    found = filtering or FilteringReport()
    sections = {
        "Filters": _filters(found),
        "After the filters" if filtering else "Cleaning": _list(cleaning.lines()),
        "Examples": "".join(_examples(one, config) for one in found.filters if one.n_dropped or one.n_repaired),
    }
    notes = list(found.warnings())
    if filtering is None and config.trained.translates and config.builtin is None:
        notes.append(
            "data.clean names no filters for this corpus. data.clean=[auto] drops and repairs pairs, and tfm doctor"
            " --suspects 20 shows those that are most likely wrong"
        )
    return document(
        "transformer_cli.addons.cleaning_report",
        title=f"Cleaning of {config.title}",
        finding=escaped(_finding(found, cleaning)),
        facts=_facts(found, cleaning, config),
        notes="".join(f'<p class="note">{escaped(note)}.</p>\n' for note in notes),
        sections="\n".join(
            f"<section>\n<h2>{escaped(title)}</h2>\n{body}</section>" for title, body in sections.items() if body
        ),
    )


def _finding(found: FilteringReport, cleaning: CleaningReport) -> str:
    if found.filters:
        return f"{found.n_kept:,} of {found.n_read:,} training pairs kept by the filters"
    return f"{cleaning.n_kept:,} of {cleaning.n_read:,} training pairs kept, without filters"


def _facts(found: FilteringReport, cleaning: CleaningReport, config: DataConfig) -> str:
    facts = {"Corpus": config.title, "Languages": f"{config.source_lang} → {config.target_lang}"}
    if found.filters:
        n_dropped = sum(one.n_dropped for one in found.filters)
        n_repaired = sum(one.n_repaired for one in found.filters)
        facts |= {
            "Pairs read": f"{found.n_read:,}",
            "Dropped by filters": _count(n_dropped, found.n_read),
            "Repaired": _count(n_repaired, found.n_read),
            "Held out as dev or test": f"{found.n_kept - cleaning.n_read + cleaning.n_bad:,}",
        }
    facts["Left to train on"] = f"{cleaning.n_kept:,}"
    return "\n".join(f"<div><dt>{escaped(name)}</dt><dd>{escaped(fact)}</dd></div>" for name, fact in facts.items())


# ---- Counts


def _filters(found: FilteringReport) -> str:
    """A row for each filter, in the order in which they were applied."""
    if not found.filters:
        return ""
    most = max(one.n_dropped + one.n_repaired for one in found.filters)
    numbers = {"Threshold", "Dropped", "Repaired"}
    heads = ("Filter", "Threshold", "What it does", "Dropped", "Repaired", "Share")
    classes = {name: "number" if name in numbers else name.lower() for name in heads}
    head = "".join(f'<th scope="col" class="{classes[name]}">{name}</th>' for name in heads)
    rows = "\n".join(_row(one, found.n_read, most) for one in found.filters)
    return (
        '<div class="scroll"><table class="filters">\n'
        f"<thead><tr>{head}</tr></thead>\n<tbody>\n{rows}\n</tbody></table></div>\n"
        '<p class="hint">Filters are applied in this order. Each gets the pairs that those before it have kept, as'
        " they have repaired them.</p>\n"
    )


def _row(one: FilterReport, n_read: int, most: int) -> str:
    name = escaped(one.name)
    if one.n_dropped or one.n_repaired:
        name = f'<a href="#filter-{name}">{name}</a>'
    threshold = _NOTHING if one.threshold is None else f"{one.threshold:g}"
    # A filter that repairs all of what it finds drops nothing.
    does = f"Drops pairs {one.what}." if not one.repair.startswith(one.what) else ""
    if one.repair:
        does += f" Keeps {'others' if does else 'pairs'} {one.repair}."
    if one.left_out:
        does += f" Not applied: it would have dropped {one.left_out:.0%} of the pairs."
    counts = "".join(f'<td class="number">{_count(n, n_read)}</td>' for n in (one.n_dropped, one.n_repaired))
    return (
        f'<tr><th scope="row">{name}</th><td class="number">{threshold}</td>'
        f'<td class="quiet">{escaped(does.strip())}</td>{counts}<td class="share">{_bar(one, most)}</td></tr>'
    )


def _count(n: int, n_read: int) -> str:
    return f"{n:,} ({100 * n / n_read:.2g} %)" if n and n_read else f"{n:,}"


def _bar(one: FilterReport, most: int) -> str:
    """The pairs that a filter dropped and repaired, as parts of those of the filter with the most."""
    dropped, repaired = (100 * n / max(1, most) for n in (one.n_dropped, one.n_repaired))
    return (
        '<svg class="bar" viewBox="0 0 100 7" preserveAspectRatio="none" aria-hidden="true">'
        f'<rect class="dropped" width="{dropped:.2f}" height="7"/>'
        f'<rect class="repaired" x="{dropped:.2f}" width="{repaired:.2f}" height="7"/></svg>'
    )


def _list(lines: Sequence[str]) -> str:
    return "<ul>" + "".join(f"<li>{escaped(line)}</li>" for line in lines) + "</ul>\n"


# ---- Pairs


def _examples(one: FilterReport, config: DataConfig) -> str:
    name, about = escaped(one.name), ""
    if one.name in FILTERS and (written := FILTERS[one.name].__doc__):  # the filter of a plugin may be gone
        about = f'<p class="hint">{escaped(" ".join(written.split()))}</p>\n'
    tables = ""
    if one.dropped:
        tables += _table(_first(len(one.dropped), one.n_dropped, "dropped"), map(_dropped, one.dropped), config)
    if one.repaired:
        tables += _table(_first(len(one.repaired), one.n_repaired, "repaired"), map(_repaired, one.repaired), config)
    return f'<h3 id="filter-{name}">{name}</h3>\n{about}{tables}'


def _first(n_shown: int, n: int, what: str) -> str:
    return f"{n:,} {what}" if n_shown == n else f"{n:,} {what}, of which the first {n_shown}"


def _table(caption: str, rows: Iterable[tuple[int, str, str]], config: DataConfig) -> str:
    """Pairs with their numbers in the corpus; the sides are HTML."""
    heads = ("Pair", f"Source ({config.source_lang})", f"Target ({config.target_lang})")
    head = "".join(
        f'<th scope="col"{" class=number" * (place == 0)}>{escaped(name)}</th>' for place, name in enumerate(heads)
    )
    body = "\n".join(
        f'<tr><td class="number">{number:,}</td><td>{source}</td><td>{target}</td></tr>'
        for number, source, target in rows
    )
    return (
        f'<table class="pairs"><caption>{caption}</caption>\n<thead><tr>{head}</tr></thead>\n'
        f"<tbody>\n{body}\n</tbody></table>\n"
    )


def _dropped(example: dict[str, Any]) -> tuple[int, str, str]:
    return int(example["pair"]), _text(escaped(example["source"])), _text(escaped(example["target"]))


def _repaired(example: dict[str, Any]) -> tuple[int, str, str]:
    sides = zip((example["source"], example["target"]), example["now"], strict=True)
    source, target = (_change(before, after) for before, after in sides)
    return int(example["pair"]), source, target


def _change(before: str, after: str) -> str:
    """A side before and after a repair, with what differs marked; once where it is the same."""
    if before == after:
        return _text(escaped(after))
    old, new = _TOKENS.findall(before), _TOKENS.findall(after)
    if max(len(old), len(new)) > _MOST_TOKENS:
        old, new = [before], [after]
    sides = ["", ""]
    for kind, *span in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        for side, (text, tag) in enumerate(((old[span[0] : span[1]], "del"), (new[span[2] : span[3]], "ins"))):
            part = escaped("".join(text))
            sides[side] += part if kind == "equal" or not part else f"<{tag}>{part}</{tag}>"
    arrow = '<span class="mark" aria-label="after">→</span>'
    return f'{_text(sides[0])}<div class="after">{arrow}{_text(sides[1])}</div>'


def _text(content: str) -> str:
    return f'<span class="text" dir="auto">{content}</span>'
