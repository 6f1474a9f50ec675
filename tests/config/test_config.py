"""Config: what composes, what is refused, and in which words. Test names carry the row of the fault matrix."""

import importlib.util
import os
import time
from pathlib import Path

import pytest
import yaml

from tests.conftest import ROOT, slow
from tests.support.each import each
from transformer_cli.command import COMMANDS, schema_of
from transformer_cli.config.compose import from_plain, hydra_arguments, load_config, to_plain, to_yaml
from transformer_cli.config.evaluate import EvaluateConfig
from transformer_cli.config.key_help import help_of, keys_page
from transformer_cli.config.keys import all_keys
from transformer_cli.config.overrides import check_overrides
from transformer_cli.config.train import TrainConfig
from transformer_cli.config.yaml_files import choices_of, config_dir, groups_of
from transformer_cli.environment import concealed, folder_named
from transformer_cli.errors import ConfigError


def refusal(command: str, *overrides: str, user_dir: Path | None = None) -> str:
    with pytest.raises(ConfigError) as caught:
        load_config(command, overrides, user_dir=user_dir)
    message = str(caught.value)
    assert "\n" not in message
    return message


def own_files(folder: Path, **texts: str) -> Path:
    """A user's config folder: group__name → text."""
    for name, text in texts.items():
        file = folder / f"{name.replace('__', '/')}.yaml"
        file.parent.mkdir(exist_ok=True)
        file.write_text(text, encoding="utf-8")
    return folder


def user_yaml(folder: Path, text: str) -> Path:
    """A user's config folder with one experiment called `mine`."""
    return own_files(folder, experiment__mine=text)


def is_composed_elsewhere(group: str, choice: str) -> bool:
    """A corpus takes the recipe of its name, and the tests of scripts/table3 compose its rows."""
    is_row = choice.startswith("table3_") and choice != "table3_base"
    return is_row if group == "experiment" else group == "recipe" and choice in choices_of("data")


@each(
    "group, choice",
    [
        (group.name, choice)
        for group in sorted(config_dir().iterdir())
        if group.is_dir() and group.name in groups_of("train")
        for choice in choices_of(group.name)
        if not is_composed_elsewhere(group.name, choice)
    ],
)
def test_every_yaml_file_composes(group: str, choice: str) -> None:
    overrides = [f"{group}={choice}"]
    if (group, choice) == ("data", "files"):
        overrides += ["data.source_lang=en", "data.target_lang=de", "data.train=[a.en,a.de]"]
    if (group, choice) == ("recipe", "summarization"):  # of files, in one language
        overrides += ["data=files", "data.source_lang=en", "data.target_lang=en", "data.train=a.tsv"]
    elif group == "recipe" and choice in ("auto", "small"):  # of files, too
        overrides += ["data=files", "data.source_lang=en", "data.target_lang=de", "data.train=[a.en,a.de]"]
    if choice.startswith("decoder_"):
        overrides.append("data=text")
    config = load_config("train", overrides)
    assert isinstance(config, TrainConfig)
    if group == "experiment":  # leaves no number open
        numbers = [config.train.tokens_per_update, config.train.max_steps, config.train.eval_every]
        assert all(isinstance(number, int) for number in [*numbers, config.schedule.warmup_steps])


def test_every_yaml_file_says_where_its_numbers_come_from() -> None:
    for path in config_dir().rglob("*.yaml"):
        assert any(line.startswith("# ") for line in path.read_text(encoding="utf-8").split("\n")[:2]), path


def test_the_defaults_are_the_tiny_model_on_the_built_in_corpus() -> None:
    config = load_config("train")
    assert (config.model.preset, config.data.name, config.decode.beam_size) == ("tiny", "demo_en_fr", 4)


