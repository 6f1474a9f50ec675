"""Plugins: a module of a user's own adds one entry to every registry, and no file can have one imported."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.conftest import ROOT
from tests.support.forked import Ran, run
from transformer_cli.config.compose import load_config, to_plain
from transformer_cli.errors import ConfigError
from transformer_cli.plugins import load_plugins, loaded_plugins

PLUGIN = '''
from dataclasses import dataclass

import torch

from transformer_cli.data.readers import READERS, Reader
from transformer_cli.decoding.search.greedy import greedy_search
from transformer_cli.decoding.search.registry import SearchMethod, register_search
from transformer_cli.evaluation.metrics import METRICS, Score
from transformer_cli.models.registry import MODELS
from transformer_cli.training.optimizers.registry import OPTIMIZERS, OptimizerKind
from transformer_cli.training.schedules.registry import SCHEDULES, ScheduleKind


@dataclass
class Momentum:
    momentum: float


def momentum_sgd(model, config):
    return torch.optim.SGD(model.parameters(), lr=0.0, momentum=config.options["momentum"])


OPTIMIZERS.register("momentum_sgd", options=Momentum)(OptimizerKind(momentum_sgd))


@dataclass
class Sawtooth:
    period: int = 2


def sawtooth(config, d_model, max_steps):
    period = config.options["period"]
    return lambda n: config.lr * (1 - (n - 1) % period / period)


SCHEDULES.register("sawtooth", options=Sawtooth)(ScheduleKind(sawtooth))


@dataclass
class Arrow:
    mark: str = "->"


@METRICS.register("exact_match")
def exact_match(translations, settings):
    equal = [line == reference for line, reference in zip(translations.hypotheses, translations.references[0])]
    return [Score("exact_match", 100 * sum(equal) / len(equal), "case:mixed")]


@READERS.register("arrows", options=Arrow)
class Arrows(Reader):
    """source => target"""

    def pairs(self, files):
        [lines] = files
        for _, line in lines.numbered():
            source, _, target = line.partition(self.options["mark"])
            yield source.strip(), target.strip()


@MODELS.register("my_transformer")
def my_transformer(*arguments, **options):
    return MODELS["transformer"](*arguments, **options)


register_search(SearchMethod("my_search", greedy_search))
'''

FILES = {
    "optimizer/mine.yaml": "name: momentum_sgd\noptions: {momentum: 0.9}\n",
    "schedule/mine.yaml": "name: sawtooth\nfactor: null\nlr: 0.05\nwarmup_steps: 1\noptions: {period: 3}\n",
    "decode/mine.yaml": "search: my_search\nbeam_size: 1\nmax_extra_length: 5\n",
    "data/mine.yaml": (
        "name: mine\nsource_lang: en\ntarget_lang: xx\nreader: arrows\noptions: {mark: '=>'}\n"
        "train: train.txt\ndev: dev.txt\ntest: test.txt\ntokenizer: {vocab_size: 40}\n"
    ),
    "model/mine.yaml": (
        "name: my_transformer\npreset: mine\nd_model: 32\nd_ff: 32\nn_heads: 2\n"
        "n_encoder_layers: 1\nn_decoder_layers: 1\n"
    ),
}
CHOICES = ["--plugin", "my_plugin", "--config-dir", "conf", "decode=mine"]
TRAIN = [
    *("train", *CHOICES, "optimizer=mine", "schedule=mine", "data=mine", "model=mine", "name=run", "device=cpu"),
    *("train.tokens_per_update=300", "train.eval_every=4", "train.save_every=4", "train.log_every=2"),
    *("train.keep_last=2", "train.average_last=1", "train.eval_lines=4"),
]


def tfm(folder: Path, *arguments: str, stdin: bytes = b"") -> Ran:
    return run(arguments, folder, stdin=stdin)


def error_of(result: Ran, status: int) -> str:
    text = result.err.decode()
    assert (result.code, result.out) == (status, b""), text
    assert "Traceback" not in text
    (line,) = [line for line in text.split("\n") if line.startswith("tfm: error: ")]
    return line


def write_folder(folder: Path) -> None:
    """A working folder with the plugin, its YAML files and a corpus in the format of its reader."""
    from tests.toy.run import sentences

    (folder / "my_plugin.py").write_text(PLUGIN, encoding="utf-8")
    for name, text in FILES.items():
        file = folder / "conf" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    for split, n, seed in (("train", 80, 1), ("dev", 4, 2), ("test", 4, 3)):
        lines = [f"{line} => {line.upper()}\n" for line in sentences(n, seed=seed)]
        (folder / f"{split}.txt").write_text("".join(lines), encoding="utf-8")


def test_one_module_adds_an_entry_to_every_registry(tmp_path: Path) -> None:
    write_folder(tmp_path)
    first = tfm(tmp_path, *TRAIN, "train.max_steps=4")
    assert first.code == 0, first.err.decode()
    saved = yaml.safe_load((tmp_path / "runs/run/config.yaml").read_text(encoding="utf-8"))
    assert saved["plugins"] == ["my_plugin"]

    resumed = tfm(tmp_path, *TRAIN, "train.max_steps=8")
    assert resumed.code == 0, resumed.err.decode()
    assert b"resuming from step 4" in resumed.err

    evaluated = tfm(tmp_path, "evaluate", *CHOICES, "metrics=[exact_match]")
    assert evaluated.code == 0, evaluated.err.decode()
    assert b"exact_match" in evaluated.out
    assert b"BLEU" not in evaluated.out

    translated = tfm(tmp_path, "translate", *CHOICES, stdin=b"one line\nanother\n")
    assert translated.code == 0, translated.err.decode()
    assert translated.out.count(b"\n") == 2

    # Nothing is imported by itself.
    line = error_of(tfm(tmp_path, "translate", "--checkpoint", "runs/run/model.safetensors", stdin=b"one line\n"), 4)
    assert "model.safetensors: its model 'my_transformer' comes from the plugin my_plugin" in line
    assert "add --plugin my_plugin" in line


@pytest.mark.slow
def test_every_rank_imports_the_plugin(tmp_path: Path) -> None:
    write_folder(tmp_path)
    program = tmp_path / "start.py"
    program.write_text("from transformer_cli.cli import entry_point; entry_point()\n", encoding="utf-8")
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", str(program)]
    env = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    result = subprocess.run(
        [*torchrun, *TRAIN, "train.max_steps=4"], cwd=tmp_path, capture_output=True, env=env, check=False
    )
    assert result.returncode == 0, result.stderr.decode()


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("absent", None, "plugins=absent: no module `absent` in the working folder or on Python's path"),
        (
            "broken",
            "x = 1\nraise ValueError('no\\nGPU')\n",
            "plugin broken (broken.py:2): cannot be imported: ValueError: no GPU. ",
        ),
        ("unfinished", "def f(:\n", "plugin unfinished (unfinished.py:1): cannot be imported: SyntaxError: "),
        (
            "leaves",
            "import sys\nsys.exit(0)\n",
            "(leaves.py:2): cannot be imported: SystemExit: 0. Correct it",
        ),
        (
            "needs_more",
            "import not_installed_at_all\n",
            "(needs_more.py:1): cannot be imported: ModuleNotFoundError: ",
        ),
        (
            "wrong_call",
            "import json\n\njson.loads('{')\n",
            "plugin wrong_call (wrong_call.py:3): cannot be imported: JSONDecodeError: ",
        ),
        ("zeros", "\0", "plugin zeros: cannot be imported: SyntaxError: "),
        ("mine.py", None, "plugins='mine.py': not the name of a module. Write it as in an import, without .py"),
        ("../mine", None, "not the name of a module"),
        (
            "twice",
            "from transformer_cli.decoding.search import SEARCHES\nSEARCHES.register('beam')(len)\n",
            "plugin twice (twice.py:2): two entries called `beam` in the registry of search builders. Rename one",
        ),
        (
            "too_few",
            "from transformer_cli.training.schedules import SCHEDULES\n\n\n"
            "@SCHEDULES.register('mine')\ndef mine(config):\n    return float\n",
            "plugin too_few (too_few.py:4): a schedule is a function of (config, d_model, max_steps), and this"
            " one cannot be called so (too many positional arguments). Correct it",
        ),
    ],
)
def test_a_plugin_that_cannot_be_imported_ends_in_one_line(
    tmp_path: Path, name: str, text: str | None, words: str
) -> None:
    if text is not None:
        (tmp_path / f"{name}.py").write_text(text, encoding="utf-8")
    line = error_of(tfm(tmp_path, "translate", "--plugin", name), 2)
    assert words in line
    assert max(line.count(f"plugin {name} "), line.count("Correct it")) <= 1


@pytest.mark.parametrize("more", [[], ["--cfg"], ["-m"]], ids=str)
@pytest.mark.parametrize(
    ("plugin", "setting", "says"),
    [
        ("broken", "seed=2", "plugin broken (broken.py:2): cannot be imported: ValueError: no GPU. "),
        ("broken", "train.clip_norm=-3", "plugin broken (broken.py:2): cannot be imported: ValueError: no GPU. "),
        ("broken", "train.clip_nrm=3", "train.clip_nrm: unknown key; did you mean `train.clip_norm`?"),
        ("whole", "train.clip_norm=-3", "train.clip_norm=-3"),
        ("whole", "train.clip_nrm=3", "train.clip_nrm: unknown key; did you mean `train.clip_norm`?"),
    ],
)
def test_a_wrong_plugin_and_a_wrong_config_give_one_line_and_write_nothing(
    tmp_path: Path, plugin: str, setting: str, says: str, more: list[str]
) -> None:
    (tmp_path / "broken.py").write_text("x = 1\nraise ValueError('no GPU')\n", encoding="utf-8")
    (tmp_path / "whole.py").write_text("", encoding="utf-8")
    before = sorted(tmp_path.rglob("*"))
    line = error_of(tfm(tmp_path, "train", "--plugin", plugin, setting, *more), 2)
    assert line.startswith(f"tfm: error: {says}")
    assert [path for path in sorted(tmp_path.rglob("*")) if "__pycache__" not in path.parts] == before


@pytest.mark.parametrize("more", [[], ["n=2"], ["--cfg"]], ids=str)
def test_a_schema_that_can_be_no_config_is_named_with_its_place(tmp_path: Path, more: list[str]) -> None:
    source = """
