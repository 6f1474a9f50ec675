"""Text stays text and ~ is the home folder, in every key that takes them, wherever the value is written."""

import dataclasses
import re
from pathlib import Path

import pytest
import yaml
from omegaconf import OmegaConf

from transformer_cli.cli import main
from transformer_cli.command import COMMANDS, schema_of
from transformer_cli.config.compose import from_plain, load_config, to_plain, to_yaml
from transformer_cli.config.data import DataConfig, Download
from transformer_cli.config.fields import follow_home, written_name
from transformer_cli.config.keys import leaves
from transformer_cli.config.origin import CommandLine, Origins
from transformer_cli.config.overrides import parse_override, values_of
from transformer_cli.config.text_values import override_as_written, takes_text
from transformer_cli.config.train import TrainConfig
from transformer_cli.data import named_sets
from transformer_cli.errors import ConfigError, quoted
from transformer_cli.models.runs import read_config

# What YAML 1.1, YAML 1.2 or Hydra take for a truth value, a number, a time or a date.
NO_TEXT = [
    *("no", "yes", "on", "Off", "true", "FALSE", "y", "n", "12:30", "1:2:3", "1_000", "1e3", "-1", "+7", "007", "0o17"),
    *("0x10", "0b1", "1.10", ".5", "5.", "1.5e-3", "nan", ".inf", "inf", "2026-01-02", "1_0.5", "2026"),
]
TEXT_KEYS = sorted(
    {(command, key) for command in COMMANDS for key, hint, info in leaves(schema_of(command)) if takes_text(hint, info)}
)


def test_an_override_is_text_for_every_key_that_takes_text() -> None:
    every = [("train", "data.source_lang", text) for text in NO_TEXT]
    every += [(command, key, NO_TEXT[i % len(NO_TEXT)]) for i, (command, key) in enumerate(TEXT_KEYS)]
    for command, key, text in every:
        alone, listed = (override_as_written(f"{key}={value}", command) for value in (text, f"[a,{text}]"))
        assert values_of([alone]) in ({key: [text]}, {f"{key}_": [text]})
        assert parse_override(listed).value() == ["a", text]
        assert override_as_written(alone, command) == alone
    assert isinstance(parse_override(override_as_written("schedule.lr=1e-3", "train")).value(), float)
    assert parse_override(override_as_written("runs=null", "train")).value() is None


@pytest.mark.parametrize(
    "text", ["größe.en", "文", "a=b", "runs/a=b/model", "a#1", "a&b;c", "<2fr>", "e-mail <x@y>", "~é"]
)
def test_a_name_with_letters_or_signs_that_hydra_does_not_read_needs_no_quotes(text: str) -> None:
    for command, key in (("train", "data.train"), ("train", "name"), ("translate", "checkpoint")):
        assert values_of([override_as_written(f"{key}={text}", command)]) == {key: [text]}
        written = override_as_written(f"{key}=[{text},b,'c d',{text}]", command)
        assert [getattr(one, "text", one) for one in parse_override(written).value()] == [text, "b", "c d", text]
        assert override_as_written(written, command) == written
    sweep = parse_override(override_as_written(f"name={text},b", "train"))
    assert len(list(sweep.sweep_string_iterator())) == 2


@pytest.mark.parametrize("text", ["name=a'b", "name=a[1]", "name=é[1]", "name=a(1)é", "name=a=1 seed=2", "name=[é"])
def test_what_is_no_text_of_one_key_is_refused_as_it_was_typed(text: str) -> None:
    assert override_as_written(text, "train") == text
    with pytest.raises(ConfigError, match=re.escape(quoted(text))):
        load_config("train", [text])


