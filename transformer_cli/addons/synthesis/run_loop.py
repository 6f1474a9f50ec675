"""`tfm augment loop`: iterated back-translation, by the commands that each round runs, each resumable.

The models of both directions make each other's synthetic text, in rounds (Hoang et al. 2018, Zhang et al. 2018).
"""

import math
import shlex
import shutil
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from transformer_cli.addons.synthesis.loop_keys import LoopConfig
from transformer_cli.addons.synthesis.loop_record import TABLE_METRICS, LoopRecord, LoopRow
from transformer_cli.addons.synthesis.loop_text import LoopDirection, RealText, data_of, directions_of, hashes_of_inputs
from transformer_cli.addons.synthesis.run_augment import Augmented, augmented, count_line
from transformer_cli.addons.synthesis.steps import command_words, refuse_ranks, step, train_config_of, without_unset
from transformer_cli.addons.synthesis.work import alone_in, files_of
from transformer_cli.commands.train.run import Trained, train_and_report
from transformer_cli.config.checks import check_choice
from transformer_cli.config.compose import to_plain, to_yaml
from transformer_cli.config.decode import DecodeConfig
from transformer_cli.config.options import info_at
from transformer_cli.config.shared import engine_names
from transformer_cli.config.tags import languages_of
from transformer_cli.config.train import TrainConfig
from transformer_cli.data.hashes import file_sha256
from transformer_cli.data.readers import Split
from transformer_cli.errors import CheckpointError, ConfigError
from transformer_cli.files import make_folder, write_whole
from transformer_cli.logs import LOGGER
from transformer_cli.models.device import choose_device
from transformer_cli.models.header import MODEL_FILE, read_header
from transformer_cli.models.locate import locate_models
from transformer_cli.tasks.evaluate_translations import report_test_set
from transformer_cli.training.run import Start
from transformer_cli.training.run_directory import LENGTH, flat
from transformer_cli.training.signals import stop_signals

_WITH_RANKS = "run the commands that it prints one by one, those of `tfm train` with torchrun"


def run(config: LoopConfig) -> None:
    """Run all rounds, or those that are missing, and print the table. Raises TfmError."""
    refuse_ranks("tfm augment loop", _WITH_RANKS)
    directions = directions_of(config)
    if config.engine is not None:
        check_choice("engine", config.engine, engine_names())
    for one in directions:
        _check_model(one, config)
    settings = _settings_of(config, directions)
    folder = Path(config.output)
    text = RealText(folder / "text", (directions[0].source, directions[0].target))
    Start.of(_training_of(config, text, directions[0], 0, []))  # refuses a misspelt name before any text is read
    with stop_signals(idle="what is finished is kept"), _folder_of(folder):
        Loop(config, directions, text, LoopRecord.open(folder, settings)).run()


@contextmanager
def _folder_of(folder: Path) -> Iterator[None]:
    """Hold the folder for this process alone; one that was made for what is then refused is removed."""
    LoopRecord.refuse_other_files(folder)  # before a lock is written there
    was_there = folder.exists()
    try:
        with alone_in(folder):
            yield
    except Exception:
        if not was_there and not LoopRecord.has_begun(folder):
            shutil.rmtree(folder, ignore_errors=True)
        raise


def _settings_of(config: LoopConfig, directions: Iterable[LoopDirection]) -> dict[str, Any]:
    """What decides on the models: all keys that a resumed training may not change, the text, the models of round 0."""
    training = train_config_of(config)
    values = flat(to_plain(training))
    fixed = {key: one for key, one in values.items() if key in LENGTH or not info_at(training, key).may_change}
    files = {
        flag: None if path is None else file_sha256(path)
        for one in directions
        for flag, path in ((one.flag, one.text), (one.model_flag, _model_of(one, config)))
    }
    search = f"beam of {config.search_beam}" if config.search == "beam" else config.search
    return {**fixed, "search": search, "engine": config.engine, **files, **hashes_of_inputs(config.data)}


def _model_of(direction: LoopDirection, config: LoopConfig) -> Path | None:
    """The model of round 0 that is named. Raises CheckpointError."""
    if direction.model is None:
        return None
    try:
        return locate_models(direction.model, config.runs)[0]
    except CheckpointError as error:
        raise CheckpointError(str(error).replace("--checkpoint", direction.model_flag)) from error


def _check_model(direction: LoopDirection, config: LoopConfig) -> None:
    """Raise ConfigError for a model of another direction."""
    if (path := _model_of(direction, config)) is None:
        return
    metadata = read_header(path).metadata
    known = [languages_of(str(metadata[side])) for side in ("source_lang", "target_lang")]
    if direction.source not in known[0] or direction.target not in known[1]:
        raise ConfigError(
            f"{direction.model_flag} {direction.model}: translates {metadata['source_lang']} →"
            f" {metadata['target_lang']}, and must translate {direction.source} →"
            f" {direction.target}. Name a model of that direction"
        )