def test_base_and_big_are_the_rows_of_table_3() -> None:
    base, big = (load_config("train", [f"model={name}"]).model for name in ("base", "big"))
    assert (base.n_encoder_layers, base.d_model, base.d_ff, base.n_heads, base.dropout) == (6, 512, 2048, 8, 0.1)
    assert (big.n_encoder_layers, big.d_model, big.d_ff, big.n_heads, big.dropout) == (6, 1024, 4096, 16, 0.3)
    assert (base.key_width, big.value_width) == (64, 64)


def test_paper_base_trains_as_section_5_says() -> None:
    config = load_config("train", ["experiment=paper_base"])
    assert (config.train.tokens_per_update, config.train.max_steps, config.schedule.warmup_steps) == (
        25_000,
        100_000,
        4000,
    )
    assert (config.optimizer.betas, config.optimizer.eps, config.train.label_smoothing) == ((0.9, 0.98), 1e-9, 0.1)
    assert (config.decode.beam_size, config.decode.alpha, config.decode.max_extra_length) == (4, 0.6, 50)


@each("command", [name for name in COMMANDS if not groups_of(name)])
def test_what_is_not_composed_is_what_hydra_would_have_composed(command: str) -> None:
    flags = {"incident": "step-1"} if command == "replay" else {}
    assert load_config(command, flags=flags) == load_config(command, ["plugins=[]"], flags=flags)  # by Hydra


def test_a_group_choice_an_override_and_a_flag_rank_in_this_order() -> None:
    assert load_config("translate", ["decode=greedy"]).decode.search == "greedy"
    assert load_config("translate", ["decode.beam_size=3"]).decode.beam_size == 3
    assert load_config("translate", ["decode.beam_size=3"], flags={"decode.beam_size": 7}).decode.beam_size == 7


def test_a_flag_may_hold_what_the_override_grammar_may_not() -> None:
    for path in ("runs/a=b,{c}/x y", "a${b}", "${oc.env:HOME}"):
        assert load_config("translate", flags={"checkpoint": path}).checkpoint == path


def test_a_recipe_suits_its_corpus_and_an_override_still_wins() -> None:
    assert load_config("train").train.tokens_per_update < 25_000
    assert load_config("train", ["train.tokens_per_update=25000"]).train.tokens_per_update == 25_000
    assert load_config("train", ["data=wmt14_en_de"]).train.tokens_per_update == 25_000


@each(
    "overrides, says",
    [
        (["data=trec", "model.name=transformer"], "Set model.name=classifier"),
        (["model=decoder_tiny"], "data.task=translation (data=demo_en_fr). Set model.name=transformer"),
        (["data=text", "model.name=classifier"], "Set model.name=decoder"),
        (["data=trec", "train.best_metric=bleu"], "Set train.best_metric=accuracy"),
        (["data=text", "train.best_metric=accuracy"], "Set train.best_metric=nll"),
        (["train.best_metric=accuracy"], "Set train.best_metric=bleu"),
        (["data=text", "data.subword_dropout=0.1"], "data.subword_dropout=0.1"),
        (
            ["data=text", "decode.batch_invariant=true"],
            "decode.batch_invariant=true: data.task=language_model translates nothing",
        ),
        (["data=text", "data.tokenizer.joint=false"], "data.tokenizer.joint=false: data.task=language_model"),
    ],
)
def test_settings_of_another_task_are_refused(overrides: list[str], says: str) -> None:
    assert says in refusal("train", *overrides)


def test_a_benchmark_wants_parallel_text() -> None:
    assert "data=trec: a benchmark translates" in refusal("bench", "subject=train", "data=trec")


@pytest.mark.slow
@each("command", list(COMMANDS))
def test_a_config_survives_being_written_and_read(command: str) -> None:
    needed = {
        "replay": ["incident=somewhere"],
        "bench": ["subject=train"],
        "export": ["format=huggingface", "output=out"],
    }
    config = load_config(command, needed.get(command, []))
    assert from_plain(schema_of(command), yaml.safe_load(yaml.safe_dump(to_plain(config)))) == config


