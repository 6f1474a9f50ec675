"""A comparison as one HTML page that needs no network: the finding in words, the scores, and the sentences behind it.

Everything is in the HTML and is read without the script, which only chooses among the sentences.
"""

import math
import re
from collections.abc import Iterable, Sequence

from transformer_cli.addons.comparison import charts
from transformer_cli.addons.comparison.results import Breakdown, Comparison, Curve, Sentence
from transformer_cli.addons.comparison.verdicts import (
    Verdict,
    VerdictKind,
    decimals,
    digits,
    group_verdict,
    p_text,
    system_verdict,
)
from transformer_cli.addons.comparison.word_diff import Mark, Stretch, mark_differences
from transformer_cli.addons.pages.document import document, escaped
from transformer_cli.evaluation.significance import MetricComparison, PairedResult

NOTHING = "–"  # in a cell without a value
_KINDS = {"translations": "file of translations"}
# The names of `tfm evaluate --json`, for readers; any other is shown as it is.
_STATISTICS = {
    "length_ratio": "Length: words (or characters) for each one of the reference",
    "loops": "Lines that repeat themselves",
    "copies": "Lines copied from the source",
    "empty_but_reference_is_not": "Empty lines",
    "unknown_signs": "Lines with unknown signs",
    "lines_with_numbers": "Lines with numbers to keep",
    "lines_that_lose_numbers": "… of which a number is lost",
    "lines_with_urls": "Lines with URLs or e-mail addresses to keep",
    "lines_that_lose_urls": "… of which one is lost",
}
_MARK_TAGS = {Mark.in_reference: '<mark class="hit">', Mark.not_in_reference: '<mark class="miss">'}


def render(comparison: Comparison) -> str:
    """The page; equal comparisons give equal text."""
    sections = {
        "systems": ("Systems", _systems(comparison)),
        "scores": ("Scores", _scores(comparison)),
        "seeds": ("Several seeds", _groups(comparison)),
        "sentences": ("Sentences", _sentences(comparison)),
        "breakdowns": ("Where they differ", "".join(_breakdown(comparison, one) for one in comparison.breakdowns)),
        "curves": ("During training", _curves(comparison)),
        "configs": ("Configs", _configs(comparison)),
        "statistics": ("The translations as text", _statistics(comparison)),
    }
    present = {name: section for name, section in sections.items() if section[1]}
    names = [system.name for system in comparison.systems]
    return document(
        "transformer_cli.addons.comparison",
        title=f"{', '.join(names[1:])} against {names[0]}: {comparison.test_set}",
        shapes=charts.shapes(),
        finding=_finding(comparison),
        facts=_facts(comparison),
        notes="".join(f'<p class="note">{escaped(note)}</p>\n' for note in comparison.notes),
        contents="".join(f'<li><a href="#{name}">{title}</a></li>' for name, (title, _) in present.items()),
        sections="\n".join(
            f'<section aria-labelledby="{name}">\n<h2 id="{name}">{title}</h2>\n{body}</section>'
            for name, (title, body) in present.items()
        ),
    )


# --- The finding in words --------------------------------------------------------------------------------------------


def _finding(comparison: Comparison) -> str:
    """The headline, and below it a sentence or more for each that was compared with the baseline."""
    others = range(1, len(comparison.systems))
    if not comparison.metrics:
        names = [system.name for system in comparison.systems]
        return f"<h1>{escaped(', '.join(names[1:]))} beside {escaped(names[0])}</h1>\n"
    metric = comparison.metrics[0]
    baseline, what = comparison.systems[0].name, "systems"
    verdicts = {i: system_verdict(comparison, metric, i) for i in others}
    others_say = {i: _other_metrics(comparison, i, verdict.finding) for i, verdict in verdicts.items()}
    of_groups = [
        result for result in comparison.group_comparisons if result.metric == metric.name and result.p_value is not None
    ]
    if of_groups:  # several runs of a config say more of it than one
        baseline, what = of_groups[0].baseline, "groups of runs"
        verdicts = {i: group_verdict(result, metric) for i, result in enumerate(of_groups)}
        others_say = {}
    if len(verdicts) == 1:
        ((i, verdict),) = verdicts.items()
        return (
            f'<h1>{escaped(verdict.claim)}</h1>\n<p class="evidence">{_evidence(verdict, others_say.get(i, ""))}</p>\n'
        )
    items = "".join(
        f"<li><strong>{escaped(verdict.claim)}.</strong> {_evidence(verdict, others_say.get(i, ''))}</li>\n"
        for i, verdict in verdicts.items()
    )
    return f'<h1>{escaped(_count(list(verdicts.values()), baseline, what))}</h1>\n<ul class="evidence">\n{items}</ul>\n'


