"""`tfm distill`: from a teacher and a text to an exported student, by the commands that make one, each resumable."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from transformer_cli.addons.benchmarks.run_bench import run as run_bench
from transformer_cli.addons.interop.registries import EXPORTERS
from transformer_cli.addons.interop.run_export import run as run_export
from transformer_cli.addons.students.distillation import languages_of_student, located
from transformer_cli.addons.students.keys import RUN, DistillConfig
from transformer_cli.addons.students.run_shortlist import run as run_shortlist
from transformer_cli.addons.synthesis.run_augment import augmented, count_line
from transformer_cli.addons.synthesis.steps import refuse_ranks, step, train_config_of, without_unset
from transformer_cli.addons.synthesis.work import files_of, report_of
from transformer_cli.commands.train.run import train_and_report
from transformer_cli.config.model import Autoregression
from transformer_cli.config.train import TrainConfig
from transformer_cli.data.hashes import file_sha256
from transformer_cli.data.readers.base import Pair
from transformer_cli.decoding.shortlist import SHORTLIST_FILE, Shortlist
from transformer_cli.errors import CheckpointError, ConfigError, EnvironmentFault
from transformer_cli.extras import EXTRAS, how_to_install, imported
from transformer_cli.files import make_folder
from transformer_cli.logs import LOGGER
from transformer_cli.models.file import read_model
from transformer_cli.models.header import MODEL_FILE
from transformer_cli.models.locate import EXPORT_FILE
from transformer_cli.text_io import check_input
from transformer_cli.training.run import Start

TEXT = "text"  # the distilled corpus in the folder of a student
WITH_RANKS = "make the text with `tfm augment distill` and train on it with `torchrun … tfm train recipe=student`"


def run(config: DistillConfig) -> None:
    """Make the text, the student, its shortlist and its export; what is there already is kept. Raises TfmError.

    The table at the end is measured each time.
    """
    refuse_ranks("tfm distill", WITH_RANKS)
    if config.input is None:
        raise ConfigError("--input: not given. Name a teacher and a text, as `tfm distill runs/big train.en`")
    if config.data.train:
        raise ConfigError("data.train: is what the teacher makes of --input. Leave it out")
    check_input(config.input, "the input")
    folder = Path(config.output)
    languages = languages_of_student(config)
    text = files_of(folder / TEXT, languages)
    teachers = [str(file.parent if file.name == MODEL_FILE else file) for file in located(config)]
    training = training_of(config, folder, languages, text)
    Start.of(training)  # refuses a misspelt name before the text is translated
    make_text(config, folder, languages)
    train_student(training)
    model = folder / str(training.name) / MODEL_FILE
    write_shortlist(text, model)
    is_recurrent = config.model.decoder is Autoregression.ssru
    export_student("firefox" if is_recurrent else "ctranslate2", folder, model)
    if config.bench_lines:
        settings = table_settings(config, [*teachers, str(model.parent)], languages, text)
        settings |= {"ensemble": len(teachers)} if len(teachers) > 1 else {}
        step("bench", settings, run_bench)


def make_text(config: DistillConfig, folder: Path, languages: Pair) -> None:
    """The text in the teacher's translation; one that is there is kept. Raises ConfigError for another one."""
    make_folder(folder)
    was_there = report_of(folder / TEXT).exists()
    try:
        made = step("augment", _of_teacher(config, folder, languages), augmented)
    except ConfigError as error:
        what, advice, _ = str(error).partition(". Add --overwrite")
        if "was made before with these settings" in what:
            raise ConfigError(f"{what}. Put it back as it was, or choose another --output") from error
        if not was_there:
            raise ConfigError(f"{what}. Choose another --output" if advice else what) from error
        raise ConfigError(
            f"--output {config.output}: holds the student of another teacher, text, beam or engine. Choose another"
            " --output"
        ) from error
    LOGGER.info("%s", count_line(made))


def training_of(config: DistillConfig, folder: Path, languages: Pair, text: tuple[Path, Path]) -> TrainConfig:
    """The config of the student's training, in its folder and on its text."""
    train = [str(file) for file in text]
    data = replace(config.data, train=train, source_lang=languages[0], target_lang=languages[1])
    return train_config_of(config, data=data, runs=str(folder), name=config.name or RUN)