def test_evaluate_uses_the_models_corpus_unless_one_is_named() -> None:
    assert load_config("evaluate").data is None
    config = load_config("evaluate", ["data=demo_en_fr"])
    assert isinstance(config, EvaluateConfig)
    assert config.data is not None
    assert "data=NAME" in refusal("evaluate", "data.root=x")


@each(
    "override, suggestion",
    [
        ("model.d_modle=256", "`model.d_model`"),
        ("+model.d_modle=256", "`model.d_model`"),
        ("++model.d_modle=256", "`model.d_model`"),
        ("modle=base", "`model`"),
        ("d_model=256", "`model.d_model`"),
        ("trian.max_steps=3", "`train.max_steps`"),
        ("train.max_step=3", "`train.max_steps`"),
        ("data.tokeniser.vocab_size=3", "`data.tokenizer.vocab_size`"),
    ],
)
def test_E1_an_unknown_key_names_the_right_one(override: str, suggestion: str) -> None:
    message = refusal("train", override)
    assert message.startswith(override.lstrip("+").split("=")[0] + ": unknown key")
    assert f"did you mean {suggestion}?" in message


def test_E1_a_key_below_a_value_and_a_deleted_key_are_refused() -> None:
    assert "is a value, not a group" in refusal("train", "model.d_model.x=5")
    assert "cannot be deleted" in refusal("train", "~model.d_model")


@pytest.mark.parametrize(
    ("line", "says"), [("d_modle: 3", "did you mean `model.d_model`?"), ("_target_: os.system", "_target_")]
)
def test_E1_E7_an_unknown_key_or_a_class_in_a_users_yaml_is_refused(tmp_path: Path, line: str, says: str) -> None:
    folder = user_yaml(tmp_path, f"# @package _global_\nmodel:\n  {line}\n")
    assert says in refusal("train", "experiment=mine", user_dir=folder)


