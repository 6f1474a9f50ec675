"""What another value of a key changes is said by the key, and decides what a resume refuses and what a cache is for."""

from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, ClassVar

import pytest
import yaml

from tests.toy import run as toy_run
from transformer_cli.command import COMMANDS, Command
from transformer_cli.config.compose import from_plain, to_plain
from transformer_cli.config.data import DataConfig
from transformer_cli.config.fields import Affects, info_of, key, key_infos
from transformer_cli.config.options import info_at
from transformer_cli.config.train import ScheduleConfig, TrainConfig
from transformer_cli.data.cache_key import cache_key
from transformer_cli.data.readers import READERS, Reader
from transformer_cli.decoding.search import SEARCHES, SearchMethod
from transformer_cli.errors import ConfigError
from transformer_cli.models.file import read_model
from transformer_cli.training.dev_metrics import ranked_by
from transformer_cli.training.run_directory import open_run, run_folder, run_name, write_config
from transformer_cli.training.schedules import SCHEDULES, ScheduleKind


@dataclass
class Waves:
    period: int = key(2, "Updates of a wave.", low=1)
    comment: str = key("", "What the log calls it.", may_change=True)
    workers: int = key(1, "Processes.", affects="speed")
    said_nothing: int = 0


@dataclass
class Own:
    mark: str = key("->", "A mark.")
    threads: int = key(1, "Threads.", affects="speed")


@pytest.fixture(autouse=True)
def plugin(monkeypatch: pytest.MonkeyPatch) -> None:
    for registry in (SCHEDULES, READERS, SEARCHES):
        monkeypatch.setattr(registry, "_entries", dict(registry._entries))
        monkeypatch.setattr(registry, "_options", dict(registry._options))
    SCHEDULES.register("waves", options=Waves)(ScheduleKind(lambda config, d_model, max_steps: lambda n: config.lr))
    READERS.register("arrows", options=Own)(type("ArrowsReader", (Reader,), {}))
    SEARCHES.register("slices", options=Own)(SearchMethod("slices", lambda request: []))


def waves(runs: Path, name: str | None = "waves", **options: object) -> TrainConfig:
    schedule = ScheduleConfig(name="waves", lr=0.01, options=dict(options))
    return replace(toy_run.config(schedule=schedule), name=name, runs=str(runs))


def resumed(before: TrainConfig, now: TrainConfig) -> None:
    """Begin a run with the first config, and open it with the second."""
    with open_run(before) as folder:
        write_config(before, folder)
        (folder / "checkpoints/step-00000001").mkdir(parents=True)
    with open_run(now):
        pass


def resumes(command: Command) -> bool:
    return command.goes_on_from == "checkpoint"


@pytest.mark.parametrize(
    "command", [one for _, one in COMMANDS.items() if resumes(one)], ids=lambda command: command.name
)
def test_every_key_of_a_run_says_what_another_value_of_it_changes(command: Command) -> None:
    assert [name for name, info in key_infos(command.schema).items() if info.affects is None] == []


def test_no_key_of_another_command_says_it_since_nothing_reads_it() -> None:
    said = {
        f"{command.name} {field.name}"
        for _, command in COMMANDS.items()
        for field in fields(command.schema)
        if field.name in command.schema.__annotations__ and not resumes(command)
        if (info := info_of(field)) is not None and info.affects is not None
    }
    assert said == set()


def test_a_key_or_its_group_says_it_and_what_a_resume_may_change_follows() -> None:
    @dataclass
    class Group:
        AFFECTS: ClassVar[Affects] = "weights"

        width: int = key(1, "Like its group.")
        length: int = key(1, "Like its group, and may change.", may_change=True)
        threads: int = key(1, "Unlike its group.", affects="speed")
        batch: int = key(1, "Unlike its group, and may not change.", affects="speed", may_change=False)

    said = {name: (info.affects, info.may_change) for name, info in key_infos(Group).items()}
    assert said == {
        "width": ("weights", False),
        "length": ("weights", True),
        "threads": ("speed", True),
        "batch": ("speed", False),
    }


def test_the_name_of_a_run_is_made_from_the_keys_that_may_not_change() -> None:
    config = replace(toy_run.config(), name=None)
    for setting in ("device=cuda", "train.keep_last=9", "train.compile=graphs", "train.profile=true", "force=true"):
        assert run_name(changed(config, setting)) == run_name(config), setting
    for setting in ("train.metrics=[chrf,bleu]", "decode.batch_tokens=64"):
        assert run_name(changed(config, setting)) == run_name(config), setting
    for setting in ("seed=2", "train.precision=bf16", "data.name=other", "decode.beam_size=2", "train.clip_norm=1"):
        assert run_name(changed(config, setting)) != run_name(config), setting


