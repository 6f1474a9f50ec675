"""Sweeps: names of their runs, the table at their end, and what becomes of a run that fails."""

import csv
import io
import json
import os
import re
import signal
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hydra.core.config_store import ConfigStore
from hydra.core.plugins import Plugins

from tests.data.test_corpus_faults import TRAIN, write
from tests.evaluation.test_tables import latex_rows, markdown_rows
from tests.support.contract import process, refused, run
from tests.support.each import each
from tests.support.forked import Ran
from tests.toy.run import sentences
from transformer_cli.commands.train.run import Trained
from transformer_cli.config.train import Device, TrainConfig
from transformer_cli.errors import DataError, Stopped
from transformer_cli.sweeps import SweepRun, as_json, over_repeats, sweep_run_name, sweep_text
from transformer_cli.training import run_directory

SWEEP = ["train", "-m", *(word for word in TRAIN[1:] if word != "name=run"), "data.train=corpus"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A working folder with sixty pairs."""
    lines = sentences(60, seed=1)
    write(tmp_path / "corpus.en", lines)
    write(tmp_path / "corpus.de", [" ".join(reversed(line.split())) for line in lines])
    return tmp_path


def runs_in(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "runs").iterdir() if path.is_dir() and not path.is_symlink())


def results(folder: Path) -> dict[str, Any]:
    """The newest table as JSON."""
    newest = max((folder / "multirun").glob("*/results.json"), key=lambda file: file.stat().st_mtime_ns)
    read: dict[str, Any] = json.loads(newest.read_bytes())
    return read


def table_of(ran: Ran) -> list[list[str]]:
    """The words of the lines of the table."""
    lines = ran.out.decode().split("\n")
    start = next(i for i, line in enumerate(lines) if line.startswith("run "))
    return [line.split() for line in lines[start:] if line]


def test_a_name_tells_what_differs_in_the_order_given() -> None:
    assert sweep_run_name("abc", {"seed": "1"}) == "abc-seed=1"
    assert sweep_run_name("abc", {"norm": "pre", "schedule.lr": "1e-3"}) == "abc-norm=pre,schedule.lr=1e-3"
    assert sweep_run_name("abc", {}) == "abc"


def test_values_that_no_file_name_can_hold_still_give_different_names() -> None:
    names = [sweep_run_name("abc", {"data.train": value}) for value in ("[a/b,c]", "[a,b/c]", "a_b_c", "[a b,c]")]
    assert len(set(names)) == 4
    for name in names:
        TrainConfig(name=name)  # which takes it
        assert "/" not in name


def test_names_that_are_too_long_are_cut_and_stay_different() -> None:
    long = [sweep_run_name("é" * 40, {f"data.weights{i}": "123456789" for i in range(n)}) for n in (20, 21)]
    assert all(len(name.encode()) < 200 for name in long)
    assert long[0] != long[1]
    TrainConfig(name=long[0])


def row(seed: int, bleu: float, norm: str = "pre", **more: Any) -> SweepRun:
    return SweepRun(seed, {"norm": norm, "seed": str(seed)}, "runs/x", {"test BLEU": bleu}, 500, 1.26, **more)


def test_scores_over_seeds_are_a_mean_with_its_sample_standard_deviation() -> None:
    # By hand: 40, 42, 44 have the mean 42 and the variance (4 + 0 + 4) / 2.
    rows = [row(1, 40), row(2, 42), row(3, 44), row(1, 30, "post"), row(2, 1, "post", error="broke", exit_code=3)]
    pre, post = over_repeats(rows)
    assert (pre.changes, pre.n_runs, pre.mean, pre.std) == ({"norm": "pre"}, 3, {"test BLEU": 42}, {"test BLEU": 2})
    assert (post.changes, post.n_runs, post.mean, post.std) == ({"norm": "post"}, 1, {"test BLEU": 30}, {})
    lines = sweep_text(rows).split("\n")
    assert lines[0].split() == ["run", "norm", "seed", "test", "BLEU", "steps", "minutes"]
    assert lines[1].split() == ["runs/x", "pre", "1", "40.00", "500", "1.3"]
    assert "norm=post,seed=2: failed: broke" in lines
    assert [line.split() for line in lines[-2:]] == [["3", "pre", "42.00", "±", "2.00"], ["1", "post", "30.00"]]


def test_folds_are_repetitions_as_seeds_are() -> None:
    def run(fold: str, bleu: float, **more: str) -> SweepRun:
        return SweepRun(1, {"data.fold": fold, **more}, "runs/x", {"test BLEU": bleu}, 500, 1.26)

    lines = sweep_text([run("1/3", 40), run("2/3", 42), run("3/3", 44)]).split("\n")
    assert lines[0].split() == ["run", "data.fold", "test", "BLEU", "steps", "minutes"]
    assert lines[-3:-1] == ["mean ± standard deviation (n - 1) over folds", "folds     test BLEU"]
    assert lines[-1].split() == ["3", "42.00", "±", "2.00"]

    # Four runs of one setting: 40, 40, 44, 44 have the mean 42 and the variance 16 / 3.
    both = [run(fold, bleu, seed=seed) for fold, bleu in (("1/2", 40), ("2/2", 44)) for seed in ("1", "2")]
    *_, title, head, mean = sweep_text(both).split("\n")
    assert (title, head.split()[0]) == ("mean ± standard deviation (n - 1) over seeds and folds", "runs")
    assert mean.split() == ["4", "42.00", "±", "2.31"]
    names = [[*json.loads(as_json(runs))][1] for runs in ([row(1, 2)], [run("1/2", 40)], both)]
    assert names == ["over_seeds", "over_folds", "over_seeds_and_folds"]


def test_single_runs_have_no_mean() -> None:
    assert "mean" not in sweep_text([row(1, 40), row(1, 30, "post")])


@pytest.fixture
def trained_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs print and score without training; that of seed 3 fails."""

    def train(config: TrainConfig) -> Trained:
        print(f"scores of {config.name}")
        os.write(1, b"as a library prints\n")
        if config.seed == 3:
            raise DataError("corpus_3: broken. Correct it")
        scores: dict[str, float | None] = {"test BLEU": 10 / config.seed}
        return Trained(Path(config.runs) / str(config.name), 33.3, 500, scores, is_new=False)

    monkeypatch.setattr("transformer_cli.commands.train.run.train_and_report", train)


@pytest.mark.usefixtures("trained_at_once")
@each("form", ["csv", "markdown", "latex"])
def test_the_table_of_a_sweep_is_alone_on_standard_output(folder: Path, form: str) -> None:
    ran = run([*SWEEP, "--name", "a_b", "norm=pre", "seed=1,2,3", "--table", form], folder)
    assert ran.code == 3
    out, err = ran.out.decode(), ran.err.decode()
    assert err.count("as a library prints") == err.count("scores of a_b") == 3
    assert "\nseed=3: failed: corpus_3: broken. Correct it\n" in err
    saved = results(folder)["runs"]
    names = [one["run_dir"] or "" for one in saved]
    assert names == ["runs/a_b-seed=1", "runs/a_b-seed=2", ""]
    if form == "csv":
        head, *rows = csv.reader(io.StringIO(out, newline=""), strict=True)
        assert head == ["run", "seed", "test BLEU", "steps", "minutes", "error"]
        assert [row[2] and float(row[2]) for row in rows] == [one["scores"].get("test BLEU", "") for one in saved]
        assert [(row[1], row[5]) for row in rows] == [("1", ""), ("2", ""), ("3", "corpus_3: broken. Correct it")]
        return
    mean = "7.50 ± 3.54"  # of 10 and 5, whose deviations are 2.5: sqrt(12.5) = 3.54
    if form == "markdown":
        rows, aligned, _ = markdown_rows(out)
        assert aligned == ["", "", *["text-align:right"] * 3, "", "text-align:right"]
        runs, means = rows[:4], rows[4:]
        assert runs[0] == ["run", "seed", "test BLEU", "steps", "minutes"]
    else:
        first, second = re.findall(r"\\begin\{tabular\}.*?\\end\{tabular\}\n", out, re.DOTALL)
        runs, means = (latex_rows("% needs \\usepackage{booktabs}\n" + one) for one in (first, second))
        assert out.endswith("\\end{tabular}\n% mean ± standard deviation (n - 1) over seeds\n")
        assert "textbf" not in out  # a sweep has no test of significance
    assert [row[:3] for row in runs[1:]] == [[names[0], "1", "10.00"], [names[1], "2", "5.00"], ["", "3", ""]]
    assert means == [["seeds", "test BLEU"], ["2", mean]]


@each(
    "arguments, says",
    [
        (["--table", "csv"], "--table csv: of a sweep, and this is one run. Add -m"),
        (["-m", "--table", "tsv"], "--table 'tsv': no format of tables. Choose one of latex, markdown, csv"),
    ],
)
def test_a_table_that_cannot_be_printed_is_refused(folder: Path, arguments: list[str], says: str) -> None:
    refused(["train", *arguments], folder, code=2, says=[says])


def test_what_is_made_and_not_scored_has_no_mean() -> None:
    made = [SweepRun(n, {"data.fold": f"{n}/2"}, corpus="x", counts={"pairs": n}) for n in (1, 2)]
    assert "mean" not in sweep_text(made)


@pytest.mark.slow
def test_each_run_of_a_sweep_has_its_own_directory_and_a_row_of_the_table(folder: Path) -> None:
    command = [*SWEEP, "--name", "abc", "--device", "cpu", "seed=1,2"]
    command.remove("device=cpu")
    ran = run(command, folder)
    assert ran.code == 0, ran.err.decode()
    assert runs_in(folder) == ["abc-seed=1", "abc-seed=2"]
    head, first, second, *_, _, means, mean = table_of(ran)
    assert head == ["run", "seed", "dev", "BLEU", "test", "BLEU", "test", "chrF", "steps", "minutes"]
    assert [first[:2], second[:2]] == [["runs/abc-seed=1", "1"], ["runs/abc-seed=2", "2"]]
    printed = [line.split()[1] for line in ran.out.decode().split("\n") if line.startswith("BLEU ")]
    assert [first[3], second[3]] == printed
    assert (means[0], mean[0], mean.count("±")) == ("seeds", "2", 3)
    saved = results(folder)
    assert [one["run_dir"] for one in saved["runs"]] == ["runs/abc-seed=1", "runs/abc-seed=2"]
    assert saved["runs"][0]["step"] == 4
    assert saved["over_seeds"][0]["n_runs"] == 2

    again = run(command, folder)
    assert again.code == 0
    assert b"already finished" in again.err
    assert [line[:6] for line in table_of(again)[1:3]] == [[*first[:5], "4"], [*second[:5], "4"]]
    assert {one["minutes"] for one in results(folder)["runs"]} == {None}


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> list[TrainConfig]:
    """The configs of runs that are reported as trained, to a dev score of 10 for each seed. Seed 13 brings bad luck."""
    configs: list[TrainConfig] = []

    def train_and_report(config: TrainConfig) -> Trained:
        configs.append(config)
        if config.seed == 13:
            raise ZeroDivisionError("luck")
        if config.seed == 15:
            raise Stopped(signal.SIGTERM, "runs/x: step 7 is the newest that is saved")
        if config.seed == 3:
            raise DataError("corpus.en:7: no text. Correct it")
        score = 10.0 * config.seed
        return Trained(Path(config.runs) / run_directory.run_name(config), score, 7, {"dev BLEU": score}, is_new=True)

    monkeypatch.setattr("transformer_cli.commands.train.run.train_and_report", train_and_report)
    return configs


@pytest.mark.parametrize(
    ("words", "names"),
    [
        (["--name", "abc", "seed=1,2"], ["abc-seed=1", "abc-seed=2"]),
        pytest.param(["name=abc", "norm=pre,post"], ["abc-norm=pre", "abc-norm=post"], marks=pytest.mark.slow),
        pytest.param(["name=abc", "seed=1"], ["abc"], marks=pytest.mark.slow),
        pytest.param(
            ["name=a,b", "seed=1,2"], ["a-seed=1", "a-seed=2", "b-seed=1", "b-seed=2"], marks=pytest.mark.slow
        ),
        pytest.param(["name=abc${seed}", "seed=1,2"], ["abc1", "abc2"], marks=pytest.mark.slow),
        pytest.param(
            ["seed=1,2"], [None, None], marks=pytest.mark.slow
        ),  # named by what is trained, as before: the same sweep resumes
    ],
)
def test_the_runs_of_a_sweep_are_named(
    tmp_path: Path, trained: list[TrainConfig], words: list[str], names: list[str | None]
) -> None:
    assert run(["train", "-m", *words], tmp_path).code == 0
    assert [config.name for config in trained] == names


def test_what_follows_from_a_command_line_is_no_difference_between_its_runs(
    tmp_path: Path, trained: list[TrainConfig]
) -> None:
    corpus = ["data=files", "data.source_lang=en", "data.target_lang=de", "data.train=corpus"]  # and so recipe=auto
    ran = run(["train", "-m", "name=abc", *corpus, "data.fold=1/2,2/2", "seed=4"], tmp_path)  # and so data.test=null
    assert ran.code == 0, ran.err.decode()
    assert [one["changes"] for one in results(tmp_path)["runs"]] == [{"data.fold": "1/2"}, {"data.fold": "2/2"}]


@pytest.mark.slow
def test_a_flag_holds_for_all_runs_of_a_sweep(tmp_path: Path, trained: list[TrainConfig]) -> None:
    assert run(["train", "-m", "--device", "cpu", "seed=1,2"], tmp_path).code == 0
    assert {config.device for config in trained} == {Device.cpu}


def test_a_run_that_fails_is_named_and_the_others_go_on(tmp_path: Path, trained: list[TrainConfig]) -> None:
    ran = run(["train", "-m", "name=abc", "seed=3,2"], tmp_path)
    error = ran.err.decode()
    assert ran.code == 3
    last = error.removesuffix("\n").split("\n")[-1]
    assert last == "tfm: error: 1 of 2 runs failed, seed=3: corpus.en:7: no text. Correct it"
    assert not any(word in error for word in ("Traceback", "Error executing job", "HYDRA"))
    _, first, second, message, *_ = table_of(ran)
    assert [first, second[0]] == [["3"], "runs/abc-seed=2"]
    assert " ".join(message) == "seed=3: failed: corpus.en:7: no text. Correct it"
    assert [one["exit_code"] for one in results(tmp_path)["runs"]] == [3, 0]


@pytest.mark.slow
def test_a_bug_of_ours_in_one_run_is_one_line_too(
    tmp_path: Path, trained: list[TrainConfig], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    ran = run(["train", "-m", "seed=13,1"], tmp_path)
    assert ran.code == 70
    assert b"internal error (ZeroDivisionError), please report: " in ran.err
    assert b"Traceback" not in ran.err
    assert len(trained) == 2


@pytest.mark.slow
def test_a_signal_ends_the_sweep_and_not_only_the_run(tmp_path: Path, trained: list[TrainConfig]) -> None:
    ran = run(["train", "-m", "name=abc", "seed=1,15,2"], tmp_path)
    assert ran.code == 143
    assert [config.seed for config in trained] == [1, 15]
    assert ran.err.decode().removesuffix("\n").split("\n")[-1] == (
        "tfm: stopped by SIGTERM: runs/x: step 7 is the newest that is saved."
        " Go on with `tfm train -m name=abc seed=1,15,2`"
    )
    assert table_of(ran)[1][0] == "runs/abc-seed=1"


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (["model.n_heads=2,7"], ["model.n_heads=7"]),
        pytest.param(["--name", "a/b", "seed=1,2"], ["name='a/b'"], marks=pytest.mark.slow),
        pytest.param(["schedule.lr=interval(0.1,1)"], ["schedule.lr=interval(0.1,1)", "a,b"], marks=pytest.mark.slow),
        pytest.param(["hydra/launcher=slurm", "seed=1,2"], ["hydra/launcher"], marks=pytest.mark.slow),
        (["--cfg", "seed=1,2"], ["--cfg"]),
    ],
)
def test_a_sweep_with_a_mistake_in_any_run_begins_none(tmp_path: Path, wrong: list[str], says: list[str]) -> None:
    refused(["train", "-m", *wrong], tmp_path, code=2, says=says)