def train_student(config: TrainConfig) -> None:
    """Train the student, or go on. Raises TfmError."""
    LOGGER.info("training the student: %s/%s", config.runs, config.name)
    try:
        train_and_report(config)
    except ConfigError as error:
        what, advice, rest = str(error).partition("Choose another name=, leave name out")
        raise ConfigError(f"{what}Choose another --output{rest}" if advice else what) from error


def table_settings(
    config: DistillConfig, checkpoints: list[str], languages: Pair, text: tuple[Path, Path]
) -> dict[str, Any]:
    """How teacher and student are compared: on the test text, else the dev text, where that is two plain files.

    Else it is the text of the student, without a reference: only the speeds are measured.
    """
    found = two_files(config.data.test, languages) or two_files(config.data.dev, languages)
    source, reference = found or (str(text[0]), None)
    settings = {
        "subject": "students",
        "checkpoint": checkpoints,
        "source": source,
        "reference": reference,
        "n_lines": config.bench_lines,
        "rounds": 1,
        "source_lang": languages[0],
        "target_lang": languages[1],
        "data.bleu_tokenize": config.data.bleu_tokenize,
        "device": "cpu",  # which students are for
    }
    return without_unset(settings)


def two_files(named: Any, languages: Pair) -> tuple[str, str] | None:
    """A text and its translation, where `data.test` or `data.dev` names files that end with the two languages."""
    names = named if isinstance(named, list) and all(isinstance(name, str) for name in named) else []
    by_suffix = {Path(name).suffix: name for name in names if Path(name).is_file()}
    source, target = (by_suffix.get(f".{language}") for language in languages)
    return None if source is None or target is None or len(names) != 2 else (source, target)


def _of_teacher(config: DistillConfig, folder: Path, languages: Pair) -> dict[str, Any]:
    settings = {
        "method": "distill",
        "checkpoint": config.teacher,
        "input": config.input,
        "output": str(folder / TEXT),
        "decode.beam_size": config.teacher_beam,
        "source_lang": languages[0],
        "target_lang": languages[1],
        "engine": config.engine,
        "device": config.device.name,
    }
    return without_unset(settings)


def write_shortlist(text: tuple[Path, Path], path: Path) -> None:
    """The lexical shortlist of the student, by its own text, unless there is one of this model."""
    output, model = path.parent / SHORTLIST_FILE, read_model(path)
    languages = model.source_lang, model.target_lang
    try:
        Shortlist.read(output, model.tokenizers, languages)
    except CheckpointError:  # none, or of an earlier vocabulary
        source, translation = map(str, text)
        settings = {"checkpoint": str(path), "source": source, "translation": translation, "overwrite": True}
        step("shortlist", settings, run_shortlist)


def export_student(program: str, folder: Path, model: Path) -> None:
    """The student for the program that runs it fastest, unless that export is there or the program is not."""
    output, package = folder / program, EXPORTERS[program].packages[0]
    holds_shortlist = program == "firefox"
    is_made = exported_from(output) == file_sha256(model)
    if is_made and not (holds_shortlist and is_newer(model.parent / SHORTLIST_FILE, output / EXPORT_FILE)):
        LOGGER.info("%s: made before, of the same model", output)
        return
    try:
        imported(package, needs=f"tfm export {program}")
    except EnvironmentFault:
        LOGGER.warning(
            "%s: not exported, as %s is not installed. Run %s", output, package, how_to_install(EXTRAS[package])
        )
        return
    settings: dict[str, Any] = {"format": program, "checkpoint": str(model), "output": str(output), "overwrite": True}
    settings |= {"quantization": "int8"} if program == "ctranslate2" else {"options.shortlist": "auto"}
    step("export", settings, run_export)


def is_newer(file: Path, other: Path) -> bool:
    return file.is_file() and file.stat().st_mtime_ns > other.stat().st_mtime_ns


def exported_from(folder: Path) -> str | None:
    """The hash of the model that an export was made of; None where there is none, or a file of it has gone."""
    try:
        facts = json.loads((folder / EXPORT_FILE).read_bytes())
        return str(facts["model_sha256"]) if all((folder / name).is_file() for name in facts["files"]) else None
    except (OSError, ValueError, LookupError, TypeError):
        return None
