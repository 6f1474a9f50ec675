"""`tfm inspect`: what a model file, a run, a checkpoint or an export says of itself, without torch."""

import json
import sys
from pathlib import Path

from transformer_cli.commands.inspect.keys import InspectConfig
from transformer_cli.errors import printable
from transformer_cli.models.facts import as_text, model_facts
from transformer_cli.models.locate import locate_own_model, place_named
from transformer_cli.models.registries import CARDS, DESCRIBERS, Described
from transformer_cli.standard_streams import require_stdout

_CARD = "markdown"


def run(config: InspectConfig) -> None:
    """Print the facts. Raises TfmError for what is damaged, or not of ours."""
    require_stdout("the facts")
    place, described = described_at(config.checkpoint, config.runs)
    facts = described.facts
    if config.license is not None:
        facts["license"] = config.license
    if config.scores is not None:
        facts["test"] = CARDS[_CARD]().read_scores(Path(config.scores))
    if config.json:
        print(json.dumps({"model": str(place), **facts}, indent=2))
    else:
        if config.card:
            text = CARDS[_CARD]().write(facts, files=facts.get("files")).removesuffix("\n")
        else:
            text = f"{place}\n{as_text(facts, described.rows)}"
        for line in text.split("\n"):
            print(printable(line))  # a file from elsewhere may hold what a terminal would obey
    sys.stdout.flush()


def described_at(checkpoint: str | None, runs: str) -> tuple[Path, Described]:
    """The file or folder that `checkpoint` means, and its description of itself."""
    path = place_named(checkpoint) if checkpoint is not None else None
    if path is not None:
        found = (DESCRIBERS[name](path) for name in DESCRIBERS.names())
        if (described := next(filter(None, found), None)) is not None:
            return path, described
    place = locate_own_model(None if path is None else str(path), runs)
    return place, Described(model_facts(place))