def test_a_yaml_file_gives_text_as_it_is_written(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "experiment").mkdir()
    texts = ", ".join(NO_TEXT)
    (tmp_path / "data" / "mine.yaml").write_text(
        f"defaults: [files]\nsource_lang: en\ntarget_lang: de\ntrain: [{texts}, 'b']\ndev: no\nmax_length: 1_00\n"
        "tokenizer: {model: 12:30}\ndownloads:\n- url: 1e3\n"
    )
    (tmp_path / "experiment" / "own.yaml").write_text(
        "# @package _global_\ndefaults:\n- override /data: mine\ndata: {test: 1_0}\n"
    )
    data = load_config("train", ["experiment=own"], user_dir=tmp_path).data
    assert (data.train, data.dev, data.test) == ([*NO_TEXT, "b"], "no", "1_0")
    assert (data.tokenizer.model, data.downloads[0].url, data.max_length) == ("12:30", "1e3", 100)
    why = Origins.of(CommandLine("train", ["experiment=own"], user_dir=tmp_path)).why("data.test", otherwise=False)
    assert [source.value for source in why.sources if source.file is not None] == ["1_0"]


def test_languages_and_names_of_yaml_are_text(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "2024_01.yaml").write_text(
        "defaults: [files]\nname: 1_000\nsource_lang: no\ntarget_lang: en\nlanguages: [no, en]\nroot: ~\ntrain: a\n"
    )
    data = load_config("prepare", ["data=2024_01"], user_dir=tmp_path).data
    assert (data.name, data.source_lang, data.languages, data.root) == ("1_000", "no", ["no", "en"], None)
    assert load_config("train", ["name=1_000", "data=demo_en_fr"]).name == "1_000"
    assert load_config("export", ["package_version=1.10"]).package_version == "1.10"


def test_values_of_a_sweep_are_text() -> None:
    for text in ("name=1_0,1e1,b", "name=choice(1_0,1e1,b)"):
        override = parse_override(override_as_written(text, "train"))
        assert [parse_override(f"name={one}").value() for one in override.sweep_string_iterator()] == [
            "1_0",
            "1e1",
            "b",
        ]


@pytest.mark.parametrize(("text", "other"), list(zip(NO_TEXT[::2], NO_TEXT[1::2], strict=True)))
def test_a_written_config_has_text_for_every_reader(tmp_path: Path, text: str, other: str) -> None:
    config = dataclasses.replace(TrainConfig(), runs=text, resume=other)
    config.data = DataConfig(source_lang="no", target_lang="en", train=[text, other], root=text)
    written = to_yaml(config)
    for read in (yaml.safe_load(written), OmegaConf.to_container(OmegaConf.create(written))):
        assert (read["runs"], read["resume"], read["data"]["train"]) == (text, other, [text, other])
    (tmp_path / "config.yaml").write_text(written)
    assert read_config(tmp_path) == config == from_plain(TrainConfig, to_plain(config))
    by_hand = re.sub(r"^runs: .*", f"runs: {text}", written, flags=re.MULTILINE)
    by_hand = re.sub(r"^resume: .*", f"resume: {other}", by_hand, flags=re.MULTILINE)
    (tmp_path / "config.yaml").write_text(by_hand)
    assert read_config(tmp_path) == config  # without quotes


# ---- ~ in the keys that name files and folders

NAMES_A_PLACE = re.compile(r"\b(files?|folders?|checkpoints?|director(y|ies)|paths?|models?)\b", re.IGNORECASE)
# What these take is no path, although their sentences speak of files, runs or models.
NO_PATHS = {
    *("command", "languages", "license", "model.name", "model.preset", "name", "pivot", "plugins", "source_lang"),
    *(
        *("target_lang", "test_set", "text", "train.best_metric", "translation", "words", "data.builtin"),
        *("data.dev_tags", "data.task", "features"),
    ),
    *("data.languages", "data.line_tags", "data.name", "data.reader", "data.test_tags", "engine"),
    *("format", "init.extend_languages", "init.keep_languages", "init.like", "data.columns"),
}


