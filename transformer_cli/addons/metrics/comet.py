"""COMET (Rei et al. 2020): a trained model's scores of translations, by the program comet-score of unbabel-comet.

It runs in a process of its own, with a Python that may have other versions of NumPy and transformers than this one, so
scores are those of its own command. Nothing of it is imported here.
"""

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from transformer_cli.config.comet import CometConfig
from transformer_cli.config.train import Device
from transformer_cli.data.hashes import file_sha256
from transformer_cli.errors import CheckpointError, ConfigError, EnvironmentFault, quoted
from transformer_cli.evaluation.metrics import (
    MetricSettings,
    MetricUnavailable,
    Score,
    SentenceScores,
    Translations,
    check_line_counts,
)
from transformer_cli.logs import LOGGER

DIGITS = 4  # as comet-score prints them
_CHECKPOINT = Path("checkpoints", "model.ckpt")  # in the folder of a COMET model, beside hparams.yaml

# Run by the Python that has COMET: its version, and the checkpoint, read once by the loader that refuses code.
_PROBE = """
import json, os, sys

def answer(**found):
    print("\\n" + json.dumps(found))
    sys.exit()

from importlib.metadata import PackageNotFoundError, version
try:
    found = version("unbabel-comet")
except PackageNotFoundError:
    answer(fault="absent")
try:
    import comet, torch
except Exception as error:
    answer(fault="broken", why=f"{type(error).__name__}: {error}")
path, trusted = sys.argv[1], sys.argv[2] == "trusted"
if not os.path.isfile(path):
    try:
        path = comet.download_model(path)
    except Exception as error:
        answer(fault="download", why=str(*error.args[:1]))
if not trusted:
    try:
        torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        answer(fault="code" if type(error).__name__ == "UnpicklingError" else "damaged", why=str(error))
answer(version=found, path=os.path.abspath(path), gpu=torch.cuda.is_available())
"""


@dataclass(frozen=True)
class CometSettings:
    """What COMET is run by: the keys of the group `comet`, and the device."""

    model: str = CometConfig.model
    python: str | None = None
    trust: bool = False
    device: Device = Device.auto  # auto: a GPU of CUDA, where COMET's Python sees one

    @classmethod
    def of(cls, settings: MetricSettings) -> "CometSettings":
        if settings.config is None:
            return cls()
        keys: CometConfig = settings.config.comet
        return cls(keys.model, keys.python, keys.trust, settings.config.device)


@dataclass(frozen=True)
class CometModel:
    """A checkpoint that can be used."""

    path: Path
    version: str  # of unbabel-comet
    sha256: str
    has_gpu: bool  # whether COMET's Python sees one


def comet(translations: Translations, settings: MetricSettings) -> list[Score]:
    """The mean of the scores of the lines, as `comet-score` has it. Raises what `segments` does."""
    scores = sentences(translations, settings)
    return [Score(scores.name, sum(scores.values) / len(scores.values), scores.signature, digits=DIGITS)]


def sentences(translations: Translations, settings: MetricSettings) -> SentenceScores:
    """The score of each line.

    Raises MetricUnavailable for several references, ConfigError without sources or for a model that is not there,
    CheckpointError for one that cannot be read, EnvironmentFault where COMET or its model cannot be had.
    """
    check_line_counts(translations.hypotheses, translations.references)
    if len(translations.sources) != len(translations.hypotheses):
        raise ConfigError("metrics=comet: reads the source, too, and there is none. Name it with --source")
    if len(translations.references) > 1:
        raise MetricUnavailable("COMET", f"takes one reference, and there are {len(translations.references)}")
    given = (translations.sources, translations.hypotheses, translations.references[0])
    own = CometSettings.of(settings)
    values = segments(*map(tuple, given), own)
    model = model_of(own)
    name = quoted(own.model, 200)[1:-1] if is_name(own) else model.path.parents[1].name
    signature = f"nrefs:1|model:{name}|sha256:{model.sha256[:12]}|version:{model.version}"
    return SentenceScores("COMET", values, signature)


@lru_cache(maxsize=8)  # the scores of the lines and their mean are asked for one after the other
def segments(
    sources: tuple[str, ...], hypotheses: tuple[str, ...], references: tuple[str, ...], settings: CometSettings
) -> tuple[float, ...]:
    """The scores of lines by `comet-score`. Raises what `model_of` does, and EnvironmentFault where it fails."""
    model = model_of(settings)
    LOGGER.info("COMET scores %s lines", f"{len(hypotheses):,}")
    with tempfile.TemporaryDirectory(prefix="tfm-comet-") as name:
        folder = Path(name)
        for file, lines in (("src", sources), ("mt", hypotheses), ("ref", references)):
            # It takes a carriage return for the end of a line, and other white space at either end off.
            text = "".join(line.replace("\r", " ").replace("\n", " ") + "\n" for line in lines)
            (folder / file).write_text(text, encoding="utf-8")
        options = ["-s", "src", "-t", "mt", "-r", "ref", "--model", str(model.path), "--to_json", "scores.json"]
        n_gpus = "1" if model.has_gpu and settings.device in (Device.auto, Device.cuda) else "0"
        done = _python(settings, "-m", "comet.cli.score", *options, "--quiet", "--gpus", n_gpus, cwd=folder)
        try:
            listed = json.loads((folder / "scores.json").read_text(encoding="utf-8"))["mt"]
            values = tuple(float(one["COMET"]) for one in listed)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise EnvironmentFault(f"metrics=comet: comet-score failed ({_last_line(done)}). {_TRY}") from error
    if len(values) != len(hypotheses):
        raise EnvironmentFault(f"metrics=comet: comet-score scored {len(values)} lines of {len(hypotheses)}. {_TRY}")
    return values


