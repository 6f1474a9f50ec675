"""What a plugin registers, returns, raises or yields wrongly ends in one line with the plugin, its file and line."""

import math
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.support.forked import Ran, run
from tests.toy.run import model_file, packed
from transformer_cli.config.data import DataConfig, OnBad
from transformer_cli.config.decode import DecodeConfig
from transformer_cli.config.model import Vocabulary
from transformer_cli.config.train import OptimizerConfig, ScheduleConfig
from transformer_cli.data.corpus import load_text
from transformer_cli.data.pair_changes import PAIR_CHANGES
from transformer_cli.data.readers import READERS
from transformer_cli.decoding.search import SEARCHES, ControlIds, Hypothesis, SearchMethod, SearchRequest
from transformer_cli.errors import ConfigError, DataError
from transformer_cli.evaluation.metrics import (
    METRICS,
    SENTENCE_METRICS,
    MetricSettings,
    Score,
    SentenceScores,
    Translations,
    sentence_scores,
)
from transformer_cli.evaluation.translation import evaluate_translations
from transformer_cli.models.build import build_model
from transformer_cli.models.registry import MODELS
from transformer_cli.registry import Registry
from transformer_cli.training.optimizers import OPTIMIZERS, build_optimizer
from transformer_cli.training.schedules import SCHEDULES, build_schedule

REGISTRIES: list[Registry[Any]] = [
    *(MODELS, OPTIMIZERS, SCHEDULES, SEARCHES, METRICS, SENTENCE_METRICS, READERS, PAIR_CHANGES)
]
HERE = rf"plugin {re.escape(__name__)} \(.*{Path(__file__).name}:\d+\)"
TWO_LINES = Translations(["a b", "c"], [["a b", "d"]])


@pytest.fixture(autouse=True)
def own_registries(monkeypatch: pytest.MonkeyPatch) -> None:
    for registry in REGISTRIES:
        monkeypatch.setattr(registry, "_entries", dict(registry._entries))
        monkeypatch.setattr(registry, "_options", dict(registry._options))


# ---- Entries


def one_argument(first: object) -> None:
    """What takes too few for any registry but that of searches."""


def no_argument() -> None:
    """What takes too few for all."""


@pytest.mark.parametrize("registry", REGISTRIES, ids=lambda registry: registry.kind)
@pytest.mark.parametrize("entry", [3, None, "beam", no_argument])
def test_what_is_no_entry_is_refused_with_what_is_wanted(registry: Registry[Any], entry: Any) -> None:
    with pytest.raises(ConfigError, match=r"is a function of \(\w+|is a subclass of Reader"):
        registry.register("mine")(entry)
    assert "mine" not in registry.names()


def test_a_refusal_says_where_the_function_is() -> None:
    with pytest.raises(ConfigError, match=rf"^{HERE}: a schedule is a function of \(config, d_model, max_steps\)"):
        SCHEDULES.register("mine")(one_argument)


def test_settings_that_are_no_dataclass_or_have_no_key_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"^schedule `mine`: options= takes a dataclass"):
        SCHEDULES.register("mine", options=dict)
    with pytest.raises(ConfigError, match=r"^metric `mine`: options= does not exist here"):
        METRICS.register("mine", options=Score)
    with pytest.raises(ConfigError, match=r"^metric registry: the name of an entry is text, as register\('mine'\)"):
        METRICS.register(no_argument)  # type: ignore[arg-type]


@dataclass
class Needed:
    period: int


def test_a_setting_without_a_default_has_to_be_set() -> None:
    SCHEDULES.register("mine", options=Needed)(lambda config, d_model, max_steps: lambda n: config.options["period"])
    assert build_schedule(ScheduleConfig("mine", lr=1.0, options={"period": 3}), d_model=1, max_steps=2)(1) == 3
    with pytest.raises(ConfigError, match=r"schedule\.options\.period"):
        build_schedule(ScheduleConfig("mine", lr=1.0), d_model=1, max_steps=2)


# ---- Results