def _evidence(verdict: Verdict, others_say: str) -> str:
    return f"{escaped(verdict.evidence)} {others_say}".strip()


def _count(verdicts: Sequence[Verdict], baseline: str, what: str) -> str:
    """How many of several systems or groups are better or worse than the baseline."""
    n = len(verdicts)
    k_better, k_worse, k_untested = (
        sum(verdict.finding is finding for verdict in verdicts)
        for finding in (VerdictKind.better, VerdictKind.worse, VerdictKind.not_tested)
    )
    if k_untested == n:
        return f"{n} {what} beside {baseline}, without a significance test"
    if all(verdict.finding is VerdictKind.same for verdict in verdicts):
        return f"{baseline} and the {n} other {what} gave the same translations"
    if n in (k_better, k_worse):
        return (
            f"{'Both' if n == 2 else f'All {n}'} other {what} are {'better' if k_better else 'worse'} than {baseline}"
        )
    parts = [(k_better, "better"), (k_worse, "worse")]
    shown = " and ".join(f"{k} {'is' if k == 1 else 'are'} {word}" for k, word in parts if k)
    if not shown:
        return f"No difference is shown between {baseline} and the {n} other {what}"
    return f"Of {n} other {what}, {shown} than {baseline}"


def _other_metrics(comparison: Comparison, system: int, finding: VerdictKind) -> str:
    """Whether the other metrics find the same."""
    differences: dict[VerdictKind, list[str]] = {}
    for metric in comparison.metrics[1:]:
        result = metric.against_baseline[system]
        assert result is not None
        text = f"{escaped(metric.name)} ({_signed(result.difference, digits(metric))})"
        differences.setdefault(system_verdict(comparison, metric, system).finding, []).append(text)
    if finding in (VerdictKind.same, VerdictKind.not_tested) or not differences:
        return ""
    parts = [
        f"{_and(metrics)} {'agree' + 's' * (len(metrics) == 1) if one is finding else f'say: {one.value}'}"
        for one, metrics in differences.items()
    ]
    return "; ".join(parts) + "."


def _and(parts: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(parts[:-1]), parts[-1])))


def _facts(comparison: Comparison) -> str:
    """What was compared on what."""
    n = comparison.n_references
    facts = {
        "Test set": f"<bdi>{escaped(comparison.test_set)}</bdi>",
        "Lines": f"{comparison.n_lines:,}",
        "References": "none" if n == 0 else f"{n} for each line",
    }
    languages = [escaped(code) for code in (comparison.source_language, comparison.target_language) if code]
    if languages:
        facts["From → into" if len(languages) == 2 else "Language"] = " → ".join(languages)
    if len(comparison.systems) == 2:
        first, second = (system.translations for system in comparison.systems)
        n_different = sum(a != b for a, b in zip(first, second, strict=True))
        facts["Translated differently"] = f"{n_different:,} line{'s' * (n_different != 1)}"
    return "".join(f"<div><dt>{name}</dt><dd>{value}</dd></div>\n" for name, value in facts.items())


# --- Tables ----------------------------------------------------------------------------------------------------------


def _table(
    columns: Sequence[str], rows: Iterable[Sequence[str]], *, numbers: Sequence[int] = (), kind: str = "stacks"
) -> str:
    """A table of HTML cells, whose first column names the rows. Columns in `numbers` are set to the right.

    On a narrow screen every row of a table that "stacks" becomes a block, with the names of the columns over its cells.
    """

    def place(i: int, cell: str = "") -> str:
        names = ["number"] * (i in numbers) + ["nothing"] * (cell == NOTHING)
        return f' class="{" ".join(names)}"' if names else ""

    head = "".join(f'<th scope="col"{place(i)}>{name}</th>' for i, name in enumerate(columns))
    body = "".join(
        f'<tr><th scope="row">{row[0]}</th>'
        + "".join(f'<td{place(i, row[i])} data-label="{columns[i]}">{row[i]}</td>' for i in range(1, len(row)))
        + "</tr>\n"
        for row in rows
    )
    return f'<table class="{kind}">\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}</tbody>\n</table>\n'


