"""`tfm export`: a trained model for another program, verified before it is published."""

from collections.abc import Sequence
from dataclasses import replace
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path

from transformer_cli.addons.interop.export_file import listed_files
from transformer_cli.addons.interop.exported import facts_of
from transformer_cli.addons.interop.keys import ExportConfig
from transformer_cli.addons.interop.model_card import CARD, card, read_scores
from transformer_cli.addons.interop.publish import check_destination, publishing
from transformer_cli.addons.interop.registries import EXPORTERS
from transformer_cli.addons.interop.robustness_card import robustness_beside
from transformer_cli.addons.interop.verify import in_all_languages, made_up
from transformer_cli.addons.tagging.words import join_words
from transformer_cli.config.checks import check_choice
from transformer_cli.config.options import checked_options
from transformer_cli.data.corpus import load_text
from transformer_cli.data.hashes import file_sha256
from transformer_cli.data.tags import split_tags, with_tags
from transformer_cli.decoding.training_text import training_text
from transformer_cli.errors import CheckpointError, ConfigError, TfmError
from transformer_cli.extras import imported
from transformer_cli.logs import LOGGER
from transformer_cli.models.file import ModelFile, read_model, refuse_plugin, require
from transformer_cli.models.locate import locate_model
from transformer_cli.models.runs import CONFIG_FILE, read_config, run_of
from transformer_cli.standard_streams import require_stdout
from transformer_cli.training.checkpoints import CHECKPOINTS_FOLDER


def run(config: ExportConfig) -> None:
    """Write `config.output`, and print what was compared. Raises TfmError, and then leaves no trace."""
    require_stdout("what was compared")
    if config.format is None:
        names = EXPORTERS.names()
        raise ConfigError(f"tfm export: no format given. Name one: {', '.join(names[:-1])} or {names[-1]}")
    check_choice("format", config.format, EXPORTERS.names())  # now that plugins are imported
    config.check_own_keys()
    options = checked_options(EXPORTERS, config.format, config.options)
    if config.output is None:
        raise ConfigError("--output: not given. Name the folder for the model")
    if isinstance(config.checkpoint, list):
        raise ConfigError(
            "--checkpoint: names several, and an export holds one model. Name one; `tfm average` makes one of several"
        )
    output, form = Path(config.output), EXPORTERS[config.format]
    pack = form.pack if form.suffix is not None and output.name.endswith(form.suffix) else None
    refuse_checkpoints(output)
    check_destination(output, overwrite=config.overwrite, is_file=pack is not None)
    test = read_scores(Path(config.scores)) if config.scores is not None else None
    for package in form.packages:
        imported(package, needs=f"tfm export {config.format}")
    path = locate_model(config.checkpoint, config.runs)
    model = read_model(path)
    check_kind(model, path, config.format)
    refuse_plugin(model, path, program=f"tfm export {config.format}")
    if form.takes_tags:
        lines, whose = text_for(model, path, form.n_lines)
        known = model.tokenizers.source.tags
        if model.tokenizers.source.languages:
            lines = in_all_languages(lines, model.tokenizers.source)
        elif known:
            lines = [with_tags(line, known[i % len(known)], known) for i, line in enumerate(lines)]
    else:
        instead = "Use `tfm export huggingface` or `tfm export ctranslate2`"
        refuse_tags(model, f"tfm export {config.format}", instead)
        lines, whose = text_without_tags(model, path, form.n_lines)
    facts = facts_of(model, file_sha256(path), program=config.format, max_positions=form.max_positions(model.config))
    library = f"{form.packages[0]} {version(form.packages[0])}"
    quantization = form.quantization or config.quantization.name
    facts |= {"library": library, "quantization": quantization, "license": config.license, "test": test}
    facts["robustness"] = robustness_beside(path, facts["model_sha256"])
    with publishing(output, facts, overwrite=config.overwrite, pack=pack) as folder:
        program = form.write_with(model, folder, replace(config, options=options), lines)
        verdict = form.verify(model, program, lines, config)
        facts["verified"] = {"text": whose, **verdict.as_dict()}
        if not verdict.holds:
            raise CheckpointError(
                f"{path}: does not say the same in {library}, so nothing was written"
                f" ({'; '.join(verdict.lines_of_text())}). Please report it, with the model's config"
            )
        text = card(facts, files=listed_files(folder), verified=verdict.lines_of_text())
        (folder / CARD).write_bytes(text.encode(errors="backslashreplace"))  # a corpus may have any name
    print(f"{output}: {path}, for {library}, {quantization}")
    print(f"compared on {verdict.lines} lines of {whose}")
    print("\n".join(verdict.lines_of_text()), flush=True)
    if (own := model.length_penalty) is not None:
        LOGGER.warning(
            "%s: has a length penalty of its own, %g, which is not in this format. %s",
            path,
            own,
            form.length.format(own=own),
        )


def check_kind(model: ModelFile, path: Path, name: str) -> None:
    """Raise CheckpointError for a model of a kind that the format does not have, with those that have it."""
    kinds, task = EXPORTERS[name].kinds, model.task
    if model.kind in kinds:
        return
    others = [f"`tfm export {other}`" for other, form in EXPORTERS.items() if model.kind in form.kinds]
    if not others:
        require(model, path, *kinds)
    raise CheckpointError(
        f"{path}: this is {task.what}, and {EXPORTERS[name].program} gets none from tfm. Use {' or '.join(others)}"
    )


def refuse_tags(model: ModelFile, needs: str, instead: str) -> None:
    """Raise ConfigError for a model that has to be given tags, for a program whose text cannot have them."""
    tags, text = model.tokenizers.source.tags, training_text([model])
    if tags and (text.is_multilingual or text.always_tagged) and model.tokenizers.source.packed is None:
        raise ConfigError(
            f"{needs}: the model was trained with tags before its lines, as {tags[0]}, and this format would cut them"
            f" into pieces like any text. {instead}"
        )


def refuse_checkpoints(output: Path) -> None:
    """Raise ConfigError for a place in a run that is tidied up by the run itself."""
    parent = output.absolute().parent.resolve()
    if any(
        folder.name == CHECKPOINTS_FOLDER and (folder.parent / CONFIG_FILE).is_file()
        for folder in [parent, *parent.parents]
    ):
        raise ConfigError(f"{output}: is among the checkpoints of a run, which come and go. Choose another --output")


def text_without_tags(model: ModelFile, path: Path, n_lines: int) -> tuple[Sequence[str], str]:
    """What `text_for` finds, for a program whose text cannot have tags."""
    lines, whose = text_for(model, path, n_lines)
    return [split_tags(line, model.tokenizers.source.tags)[1] for line in lines], whose


def text_for(model: ModelFile, path: Path, n_lines: int) -> tuple[Sequence[str], str]:
    """The first lines of the run's dev text where its files are at hand, else made-up ones; and what they are."""
    run_dir = run_of(path)
    try:
        text = load_text(read_config(run_dir).data, "dev") if run_dir is not None else None
    except (TfmError, OSError) as error:
        LOGGER.info("the dev text of the run is not at hand (%s)", error)
        text = None
    lines = [line for line in text.sources if line.strip()][:n_lines] if text is not None else []
    if lines:
        return lines, "the run's dev text"
    lines = made_up(model.tokenizers.source)
    if model.task.has_words:
        lines = [join_words(line.split()) for line in lines]
    elif model.config.n_segments == 2:
        lines = [f"{first}\t{second}" for first, second in pairwise(lines)]
    return lines, "random pieces"
