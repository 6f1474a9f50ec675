"""Finds the model file that a `--checkpoint` means: of a file, a checkpoint, a run, or the newest finished run."""

import json
import math
import re
from pathlib import Path

from transformer_cli.config.shared import ENGINES
from transformer_cli.errors import CheckpointError, quoted
from transformer_cli.files import follow
from transformer_cli.logs import LOGGER
from transformer_cli.models.header import MALFORMED, MODEL_FILE
from transformer_cli.models.registries import ADDRESSES, FOREIGN_MODELS, Address

LATEST = "latest"  # the link to the run that was finished last
RESULT_FILE, STATE_FILE = "result.json", "state.json"  # of a finished run; of a checkpoint
EXPORT_FILE = "export.json"  # of what `tfm export` wrote
ROBUSTNESS_FILE = "robustness.json"  # beside the model of a run: the table of `addons.robustness`
EXPORTED_FILES = ("model.bin", MODEL_FILE)
_OF_RUNS = ("config.yaml", "tfm.log", "checkpoints")  # one of them is in a run directory that has no model yet
_OWNED = re.compile(r"[\w.-]+/[\w.-]+")  # how sites of models name them: OWNER/NAME
_OURS = b'{"__metadata__":{"tfm":'  # begins a model file of ours, after eight bytes with a length


def address_in(name: str | Path) -> tuple[Address, str] | None:
    """What knows the scheme of an address, and what follows the scheme; None for a path."""
    scheme, colon, rest = str(name).partition(":")
    return (ADDRESSES[scheme], rest) if colon and scheme in ADDRESSES else None


def place_named(name: str | Path) -> Path:
    """The file or folder that a name means: a path, or an address, whose model is fetched where it is not kept."""
    found = address_in(name)
    return follow(Path(name)) if found is None else found[0].model(found[1])


def locate_models(checkpoint: str | list[str] | None, runs: str) -> list[Path]:
    """The model file of each that `--checkpoint` names: several are an ensemble."""
    names = checkpoint if isinstance(checkpoint, list) else [checkpoint]
    return [locate_model(name, runs) for name in names]


def locate_model(checkpoint: str | None, runs: str) -> Path:
    """The file that `locate_own_model` finds, or the one that FOREIGN_MODELS makes of another program's model.

    Raises TfmError where that cannot be, or where the file would not predict what the original does.
    """
    if checkpoint is not None:
        path = place_named(checkpoint)
        if path.exists() and not is_own_model(path):
            converted = (FOREIGN_MODELS[name](path) for name in FOREIGN_MODELS.names())
            if (model := next(filter(None, converted), None)) is not None:
                return model
    return locate_own_model(checkpoint, runs)


def locate_own_model(checkpoint: str | None, runs: str) -> Path:
    """What `--checkpoint` means: a model file, or that of a checkpoint or run directory; unset, of the newest run.

    Unset, only a finished run counts: a model must not change because another run has begun. In a run directory that
    is named, the finished model comes first, then the best checkpoint, then the newest one. One line of the log names
    the run that is chosen, or says that the named one is unfinished.
    """
    path = place_named(checkpoint) if checkpoint is not None else Path(runs) / LATEST
    if checkpoint is None or (path.name == LATEST and not path.exists()):
        return newest_run(path.parent) / MODEL_FILE
    model = model_at(path)
    if (path / "checkpoints").is_dir() and (model.parent != path or _goes_on(path)):
        LOGGER.warning("%s: %s. Using %s", path, progress_of(path), model)
    return model


def named_path(checkpoint: str | list[str] | None, model: Path) -> Path:
    """What the user has named where the (first) model file, `model`, was made of another program's; else the file."""
    first = checkpoint[0] if isinstance(checkpoint, list) else checkpoint
    origin = None if first is None else place_named(first).resolve()
    return model if origin is None or not origin.exists() or is_own_model(origin) else origin


def is_own_model(path: Path) -> bool:
    """Whether a file begins as our model files do, or a folder holds one."""
    file = model_in(path) if path.is_dir() else path
    if file is None or not file.is_file():
        return False
    try:
        with file.open("rb") as content:
            return content.read(8 + len(_OURS)).endswith(_OURS)
    except OSError:
        return True  # and refused where it is read


def model_at(path: Path) -> Path:
    """The model file that a path means, a file or a folder. Raises CheckpointError."""
    refuse_export(path)
    if path.is_dir():
        model = model_in(path)
        if model is None:
            raise CheckpointError(f"{path}: {_without_model(path)}")
        return model
    if path.exists():
        return path
    is_owned = _OWNED.fullmatch(path.as_posix()) and not path.parent.is_dir()
    addresses = "".join(f", or write {scheme}:{path}" for scheme in ADDRESSES) if is_owned else ""
    raise CheckpointError(f"{path}: no such file or folder. Check --checkpoint{addresses}")