def _name(comparison: Comparison, system: int) -> str:
    """A system's sign and name."""
    return f'<span class="system">{charts.mark(system)}<bdi>{escaped(comparison.systems[system].name)}</bdi></span>'


def _systems(comparison: Comparison) -> str:
    columns: dict[str, list[str | None]] = {
        "System": [
            _name(comparison, i) + (' <span class="tag">baseline</span>' if i == 0 else "")
            for i in range(len(comparison.systems))
        ],
        "What it is": [escaped(_KINDS.get(system.kind, system.kind)) for system in comparison.systems],
        "Path": [f"<code>{escaped(system.path)}</code>" for system in comparison.systems],
        "Group": [system.group and f"<bdi>{escaped(system.group)}</bdi>" for system in comparison.systems],
        "Search": [system.search and f"<code>{escaped(system.search)}</code>" for system in comparison.systems],
        "Model hash": [
            system.model_hash and f'<code class="hash">{escaped(system.model_hash)}</code>'
            for system in comparison.systems
        ],
    }
    known = {name: values for name, values in columns.items() if any(values)}
    rows = [[cell or NOTHING for cell in row] for row in zip(*known.values(), strict=True)]
    hint = "Each system is compared with the baseline, the first that was named."
    return _table(list(known), rows) + f'<p class="hint">{hint}</p>\n'


def _scores(comparison: Comparison) -> str:
    if not comparison.metrics:
        return ""
    tables = "".join(_metric(comparison, metric) for metric in comparison.metrics)
    return tables + READING_SCORES


READING_SCORES = """<details class="reading"><summary>How to read these tables</summary>
<dl>
<dt>95 % interval</dt>
<dd>The mean of the score over random resamples of the test set, and how far it varies: with other lines of the same
kind, the score would be expected in this range. The intervals of two systems may overlap although one is better; the
tests, which compare line by line, decide.</dd>
<dt>p, bootstrap; p, randomization</dt>
<dd>Two tests of one question: if both systems were equally good, how often would a difference this large arise by
chance? Paired bootstrap resampling (Koehn 2004) draws the lines of the test set anew; approximate randomization
(Riezler and Maxwell 2005) exchanges the two translations of random lines; “with ties” also counts exchanges that give
just the same difference. A difference counts as shown if every p is below 0.05. Of 20 comparisons of equally good
systems, one on average seems to show a difference.</dd>
<dt>Signature</dt>
<dd>The settings with which another person computes the same figures.</dd>
</dl>
</details>
"""


def _metric(comparison: Comparison, metric: MetricComparison) -> str:
    n = digits(metric)
    ends = [(score.mean - score.half_width, score.mean + score.half_width) for score in metric.scores]
    low = min(min(end[0], score.score) for end, score in zip(ends, metric.scores, strict=True))
    high = max(max(end[1], score.score) for end, score in zip(ends, metric.scores, strict=True))
    margin = 0.06 * (high - low) or 1.0
    tests = [result for result in metric.against_baseline if result is not None]
    has_bootstrap = any(result.p_bootstrap is not None for result in tests)
    has_randomization = any(result.p_randomization is not None for result in tests)
    columns = ["System", "Score", "95 % interval", "Difference"]
    columns += ["p, bootstrap"] * has_bootstrap + ["p, randomization"] * has_randomization + ["Finding"]
    rows = []
    for i, score in enumerate(metric.scores):
        picture = charts.interval(i, score.score, ends[i], low=low - margin, high=high + margin)
        cells = [
            _name(comparison, i),
            f"<strong>{score.score:.{n}f}</strong>",
            f'<span class="figure">{score.mean:.{n}f} ± {score.half_width:.{n}f}</span> {picture}',
        ]
        result = metric.against_baseline[i]
        if result is None:
            cells += ["baseline"] + [NOTHING] * (has_bootstrap + has_randomization + 1)
        else:
            finding = system_verdict(comparison, metric, i).finding
            cells.append(_signed(result.difference, n))
            cells += [_p(result.p_bootstrap)] * has_bootstrap + [_randomization(result)] * has_randomization
            cells.append(_found(finding))
        rows.append(cells)
    direction = "higher is better" if metric.higher_is_better else "lower is better"
    return (
        f'<h3>{escaped(metric.name)} <span class="direction">{direction}</span></h3>\n'
        + _table(columns, rows, numbers=[i for i in range(1, len(columns) - 1) if i != 2])
        + f'<p class="signature">Signature: <code>{escaped(metric.signature)}</code>'
        ' <button type="button" class="copy" hidden>Copy</button></p>\n'
    )


