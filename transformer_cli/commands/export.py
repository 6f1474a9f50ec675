"""`tfm export`: a trained model for CTranslate2 or for Hugging Face transformers, verified before it is published."""

import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

from transformer_cli.config.commands import ExportConfig, ExportFormat, Quantization
from transformer_cli.data.corpus import load_text
from transformer_cli.errors import CheckpointError, ConfigError, EnvironmentFault, TfmError
from transformer_cli.extras import imported
from transformer_cli.interop import ctranslate2, huggingface
from transformer_cli.interop.exported import facts_of, sha256_of
from transformer_cli.interop.locate import locate_model
from transformer_cli.interop.publish import check, publishing
from transformer_cli.interop.verify import N_LINES, Program, made_up, verify
from transformer_cli.logs import LOGGER
from transformer_cli.models.file import ModelFile, read_model
from transformer_cli.training.checkpoints import CHECKPOINTS
from transformer_cli.training.run_directory import CONFIG_FILE, read_config, run_of

PACKAGES = {ExportFormat.ctranslate2: "ctranslate2", ExportFormat.huggingface: "transformers"}


def run(config: ExportConfig) -> None:
    """Write `config.output`, and print what was compared. Raises TfmError, and then leaves no trace."""
    if sys.stdout is None:
        raise EnvironmentFault("standard output: closed. Open it, for what was compared to be printed")
    if config.format is None:
        raise ConfigError(f"tfm export: no format given. Name one: {' or '.join(form.name for form in ExportFormat)}")
    if config.output is None:
        raise ConfigError("--output: not given. Name the folder for the model")
    if isinstance(config.checkpoint, list):
        raise ConfigError(
            "--checkpoint: names several, and an export holds one model. Name one; `tfm average` makes one of several"
        )
    output, package = Path(config.output), PACKAGES[config.format]
    refuse_checkpoints(output)
    check(output, overwrite=config.overwrite)
    imported(package, needs=f"tfm export {config.format.name}")
    path = locate_model(config.checkpoint, config.runs)
    model = read_model(path)
    lines, whose = text_for(model, path)
    is_float32 = config.quantization is Quantization.float32
    facts = facts_of(model, sha256_of(path), program=config.format.name, max_positions=max_positions(model, config))
    facts |= {"library": f"{package} {version(package)}", "quantization": config.quantization.name}
    with publishing(output, facts, overwrite=config.overwrite) as folder:
        verdict = verify(model, write(model, folder, config), lines, is_float32=is_float32)
        facts["verified"] = {"text": whose, **verdict.as_dict()}
        if not verdict.holds:
            raise CheckpointError(
                f"{path}: does not say the same in {package} {version(package)}, so nothing was written"
                f" ({'; '.join(verdict.lines_of_text())}). Please report it, with the model's config"
            )
    print(f"{output}: {path}, for {package} {version(package)}, {config.quantization.name}")
    print(f"compared on {verdict.lines} lines of {whose}")
    print("\n".join(verdict.lines_of_text()), flush=True)


def refuse_checkpoints(output: Path) -> None:
    """Raise ConfigError for a place in a run that is tidied up by the run itself."""
    parent = output.absolute().parent.resolve()
    if any(
        folder.name == CHECKPOINTS and (folder.parent / CONFIG_FILE).is_file() for folder in [parent, *parent.parents]
    ):
        raise ConfigError(f"{output}: is among the checkpoints of a run, which come and go. Choose another --output")


def write(model: ModelFile, folder: Path, config: ExportConfig) -> Program:
    """Into `folder`; returns what a user of that library would load from there."""
    if config.format is ExportFormat.huggingface:
        huggingface.write(model, folder)
        return huggingface.Loaded(folder)
    ctranslate2.convert(model, folder, quantization=config.quantization.name)
    return ctranslate2.Loaded(folder, model.tokenizers)


def max_positions(model: ModelFile, config: ExportConfig) -> int | None:
    if config.format is ExportFormat.huggingface:
        return huggingface.max_positions(model.config)
    return ctranslate2.max_positions(model.config)


def text_for(model: ModelFile, path: Path) -> tuple[Sequence[str], str]:
    """The first lines of the run's dev text where its files are at hand, else made-up ones; and what they are."""
    run_dir = run_of(path)
    try:
        text = load_text(read_config(run_dir).data, "dev") if run_dir is not None else None
    except (TfmError, OSError) as error:
        LOGGER.info("the dev text of the run is not at hand (%s)", error)
        text = None
    lines = [line for line in text.sources if line.strip()][:N_LINES] if text is not None else []
    return (lines, "the run's dev text") if lines else (made_up(model.tokenizers.source), "random pieces")
