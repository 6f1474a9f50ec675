"""Which model file a `--checkpoint` means: of a file, a checkpoint, a run, or the newest run."""

import json
import math
from pathlib import Path

from transformer_cli.errors import CheckpointError, quoted
from transformer_cli.files import follow
from transformer_cli.logs import LOGGER
from transformer_cli.models.header import MALFORMED, MODEL_FILE

EXPORT_FILE = "export.json"  # of what `tfm export` wrote
ROBUSTNESS_FILE = "robustness.json"  # beside the model of a run: the table of `evaluation.robustness`
EXPORTED_FILES = ("model.bin", MODEL_FILE)


def locate_models(checkpoint: str | list[str] | None, runs: str) -> list[Path]:
    """The model file of each that `--checkpoint` names: several are an ensemble."""
    names = checkpoint if isinstance(checkpoint, list) else [checkpoint]
    return [locate_model(name, runs) for name in names]


def locate_model(checkpoint: str | None, runs: str) -> Path:
    """What `--checkpoint` means: a model file, or that of a checkpoint or run directory; unset, of the newest run.

    In a run directory the finished model comes first, then the best checkpoint, then the newest one.
    """
    path = follow(Path(checkpoint)) if checkpoint is not None else newest_run(Path(runs))
    refuse_export(path)
    if path.is_dir():
        model = model_in(path)
        if model is None:
            raise CheckpointError(f"{path}: holds no model yet. Wait for its first checkpoint, or choose another")
        return model
    if path.exists():
        return path
    raise CheckpointError(f"{path}: no such file or folder. Check --checkpoint")


def newest_run(runs: Path) -> Path:
    """`<runs>/latest`; where that leads to no model, the run whose model file is the newest, with a line in the log.

    Raises CheckpointError if no run has a model.
    """
    latest = runs / "latest"
    newest = follow(latest)
    if newest.is_dir() and model_in(newest) is not None:
        return newest
    folders = [path for path in sorted(runs.glob("[!.]*")) if path != latest and exported_for(path) is None]
    written = {path: model.stat().st_mtime_ns for path in folders if (model := model_in(path)) is not None}
    if not written:
        raise CheckpointError(f"{latest}: no trained model. Train one with `tfm train`, or name one with --checkpoint")
    newest = max(written, key=lambda path: (written[path], path.name))  # a clock may have stood still
    LOGGER.info("%s: leads to no model; using %s, which has the newest of the others", latest, newest)
    return newest


def model_in(folder: Path) -> Path | None:
    """The model file of a run directory or a checkpoint, if it has one."""
    newest = sorted(folder.glob("checkpoints/step-*"), key=_step_of, reverse=True)
    models = (place / MODEL_FILE for place in (folder, follow(folder / "best"), *newest))
    return next((model for model in models if model.is_file()), None)


def exported_for(folder: Path) -> str | None:
    """The program that a folder of `tfm export` was written for; None for any other folder."""
    try:
        file = folder / EXPORT_FILE
        return str(json.loads(file.read_bytes())["program"]) if file.is_file() else None  # a pipe would keep us waiting
    except (OSError, *MALFORMED):
        return None


def refuse_export(path: Path) -> None:
    """Raise CheckpointError for a folder, or a file in it, that `tfm export` wrote: it is no model file of ours."""
    folder = path if path.is_dir() else path.parent
    if folder is path or path.name in EXPORTED_FILES:
        program = exported_for(folder)
        if program is not None:
            users = (
                "only `tfm translate` and `tfm evaluate` use, alone" if program == "ctranslate2" else "tfm does not run"
            )
            raise CheckpointError(
                f"{folder}: was exported for {quoted(program)[1:-1]}, which {users}."
                " Choose the run or the model file that it was made from"
            )


def _step_of(folder: Path) -> float:
    digits = folder.name.removeprefix("step-")
    return int(digits) if digits.isdecimal() else -math.inf