def _groups(comparison: Comparison) -> str:
    """Runs of one config with other seeds: what the seed alone changes, and whether configs differ beyond it."""
    if not comparison.groups:
        return ""
    metrics = {metric.name: metric for metric in comparison.metrics}
    rows = []
    for group in comparison.groups:
        n = decimals([group.highest])
        spread = f"{group.deviation:.{n}f}" if group.n_runs > 1 else NOTHING
        span = f"{group.lowest:.{n}f} to {group.highest:.{n}f}"
        cells = [f"<bdi>{escaped(group.group)}</bdi>", escaped(group.metric), f"{group.n_runs:,}"]
        rows.append([*cells, f"<strong>{group.mean:.{n}f}</strong>", spread, span])
    columns = ["Group", "Metric", "Runs", "Mean", "Standard deviation", "Lowest to highest"]
    tables = _table(columns, rows, numbers=range(2, 6))
    rows = []
    for result in comparison.group_comparisons:
        metric = metrics.get(result.metric)
        finding = _found(group_verdict(result, metric).finding) if metric else NOTHING
        rows.append(
            [
                f"<bdi>{escaped(result.group)}</bdi> against <bdi>{escaped(result.baseline)}</bdi>",
                escaped(result.metric),
                _signed(result.difference, digits(metric) if metric else 2),
                _p(result.p_value),
                finding,
            ]
        )
    if rows:
        tables += "<h3>Means compared</h3>\n"
        tables += _table(["Groups", "Metric", "Difference of means", "p, Welch", "Finding"], rows, numbers=(2, 3))
    return (
        '<p class="hint">A group is the runs of one config with other seeds. Its standard deviation is how much the'
        " seed alone changes the score. Welch’s t-test compares the means of two groups and needs several runs of each."
        "</p>\n" + tables
    )


def _configs(comparison: Comparison) -> str:
    if not comparison.config_differences:
        return ""
    rows = [
        [
            f"<code>{escaped(one.key)}</code>",
            *(NOTHING if value is None else f"<code>{escaped(value)}</code>" for value in one.values),
        ]
        for one in comparison.config_differences
    ]
    hint = f"Keys whose value is not the same in all runs. {NOTHING} is not set, or no run."
    return f'<p class="hint">{hint}</p>\n' + _table(["Key", *_names(comparison)], rows, kind="stacks named")


def _statistics(comparison: Comparison) -> str:
    """A row for each name: those that are known, and then the others."""
    names = list(dict.fromkeys(name for one in comparison.statistics for name in one))
    order = [*(name for name in _STATISTICS if name in names), *(name for name in names if name not in _STATISTICS)]
    if not order:
        return ""
    rows = [
        [
            escaped(_STATISTICS.get(name, name.replace("_", " "))),
            *(_plain(one.get(name)) for one in comparison.statistics),
        ]
        for name in order
    ]
    columns = ["In all lines", *_names(comparison)]
    return _table(columns, rows, numbers=range(1, len(columns)), kind="stacks named")


def _names(comparison: Comparison) -> list[str]:
    """The names of the systems in the heads of columns, which are attributes too and so have no elements in them."""
    return [escaped(system.name) for system in comparison.systems]


# --- Sentences -------------------------------------------------------------------------------------------------------


def _sentences(comparison: Comparison) -> str:
    systems = [i for i in range(1, len(comparison.systems)) if comparison.better.get(i) or comparison.worse.get(i)]
    if not systems:
        return ""
    lists = []
    for i in systems:
        lists.append(_sentence_list(comparison, i, "better", comparison.better.get(i, ())))
        lists.append(_sentence_list(comparison, i, "worse", comparison.worse.get(i, ())))
    choice = "".join(_option("system", str(i), _name(comparison, i), checked=i == systems[0]) for i in systems)
    is_better = bool(comparison.better.get(systems[0]))  # where the first one has any
    directions = _option("direction", "better", "Better", checked=is_better)
    directions += _option("direction", "worse", "Worse", checked=not is_better)
    return (
        f'<p class="hint">The lines whose scores by {escaped(comparison.sentence_metric)} differ most from those of the'
        " baseline.</p>\n"
        '<form id="choose" class="controls" aria-label="Which sentences are shown" hidden>\n'
        f'<fieldset{" hidden" if len(systems) == 1 else ""}><legend>System</legend><div class="segments">{choice}</div>'
        "</fieldset>\n"
        '<fieldset><legend>Show where it is</legend><div class="segments">'
        f"{directions}</div></fieldset>\n"
        '<fieldset><legend><label for="find">Find text</label></legend>'
        '<input type="search" id="find" autocomplete="off" spellcheck="false"></fieldset>\n'
        "</form>\n"
        '<p class="key"><span><mark class="hit">word</mark> only in this translation, and in a reference</span>'
        ' <span><mark class="miss">word</mark> only in this translation, in no reference</span>'
        " <span>not marked: in both translations</span></p>\n"
        '<p id="shown" role="status"></p>\n'
        + "".join(lists)
        + '<p><button type="button" id="more" hidden></button></p>\n'
    )


