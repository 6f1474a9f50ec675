"""Configs in which every key differs from its default survive YAML, `config.yaml`, JSON and the command line."""

import dataclasses
import json
import math
import re
import typing
from collections.abc import Iterator, Mapping
from enum import Enum
from functools import cache
from pathlib import Path
from types import NoneType
from typing import Any

import pytest
import yaml

from tests.conftest import slow_but
from tests.support.each import each
from transformer_cli.cli import main
from transformer_cli.command import COMMANDS, schema_of
from transformer_cli.commands.score.keys import READ
from transformer_cli.config.compose import from_plain, load_config, to_plain, to_yaml
from transformer_cli.config.decode import DecodeConfig
from transformer_cli.config.fields import KeyInfo, info_of, written_name
from transformer_cli.config.keys import Options, all_keys, fields_of
from transformer_cli.config.overrides import quoted_for_hydra
from transformer_cli.config.train import TrainConfig
from transformer_cli.errors import ConfigError

# What a command cannot be composed without.
NEEDED = {
    "replay": ["incident=somewhere"],
    "bench": ["subject=train"],
    "reproduce": ["reproduction=demo_en_fr"],
}

# Values where the schema does not say which others are legal.
VALUES: dict[str, Any] = {
    "train.floor": {"old": -1.5, "2fr": 0},
    "data.name": "mine",
    "data.source_lang": "fr",
    "data.target_lang": "no",  # which YAML 1.1 reads as false
    "data.languages": ["no", "fr"],
    "data.columns": [2, 0],
    "data.builtin": None,
    "data.reader": "mine",
    "data.task": "language_model",
    "data.train": ["a.tsv", "b.tsv"],
    "data.downloads": [{"url": "https://example.org/a", "size": 3, "sha256": "0" * 64, "text_sha256": "1" * 64}],
    "data.tags": ["<a>", "<b> <c>"],
    "data.dev_tags": ["<a>"],
    "data.test_tags": ["<b>"],
    "data.line_tags": ["<d>"],
    "data.mtdata": ["Made-a-1-deu-eng", "Made-b-2-deu-eng"],
    "data.fold": "2/5",
    "data.weights": [2.0, 0.5],
    "data.augment.source_only": ["upper_case"],
    "data.changes": ["mine"],
    "data.tokenizer.model": ["one.model", "two.model"],
    "data.tokenizer.user_symbols": ["<num>", "a=b,c"],
    "data.bleu_tokenize": "intl",
    "decode.split_sentences": False,
    "decode.copy_letterless": False,
    "decode.diversity_groups": 5,
    "decode.top_p": 0.5,
    "lora.also": ["*.norm"],
    "init.freeze": ["decoder.layers.0", "*.norm"],
    "optimizer.betas": [0.8, 0.99],
    "plugins": ["colorsys", "bisect"],  # any modules
    "model.name": "mine",
    "model.convolution": 5,
    "schedule.name": "mine",
    "train.budget": "2h",
    "train.length_penalties": [0.5, 1.5],
    "train.metrics": ["chrf", "spbleu"],
    "train.best_metric": "nll",
    "model.pooling": "mean",
    "metrics": ["ter", "spbleu"],
    "pooling": "max",
    "output_format": "jsonl",
    "package_version": "2.1b",
    "vocabulary": ["a.spm", "b.spm"],
    "segmenter": ["a.bpe"],
    "proxies": ["10.0.0.0/8"],
    "cors": ["https://example.org:8443"],
    "systems": ["runs/a", "b c.txt"],
    "checkpoint": "runs/größer, kleiner",
    "bench:checkpoint": ["runs/größer, kleiner", "b"],
    "ensemble": 2,
    "method": "distill",
    "shard": "2/3",
    "reproduction": "multi30k",
    "embed:layer": "-1",
    "embed:output": "vectors.npy",
    "tag:columns": [4, 2],
    "config:words": ["model.d_model", "model=big", "norm=pre"],
}