@pytest.mark.parametrize(
    ("result", "says"),
    [
        (None, "None, not a list of Score"),
        (Score("x", 1.0, ""), "not a list of Score"),
        ([1.0], "not a list of Score"),
        ([Score("x", math.nan, "")], "whose value is not a finite number"),
        ([Score("x", None, "")], "whose value is not a finite number"),  # type: ignore[arg-type]
        ([Score("x", True, "")], "whose value is not a finite number"),
        ([Score("x\ny", 1.0, "")], "whose name is not text that can be printed on a line"),
        ([Score(" ", 1.0, "")], "whose name is empty"),
        ([Score("x", 1.0, "\x1b[31m")], "whose signature is not text that can be printed on a line"),
        ([Score("x", 1.0, None)], "whose signature is not text"),  # type: ignore[arg-type]
        ([Score("x", 1.0, ""), Score("y", math.inf, "")], "whose value is not a finite number"),
    ],
    ids=str,
)
def test_a_metric_that_returns_no_scores_is_named(result: Any, says: str) -> None:
    METRICS.register("mine")(lambda translations, settings: result)
    with pytest.raises(ConfigError, match=rf"^{HERE}: returned .*{says}"):
        evaluate_translations(TWO_LINES, MetricSettings(), ["mine"], test="test")


@pytest.mark.parametrize(
    ("result", "says"),
    [
        (None, "None, not SentenceScores"),
        (SentenceScores("x", [1.0], ""), "1 scores for 2 lines"),
        (SentenceScores("x", [1.0, math.nan], ""), "nan for a line, not a finite number"),
        (SentenceScores("x", [1.0, False], ""), "False for a line, not a finite number"),
        (SentenceScores("x\ty", [1.0, 1.0], ""), "whose name is not text that can be printed on a line"),
    ],
    ids=str,
)
def test_a_metric_of_sentences_that_has_not_one_score_for_each_is_named(result: Any, says: str) -> None:
    METRICS.register("mine")(lambda translations, settings: [])
    SENTENCE_METRICS.register("mine")(lambda translations, settings: result)
    with pytest.raises(ConfigError, match=rf"^{HERE}: returned .*{says}"):
        sentence_scores("mine", TWO_LINES, MetricSettings())


@pytest.mark.parametrize("name", ["BLEU", "bleu", "Bleu"])
def test_a_score_with_the_name_of_another_is_refused(name: str) -> None:
    METRICS.register("mine")(lambda translations, settings: [Score(name, 1.0, "")])
    for metrics in (["bleu", "mine"], ["mine", "bleu"]):
        with pytest.raises(
            ConfigError, match=rf"^metrics={metrics[1]}: its score .* has the name of another, .*Rename a plugin"
        ):
            evaluate_translations(TWO_LINES, MetricSettings(), metrics, test="test")
    assert evaluate_translations(TWO_LINES, MetricSettings(), ["mine"], test="test").scores[0].name == name


def spoil(translations: Translations) -> None:
    """All that a metric can change in what it is given."""
    given: Any = translations
    for lines in (given.hypotheses, given.sources, *given.references):
        lines[:] = [line.upper() for line in lines]
        lines.pop()
    given.references.clear()


def test_what_a_metric_changes_in_its_lines_changes_no_other_score() -> None:
    def scores(translations: Translations, settings: MetricSettings) -> list[Score]:
        spoil(translations)
        return []

    def sentences(translations: Translations, settings: MetricSettings) -> SentenceScores:
        spoil(translations)
        return SentenceScores("mine", [1.0, 2.0], "")

    METRICS.register("mine")(scores)
    SENTENCE_METRICS.register("mine")(sentences)
    translations = Translations(["a b c d e", "c d"], [["a b c d x", "d c"]], ["A", "B"])
    before = evaluate_translations(translations, MetricSettings(), ["bleu", "chrf"], test="test").scores
    after = evaluate_translations(translations, MetricSettings(), ["mine", "bleu", "chrf"], test="test").scores
    assert after == before
    assert sentence_scores("mine", translations, MetricSettings()).values == [1.0, 2.0]
    assert translations == Translations(["a b c d e", "c d"], [["a b c d x", "d c"]], ["A", "B"])


@pytest.mark.parametrize("rate", [None, -0.1, math.nan, math.inf, "0.1", torch.tensor(0.1)], ids=str)
def test_a_learning_rate_that_is_no_number_is_named_with_its_update(rate: Any) -> None:
    SCHEDULES.register("mine")(lambda config, d_model, max_steps: lambda n: rate if n == 7 else 0.1)
    schedule = build_schedule(ScheduleConfig("mine", lr=1.0), d_model=1, max_steps=9)
    assert schedule(6) == 0.1
    with pytest.raises(ConfigError, match=rf"^{HERE}: returned .* as the learning rate of update 7, not a number"):
        schedule(7)