class Loop:
    """The rounds of a loop in its folder."""

    def __init__(
        self, config: LoopConfig, directions: tuple[LoopDirection, LoopDirection], text: RealText, record: LoopRecord
    ):
        self.config, self.directions, self.text, self.record = config, directions, text, record
        self.folder = record.folder

    def run(self) -> None:
        if not self.record.files:
            self.text.write(self.config.data)
            self.text.warn_of_overlap(self.directions)
            self.record.add(None, self.text.all_files)
        last = self._last_round()
        for number in range(last + 1):
            is_new = [self._make(number, one) for one in self._trained_in(number)]
            if any(is_new) and number < last:
                print("\n".join(self.record.lines(with_test=False)), flush=True)
            if self.config.stop_early and number and not self.record.gained(number):
                LOGGER.info("round %d: no direction has gained dev BLEU, so no round follows", number)
                break
        print("\n".join([*self.record.lines(with_test=True), *self._next()]), flush=True)

    def _last_round(self) -> int:
        without = [one for one in self.directions if one.text is None]
        for one in without:
            LOGGER.info(
                "%s: not given, so %s is not trained again, and there is one round: back-translation for %s alone",
                *(one.flag, one, next(other for other in self.directions if other is not one)),
            )
        return 1 if without else self.config.rounds

    def _trained_in(self, number: int) -> list[LoopDirection]:
        return [one for one in self.directions if number == 0 or one.text is not None]

    def _make(self, number: int, direction: LoopDirection) -> bool:
        """Make the model of a round and a direction; False where it is there."""
        if self.record.row(number, direction) is not None:
            return False
        LOGGER.info("round %d, %s", number, direction)
        start, made, trained = time.perf_counter(), None, None
        model = _model_of(direction, self.config) if number == 0 else None
        if model is None:
            made = self._back_translate(number, direction) if number else None
            trained = self._train(number, direction, made)
            model = trained.run_dir / MODEL_FILE
        dev = self._scored(model, "dev", direction)
        test = self._scored(model, "test", direction) if trained is None else _of_report(trained)
        row = LoopRow(
            number,
            str(direction),
            str(model if trained is None else trained.run_dir),
            dev,
            test,
            minutes=None if trained is None else (time.perf_counter() - start) / 60,
            pairs=None if made is None else made.report.n_pairs,
            dropped=None if made is None else made.report.n_translations - made.report.n_pairs,
        )
        self.record.add(row, [model])
        return True

    def _back_translate(self, number: int, direction: LoopDirection) -> Augmented:
        """Pairs for a direction, whose sources the model of the other direction makes of its monolingual text."""
        reverse = next(one for one in self.directions if one is not direction)
        before = self.record.row(number - 1, reverse)
        assert before is not None
        assert direction.text is not None
        config = self.config
        settings = {
            "method": "back-translate",
            "checkpoint": before.model,
            "input": str(direction.text),
            "output": str(self.folder / f"round-{number}" / f"bt-{direction}"),
            "source_lang": reverse.source,
            "target_lang": reverse.target,
            "decode.beam_size": config.search_beam if config.search == "beam" else None,
            "engine": config.engine,
            "seed": config.seed,
            "device": config.device.name,
            "plugins": config.plugins or None,
        }
        make_folder(self.folder / f"round-{number}")
        overrides = [] if config.search == "beam" else [f"decode={config.search}"]
        made = step("augment", without_unset(settings), augmented, overrides=overrides)
        LOGGER.info("%s", count_line(made))
        return made

    def _train(self, number: int, direction: LoopDirection, made: Augmented | None) -> Trained:
        """Train a model, or go on, by a config that is kept as a file."""
        pairs = [] if made is None else list(files_of(made.name, made.report.languages))
        training = _training_of(self.config, self.text, direction, number, pairs)
        name, folder = f"round-{number}-{direction}", self.folder / "config"
        make_folder(folder / "experiment")
        write_whole(folder / "experiment" / f"{name}.yaml", f"# @package _global_\n{to_yaml(training)}".encode())
        overrides = [f"experiment={name}", "recipe=null"]
        trained: Trained | None = step("train", {}, train_and_report, overrides=overrides, config_dir=folder)
        assert trained is not None, "a rank of another process"
        return trained

    def _scored(self, model: Path, split: Split, direction: LoopDirection) -> dict[str, float | None]:
        """The scores of a model on dev or test, as `tfm evaluate` prints them."""
        config = self.config
        decode = replace(config.decode, length_penalty=None) if config.train.length_penalties else config.decode
        source, reference = self.text.files(split, direction)
        settings = {"checkpoint": str(model), "source": source, "reference": reference, "device": config.device.name}
        usual = asdict(DecodeConfig())
        set_ = {f"decode.{key}": value for key, value in asdict(decode).items() if value != usual[key]}
        LOGGER.info("$ %s", shlex.join(["tfm", "evaluate", *command_words("evaluate", settings | set_)]))
        found = report_test_set(
            model,
            self.text.read(split, direction),
            decode,
            name=split,
            device=choose_device(config.device),
            seed=config.seed,
            robustness_lines=0,
        )
        return _of_metrics({score.name: score.value for score in found.scores})

    def _next(self) -> Iterator[str]:
        """The commands that translate with the best model of each direction, by dev BLEU."""
        for number, one in enumerate(self.directions):
            if (row := self.record.best(one)) is not None:
                begin = "best on dev: " if not number else " " * 13
                yield f"{begin}tfm translate --checkpoint {shlex.quote(row.model)}"


def _training_of(
    config: LoopConfig, text: RealText, direction: LoopDirection, number: int, pairs: list[Path]
) -> TrainConfig:
    """The config of the training of a round: the real text, and the synthetic `pairs`."""
    runs = str(Path(config.output) / f"round-{number}")
    return train_config_of(config, data=data_of(config.data, text, direction, pairs), runs=runs, name=str(direction))


def _of_report(trained: Trained) -> dict[str, float | None]:
    """The test scores that a training has reported, by the names of the metrics."""
    return _of_metrics({name.removeprefix("test "): value for name, value in trained.test_scores.items()})


def _of_metrics(scores: Mapping[str, float | None]) -> dict[str, float | None]:
    """The scores that the table has, None for what is not a number."""
    found = {name: scores.get(name) for name in TABLE_METRICS}
    return {name: value if value is not None and math.isfinite(value) else None for name, value in found.items()}