@pytest.mark.parametrize("name", ["plain", "with a blank", "50% #1", "größe", "it's"])
def test_a_users_own_yaml_is_found(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    folder = user_yaml(tmp_path / name, "# @package _global_\nmodel:\n  d_model: 64\n")
    assert load_config("train", ["experiment=mine"], user_dir=folder).model.d_model == 64


@each(
    "override, words",
    [
        ("model.d_model=abc", "model.d_model=abc: no whole number. Give one"),
        ("model.d_model=12.5", "model.d_model=12.5: no whole number. Give one"),
        ("model.d_model=[1]", "model.d_model=[1]: no whole number. Give one"),
        ("model.norm=prre", "model.norm=prre: unknown. Choose pre, post"),
        ("device=gpu", "device=gpu: unknown. Choose auto, cpu, cuda, mps"),
        ("device=1.5", "device=1.5: unknown. Choose auto, cpu, cuda, mps"),
        ("device=[cpu]", "device=['cpu']: unknown. Choose auto, cpu, cuda, mps"),
        ("force=1.5", "force=1.5: unknown. Choose true or false"),
        ("force=''", "force=: unknown. Choose true or false"),
        ("train.label_smoothing=x", "train.label_smoothing=x: no number. Give one"),
        ("runs=null", "runs=null: has a value always. Give one, or leave it out for its default"),
        ("name=[a]", "name=['a']: must be one text, without brackets or braces around it"),
        ("data.options=3", "data.options: must be a table of keys, as data.options.NAME=VALUE"),
        ("data.tags=[a,null]", "data.tags[1]=null: must have a value. Give one, or leave it out of the list"),
        ("train=5", "train: "),
        ("train.label_smoothing=nan", "train.label_smoothing=nan: out of range"),
        ("schedule.factor=-1", "schedule.factor=-1.0: out of range"),
        ("optimizer.eps=1e3", "optimizer.eps=1000.0: out of range"),
        ("train.max_steps=0", "train.max_steps=0: out of range"),
        ("seed=-1", "seed=-1: out of range"),
        ("train.length_penalties=[0.6,11]", "train.length_penalties=[0.6, 11.0]: 11.0 is out of range. Choose a value"),
        ("train.length_penalties=[0.6,nan]", "train.length_penalties=[0.6, nan]: nan is out of range"),
        ("train.length_penalties=[a]", "train.length_penalties[0]=a: no number. Give one"),
        ("data.weights=[1,0]", "data.weights=[1.0, 0.0]: 0.0 is out of range"),
        ("data.columns=[0,-1]", "data.columns=[0, -1]: -1 is out of range"),
    ],
)
def test_E2_a_wrong_type_or_range_names_the_key(override: str, words: str) -> None:
    assert refusal("train", override).startswith(words)


def test_E2_a_learning_rate_of_1e3_for_1e_minus_3_is_refused() -> None:
    assert "at most 10" in refusal("train", "schedule=cosine", "schedule.lr=1e3")
    assert load_config("train", ["schedule=cosine", "schedule.lr=1e-3"]).schedule.lr == 0.001


def test_E2_a_schedule_refuses_the_keys_of_another() -> None:
    assert "takes schedule.factor, not schedule.lr" in refusal("train", "schedule.lr=1e-3")
    assert "takes schedule.lr, not schedule.factor" in refusal("train", "schedule=linear", "schedule.factor=1")
    message = refusal("train", "experiment=multi30k", "schedule=noam")
    assert "schedule.lr=null" in message
    load_config("train", ["experiment=multi30k", "schedule=noam", "schedule.lr=null"])


def test_E3_no_choice_is_refused_where_one_is_needed() -> None:
    assert "no data called `null`" in refusal("train", "data=null")
    assert load_config("train", ["experiment=null"]).model.preset == "tiny"


def test_E3_an_unknown_schedule_is_left_to_the_registry_that_knows_the_near_ones() -> None:
    from transformer_cli.config.train import SCHEDULE_HEIGHT
    from transformer_cli.training.schedules import SCHEDULES

    assert {name: SCHEDULES[name].height for name in SCHEDULE_HEIGHT} == SCHEDULE_HEIGHT
    with pytest.raises(ConfigError, match="did you mean `cosine`"):
        SCHEDULES.check(load_config("train", ["schedule.name=cosin"]).schedule.name)


def test_E3_an_unknown_choice_lists_the_choices() -> None:
    assert (
        refusal("train", "model=bgi") == "model: no model called `bgi`; did you mean `big`?"
        " (choices: auto, base, big, decoder_base, decoder_big, decoder_small, decoder_tiny, deep_shallow, small,"
        " student_mini, student_small, student_tiny, tiny)"
    )
    assert "unknown key" in refusal("translate", "model=big")


@each(
    "overrides, words",
    [
        (["model.n_heads=7"], ["model.n_heads=7", "model.d_model=128", "model.n_heads=4 or 8"]),
        (["model.d_model=129", "model.n_heads=3"], ["model.d_model=129", "model.positions=sinusoidal", "128 or 130"]),
        (["model.positions=rotary", "model.d_k=33"], ["model.d_k=33", "model.d_k=34"]),
        (["model.dropout=1"], ["model.dropout=1", "below 1"]),
        (["model.n_encoder_layers=0"], ["model.n_encoder_layers=0", "at least 1"]),
        (["train.label_smoothing=1"], ["train.label_smoothing=1", "below 1"]),
        (["schedule.warmup_steps=0"], ["schedule.warmup_steps=0", "at least 1"]),
        (["data.max_length=9999"], ["data.max_length=9999", "train.tokens_per_update=1024"]),
        (["data.tokenizer.joint=false"], ["data.tokenizer.joint=false", "model.tie_embeddings=three_way"]),
        (["train.average_last=9"], ["train.average_last=9", "train.keep_last to 9"]),
        (
            ["decode.length_normalization=average", "decode.length_penalty=1"],
            ["decode.length_penalty=1.0", "decode.length_normalization=gnmt, not average", "Leave one of them out"],
        ),
        (["decode.min_length=9", "decode.max_length=9"], ["decode.min_length=9", "Raise decode.max_length to 10"]),
        (["decode.diversity_groups=3"], ["decode.diversity_groups=3", "decode.beam_size=4", "Set decode.beam_size=6"]),
        (["decode.diversity_strength=1"], ["decode.diversity_strength=1", "Set decode.diversity_groups"]),
        (["decode.coverage_penalty=-1"], ["decode.coverage_penalty=-1.0: out of range", "at least 0 and at most 10"]),
        (["decode.no_repeat_ngram=0"], ["decode.no_repeat_ngram=0: out of range", "at least 1"]),
        (["decode.max_length=0"], ["decode.max_length=0: out of range", "at least 1"]),
        (["decode.min_length=-1"], ["decode.min_length=-1: out of range", "at least 0"]),
        (["decode.length_normalization=mean"], ["decode.length_normalization", "mean", "gnmt", "average", "none"]),
        (
            ["model.positions=learned", "model.max_positions=100"],
            ["model.max_positions=100", "model.max_positions to 256"],
        ),
    ],
)
def test_E4_values_that_contradict_each_other_name_both_and_the_way_out(overrides: list[str], words: list[str]) -> None:
    message = refusal("train", *overrides)
    assert all(word in message for word in words), message


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("a: 1\na: 2\n", 2, "stands twice"),
        ("a: &x [1]\nb: *x\n", 2, "aliases are not supported"),
        ("a:\n\t- b\n", 2, "not valid YAML"),
        ("a: [1,\n", 2, "not valid YAML"),
    ],
)
def test_E5_bad_yaml_names_file_and_line(tmp_path: Path, text: str, line: int, words: str) -> None:
    message = refusal("train", "experiment=mine", user_dir=user_yaml(tmp_path, text))
    assert f"mine.yaml:{line}: " in message
    assert words in message