def _option(name: str, value: str, label: str, *, checked: bool = False) -> str:
    state = " checked" if checked else ""
    choice = f'<input type="radio" name="{name}" value="{value}" autocomplete="off"{state}>'
    return f"<label>{choice}<span>{label}</span></label>"


def _sentence_list(comparison: Comparison, system: int, direction: str, sentences: Sequence[Sentence]) -> str:
    names = [escaped(comparison.systems[i].name) for i in (system, 0)]
    items = "".join(_sentence(comparison, system, sentence) for sentence in sentences) or "<li>None.</li>\n"
    return (
        f'<div class="sentences" data-system="{system}" data-direction="{direction}">\n'
        f"<h3>Where <bdi>{names[0]}</bdi> is {direction} than <bdi>{names[1]}</bdi></h3>\n<ol>\n{items}</ol>\n</div>\n"
    )


def _sentence(comparison: Comparison, system: int, sentence: Sentence) -> str:
    n = 4 if decimals(sentence.scores) == 4 and max(map(abs, sentence.scores)) > 0 else 1
    target = _language(comparison.target_language)
    rows = []
    if sentence.source is not None:
        rows.append(("Source", "", _text(sentence.source, _language(comparison.source_language))))
    for k, reference in enumerate(sentence.references, 1):
        rows.append((f"Reference {k}" if len(sentence.references) > 1 else "Reference", "", _text(reference, target)))
    rows += _translations(comparison, sentence, system, n)
    others = [_translations(comparison, sentence, i, n)[1] for i in range(1, len(comparison.systems)) if i != system]
    more = f"<details><summary>Other systems</summary>\n{_pairs(others)}</details>\n" if others else ""
    difference, metric = _signed(sentence.scores[system] - sentence.scores[0], n), escaped(comparison.sentence_metric)
    return (
        f'<li class="card"><p class="where">Line {sentence.line:,} <strong>{difference}</strong> {metric}</p>\n'
        f"{_pairs(rows)}{more}</li>\n"
    )


def _translations(comparison: Comparison, sentence: Sentence, system: int, n: int) -> list[tuple[str, str, str]]:
    """The baseline's translation and that of `system`, with the words marked in which they differ."""
    both = mark_differences(sentence.translations[0], sentence.translations[system], sentence.references)
    return [
        (
            _name(comparison, i),
            f' <span class="score">{sentence.scores[i]:.{n}f}</span>',
            f'<dd dir="auto"{_language(comparison.target_language)}>{_marked(stretches)}</dd>',
        )
        for i, stretches in zip((0, system), both, strict=True)
    ]


def _marked(stretches: Sequence[Stretch]) -> str:
    marked = "".join(
        f"{_MARK_TAGS[one.mark]}{escaped(one.text)}</mark>" if one.mark in _MARK_TAGS else escaped(one.text)
        for one in stretches
    )
    return marked if marked.strip() else '<span class="empty">empty</span>'


def _text(text: str, language: str) -> str:
    return f'<dd dir="auto"{language}>{escaped(text)}</dd>'


def _pairs(rows: Iterable[tuple[str, str, str]]) -> str:
    return "<dl>\n" + "".join(f"<div><dt>{name}{score}</dt>{text}</div>\n" for name, score, text in rows) + "</dl>\n"


def _language(code: str | None) -> str:
    """The attribute for text of a language, where the code is one: zho_Hans is zho-Hans there."""
    known = code is not None and re.fullmatch(r"[A-Za-z]{2,3}([-_][A-Za-z0-9]{2,8})*", code)
    return f' lang="{code.replace("_", "-")}"' if code and known else ""