def test_a_resumed_run_may_have_other_metrics_and_smaller_batches_of_translations(tmp_path: Path) -> None:
    """What runs out of memory as it evaluates goes on in the same run directory, and trains the same weights."""
    before = replace(toy_run.config(max_steps=8), name=None, runs=str(tmp_path))
    now = changed(changed(before, "train.metrics=[chrf,bleu]"), "decode.batch_tokens=64")
    toy_run.run(tmp_path / "unbroken", before)
    toy_run.run_until(5, run_folder(before), before)
    with open_run(now) as folder:
        assert folder == run_folder(before)
        toy_run.run(folder, now)
    with_chrf = {entry["step"]: "dev_chrf" in entry for entry in toy_run.metrics(folder) if entry["kind"] == "dev"}
    assert with_chrf == {4: False, 8: True}
    one, other = (read_model(run / "model.safetensors") for run in (folder, tmp_path / "unbroken"))
    assert one.step == other.step
    assert all(one.weights[name].equal(weight) for name, weight in other.weights.items())


def changed(config: TrainConfig, setting: str) -> TrainConfig:
    name, _, value = setting.partition("=")
    plain = to_plain(config)
    group, _, leaf = name.rpartition(".")
    (plain[group] if group else plain)[leaf] = yaml.safe_load(value)
    made: TrainConfig = from_plain(TrainConfig, plain)
    return made


# ---- A plugin's own keys


@pytest.mark.parametrize("option", ["comment", "workers"])
def test_a_plugin_s_key_that_may_change_may_have_another_value_on_resume(tmp_path: Path, option: str) -> None:
    values = {"comment": ("a", "b"), "workers": (1, 2)}[option]
    resumed(*(waves(tmp_path, **{option: value}) for value in values))
    assert len({run_name(waves(tmp_path, name=None, **{option: value})) for value in values}) == 1


@pytest.mark.parametrize("option", ["period", "said_nothing", "of_another_entry"])
def test_a_plugin_s_key_that_does_not_say_so_is_refused(tmp_path: Path, option: str) -> None:
    with pytest.raises(ConfigError, match=rf"holds another run: schedule\.options\.{option} was 3, is 4\."):
        resumed(*(waves(tmp_path, **{option: value}) for value in (3, 4)))


def test_a_plugin_s_key_that_says_nothing_affects_what_its_group_does(tmp_path: Path) -> None:
    config = waves(tmp_path)
    assert info_at(config, "schedule.options.period").affects == "weights"
    assert info_at(config, "schedule.options.workers").affects == "speed"
    assert info_at(config, "decode.options.unknown").affects == "scores"
    assert info_at(config, "data.options.unknown").affects == "text"


def test_dev_scores_compare_unless_a_search_s_key_says_nothing_or_that_it_affects_them() -> None:
    def rank(**options: object) -> dict[str, object]:
        plain = to_plain(toy_run.config())
        plain["decode"] |= {"search": "slices", "options": options}
        return ranked_by(plain, metric="bleu", dev_sha256="12ab", n_dev=10)

    assert rank(mark="a", threads=1) == rank(mark="a", threads=2)
    assert rank(mark="a") != rank(mark="b")


def test_a_corpus_is_prepared_again_for_a_reader_s_key_unless_it_says_that_the_text_is_the_same() -> None:
    def key_of(**options: object) -> str:
        return cache_key(
            DataConfig(source_lang="en", target_lang="fr", train="a.txt", reader="arrows", options=options), {}
        )

    assert key_of(mark="->", threads=1) == key_of(mark="->", threads=2)
    assert key_of(mark="->") != key_of(mark="=>")
    with pytest.raises(ConfigError, match=r"data\.options\.unknown: unknown key"):
        key_of(unknown=1)


def test_an_option_that_a_later_version_adds_leaves_the_caches_of_this_one_as_they_are() -> None:
    @dataclass
    class Later(DataConfig):
        later: bool = key(False, "New.", affects="text")
        forgotten: bool = key(False, "New, and of no text.", affects="log")

    def key_of(schema: type[DataConfig], **options: Any) -> str:
        return cache_key(schema(source_lang="en", target_lang="fr", train="a.txt", **options), {})

    assert key_of(Later) == key_of(Later, forgotten=True) == key_of(DataConfig)
    assert key_of(Later, later=True) != key_of(DataConfig)