def test_E5_an_alias_bomb_and_a_giant_file_are_refused_at_once(tmp_path: Path) -> None:
    bomb = "a: &a [x,x]\n" + "".join(
        f"{b}: &{b} [*{a},*{a}]\n" for a, b in zip("abcdefghijklmnopqrstuv", "bcdefghijklmnopqrstuvw", strict=True)
    )
    folder = user_yaml(tmp_path, bomb)
    started = time.perf_counter()
    assert "aliases" in refusal("train", "experiment=mine", user_dir=folder)
    (folder / "experiment" / "mine.yaml").write_text("#" * 1_000_001)
    assert "larger than 1,000,000 bytes" in refusal("train", "experiment=mine", user_dir=folder)
    assert time.perf_counter() - started < 1


def test_E6_what_is_left_unset_or_leads_nowhere_is_named() -> None:
    assert refusal("train", "data=files").startswith("data.source_lang: not set")
    assert "'foo.bar' not found" in refusal("train", "seed=${foo.bar}")
    assert refusal("train", "seed=${seed}").startswith("seed=${seed}: ")


@each("override", ["data.name=../x", "model.preset=a/b", "name=a/b", "data.target_lang=../de"])
def test_what_becomes_part_of_a_file_name_can_not_lead_elsewhere(override: str) -> None:
    assert "becomes part of a file name" in refusal("train", override)


def test_hydras_own_keys_need_multirun() -> None:
    assert "Add -m" in refusal("train", "hydra.job.chdir=true")


def test_evaluate_takes_one_test_set() -> None:
    assert "two test sets" in refusal("evaluate", "data=demo_en_fr", "source=a", "reference=b")
    assert refusal("evaluate", "reference=a").startswith("--source: not given")


@each("override", ["+model._target_=os.system", "+_target_=os.system"])
def test_E7_a_class_can_not_be_named(override: str) -> None:
    assert "_target_: not supported" in refusal("train", override)


@pytest.mark.parametrize("override", ["hydra.launcher._target_=os.system", "hydra.callbacks={a:{_target_:os.system}}"])
def test_E7_hydra_is_given_no_class_either(override: str) -> None:
    with pytest.raises(ConfigError, match="_target_: not supported"):
        check_overrides("train", [override])