# What holds besides, where a key may have another value beside some values of others alone.
_LABELS = {"data.task": "classification", "data.languages": [], "model.name": "classifier", "train.best_metric": "nll"}
_PAIRS = {**_LABELS, "data.builtin": None, "data.columns": [0, 1, 2]}
_NO_FRENCH = {"data.languages": ["no", "fr"], "data.source_lang": "fr", "data.target_lang": "no"}
BESIDE: dict[str, dict[str, Any]] = {
    "data.alignments": {"train.guided_alignment": 0.5},
    "train.full_context_alignment": {"train.guided_alignment": 0.5},
    "data.languages": _NO_FRENCH,
    "data.source_lang": _NO_FRENCH,
    "data.target_lang": _NO_FRENCH,
    "data.task": {**_LABELS, "data.task": "language_model", "model.name": "decoder"},
    "data.tokenizer.model": {"data.tokenizer.joint": False, "model.tie_embeddings": "none"},
    "lora.rank": {"init.from": "model.safetensors", "train.ema": None},
    "lora.also": {"init.from": "model.safetensors", "lora.rank": 4, "train.ema": None},
    "model.convolution": _LABELS,
    "model.n_segments": {**_PAIRS, "model.n_segments": 2},
    "train.sharding": {"train.ema": None},
    "translate:likeliest": {"explain": True},
    "translate:reference": {"explain": True},
    "translate:report": {"format": "html"},
    "translate:fail_on_flags": {"format": "html"},
    "token_scores": {"output_format": "jsonl"},
    "evaluate:reference": {"source": "a.en"},
    "evaluate:source": {"reference": ["a.de", "b.de"]},
    "evaluate:hypotheses": {"reference": "a.de"},
    "compare:source": {"reference": "a.de"},
    "answer:question": {"passage": "a text"},
    "languages": {"test_set": "wmt14"},
    "augment:forward": {"method": "back-translate"},
    "augment:min_score": {"method": "back-translate", "forward": ["a.safetensors", "b.safetensors"]},
    "augment:reference": {"method": "distill", "choose": "chrf", "decode.n_best": 2},
    "decode.diversity_groups": {"decode.beam_size": 10},
    "decode.diversity_strength": {"decode.diversity_groups": 5, "decode.beam_size": 10},
    "from_name": {"format": "argos"},
    "to_name": {"format": "argos"},
    **{
        f"attention:model.{name}": {"positions": 7}
        for name in ("d_model", "positions", "first_position", "n_heads", "d_k")
    },
}

# Keys that on a command line exclude most others, or set them.
ALONE = {"evaluate": {"hypotheses"}, "attention": {"positions"}, "reproduce": {"reproduction"}}

# Keys of a group that a command takes whole, which it refuses to have another value.
REFUSED = {
    "score": {f"decode.{name}" for name in all_keys(DecodeConfig)} - set(READ),
    "generate": {"decode.coverage_penalty", "decode.quantize", "decode.batch_invariant"},
    "attention": {"decode.quantize"},
}


@dataclasses.dataclass(frozen=True)
class Leaf:
    """A key that leads to a value."""

    name: str
    hint: Any
    info: KeyInfo


def leaves(schema: type, prefix: str = "") -> Iterator[Leaf]:
    hints, nested = typing.get_type_hints(schema), fields_of(schema)
    for field in dataclasses.fields(schema):
        inner, name = nested[field.name], prefix + written_name(field.name)
        if inner is not None and inner is not Options:
            yield from leaves(inner, f"{name}.")
        else:
            yield Leaf(name, hints[field.name], info_of(field) or KeyInfo(""))


def another(command: str, leaf: Leaf, default: Any) -> Any:
    """A legal value of a key that is not `default`."""
    if (value := of_key(VALUES, command, leaf.name, default)) != default:
        return value
    hint = next((one for one in typing.get_args(leaf.hint) if one is not NoneType), leaf.hint)
    if typing.get_origin(leaf.hint) in (list, dict, tuple):
        hint = typing.get_origin(leaf.hint)
    if isinstance(hint, type) and issubclass(hint, Enum):
        return next(name for name in reversed(hint.__members__) if name != default)
    if leaf.info.choices:
        return next(name for name in leaf.info.legal_values if name != default)
    if hint is bool:
        return not default
    if hint in (int, float) or leaf.info.auto:
        return number(leaf.info, default, float if hint is float else int)
    if hint is dict:
        return {"period": 7, "shape": "tri=angle", "at": [1, 2.5]}
    if hint is list:
        return ["a b", "c,d"]
    return "mine" if default is None or re.fullmatch(r"[\w.]+", str(default)) else "no, 12:30"


