"""`tfm average`: one model whose weights are the mean of several models' (section 6.1 of the paper)."""

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

from transformer_cli.commands.average.keys import AverageConfig
from transformer_cli.config.compose import to_plain
from transformer_cli.config.fields import keys_of_part, keys_that_affect
from transformer_cli.config.model import ModelConfig
from transformer_cli.decoding.training_text import training_text
from transformer_cli.errors import CheckpointError, ConfigError, EnvironmentFault
from transformer_cli.files import remove_leftovers, resolve_link, wrap_os_errors
from transformer_cli.logs import LOGGER
from transformer_cli.models.ensemble import refuse_unlike
from transformer_cli.models.file import ModelFile, map_model, write_model
from transformer_cli.models.header import MODEL_FILE
from transformer_cli.models.locate import locate_models, newest_run, refuse_export
from transformer_cli.models.runs import run_of
from transformer_cli.training.averaging import average
from transformer_cli.training.checkpoints import CheckpointStore

NOT_OF_THE_WEIGHTS = {*keys_that_affect(ModelConfig, "place"), *keys_of_part(ModelConfig, "training")}

Load = Callable[[], ModelFile]


def run(config: AverageConfig) -> None:
    """Write the average to `config.output`. Raises TfmError, and then writes nothing."""
    sources = checkpoints_of(config) if config.last is not None else models_of(config)
    output = _check_output(config, list(sources))
    model = averaged(sources)
    with wrap_os_errors(output, "save the model"):
        remove_leftovers(resolve_link(output))
        write_model(resolve_link(output), model, replace=config.overwrite)
    LOGGER.info("%s: the average of %d models (%s)", output, len(sources), ", ".join(model.averaged))


def models_of(config: AverageConfig) -> dict[Path, Load]:
    """Each model file that is named, once, and how to read it."""
    paths = locate_models(config.checkpoint, config.runs)
    if len({path.resolve() for path in paths}) < len(paths):
        raise ConfigError("--checkpoint: names one model twice. Name each once")
    if len(paths) < 2:
        raise ConfigError(f"{paths[0]}: one model has no average. Repeat --checkpoint, or add --last N")
    return {path: partial(map_model, path) for path in paths}


def checkpoints_of(config: AverageConfig) -> dict[Path, Load]:
    """The last N checkpoints of a run directory, and how to read each."""
    assert config.last is not None
    if isinstance(config.checkpoint, list):
        raise ConfigError(f"--last {config.last}: of one run, but --checkpoint names several. Name one run directory")
    run_dir = Path(config.checkpoint) if config.checkpoint else newest_run(Path(config.runs))
    refuse_export(run_dir)
    if not run_dir.is_dir():
        raise CheckpointError(f"{run_dir}: no run directory. Name one with --checkpoint")
    store = CheckpointStore(run_dir)
    steps = store.steps()
    if len(steps) < config.last:
        raise ConfigError(f"--last {config.last}: but {run_dir} holds {len(steps)} checkpoints. Lower it")
    return {store.path(step) / MODEL_FILE: partial(store.load_model, step) for step in steps[-config.last :]}


def _check_output(config: AverageConfig, sources: list[Path]) -> Path:
    """Refuse what would fail after the work is done, or destroy a file."""
    if config.output is None:
        raise ConfigError("--output: not given. Name the file for the model")
    output = Path(config.output)
    if output.exists() and any(output.samefile(source) for source in sources):
        raise ConfigError(f"{output}: both a model to average and --output. Choose another --output")
    if output.exists() and not output.is_file():
        raise ConfigError(f"{output}: not a plain file. Choose another --output")
    if output.exists() and not config.overwrite:
        raise ConfigError(f"{output}: exists already. Add --overwrite, or choose another --output")
    folder = resolve_link(output).parent
    if not folder.is_dir() or not os.access(folder, os.W_OK | os.X_OK):
        raise EnvironmentFault(f"{folder}: no such folder, or not one that can be written. Choose another place")
    return output


def averaged(sources: Mapping[Path, Load]) -> ModelFile:
    """The model with the mean of each weight; metadata that is not the same in all of them is left out."""
    models = [load() for load in sources.values()]
    first, first_path = models[0], next(iter(sources))
    for path, model in zip(sources, models, strict=True):
        refuse_unlike(first, first_path, model, path)
        refuse_other_config(first, first_path, model, path)
    has_one_head = len({(model.alignment_head, model.full_context_alignment) for model in models}) == 1
    return replace(
        first,
        weights=average([model.weights for model in models]),
        step=max(model.step for model in models),
        fingerprint=first.fingerprint if len({model.fingerprint for model in models}) == 1 else "",
        data=first.data if all(model.data == first.data for model in models) else {},
        length_penalty=None,  # of other weights
        multi_sentence_share=training_text(models).multi_sentence_share,
        translates_letterless=training_text(models).translates_letterless,
        alignment_head=first.alignment_head if has_one_head else None,
        full_context_alignment=has_one_head and first.full_context_alignment,
        provenance=first.provenance if all(model.provenance == first.provenance for model in models) else {},
        scores={},  # of other weights
        averaged=[f"step {model.step} of {_name(path)}" for path, model in zip(sources, models, strict=True)],
    )


def refuse_other_config(first: ModelFile, first_path: Path, other: ModelFile, path: Path) -> None:
    """Raise CheckpointError for a model that computes something else with its weights."""
    ours, theirs = to_plain(first.config), to_plain(other.config)
    for key, value in theirs.items():
        if value != ours[key] and key not in NOT_OF_THE_WEIGHTS:
            raise CheckpointError(
                f"{path}: model.{key}={value}, but {first_path} has {ours[key]}, so their weights have no mean."
                " Choose models of one config"
            )


def _name(path: Path) -> str:
    """The name of the run that a model belongs to, else of its file, without its path on this machine."""
    run_dir = run_of(path)
    return run_dir.resolve().name if run_dir is not None else path.name