def test_a_schedule_an_optimizer_and_a_model_that_are_none_are_named() -> None:
    SCHEDULES.register("mine")(lambda config, d_model, max_steps: 0.1)
    with pytest.raises(ConfigError, match=rf"^{HERE}: returned 0\.1, not a function of the step"):
        build_schedule(ScheduleConfig("mine", lr=1.0), d_model=1, max_steps=9)
    OPTIMIZERS.register("mine")(lambda model, config: None)
    with pytest.raises(ConfigError, match=rf"^{HERE}: returned None, not a torch\.optim\.Optimizer"):
        build_optimizer(torch.nn.Linear(1, 1), OptimizerConfig("mine"))
    MODELS.register("mine")(lambda config, source, target, options: torch.nn.Linear(1, 1))
    config = model_file().config
    config.name = "mine"
    with pytest.raises(ConfigError, match=rf"^{HERE}: returned a Linear, not a Model or a subclass"):
        build_model(config, Vocabulary(9, 0), Vocabulary(9, 0))


def test_an_optimizer_whose_step_needs_a_closure_is_named() -> None:
    OPTIMIZERS.register("mine")(lambda model, config: torch.optim.LBFGS(model.parameters()))
    with pytest.raises(
        ConfigError, match=rf"^{HERE}: returned a LBFGS, whose step\(\) cannot be called alone \(.*clos"
    ):
        build_optimizer(torch.nn.Linear(1, 1), OptimizerConfig("mine"))


def test_an_optimizer_has_each_parameter_that_is_trained() -> None:
    def build(model: torch.nn.Module, config: OptimizerConfig) -> torch.optim.Optimizer:
        return torch.optim.SGD(chosen(model), lr=0.0)

    OPTIMIZERS.register("mine")(build)
    layers = [torch.nn.Linear(1, 1) for _ in range(3)]
    layers[2].weight = layers[0].weight  # one parameter of two names: five in all
    model = torch.nn.Sequential(*layers)

    def chosen(model: torch.nn.Module) -> list[torch.nn.Parameter]:
        return list(model.parameters())[:2]

    says = rf"^{HERE}: returned a SGD without 3 of the 5 trained parameters, as 1\.weight, which would never change"
    with pytest.raises(ConfigError, match=says):
        build_optimizer(model, OptimizerConfig("mine"))
    for name in ("1.weight", "1.bias", "2.bias"):
        model.get_parameter(name).requires_grad_(False)
    assert len(build_optimizer(model, OptimizerConfig("mine")).param_groups[0]["params"]) == 2


GOOD = Hypothesis([5, 6], -1.0, -1.0, finished=True)


@pytest.mark.parametrize(
    ("found", "says"),
    [
        (None, "None, not a list with the hypotheses of each of 2 sentences"),
        ([[GOOD]], "not a list with the hypotheses of each of 2 sentences"),
        ([[GOOD], []], r"\[\] for a sentence, not a list of 1 to decode.n_best=1"),
        ([[GOOD], [GOOD, GOOD]], "for a sentence, not a list of 1 to decode.n_best=1"),
        ([[GOOD], ["text"]], "'text', not a Hypothesis"),
        ([[GOOD], [Hypothesis([5, 1.5], -1.0, -1.0, finished=True)]], "not a Hypothesis whose ids are whole"),  # type: ignore[list-item]
        ([[GOOD], [Hypothesis([5, 2], -1.0, -1.0, finished=True)]], "ids with 2, which stands for no text"),
        ([[GOOD], [Hypothesis([5], math.nan, -1.0, finished=True)]], "a score of nan"),
    ],
    ids=str,
)
def test_a_search_that_does_not_return_hypotheses_is_named(found: Any, says: str) -> None:
    control = ControlIds(pad=0, bos=1, eos=2, unk=3)
    config = DecodeConfig(search="mine", beam_size=1)
    no_cache: Any = None
    request: SearchRequest[Any] = SearchRequest(
        lambda ids, cache: torch.zeros(2, 9), no_cache, control, torch.tensor([3, 3]), config
    )
    for entry in (lambda request: found, SearchMethod("mine", lambda request: found)):
        SEARCHES._entries.pop("mine", None)
        SEARCHES.register("mine")(entry)
        with pytest.raises(ConfigError, match=rf"^{HERE}: returned .*{says}"):
            SEARCHES["mine"](request)
    SEARCHES._entries.pop("mine", None)
    SEARCHES.register("mine")(lambda request: [[GOOD], [GOOD]])
    assert SEARCHES["mine"](request) == [[GOOD], [GOOD]]