def number(info: KeyInfo, default: Any, kind: type) -> Any:
    low = -math.inf if info.low is None else info.low
    given = default if isinstance(default, int | float) else max(low, 3)
    tried = [given + 1, given - 1, given / 2, (low + info.high) / 2, low]
    return next(
        kind(value)
        for value in tried
        if low <= value and (value < info.high if info.below else value <= info.high) and kind(value) != default
    )


def of_key(table: Mapping[str, Any], command: str, key: str, default: Any) -> Any:
    """An entry of a key of one command, or of all that have the key."""
    return table.get(f"{command}:{key}", table.get(key, default))


def at(plain: Mapping[str, Any], key: str) -> Any:
    value: Any = plain
    for part in key.split("."):
        value = value[part]
    return value


@cache
def base_of(command: str) -> dict[str, Any]:
    """The config of a command with its defaults."""
    return to_plain(load_config(command, NEEDED.get(command, [])))


@cache
def changed(command: str) -> list[tuple[frozenset[str], Any]]:
    """Configs, each with the keys that are not as by default there: nearly all in the first, then those that it lacks.

    The commands that take a training run's keys check them alike; what excludes others is tried with one of them.
    """
    schema, base = schema_of(command), base_of(command)
    keys = {
        one.name: another(command, one, at(base, one.name)) for one in leaves(schema) if not in_unset_group(base, one)
    }
    shared = trained_keys(command)
    left_out = ALONE.get(command, set()) | REFUSED.get(command, set())
    left_out |= shared - changed("train")[0][0] if shared else set()
    tried = {key: value for key, value in keys.items() if key not in left_out}
    while (config := built(command, base, tried)) is None:
        del tried[excluded(command, base, tried)]
    found = [(frozenset(tried), config)]
    for key in sorted(keys.keys() - tried.keys() - shared - REFUSED.get(command, set())):
        beside = {name: value for name, value in of_key(BESIDE, command, key, {}).items() if name in keys}
        config = from_plain(schema, with_values(base, {key: keys[key], **beside}))
        found.append((frozenset([key]), config))
    return found


def trained_keys(command: str) -> set[str]:
    """The keys of a training run, of the other commands that take them all."""
    return set(all_keys(TrainConfig)) if command != "train" and issubclass(schema_of(command), TrainConfig) else set()


def in_unset_group(base: dict[str, Any], leaf: Leaf) -> bool:
    """Whether no corpus is chosen by default: its keys are those of `train`."""
    return leaf.name.startswith("data.") and base["data"] is None


def built(command: str, base: dict[str, Any], values: Mapping[str, Any]) -> Any:
    try:
        return from_plain(schema_of(command), with_values(base, values))
    except ConfigError:
        return None


def excluded(command: str, base: dict[str, Any], values: Mapping[str, Any]) -> str:
    """The key that the refusal of these values names first."""
    with pytest.raises(ConfigError) as refused:
        from_plain(schema_of(command), with_values(base, values))
    named = re.findall(r"[a-z][\w.]*\w", str(refused.value).replace("-", "_"))
    return next(key for key in named if key in values)


