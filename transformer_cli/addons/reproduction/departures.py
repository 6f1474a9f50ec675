"""What of a reference still applies to a run whose config is not that of the recipe."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from transformer_cli.config.compose import to_plain
from transformer_cli.config.fields import Affects
from transformer_cli.config.options import info_at
from transformer_cli.config.train import TrainConfig
from transformer_cli.training.run_directory import LENGTH, flat
from transformer_cli.training.schedules import ends_at_max_steps

# Where and how fast a run trains, not what; seeds differ by as much as the tolerance says. What an earlier command had
# is no question: a run directory takes no other settings that decide on the weights, unless force=true.
WITHOUT_EFFECT: tuple[Affects, ...] = ("rounding", "speed", "log", "place")


@dataclass(frozen=True)
class Departure:
    """A setting that is not the recipe's, and what of the reference applies in spite of it."""

    setting: str  # key=value
    nll: bool = False  # the curve of the dev NLL
    score: bool = False  # that of the dev score


def departures(config: TrainConfig, recipe: TrainConfig) -> list[Departure]:
    """The departures of `config` from the recipe; none of them leaves the scores of the exported model comparable."""
    mine, theirs = flat(to_plain(config)), flat(to_plain(recipe))
    found = []
    for key in sorted(theirs):
        affects = info_at(config, key).affects
        if mine[key] == theirs[key] or key == "seed" or affects in WITHOUT_EFFECT:
            continue
        goes_on = key in LENGTH and not ends_at_max_steps(config.schedule.name)  # shorter or longer, on the same way
        curve = affects == "export" or goes_on
        found.append(Departure(f"{key}={_written(mine[key])}", nll=curve or affects == "scores", score=curve))
    return found


def grouped_lines(found: Sequence[Departure]) -> list[str]:
    """One line for all settings that have the same consequence."""
    groups: dict[str, list[str]] = {}
    for one in found:
        groups.setdefault(_what_applies(one), []).append(one.setting)
    return [f"{_listed(settings)}: not the recipe; {what}" for what, settings in groups.items()]


def _what_applies(one: Departure) -> str:
    if one.score:
        return "its curve applies, the scores of the exported model do not"
    return "its dev NLL applies, the scores do not" if one.nll else "the curve and the scores do not apply"


def _listed(settings: Iterable[str]) -> str:
    first, rest = list(settings)[:4], list(settings)[4:]
    return ", ".join(first) + (f" and {len(rest)} more" if rest else "")


def _written(value: object) -> str:
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "null"}[value]
    return f"[{','.join(map(_written, value))}]" if isinstance(value, list) else str(value)