from dataclasses import dataclass, field

from transformer_cli.command import Command, register
from transformer_cli.training.schedules import SCHEDULES


@dataclass
class C:
    n: int = None
    plugins: list[str] = field(default_factory=list)


register(Command("new", help="", example="", schema=C, run=print))
SCHEDULES.register("mine", options=C)(lambda config, d_model, max_steps: float)
"""
    (tmp_path / "no_schema.py").write_text(source, encoding="utf-8")
    says = "plugin no_schema (no_schema.py:8): its key n: Incompatible value 'None' for field of type 'int'. Correct it"
    assert error_of(tfm(tmp_path, "new", "--plugin", "no_schema", *more), 2) == f"tfm: error: {says}"
    if not more:
        command = ["train", "--plugin", "no_schema", "schedule.name=mine", "schedule.factor=null", "device=cpu"]
        assert error_of(tfm(tmp_path, *command), 2) == f"tfm: error: {says}"
        assert not (tmp_path / "runs").exists()


def test_a_plugin_can_be_named_in_the_config_and_several_on_the_command_line(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / f"{name}.py").write_text("", encoding="utf-8")
    for arguments in (["plugins=[one,two]"], ["--plugin", "one", "--plugin", "two"]):
        shown = tfm(tmp_path, "train", *arguments, "--cfg")
        assert yaml.safe_load(shown.out)["plugins"] == ["one", "two"], shown.err


def test_a_library_comes_before_a_file_of_its_name_in_the_working_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "colorsys.py").write_text("raise RuntimeError('shadowed')\n", encoding="utf-8")
    (tmp_path / "own_plugin_of_this_test.py").write_text("import colorsys\n", encoding="utf-8")
    before = list(sys.path)
    load_plugins(["own_plugin_of_this_test"])
    load_plugins(["own_plugin_of_this_test"])
    assert loaded_plugins().count("own_plugin_of_this_test") == 1
    assert sys.path == before
    with pytest.raises(ConfigError, match="no module `absent_of_this_test`"):
        load_plugins(["absent_of_this_test"])
    assert sys.path == before


def test_the_processes_of_a_benchmark_import_what_the_config_names(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("print('imported')\n", encoding="utf-8")
    parameters = {"config": {**to_plain(load_config("bench", ["subject=train"])), "plugins": ["mine"]}}
    program = "from transformer_cli.addons.benchmarks.worker import config_and_parameters; config_and_parameters()"
    ran = run([json.dumps(parameters)], tmp_path, program=program)
    assert (ran.code, ran.out, ran.err) == (0, b"", b"imported\n")