def with_values(base: dict[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    plain: dict[str, Any] = json.loads(json.dumps(base))
    for key, value in values.items():
        *groups, last = key.split(".")
        group = plain
        for name in groups:
            group = group[name]
        group[last] = value
    return plain


def differing(config: dict[str, Any], base: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """The keys whose values are not those of `base`, with their values."""
    for name, value in config.items():
        if isinstance(value, dict) and base[name] and not name.endswith("options"):
            yield from differing(value, base[name], f"{prefix}{name}.")
        elif value != base[name]:
            yield prefix + name, value


def written(value: Any) -> str:
    """A value as a command line has it."""
    if isinstance(value, dict):
        return f"{{{','.join(f'{name}:{written(one)}' for name, one in value.items())}}}"
    if isinstance(value, list):
        return f"[{','.join(map(written, value))}]"
    return quoted_for_hydra(value) if isinstance(value, str) else json.dumps(value)


def comparable(command: str, config: Any) -> Any:
    """The config without what a recipe leaves open: by `distill` that is each of its keys that nothing else sets."""
    return dataclasses.replace(config, left_open=[]) if base_of(command).get("left_open") else config


@pytest.mark.slow
@each("command", list(COMMANDS))
def test_every_key_is_changed_in_some_config(command: str) -> None:
    base = base_of(command)
    keys = {one.name for one in leaves(schema_of(command)) if not in_unset_group(base, one)}
    reached = {key for new, config in changed(command) for key in new if at(to_plain(config), key) != at(base, key)}
    assert keys - reached - trained_keys(command) == REFUSED.get(command, set())
    assert len(changed(command)[0][0]) >= 0.7 * len(keys - REFUSED.get(command, set()))


@pytest.mark.slow
@each("command", list(COMMANDS))
def test_a_config_of_other_values_survives_yaml_and_json(command: str) -> None:
    for _, config in changed(command):
        assert from_plain(schema_of(command), yaml.safe_load(to_yaml(config))) == config
        assert from_plain(schema_of(command), json.loads(json.dumps(to_plain(config)))) == config


@pytest.mark.parametrize("command", slow_but(list(COMMANDS), "translate", "evaluate"))
def test_a_config_of_other_values_can_be_given_on_a_command_line(command: str) -> None:
    base = base_of(command)
    for new, config in changed(command):
        if new == {"reproduction"}:  # which chooses an experiment, and so other values of many keys
            continue
        plain = to_plain(config)
        begins = [f"init.from={written(plain['init']['from'])}"] if "lora.rank" in new or "lora.also" in new else []
        usual = to_plain(load_config(command, begins)) if begins else base  # fine-tuning has other defaults
        words = begins + [f"{key}={written(value)}" for key, value in differing(plain, usual)]
        assert comparable(command, load_config(command, [*NEEDED.get(command, []), *words])) == comparable(
            command, config
        )


@pytest.mark.parametrize("command", ["train", "doctor"])
def test_a_config_of_other_values_can_be_a_file_of_the_user_s(command: str, tmp_path: Path) -> None:
    (tmp_path / "experiment").mkdir()
    _, config = changed(command)[0]
    text = f"# @package _global_\n{to_yaml(config)}"
    (tmp_path / "experiment/mine.yaml").write_text(text, encoding="utf-8")
    assert (
        load_config(command, [*NEEDED.get(command, []), "experiment=mine", "recipe=null"], user_dir=tmp_path) == config
    )


# The words of `config` are those of another command.
@pytest.mark.parametrize("command", slow_but(sorted(set(COMMANDS) - {"config"}), "train", "translate", "evaluate"))
def test_cfg_prints_a_config_of_other_values(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    _, config = changed(command)[0]
    words = [f"{key}={written(value)}" for key, value in differing(to_plain(config), base_of(command))]
    assert main([command, *NEEDED.get(command, []), *words, "--cfg"]) == 0
    printed = from_plain(schema_of(command), yaml.safe_load(capsys.readouterr().out))
    assert comparable(command, printed) == comparable(command, config)


@each("command, key", [(command, key) for command in REFUSED for key in sorted(REFUSED[command])])
def test_a_key_that_a_command_has_no_use_for_is_refused(command: str, key: str) -> None:
    leaf = next(one for one in leaves(schema_of(command)) if one.name == key)
    value = another(command, leaf, at(base_of(command), key))
    words = [f"{name}={written(one)}" for name, one in {key: value, **of_key(BESIDE, command, key, {})}.items()]
    with pytest.raises(ConfigError, match=f"^{re.escape(key)}[=:].*Leave it out$"):
        load_config(command, words)