def _without_model(folder: Path) -> str:
    """What a folder without a model is, and what to do."""
    runs = [path for path in sorted(folder.glob("[!.]*")) if path.is_dir() and model_in(path) is not None]
    if runs:
        newest = folder / LATEST if folder / LATEST in runs else runs[-1]
        return f"holds runs or checkpoints, and is none itself. Choose one of them, as {newest}"
    if any(folder.iterdir()) and not any((folder / name).exists() for name in _OF_RUNS):
        return f"is no run directory, and holds no {MODEL_FILE}. Choose another"
    return "holds no model yet. Wait for its first checkpoint, or choose another"


def newest_run(runs: Path) -> Path:
    """The run that was finished last: `<runs>/latest`, else that of the newest model file. The log names it.

    Raises CheckpointError if no run is finished, naming the newest that is not.
    """
    run = _linked_run(runs) or _newest_by_age(runs)
    LOGGER.info("using %s, %s", run, progress_of(run))
    return run


def _linked_run(runs: Path) -> Path | None:
    """The finished run that `latest` leads to, by its own name, which stays where the link is moved meanwhile."""
    linked = follow(runs / LATEST)
    if not (linked / MODEL_FILE).is_file() or exported_for(linked) is not None:
        return None
    own = runs / linked.resolve().name
    return own if own.exists() and own.samefile(linked) else linked


def _newest_by_age(runs: Path) -> Path:
    latest = runs / LATEST
    folders = [path for path in sorted(runs.glob("[!.]*")) if path != latest and exported_for(path) is None]
    models = {path: model for path in folders if path.is_dir() and (model := model_in(path)) is not None}
    if not models:
        raise CheckpointError(f"{latest}: no trained model. Train one with `tfm train`, or name one with --checkpoint")

    def age(path: Path) -> tuple[int, str]:
        return models[path].stat().st_mtime_ns, path.name  # a clock may have stood still

    finished = [path for path, model in models.items() if model.parent == path]
    if finished:
        return max(finished, key=age)
    newest = max(models, key=age)
    raise CheckpointError(
        f"{runs}: no run is finished. {newest} is {progress_of(newest)}: wait for its end, or use what it has with"
        f" --checkpoint {newest}"
    )


def progress_of(run: Path) -> str:
    """How far a run has come, for a line of the log: `unfinished, step 2 of 30`, `finished at step 30`."""
    step, goal = _newest_step(run), _goal(run)
    reached = "" if step is None else f"step {step}" if goal is None else f"step {step} of {goal}"
    if not (run / MODEL_FILE).is_file():
        return f"unfinished, {reached}" if reached else "unfinished"
    ended = finished_at(run)
    if ended is None:
        return "finished"
    return f"finished at step {ended}" + (f", and now goes on, {reached}" if _goes_on(run) else "")


def finished_at(run: Path) -> int | None:
    """The last step of a finished run, by its result."""
    try:
        file = run / RESULT_FILE
        return int(json.loads(file.read_bytes())["step"]) if file.is_file() else None
    except (OSError, *MALFORMED):
        return None


def _goes_on(run: Path) -> bool:
    """Whether a finished run has been trained further, and is not finished anew."""
    step, ended = _newest_step(run), finished_at(run)
    return step is not None and ended is not None and step > ended


def _newest_step(run: Path) -> int | None:
    return max((int(step) for path in run.glob("checkpoints/step-*") if (step := _step_of(path)) >= 0), default=None)


def _goal(run: Path) -> int | None:
    """The last update that a run is to make, by its newest checkpoint."""
    step = _newest_step(run)
    try:
        file = run / f"checkpoints/step-{step:08d}" / STATE_FILE
        return int(json.loads(file.read_bytes())["state"]["config"]["train"]["max_steps"]) if file.is_file() else None
    except (OSError, *MALFORMED):
        return None


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
            is_run = program in ENGINES.names()
            users = "only `tfm translate` and `tfm evaluate` use, alone" if is_run else "tfm does not run"
            raise CheckpointError(
                f"{folder}: was exported for {quoted(program)[1:-1]}, which {users}."
                " Choose the run or the model file that it was made from"
            )


def _step_of(folder: Path) -> float:
    digits = folder.name.removeprefix("step-")
    return int(digits) if digits.isdecimal() else -math.inf