def test_F6_a_folder_from_the_environment_stays_as_it_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TFM_CORPORA", "/srv/corpora/")
    monkeypatch.delenv("TFM_ABSENT", raising=False)
    config = load_config("train", ["data.cache=${oc.env:TFM_CORPORA}/cache"])
    assert config.data.cache == "${oc.env:TFM_CORPORA}/cache"
    assert folder_named(config.data.cache) == Path("/srv/corpora/cache")
    assert concealed("/srv/corpora/cache: full") == "${oc.env:TFM_CORPORA}/cache: full"
    assert from_plain(TrainConfig, yaml.safe_load(to_yaml(config))) == config
    fallback = load_config("train", ["data.cache=${oc.env:TFM_ABSENT,corpora}"]).data.cache
    assert folder_named(fallback) == Path("corpora")
    assert "TFM_ABSENT is not set" in refusal("train", "data.cache=${oc.env:TFM_ABSENT}")


def test_F6_a_reference_takes_nothing_from_the_environment_along(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TFM_CORPORA", "/srv/corpora")
    both = load_config("train", ["+data.root=null", "data.cache=${oc.env:TFM_CORPORA}"])
    assert both.data.cache == "${oc.env:TFM_CORPORA}"
    for key in ("name", "seed", "data.name"):
        assert "/srv" not in refusal("train", "data.cache=${oc.env:TFM_CORPORA}", f"{key}=${{data.cache}}")


@each(
    "text",
    [
        *("${oc.decode:'1'}", "${oc.select:seed}", "${oc.dict.keys:data}", "${hydra:job.name}", "${now:%Y}"),
        *("${oc.deprecated:seed}", "${custom:1}", "a${oc.decode:x}b", "${oc.env:HOME}${oc.decode:x}"),
    ],
)
def test_F7_no_other_resolver_is_called(text: str) -> None:
    assert "only ${oc.env:NAME} and ${other.key} are filled in" in refusal("train", f"name={text}")


def test_a_key_may_name_another_key() -> None:
    assert load_config("train", ["seed=7", "data.seed=${seed}", "name=run-${seed}"]).name == "run-7"


def test_configs_from_files_are_not_interpolated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET", "s3cret")
    plain = to_plain(load_config("train")) | {"name": "${oc.env:SECRET}"}
    with pytest.raises(ConfigError, match="not supported here") as caught:
        from_plain(TrainConfig, plain)
    assert "s3cret" not in str(caught.value)


def test_every_key_is_read_somewhere() -> None:
    package = config_dir().parent / "transformer_cli"
    schema_files = set((package / "config").glob("*.py"))
    code, schema = (
        "\n".join(path.read_text(encoding="utf-8") for path in paths)
        for paths in (set(package.rglob("*.py")) - schema_files, schema_files)
    )
    for command, cls in [(name, one.schema) for name, one in COMMANDS.items()]:
        for key in all_keys(cls):
            name = key.rsplit(".", 1)[-1]
            read = f".{name}" in code or schema.count(f".{name}") > schema.count(f'".{name}')
            assert read, f"{command}: nothing reads {key}"


def test_a_key_that_is_a_keyword_of_python_is_read_wherever_it_is_written(tmp_path: Path) -> None:
    folder = user_yaml(tmp_path, "# @package _global_\ninit:\n  from: runs/a\n")
    plain = to_plain(load_config("train", ["init.from=runs/a", "fine_tuning=null"]))
    assert plain["init"]["from"] == "runs/a"
    assert to_plain(load_config("train", ["experiment=mine"], user_dir=folder)) == plain
    assert to_plain(from_plain(TrainConfig, plain)) == plain
    assert "from_" not in to_yaml(from_plain(TrainConfig, plain))


# Sentences, and the page that is made of them


@each("command", list(COMMANDS))
def test_every_key_has_a_sentence(command: str) -> None:
    for one in help_of(schema_of(command)):
        assert one.help[:1].strip(), f"{one.key}: no sentence. Write one beside the field"
        assert one.help.endswith("."), f"{one.key}: {one.help}"


def test_the_page_of_keys_is_what_the_generator_writes() -> None:
    spec = importlib.util.spec_from_file_location("configuration", ROOT / "scripts" / "configuration.py")
    assert spec is not None
    assert spec.loader is not None
    configuration = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(configuration)
    written = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")
    assert configuration.page() == written, "run scripts/configuration, and commit docs/configuration.md"


def test_the_keys_that_contain_a_pattern_are_printed_with_their_sentences() -> None:
    assert keys_page("translate", "length_pen") == (
        "decode.length_penalty: number or null, 0 to 10, default null\n"
        "    Exponent α of gnmt length normalization (Wu et al. 2016); higher favours longer output. Unset: the model's"
        " own, if train.length_penalties chose it, else 0.6.\n"
    )
    assert keys_page("train", "warmup").startswith("schedule.warmup_steps: int or auto, from 1, default 4000\n")
    log_every = "train.log_every: int or auto, from 1, default 100"  # `tfm prepare` resumes nothing
    assert keys_page("train", "log_every").startswith(f"{log_every}, may change on resume\n")
    assert keys_page("prepare", "log_every").startswith(f"{log_every}\n")
    assert "subject: choice, machine | train | loss" in keys_page("bench", "")
    with pytest.raises(ConfigError, match=r"did you mean `decode\.beam_size`"):
        keys_page("translate", "decode.beem_size")


# Recipes, and the files of --config-dir


OWN_DATA = "name: mine\nsource_lang: en\ntarget_lang: de\ntrain: [a.en, a.de]\n"


@pytest.mark.parametrize(
    ("text", "model", "expected"),
    [
        (OWN_DATA, "transformer", "auto"),
        (f"task: classification\n{OWN_DATA}", "classifier", "labels"),
        (f"task: language_model\n{OWN_DATA}", "decoder", "text"),
        ("defaults:\n  - text\nname: mine\ntrain: a.txt\n", "decoder", "text"),
    ],
)
@pytest.mark.parametrize("command", ["train", slow("doctor"), slow("prepare")])
def test_a_corpus_of_one_s_own_takes_the_recipe_of_its_task(
    tmp_path: Path, text: str, model: str, expected: str, command: str
) -> None:
    folder = own_files(tmp_path, data__mine=text)
    config = load_config(command, ["data=mine"], user_dir=folder)
    assert config.model.name == model
    named = load_config(command, ["data=mine", f"recipe={expected}"], user_dir=folder)
    assert to_plain(config) == to_plain(named)
    without = load_config(
        command, ["data=mine", "recipe=null", f"model.name={model}", "train.best_metric=nll"], user_dir=folder
    )
    assert (without.train.tokens_per_update, without.train.max_steps) == (25_000, 100_000)


def test_a_recipe_of_the_corpus_s_own_name_comes_first(tmp_path: Path) -> None:
    recipe = "# @package _global_\ntrain:\n  max_steps: 7\n"
    folder = own_files(tmp_path, data__mine=OWN_DATA, recipe__mine=recipe)
    assert load_config("train", ["data=mine"], user_dir=folder).train.max_steps == 7


def test_one_s_own_experiment_leaves_the_recipe_to_its_corpus(tmp_path: Path) -> None:
    experiment = "# @package _global_\ndefaults:\n  - override /data: mine\ntrain:\n  max_steps: 7\n"
    folder = own_files(tmp_path, data__mine=OWN_DATA, experiment__mine=experiment)
    train = load_config("train", ["experiment=mine"], user_dir=folder).train
    assert (train.max_steps, train.tokens_per_update) == (7, "auto")


def test_named_corpora_follow_their_size_but_the_paper_s_follow_the_paper() -> None:
    for corpus in ("multi30k_en_fr", "iwslt14_de_en"):
        assert load_config("train", [f"data={corpus}"]).train.tokens_per_update == "auto"
        assert load_config("bench", [f"data={corpus}", "subject=train"]).train.tokens_per_update == 25_000
    for corpus in ("wmt14_en_de", "wmt14_en_fr"):
        train = load_config("train", [f"data={corpus}"]).train
        assert (train.tokens_per_update, train.max_steps, train.patience) == (25_000, 100_000, None)


def test_a_sweep_over_corpora_with_different_recipes_says_so(tmp_path: Path) -> None:
    folder = own_files(tmp_path, data__mine=OWN_DATA)
    with pytest.raises(ConfigError, match=r"data=mine,trec: these take different recipes\. Name one with recipe="):
        hydra_arguments("train", ["data=mine,trec"], folder)
    assert "recipe=auto" in hydra_arguments("train", ["data=mine,multi30k_en_de"], folder)


@pytest.mark.parametrize(
    "broken", ["a: [1,\n", "a: 1\na: 2\n", "a: &x [1]\nb: *x\n", "x: {_target_: os.system}\n", "#" * 1_000_001]
)
def test_only_what_is_chosen_is_read_and_that_is_read_strictly(tmp_path: Path, broken: str) -> None:
    chosen = "# @package _global_\ndefaults:\n  - override /model: mine\n"
    folder = own_files(tmp_path, data__mine=OWN_DATA, data__broken=broken, model__mine=broken, experiment__mine=chosen)
    assert load_config("train", ["data=mine"], user_dir=folder).data.name == "mine"
    assert "broken.yaml:" in refusal("train", "data=broken", user_dir=folder)
    assert "broken.yaml:" in refusal("prepare", "data=broken", user_dir=folder)
    assert "model/mine.yaml:" in refusal(
        "train", "experiment=mine", user_dir=folder
    )  # which is named in what is chosen
    own_files(tmp_path, recipe__mine=broken)
    assert "recipe/mine.yaml:" in refusal("train", "data=mine", user_dir=folder)
    with pytest.raises(ConfigError, match=r"broken\.yaml:"):  # in a sweep, too
        hydra_arguments("train", ["data=mine,broken"], folder)


@pytest.mark.parametrize("reference", ["${oc.env:HOME}", "${name}", "${oc.env:HOME}/../model/base", "x${now:%Y}"])
@pytest.mark.parametrize("entry", ["override /model: '{}'", "'{}'", "/model@model: ['{}']"])
def test_E7_what_a_users_file_is_made_of_is_named_and_not_computed(tmp_path: Path, entry: str, reference: str) -> None:
    text = f"# @package _global_\ndefaults:\n  - {entry.format(reference)}\n"
    message = refusal("train", "experiment=mine", user_dir=user_yaml(tmp_path, text))
    assert "experiment/mine.yaml: defaults.0" in message
    assert f"'{reference}' is no choice. Name one, as in model: base" in message
    assert os.environ["HOME"] not in message.replace(str(tmp_path), "")


def test_E7_a_key_of_a_users_file_is_not_computed_either(tmp_path: Path) -> None:
    text = "# @package _global_\ntrain:\n  ${oc.decode:max_steps}: 7\n"
    message = refusal("train", "experiment=mine", user_dir=user_yaml(tmp_path, text))
    assert "only ${oc.env:NAME} and ${other.key} are filled in" in message


def test_a_file_that_would_be_ignored_for_one_of_ours_is_refused(tmp_path: Path) -> None:
    folder = own_files(tmp_path, model__small="d_model: 64\nn_heads: 4\n")
    assert load_config("train", user_dir=folder).model.preset == "tiny"
    assert "small.yaml: tfm has a model of this name" in refusal("train", "model=small", user_dir=folder)
    ours = (config_dir() / "model" / "small.yaml").read_text(encoding="utf-8")
    own_files(tmp_path, model__small=ours)
    assert load_config("train", ["model=small"], user_dir=folder).model.preset == "small"