# --- Where and when they differ --------------------------------------------------------------------------------------


def _breakdown(comparison: Comparison, breakdown: Breakdown) -> str:
    scores = [score for bucket in breakdown.buckets for score in bucket.scores if score is not None]
    if not scores:
        return ""
    n, low, high = decimals(scores), min(0.0, *scores), max(0.0, *scores)
    rows = []
    for bucket in breakdown.buckets:
        bars = []
        for i, score in enumerate(bucket.scores):
            if score is None:
                picture, value, change = "<span></span>", NOTHING, ""
            else:
                picture, value = charts.bar(i, score, low=low, high=high), f"{score:.{n}f}"
                first = bucket.scores[0]
                change = _signed(score - first, n) if i and first is not None else ""
            bars.append(
                f'<li>{_name(comparison, i)}{picture}<span class="figure">{value}</span>'
                f'<span class="figure change">{change}</span></li>'
            )
        rows.append([escaped(bucket.label), f"{bucket.n:,}", f'<ul class="bars">{"".join(bars)}</ul>'])
    of = escaped(breakdown.of)
    table = _table(
        [_capital(escaped(breakdown.property)), _capital(of), "Score, and difference to the baseline"],
        rows,
        numbers=(1,),
        kind="breakdown",
    )
    return f"<h3>{escaped(breakdown.title)}</h3>\n{table}"


def _curves(comparison: Comparison) -> str:
    by_metric: dict[str, list[Curve]] = {}
    for curve in comparison.curves:
        if curve.points:
            by_metric.setdefault(curve.metric, []).append(curve)
    return "".join(_chart(comparison, metric, curves) for metric, curves in by_metric.items())


def _chart(comparison: Comparison, metric: str, curves: Sequence[Curve]) -> str:
    names = [system.name for system in comparison.systems]
    direction = {True: "higher is better", False: "lower is better", None: ""}[curves[0].higher_is_better]
    legend = "".join(
        f"<li>{charts.line_mark(curve.system)}<bdi>{escaped(names[curve.system])}</bdi>"
        f' <span class="quiet">last {_score(curve.points[-1][1])} at update {curve.points[-1][0]:,}</span></li>'
        for curve in curves
    )
    picture = charts.line_chart(curves, names, label=f"{metric} by update, one line for each run; numbers follow")
    by_update: dict[int, dict[int, float]] = {}
    for i, curve in enumerate(curves):
        for update, score in curve.points:
            by_update.setdefault(update, {})[i] = score
    rows = [
        [f"{update:,}", *(_score(row[i]) if i in row else NOTHING for i in range(len(curves)))]
        for update, row in sorted(by_update.items())
    ]
    columns = ["Update", *(escaped(names[curve.system]) for curve in curves)]
    return (
        f'<h3>{escaped(metric)} on the dev set <span class="direction">{direction}</span></h3>\n'
        f'<ul class="legend">{legend}</ul>\n<div class="plot">{picture}</div>\n<p class="axis">Updates</p>\n'
        f"<details><summary>The numbers</summary>\n"
        f"{_table(columns, rows, numbers=range(len(columns)), kind='wide')}</details>\n"
    )


# --- Numbers ---------------------------------------------------------------------------------------------------------


def _signed(value: float, n: int) -> str:
    text = f"{abs(value):.{n}f}"
    if float(text) == 0:
        return text
    return ("+" if value > 0 else "\N{MINUS SIGN}") + text


def _score(value: float) -> str:
    return f"{value:.{2 if abs(value) >= 10 else 4}f}" if math.isfinite(value) else str(value)


def _plain(value: float | int | None) -> str:
    if value is None:
        return NOTHING
    return f"{value:,}" if isinstance(value, int) else f"{value:.3f}"


def _p(p_value: float | None) -> str:
    return NOTHING if p_value is None else escaped(p_text(p_value))


def _randomization(result: PairedResult) -> str:
    """The p-value as sacrebleu counts it, and the one with ties where that is another."""
    values = _p(result.p_randomization), _p(result.p_with_ties)
    return values[0] if result.p_with_ties is None or values[0] == values[1] else f"{values[0]}, {values[1]} with ties"


def _found(finding: VerdictKind) -> str:
    return f'<span class="finding {finding.name}">{finding.value}</span>'


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
