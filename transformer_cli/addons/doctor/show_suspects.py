"""`tfm doctor --suspects N`: prints the N pairs of the training text that are most likely wrong."""

import json
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from transformer_cli.addons.doctor.keys import DoctorConfig
from transformer_cli.addons.doctor.suspects import SidePlace, Suspect, Suspects, find_suspects
from transformer_cli.errors import printable
from transformer_cli.logs import LOGGER
from transformer_cli.standard_streams import require_stdout

_SHOWN = 160  # characters of a side


def run(config: DoctorConfig) -> None:
    """Print the suspects to stdout, as text or as JSON, with what was not asked to stderr."""
    require_stdout("what is found")
    assert config.suspects is not None
    found = find_suspects(config.data, config.suspects)
    for warning in found.warnings:
        LOGGER.warning("%s", warning)
    if config.json:
        print(json.dumps(suspects_as_dict(found), indent=2))
    else:
        print("\n".join(suspect_lines(found)))


def suspects_as_dict(found: Suspects) -> dict[str, Any]:
    """Ready for JSON, with the texts whole."""
    return {
        "pairs": found.n_read,
        "found": found.n_found,
        "found_by_filter": found.n_by_filter,
        "suspects": [
            {
                "score": round(suspect.score, 4),
                "source": {**_as_dict(suspect.source), "text": suspect.texts[0]},
                "target": {**_as_dict(suspect.target), "text": suspect.texts[1]},
                "reasons": [asdict(reason) for reason in suspect.reasons],
            }
            for suspect in found.worst
        ],
    }


def suspect_lines(found: Suspects) -> Iterator[str]:
    """The suspects for people: where each is, why it is suspect, and both texts."""
    if not found.n_found:
        yield f"none of {found.n_read:,} training pairs is suspect"
        return
    counts = ", ".join(f"{name} {n:,}" for name, n in found.n_by_filter.items())
    shown = "" if len(found.worst) == found.n_found else f"; the {len(found.worst):,} worst:"
    yield f"{found.n_found:,} of {found.n_read:,} training pairs are suspect ({counts}){shown}"
    for number, suspect in enumerate(found.worst, 1):
        yield ""
        yield f"{number}. {_places(suspect)}"
        for reason in suspect.reasons:
            yield f"   {reason.what} ({reason.filter}, {reason.certainty:.2f})"
        for text in suspect.texts:
            yield f"   | {_shortened(text)}"


def _places(suspect: Suspect) -> str:
    sides = dict.fromkeys((printable(str(suspect.source)), printable(str(suspect.target))))
    return " and ".join(sides)


def _as_dict(place: SidePlace) -> dict[str, Any]:
    return {"file": place.file, place.unit: place.number}


def _shortened(text: str) -> str:
    return printable(text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…", 4 * _SHOWN)