# ---- From the command line


def error_of(ran: Ran, code: int) -> str:
    text = ran.err.decode()
    assert (ran.code, ran.out) == (code, b""), text
    assert "Traceback" not in text
    (line,) = [line for line in text.split("\n") if line.startswith("tfm: error: ")]
    return line.removeprefix("tfm: error: ")


def write_plugin(folder: Path, text: str) -> None:
    (folder / "mine.py").write_text(text, encoding="utf-8")


SCORE = ["evaluate", "--plugin", "mine", "--hypotheses", "mine.py", "--reference", "mine.py", "metrics=[mine]"]


def metric(body: str) -> str:
    return (
        "from transformer_cli.evaluation.metrics import METRICS, Score\nprint('of a plugin')\n"
        f"@METRICS.register('mine')\ndef mine(translations, settings):\n    {body}\n"
    )


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("return [Score('mine', 1 / 0, '')]", "ZeroDivisionError: division by zero"),
        ("import sys; sys.exit()", "SystemExit"),
        ("import sys; sys.exit(0)", "SystemExit: 0"),
        ("raise SystemExit('no model')", "SystemExit: no model"),
    ],
)
def test_what_a_plugin_raises_is_its_own_fault_and_is_shown_on_request(body: str, says: str, tmp_path: Path) -> None:
    write_plugin(tmp_path, metric(body))
    line = error_of(run(SCORE, tmp_path), 2)
    assert line == f"plugin mine (mine.py:5): {says}. Correct it, or see all calls with TFM_DEBUG=1"
    shown = run(SCORE, tmp_path, env={"TFM_DEBUG": "1"}).err.decode()
    assert 'mine.py", line 5, in mine' in shown


def test_a_fault_of_this_package_below_a_plugin_keeps_its_message_and_a_print_leaves_stdout_alone(
    tmp_path: Path,
) -> None:
    refused = "from transformer_cli.errors import DataError; raise DataError('three names for one thing. Choose one')"
    write_plugin(tmp_path, metric(refused))
    ran = run(SCORE, tmp_path)
    assert error_of(ran, 3) == "three names for one thing. Choose one"
    assert b"of a plugin" in ran.err


def test_a_file_that_a_plugin_does_not_find_is_named_with_the_line_that_asks_for_it(tmp_path: Path) -> None:
    write_plugin(tmp_path, metric("return [Score('mine', float(open('scores.txt').read()), '')]"))
    line = error_of(run(SCORE, tmp_path), 5)
    assert line == "scores.txt: No such file or directory (plugin mine (mine.py:5)). Check the path and the disk"


def test_a_plugin_that_is_a_package_is_named_with_the_file_within(tmp_path: Path) -> None:
    package = tmp_path / "mine"
    package.mkdir()
    (package / "__init__.py").write_text("", encoding="utf-8")
    (package / "helper.py").write_text("def value():\n    raise KeyError('weight')\n", encoding="utf-8")
    text = metric("from mine.helper import value; return value()")
    (package / "scores.py").write_text(text, encoding="utf-8")
    for name in ("h", "r"):
        (tmp_path / name).write_text("a\n", encoding="utf-8")
    command = ["evaluate", "--plugin", "mine.scores", "--hypotheses", "h", "--reference", "r", "metrics=[mine]"]
    line = error_of(run(command, tmp_path), 2)
    assert line.startswith("plugin mine.scores (mine/helper.py:2): KeyError: 'weight'. Correct it")


READER = (
    "from transformer_cli.data.readers import READERS, Reader\n"
    "@READERS.register('mine')\nclass Mine(Reader):\n    def pairs(self, files):\n        [lines] = files\n"
    "        for n, line in lines.numbered():\n"
    "            yield ({wrong}) if n == 4 else (line, line.upper())\n"
)
PREPARE = [
    *("prepare", "--plugin", "mine", "data=files", "data.source_lang=en", "data.target_lang=xx", "data.reader=mine"),
    *("data.train=corpus.txt", "data.tokenizer.vocab_size=40"),
]
WRONG_PAIRS = {
    "1.5": "is 1.5, not a tuple of two texts",
    "None": "is None, not a tuple of two texts",
    "(line,)": "not a tuple of two texts",
    "(line, line, line)": "not a tuple of two texts",
    "(line, None)": "has None, a NoneType, where a text belongs",
    "(7, line)": "has 7, a int, where a text belongs",
    "(line, line.encode())": "a bytes, where a text belongs",
    r"(line + '\ud800', line)": "has half of a surrogate pair",
    r"(line, line + '\n' + line)": "has a line break within a text",
}


