"""The picture of `tfm bench students`: quality against speed, by matplotlib. Raises EnvironmentFault without it."""

import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from transformer_cli.errors import ConfigError
from transformer_cli.extras import imported
from transformer_cli.files import write_whole
from transformer_cli.text_io import check_output

FORMS = (".png", ".svg", ".pdf")


@dataclass(frozen=True)
class StudentPoint:
    """A model by an engine and a search."""

    model: str
    label: str
    tokens_per_s: float
    bleu: float
    is_best: bool  # of the Pareto front


def check_picture(path: Path) -> None:
    """Raise ConfigError for another format, EnvironmentFault without the folder or without matplotlib."""
    if path.suffix not in FORMS:
        raise ConfigError(f"picture={path}: no picture by its name. Name a file .png, .svg or .pdf")
    check_output(path, "picture", {}, overwrite=True)
    imported("matplotlib", needs="picture=")


def draw_students(points: Sequence[StudentPoint], path: Path) -> None:
    """A point for each row with one thread: BLEU over source tokens a second; a line joins the Pareto front."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 6), layout="constrained")
    axes = figure.subplots()
    for model in dict.fromkeys(point.model for point in points):
        axes.scatter(*_places([point for point in points if point.model == model]), label=model)
    for point in points:
        place = point.tokens_per_s, point.bleu
        axes.annotate(point.label, place, xytext=(4, 4), textcoords="offset points", fontsize=8)
    front = sorted((point for point in points if point.is_best), key=lambda point: point.tokens_per_s)
    axes.plot(*_places(front), linestyle=":", color="black", zorder=0)
    axes.set_xscale("log")
    axes.set_xlabel("source tokens a second, one core")
    axes.set_ylabel("BLEU")
    axes.grid(visible=True, alpha=0.3)
    axes.margins(x=0.12)
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.xaxis.set_minor_formatter("{x:,.0f}")
    figure.legend(title="dotted: the Pareto front", loc="outside upper left", ncols=2)
    picture = io.BytesIO()
    with rc_context({"pdf.fonttype": 42}):  # publishers refuse those of type 3, the default
        figure.savefig(picture, format=path.suffix.removeprefix("."), dpi=150)
    write_whole(path, picture.getvalue())


def _places(points: Sequence[StudentPoint]) -> tuple[list[float], list[float]]:
    return [point.tokens_per_s for point in points], [point.bleu for point in points]
