"""Pictures of scores as inline SVG. Positions are percentages, so a picture takes the width it has and text keeps its
size; styles are those of the page, whose policy allows none elsewhere. A system has a shape and a dash besides its
colour, which not everybody sees."""

import math
from collections.abc import Sequence

from transformer_cli.addons.comparison.results import Curve
from transformer_cli.addons.pages.document import escaped

N_COLOURS = 7  # of the page's palette; yellow is too faint for a line
SHAPES = [  # around the origin, of about equal areas
    "M-5 0a5 5 0 1 0 10 0a5 5 0 1 0-10 0z",
    "M-4.5-4.5h9v9h-9z",
    "M0-6L5.5 4.5h-11z",
    "M0-6.2L6.2 0L0 6.2L-6.2 0z",
    "M0 6L5.5-4.5h-11z",
    "M-1.8-5.5h3.6v3.7h3.7v3.6h-3.7v3.7h-3.6v-3.7h-3.7v-3.6h3.7z",
]
DASHES = ["none", "8 4", "2 3", "10 3 2 3"]
MOST_MARKERS = 25  # of one curve; every line has all its points


def shapes() -> str:
    """What the other pictures refer to; once on a page."""
    paths = "".join(f'<path id="shape-{i}" d="{path}"/>' for i, path in enumerate(SHAPES))
    return f'<svg class="shapes" width="0" height="0" aria-hidden="true"><defs>{paths}</defs></svg>'


def mark(system: int) -> str:
    """The sign of a system before its name."""
    return (
        f'<svg class="mark" viewBox="-8 -8 16 16" data-colour="{system % N_COLOURS}" aria-hidden="true">'
        f"{_shape(system)}</svg>"
    )


def bar(system: int, value: float, *, low: float, high: float) -> str:
    """A bar from 0 to `value` on a scale from `low` ≤ 0 to `high` ≥ 0."""
    begin, end = sorted((_percent(0, low, high), _percent(value, low, high)))
    return (
        f'<svg class="bar" data-colour="{system % N_COLOURS}" aria-hidden="true">'
        f'<rect x="{begin:.4g}%" width="{end - begin:.4g}%" height="100%"/></svg>'
    )


def interval(system: int, score: float, ends: tuple[float, float], *, low: float, high: float) -> str:
    """A score in its confidence interval, on a scale from `low` to `high`."""
    begin, end = (_percent(value, low, high) for value in ends)
    return (
        f'<svg class="interval" data-colour="{system % N_COLOURS}" aria-hidden="true">'
        f'<line x1="{begin:.4g}%" x2="{end:.4g}%" y1="50%" y2="50%"/>'
        f"{_shape(system, x=_percent(score, low, high), y=50)}</svg>"
    )


def line_chart(curves: Sequence[Curve], names: Sequence[str], *, label: str) -> str:
    """Dev scores by update. `names` is by system, `label` what a screen reader says of the chart."""
    points = {i: [(x, y) for x, y in curve.points if math.isfinite(y)] for i, curve in enumerate(curves)}
    xs = [x for of_one in points.values() for x, _ in of_one]
    ys = [y for of_one in points.values() for _, y in of_one]
    if not xs:
        return ""
    x_ticks, y_ticks = ticks(0, max(xs)), ticks(min(ys), max(ys))
    right = max(xs[-1], *xs) or 1
    low, high = y_ticks[0], y_ticks[-1]
    parts = []
    for tick in y_ticks:
        y = 100 - _percent(tick, low, high)
        parts.append(f'<line class="grid" x1="0" x2="100%" y1="{y:.4g}%" y2="{y:.4g}%"/>')
        parts.append(f'<text class="y" x="0" y="{y:.4g}%" dx="-8" dy="0.35em">{tick_text(tick, y_ticks)}</text>')
    for tick in x_ticks:
        if tick > right:
            continue
        x = _percent(tick, 0, right)
        parts.append(f'<line class="tick" x1="{x:.4g}%" x2="{x:.4g}%" y1="100%" y2="100%"/>')
        parts.append(f'<text class="x" x="{x:.4g}%" y="100%" dy="1.5em">{tick_text(tick, x_ticks)}</text>')
    for i, curve in enumerate(curves):
        places = [(_percent(x, 0, right), 100 - _percent(y, low, high)) for x, y in points[i]]
        path = " ".join(f"{10 * x:.5g},{10 * y:.5g}" for x, y in places)
        line = f'<polyline points="{path}" stroke-dasharray="{dash(curve.system)}"/>'
        step = max(1, math.ceil(len(places) / MOST_MARKERS))
        markers = [
            f"<g>{_shape(curve.system, x=place[0], y=place[1])}"
            f"<title>{escaped(names[curve.system])}, update {x:,}: {y:.6g}</title></g>"
            for n, (place, (x, y)) in enumerate(zip(places, points[i], strict=True))
            if (len(places) - 1 - n) % step == 0  # the last point always has one
        ]
        parts.append(
            f'<g data-colour="{curve.system % N_COLOURS}"><svg class="line" viewBox="0 0 1000 1000" width="100%"'
            f' height="100%" preserveAspectRatio="none">{line}</svg>{"".join(markers)}</g>'
        )
    return f'<svg class="chart" role="img" aria-label="{escaped(label)}">{"".join(parts)}</svg>'


def line_mark(system: int) -> str:
    """How a system's line looks, for a legend."""
    return (
        f'<svg class="mark wide" viewBox="-16 -8 32 16" data-colour="{system % N_COLOURS}" aria-hidden="true">'
        f'<path class="stroke" d="M-16 0H16" stroke-dasharray="{dash(system)}"/>{_shape(system)}</svg>'
    )


def dash(system: int) -> str:
    return DASHES[system % len(DASHES)]


def ticks(low: float, high: float) -> list[float]:
    """Four to eight round numbers, the first at or below `low`, the last at or above `high`."""
    span = high - low or abs(high) or 1.0
    power = 10 ** math.floor(math.log10(span / 5))
    step = next(factor * power for factor in (1, 2, 5, 10) if span / (factor * power) <= 6)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [n * step for n in range(first, max(last, first + 1) + 1)]


def tick_text(tick: float, of: Sequence[float]) -> str:
    n_decimals = max(0, -math.floor(math.log10(of[1] - of[0]) + 1e-9))
    return f"{tick:,.{n_decimals}f}".replace("-", "\N{MINUS SIGN}")


def _shape(system: int, x: float | None = None, y: float | None = None) -> str:
    place = "" if x is None else f' x="{x:.4g}%" y="{y:.4g}%"'
    return f'<use href="#shape-{system % len(SHAPES)}"{place}/>'


def _percent(value: float, low: float, high: float) -> float:
    return 100 * (value - low) / (high - low) if high > low else 50.0