def test_every_key_that_names_a_file_or_folder_is_known_as_one() -> None:
    for command, schema in [(name, one.schema) for name, one in COMMANDS.items()]:
        for key, hint, info in leaves(schema):
            if takes_text(hint, info) and NAMES_A_PLACE.search(info.help) and key not in NO_PATHS:
                assert info.path, f"{command}: {key}: {info.help}"


@pytest.mark.parametrize("command", list(COMMANDS))
def test_a_leading_tilde_is_the_home_folder_in_every_path_and_nowhere_else(
    command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", "/home/somebody")
    for key, hint, info in leaves(schema_of(command)):
        config = holder = schema_of(command)()
        *groups, name = key.split(".")
        for group in groups:
            field = next(one for one in dataclasses.fields(holder) if written_name(one.name) == group)
            if not dataclasses.is_dataclass(getattr(holder, field.name)):
                setattr(holder, field.name, DataConfig())  # unset where a model names the corpus
            holder = getattr(holder, field.name)
        if not takes_text(hint, info) or not dataclasses.is_dataclass(holder) or isinstance(holder, Download):
            continue
        name = next((one.name for one in dataclasses.fields(holder) if written_name(one.name) == name), "")
        if not name:
            continue  # of the entries of a list
        for given, followed in (("~/x/~", "/home/somebody/x/~"), (["~", "./~", "a~"], ["/home/somebody", "./~", "a~"])):
            setattr(holder, name, given)
            follow_home(config)
            assert getattr(holder, name) == (followed if info.path else given), key


@pytest.mark.parametrize(
    "text", ["data.train=", "data.train=''", "data.dev=['']", "data.test=[a,'']", "runs=", "resume=''", "data.cache=''"]
)
def test_an_empty_name_of_a_file_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=rf"^{re.escape(text.split('=')[0])}: an empty name\. Name a file or folder"):
        load_config("train", ["data=files", "data.source_lang=en", "data.target_lang=de", text])


def test_an_empty_name_of_a_flag_is_refused() -> None:
    for key in ("input", "output", "checkpoint", "terms", "decode.shortlist"):
        with pytest.raises(ConfigError, match=rf"^{key}: an empty name"):
            load_config("translate", flags={key: ""})


def test_a_tilde_is_followed_from_yaml_overrides_flags_and_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = str(tmp_path / "home")
    monkeypatch.setenv("HOME", home)
    monkeypatch.setenv("SACREBLEU", "~/sets")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "mine.yaml").write_text(
        "defaults: [files]\nsource_lang: en\ntarget_lang: de\ntrain: [~/a.en, ~/a.de]\ncache: ~/c\nroot: ~\n"
    )
    for override in ("init.from=~/m x", "init.from='~/m x'"):
        words = ["data=mine", override, "data.dev=[~/d.en,'~/d.de']"]
        config = load_config("train", words, flags={"runs": "~/runs"}, user_dir=tmp_path)
        assert config.data.train == [f"{home}/a.en", f"{home}/a.de"]
        assert config.data.dev == [f"{home}/d.en", f"{home}/d.de"]
        assert (config.data.cache, config.data.root) == (f"{home}/c", None)  # a ~ alone is YAML's null
        assert (config.init.from_, config.runs) == (f"{home}/m x", f"{home}/runs")
    assert named_sets._cache() == Path(home, "sets")


def test_no_folder_called_tilde_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home" / "conf").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assert main(["translate", "--config-dir=~/conf", "--checkpoint=~/none", "a"]) == 4
    assert f"{tmp_path}/home/none: no such file" in capsys.readouterr().err
    assert main(["train", "runs=~nobody_of_this_name/runs"]) == 5
    said = capsys.readouterr().err
    assert "there is no home folder for ~nobody_of_this_name" in said
    assert "write ./~nobody_of_this_name/runs for a file of that name" in said
    assert sorted(path.name for path in tmp_path.iterdir()) == ["home"]