def corpus(folder: Path) -> Path:
    lines = [f"{a} {b} {c}\n" for a in "abcde" for b in "fghij" for c in "kl"]
    (folder / "corpus.txt").write_text("".join(lines), encoding="utf-8")
    return folder


def read_all(folder: Path, wrong: str, *overrides: str) -> Any:
    """The pairs that the reader gives, in this process."""
    source = READER.format(wrong=wrong)
    namespace: dict[str, Any] = {"__name__": "a_plugin"}
    exec(compile(source, str(folder / "mine.py"), "exec"), namespace)
    on_bad = OnBad.skip if "skip" in overrides else OnBad.error
    train = str(folder / "corpus.txt")
    return load_text(DataConfig(source_lang="en", target_lang="xx", reader="mine", train=train, on_bad=on_bad), "train")


@pytest.mark.parametrize("wrong", WRONG_PAIRS)
def test_what_a_reader_gives_and_is_no_pair_is_refused_or_counted(
    wrong: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    corpus(tmp_path)
    with pytest.raises(DataError) as refused:
        read_all(tmp_path, wrong)
    message = str(refused.value)
    assert "corpus.txt: pair 5 " in message
    assert WRONG_PAIRS[wrong] in message
    assert "mine.py:7)" in message
    READERS._entries.pop("mine")
    text = read_all(tmp_path, wrong, "skip")
    assert (len(text), text.n_bad) == (49, 1)
    assert "1 pairs dropped" in caplog.text


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("return None", "returned None, not the pairs of"),
        ("yield 'a', 'b'; raise KeyError('en')", "after 1 pairs: plugin"),
        ("yield 'a', 'b'; raise SystemExit(0)", "after 1 pairs: plugin"),
    ],
)
def test_a_reader_that_fails_is_named_with_its_line(body: str, says: str, tmp_path: Path) -> None:
    corpus(tmp_path)
    text = READER.split("        [lines]")[0] + f"        {body}\n"
    write_plugin(tmp_path, text)
    line = error_of(run(PREPARE, tmp_path), 3)
    assert says in line
    assert "plugin mine (mine.py:" in line


def test_a_number_from_a_reader_ends_in_exit_code_3_and_is_skipped_on_request(tmp_path: Path) -> None:
    write_plugin(corpus(tmp_path), READER.format(wrong="1.5"))
    line = error_of(run(PREPARE, tmp_path), 3)
    assert line.endswith(
        "corpus.txt: pair 5 is 1.5, not a tuple of two texts (plugin mine (mine.py:7))."
        " Correct the reader, or drop such pairs with data.on_bad=skip"
    )
    skipped = run([*PREPARE, "data.on_bad=skip"], tmp_path)
    assert skipped.code == 0, skipped.err.decode()
    assert b"1 pairs dropped" in skipped.err


MODEL = """
from transformer_cli.models.registry import MODELS
from transformer_cli.models.transformer import Encoder

class Broken(Encoder):
    def forward(self, x_SD, source):
        return {result}

@MODELS.register("mine")
def mine(config, source, target, options):
    model = MODELS["transformer"](config, source, target, options)
    model.encoder = Broken(config, options)
    return model
"""


@pytest.mark.parametrize(
    ("result", "code", "says"),
    [
        ("super().forward(x_SD, source).view(-1, 7, 11)", 2, r"^plugin mine \(mine\.py:7\): RuntimeError: shape"),
        ("None", 70, r"^internal error \(\w+\), please report: .*\. It ran with the plugin mine: try without"),
        ("exit(0)", 2, r"^plugin mine \(mine\.py:7\): SystemExit: 0\. Correct it"),
    ],
)
def test_a_model_whose_forward_raises_is_named(tmp_path: Path, result: str, code: int, says: str) -> None:
    write_plugin(tmp_path, MODEL.format(result=result))
    file = model_file()
    MODELS.register("mine")(MODELS["transformer"])
    content = packed(replace(file, config=replace(file.config, name="mine")))
    (tmp_path / "model.safetensors").write_bytes(content)
    command = ["translate", "--plugin", "mine", "--checkpoint", "model.safetensors", "device=cpu"]
    line = error_of(run(command, tmp_path, stdin=b"a b c\n", env={"TMPDIR": str(tmp_path)}), code)
    assert re.match(says, line), line
