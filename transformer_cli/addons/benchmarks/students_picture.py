"""The picture of `tfm bench students`: quality against speed, by matplotlib. Raises EnvironmentFault without it."""

import io
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from transformer_cli.errors import ConfigError
from transformer_cli.extras import imported
from transformer_cli.files import write_whole

if TYPE_CHECKING:
    from transformer_cli.addons.benchmarks.students import Contender

FORMS = (".png", ".svg")


def check_picture(path: Path) -> None:
    """Raise ConfigError for another format, and EnvironmentFault where matplotlib is not installed."""
    if path.suffix not in FORMS:
        raise ConfigError(f"picture={path}: no picture by its name. Name a file .png or .svg")
    imported("matplotlib", needs="picture=")


def draw(contenders: Sequence["Contender"], path: Path) -> None:
    """A point for each row with one thread: BLEU over source tokens a second; a line joins the Pareto front."""
    from matplotlib.figure import Figure

    shown = [one for one in contenders if one.threads == 1 and one.bleu is not None]
    figure = Figure(figsize=(9, 6), layout="constrained")
    axes = figure.subplots()
    for model in dict.fromkeys(one.model for one in shown):
        speeds, scores = _points([one for one in shown if one.model == model])
        axes.scatter(speeds, scores, label=model)
    for one in shown:
        place = one.speed.median, one.bleu or 0.0
        axes.annotate(f"{one.engine}, {one.search}", place, xytext=(4, 4), textcoords="offset points", fontsize=8)
    front = sorted((one for one in shown if one.is_best), key=lambda one: one.speed.median)
    axes.plot(*_points(front), linestyle=":", color="black", zorder=0)
    axes.set_xscale("log")
    axes.set_xlabel("source tokens a second, one core")
    axes.set_ylabel("BLEU")
    axes.grid(visible=True, alpha=0.3)
    axes.legend(title="dotted: the Pareto front")
    picture = io.BytesIO()
    figure.savefig(picture, format=path.suffix.removeprefix("."), dpi=150)
    write_whole(path, picture.getvalue())


def _points(contenders: Sequence["Contender"]) -> tuple[list[float], list[float]]:
    return [one.speed.median for one in contenders], [one.bleu or 0.0 for one in contenders]