@pytest.fixture
def returned(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """What the jobs have returned to a sweeper that wants numbers, as Optuna's does: hydra/sweeper=optimising."""
    plugins, values = Plugins.instance(), []
    from hydra._internal.core_plugins.basic_sweeper import BasicSweeper  # which the plugins have loaded anew

    class OptimisingSweeper(BasicSweeper):
        def sweep(self, arguments: list[str]) -> Any:
            for batch in super().sweep(arguments):
                values.extend(job.return_value for job in batch)

    plugin = ModuleType("hydra_plugins.of_a_test")
    plugin.OptimisingSweeper = OptimisingSweeper  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, plugin.__name__, plugin)
    OptimisingSweeper.__module__, OptimisingSweeper.__qualname__ = plugin.__name__, "OptimisingSweeper"
    node = {"_target_": f"{plugin.__name__}.OptimisingSweeper", "max_batch_size": None}
    ConfigStore.instance().store(group="hydra/sweeper", name="optimising", node=node)
    plugins.register(OptimisingSweeper)
    return values


@pytest.mark.slow
def test_a_sweeper_gets_the_dev_score_as_a_number_and_hears_of_failures(
    tmp_path: Path, trained: list[TrainConfig], returned: list[object]
) -> None:
    command = ["train", "-m", "hydra/sweeper=optimising"]
    assert run([*command, "seed=1,2"], tmp_path).code == 0
    assert returned == [10.0, 20.0]
    assert run([*command, "seed=1,3"], tmp_path).code == 3
    assert returned == [10.0, 20.0]


@pytest.mark.slow
def test_jobs_of_other_processes_come_into_one_table(folder: Path) -> None:
    command = [*SWEEP, "hydra/launcher=joblib", "hydra.launcher.n_jobs=2", "--name", "abc", "seed=1,2"]
    ran = process(command, folder)
    assert ran.code == 0, ran.err.decode()
    assert [line[0] for line in table_of(ran)[1:3]] == ["runs/abc-seed=1", "runs/abc-seed=2"]
    (folder / "runs" / "abc-seed=2" / "checkpoints").rename(folder / "away")
    (folder / "runs" / "abc-seed=2" / "checkpoints").write_text("not a folder", encoding="utf-8")
    failed = process(command, folder)
    assert failed.code == 5
    assert b"Traceback" not in failed.err
    assert b"1 of 2 runs failed, seed=2" in failed.err