_TRY = "Try comet-score by itself with the same model"


@cache
def model_of(settings: CometSettings) -> CometModel:
    """The checkpoint that `comet.model` means, downloaded if it is a name.

    Raises ConfigError for one that is not there, CheckpointError for one that is damaged, or could run code and is not
    trusted, EnvironmentFault where COMET is not installed or the model cannot be downloaded.
    """
    path = Path(settings.model)
    if path.is_dir():
        path = path / _CHECKPOINT
    path = path if is_name(settings) else path.resolve()
    if not is_name(settings):
        if not path.is_file():
            raise ConfigError(
                f"comet.model={path}: no such file. Give the path of a checkpoint, as NAME/{_CHECKPOINT.as_posix()}, or"
                " a name, as Unbabel/wmt22-comet-da"
            )
        if not (path.parents[1] / "hparams.yaml").is_file():
            raise CheckpointError(
                f"{path}: without its hparams.yaml, which COMET reads from {path.parents[1]}. Copy it there"
            )
    done = _python(settings, "-c", _PROBE, str(path), "trusted" if settings.trust else "untrusted", cwd=None)
    try:
        found: dict[str, Any] = json.loads(done.stdout.strip().split("\n")[-1])
    except ValueError as error:
        raise EnvironmentFault(
            f"metrics=comet: {_last_line(done)}. Check comet.python={_interpreter(settings)}"
        ) from error
    if fault := found.get("fault"):
        _refuse(fault, _one_line(str(found.get("why", ""))), path, settings)
    path = Path(found["path"])
    return CometModel(path, found["version"], file_sha256(path), found["gpu"])


def is_name(settings: CometSettings) -> bool:
    """Whether the model is one to download: neither there, nor called as a checkpoint or a path."""
    path = Path(settings.model)
    looks_like_a_path = path.suffix == ".ckpt" or path.is_absolute() or settings.model.startswith(".")
    return not (looks_like_a_path or path.exists()) and settings.model.count("/") <= 1


def _refuse(fault: str, why: str, path: Path, settings: CometSettings) -> None:
    if fault == "absent":
        raise EnvironmentFault(
            f"metrics=comet: the package unbabel-comet is not installed for {_interpreter(settings)}."
            " Install it in an environment of its own (docs/evaluating.md#comet), and name its Python by --comet-python"
        )
    if fault == "broken":
        raise EnvironmentFault(f"metrics=comet: unbabel-comet cannot be imported ({why}). Install it anew")
    if fault == "download":
        raise EnvironmentFault(
            f"comet.model={settings.model}: neither a file, nor downloaded ({why}). Check its name, the network, and"
            " whether you may download it; or give the path of a checkpoint"
        )
    if fault == "code":
        raise CheckpointError(
            f"{path}: needs to unpickle objects that can run code, and was not read. If you trust where it is from, add"
            " --trust-comet-model"
        )
    raise CheckpointError(f"{path}: damaged, or not a COMET model ({why}). Copy it again")


def _interpreter(settings: CometSettings) -> str:
    """The Python of COMET; its own links stay, as through them a Python finds its environment."""
    if settings.python is None:
        return sys.executable
    return os.path.abspath(settings.python) if os.path.dirname(settings.python) else settings.python


def _python(settings: CometSettings, *arguments: str, cwd: Path | None) -> subprocess.CompletedProcess[str]:
    """Runs the Python that has COMET. Raises EnvironmentFault where there is none."""
    environment = dict(os.environ)
    if settings.python is not None:  # what is meant for ours
        environment = {name: value for name, value in environment.items() if not name.startswith("PYTHON")}
    environment |= {"PYTHONUTF8": "1", "PYTHONWARNINGS": "ignore", "TOKENIZERS_PARALLELISM": "false"}
    # torch.load obeys these, whatever it is called with.
    environment.pop("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", None)
    environment.pop("TORCH_FORCE_WEIGHTS_ONLY_LOAD", None)
    environment["TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD" if settings.trust else "TORCH_FORCE_WEIGHTS_ONLY_LOAD"] = "1"
    try:
        return subprocess.run(
            [_interpreter(settings), *arguments],
            cwd=cwd,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            check=False,
        )
    except OSError as error:
        raise EnvironmentFault(
            f"comet.python={_interpreter(settings)}: cannot be run ({error.strerror}). Name a Python that has the"
            " package unbabel-comet"
        ) from error


def _last_line(done: subprocess.CompletedProcess[str]) -> str:
    lines = [line for line in done.stderr.split("\n") if line.strip()]
    return _one_line(lines[-1]) if lines else f"exit status {done.returncode}"


def _one_line(text: str) -> str:
    return quoted(" ".join(text.split()), 200)[1:-1].rstrip(".")
