"""`tfm inspect`: what a model file, a run, a checkpoint or an export says of itself, without torch."""

import json
import sys
import zipfile
from pathlib import Path
from typing import Any

from transformer_cli.addons.interop.export_file import export_facts
from transformer_cli.addons.interop.model_card import as_text, card, checked, model_facts, read_scores
from transformer_cli.commands.inspect.keys import InspectConfig
from transformer_cli.errors import EnvironmentFault, printable
from transformer_cli.files import follow
from transformer_cli.models.locate import EXPORT_FILE, locate_own_model


def run(config: InspectConfig) -> None:
    """Print the facts. Raises TfmError for what is damaged, or not of ours."""
    if sys.stdout is None:
        raise EnvironmentFault("standard output: closed. Open it, for the facts to be printed")
    place, facts = facts_at(config.checkpoint, config.runs)
    if config.license is not None:
        facts["license"] = config.license
    if config.scores is not None:
        facts["test"] = read_scores(Path(config.scores))
    if config.json:
        print(json.dumps({"model": str(place), **facts}, indent=2))
    else:
        text = card(facts, files=facts.get("files")).removesuffix("\n") if config.card else f"{place}\n{as_text(facts)}"
        for line in text.split("\n"):
            print(printable(line))  # a file from elsewhere may hold what a terminal would obey
    sys.stdout.flush()


def facts_at(checkpoint: str | None, runs: str) -> tuple[Path, dict[str, Any]]:
    """Which file or folder `checkpoint` means, and its facts."""
    path = follow(Path(checkpoint)) if checkpoint is not None else None
    if path is not None and ((path / EXPORT_FILE).is_file() or is_archive(path)):
        return path, checked(export_facts(path), path)
    place = locate_own_model(checkpoint, runs)
    return place, model_facts(place)


def is_archive(path: Path) -> bool:
    return path.is_file() and zipfile.is_zipfile(path)
