"""`tfm doctor`: what it finds in sound and in broken text, what a run would take, and how it says so."""

import json
import random
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from tests.conftest import slow
from tests.support.each import each
from tests.toy import run as toy_run
from tests.toy.run import train
from transformer_cli.addons.doctor import length_ratios, updates
from transformer_cli.addons.doctor import text as text_checks
from transformer_cli.addons.doctor.findings import CheckReport, Finding, Level
from transformer_cli.addons.doctor.keys import DoctorConfig
from transformer_cli.addons.doctor.length_ratios import LengthRatio, length_outliers
from transformer_cli.addons.doctor.memory import memory_plan
from transformer_cli.addons.doctor.text import check_text
from transformer_cli.addons.doctor.updates import MeasuredRun, check_training, duration
from transformer_cli.addons.doctor.vocabulary import check_tokenizer
from transformer_cli.cli import main
from transformer_cli.config.compose import load_config, to_plain
from transformer_cli.config.train import FrozenPrecision, InitConfig, LoraConfig
from transformer_cli.config.yaml_files import groups_of
from transformer_cli.data.checks.lengths import alignment_slips
from transformer_cli.data.lines import read_lines
from transformer_cli.data.prepare import Prepared, prepare
from transformer_cli.data.readers.builtin import read_builtin
from transformer_cli.errors import ConfigError
from transformer_cli.inference.prepack import PrepackedLinear, can_prepack, prepack
from transformer_cli.training.dry_run import BatchShape
from transformer_cli.training.lora import is_adapter

Pairs = list[tuple[str, str]]


# ---- Text, as files


@pytest.fixture(scope="module")
def pairs() -> Pairs:
    """3,000 English-French pairs, all different."""
    return read_builtin("demo_en_fr", "train")[:3000]


def swapped(pairs: Pairs) -> Pairs:
    return [(target, source) for source, target in pairs]


def write(folder: Path, languages: tuple[str, str] = ("en", "fr"), **splits: Pairs) -> list[str]:
    """Write the splits as files; the arguments that name them."""
    source_lang, target_lang = languages
    arguments = ["data=files", "recipe=files", "model=tiny", f"data.cache={folder}/cache"]
    arguments += [f"data.source_lang={source_lang}", f"data.target_lang={target_lang}"]
    arguments += ["data.tokenizer.vocab_size=300", f"runs={folder}/runs", "model.d_model=16", "model.d_ff=16"]
    arguments += [
        "train.tokens_per_update=1000",
        "train.max_tokens_per_microbatch=500",
        "device=cpu",
        "model.n_heads=2",
    ]
    for name, pairs in splits.items():
        for side, lang in enumerate(languages):
            (folder / f"{name}.{lang}").write_text("".join(f"{pair[side]}\n" for pair in pairs), encoding="utf-8")
        arguments.append(f"data.{name}=[{folder}/{name}.{source_lang},{folder}/{name}.{target_lang}]")
    return arguments


def examined(folder: Path, **splits: Pairs) -> CheckReport:
    """What the checks of text and vocabulary say of the splits."""
    return report_on(load_config("doctor", write(folder, **splits)))


def report_on(config: DoctorConfig) -> CheckReport:
    report, prepared = CheckReport(), prepare(config.data)
    check_text(config.data, prepared, report.section("text"))
    check_tokenizer(config, prepared, report.section("vocabulary"))
    return report


def bad(report: CheckReport) -> list[Finding]:
    return [finding for finding in report.findings() if finding.level is not Level.ok]


def only(report: CheckReport) -> Finding:
    (finding,) = bad(report)
    return finding


def test_sound_text_gives_no_warning_and_true_counts(pairs: Pairs, tmp_path: Path) -> None:
    report = examined(tmp_path, train=pairs[:2500], dev=pairs[2500:2800], test=pairs[2800:])
    assert bad(report) == []
    figures = report.figures["text"]
    assert (figures["filters"]["read"], figures["filters"]["kept"]) == (2500, 2500)
    assert [figures[f"data.{split}"]["pairs"] for split in ("train", "dev", "test")] == [2500, 300, 200]


@pytest.mark.parametrize("split", ["dev", "test"])
def test_C17_a_split_with_exchanged_sides_is_an_error_that_names_it(pairs: Pairs, split: str, tmp_path: Path) -> None:
    splits = {"dev": pairs[2500:2800], "test": pairs[2800:]}
    splits[split] = swapped(splits[split])
    finding = only(examined(tmp_path, train=pairs[:2500], **splits))
    assert (finding.level, finding.where) == (Level.error, f"data.{split}")
    assert "exchanged" in finding.what


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.01, 0.3])
def test_C17_exchanged_training_pairs_are_counted_and_numbered(pairs: Pairs, share: float, tmp_path: Path) -> None:
    wrong = set(random.Random(1).sample(range(2500), int(2500 * share)))
    mixed = [pair[::-1] if i in wrong else pair for i, pair in enumerate(pairs[:2500])]
    report = examined(tmp_path, train=mixed, dev=pairs[2500:2800], test=pairs[2800:])
    (finding,) = [found for found in bad(report) if "exchanged" in found.what]
    assert (finding.level, finding.where) == (Level.warning, "data.train")
    assert report.figures["text"]["data.train"]["swapped"] == pytest.approx(len(wrong), rel=0.02)
    assert f"line {min(wrong) + 1:,}," in finding.what


def test_C17_one_file_for_both_sides_is_a_warning_with_the_share_of_equal_lines(pairs: Pairs, tmp_path: Path) -> None:
    english = [(source, source) for source, _ in pairs[:2500]]
    report = examined(tmp_path, train=english, dev=pairs[2500:2800], test=pairs[2800:])
    whats = [finding.what for finding in bad(report) if finding.where in ("data.train", "languages")]
    assert whats[0].startswith("2,500 of 2,500 pairs with equal sides (100%)")
    assert "two languages" in whats[1]
    assert report.first_error() is None


def test_C17_file_names_of_the_other_language_are_refused(pairs: Pairs, tmp_path: Path) -> None:
    arguments = write(tmp_path, train=swapped(pairs[:300]))
    train = f"data.train=[{tmp_path}/train.fr,{tmp_path}/train.en]"
    with pytest.raises(ConfigError, match=r"^data\.train: 'train\.fr' and 'train\.en' are named as the other sides of"):
        report_on(load_config("doctor", [*arguments[:-1], train]))


def test_C17_sides_that_read_like_other_languages_than_declared_are_findings(pairs: Pairs, tmp_path: Path) -> None:
    report = examined(tmp_path, train=swapped(pairs[:2500]), dev=swapped(pairs[2500:2800]), test=swapped(pairs[2800:]))
    assert {finding.level for finding in bad(report)} == {Level.warning}
    assert [(finding.where, finding.what.split(" (")[0]) for finding in bad(report)] == [
        (f"data.{split}", f"the {side} side is declared {lang}")
        for split in ("train", "dev", "test")
        for side, lang in (("source", "en"), ("target", "fr"))
    ]
    assert "reads like fr" in bad(report)[0].what


def test_C18_leaked_pairs_and_sources_are_counted_apart(pairs: Pairs, tmp_path: Path) -> None:
    dev = [*pairs[2500:2700], *pairs[10:20]]
    test = [*pairs[2700:2800], *((source, "Une autre phrase .") for source, _ in pairs[30:70])]
    report = examined(tmp_path, train=pairs[:2500], dev=dev, test=test)
    found = {finding.where: finding.what for finding in bad(report)}
    assert found["data.dev"].startswith("10 of 210 pairs are in data.train (4.8%), 10 by their source alone (4.8%)")
    assert "line 201, 202," in found["data.dev"]
    assert "0 of 140 pairs are in data.train (0%), 40 by their source alone (29%)" in found["data.test"]


def test_blank_and_repeated_lines_of_dev_are_numbered(pairs: Pairs, tmp_path: Path) -> None:
    dev = [*pairs[2500:2600], ("", "Oui ."), *pairs[2500:2520]]
    report = examined(tmp_path, train=pairs[:2500], dev=dev, test=pairs[2800:])
    blank, repeated = (finding.what for finding in bad(report))
    assert blank == "1 of 121 pairs blank (0.8%): line 101"
    assert repeated.startswith("20 of 121 pairs repeated (17%): line 102, 103, 104, 105, 106, …")


def test_text_in_a_wrong_encoding_is_noticed(pairs: Pairs, tmp_path: Path) -> None:
    broken = [(source, target.encode().decode("latin-1")) for source, target in pairs[2500:2800]]
    report = examined(tmp_path, train=pairs[:2500], dev=broken, test=pairs[2800:])
    n_accented = sum(not target.isascii() for _, target in pairs[2500:2800])
    assert report.figures["text"]["data.dev"]["damaged"] == n_accented > 10
    assert any("damaged characters" in finding.what for finding in bad(report))


@pytest.mark.parametrize("sound", ["Ça va, « l'été » à 20 °C… — Ægir", "Größe “über” Ã la carte"])
def test_letters_of_other_languages_are_not_taken_for_damage(sound: str) -> None:
    assert not text_checks._DAMAGE.search(sound)


@pytest.mark.parametrize(
    ("has_bytes", "named"), [("false", "tokens are unknown"), slow("true", "tokens are bytes of characters")]
)
def test_characters_that_the_vocabulary_lacks_are_named(
    pairs: Pairs, tmp_path: Path, has_bytes: str, named: str
) -> None:
    dev = [(f"{source} Ω", target) for source, target in pairs[2500:2700]]
    arguments = write(tmp_path, train=pairs[:2500], dev=dev, test=pairs[2800:])
    more = [f"data.tokenizer.byte_fallback={has_bytes}", "data.tokenizer.vocab_size=600"]
    report = report_on(load_config("doctor", [*arguments, *more]))
    (finding,) = (finding for finding in bad(report) if "pieces never seen" not in finding.what)
    assert finding.where == "data.dev"
    assert f"source {named}" in finding.what
    assert "U+03A9 Ω" in finding.what
    assert report.figures["vocabulary"]["data.dev"]["source"]["unknown_rate"] > 0.01


def test_lines_that_do_not_come_back_from_their_tokens_are_numbered(pairs: Pairs, tmp_path: Path) -> None:
    arguments = write(tmp_path, train=pairs[:2500], dev=[*pairs[2500:2700], ("a \u2581 cat", "x")], test=pairs[2800:])
    report = report_on(load_config("doctor", arguments))
    assert "1 of 201 known source lines come back changed from their tokens: line 201" in only(report).what


def test_a_large_corpus_is_sampled_from_the_prepared_text(
    pairs: Pairs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(text_checks, "MAX_READ_BYTES", 10)
    monkeypatch.setattr(length_ratios, "SAMPLE", 400)
    report = examined(tmp_path, train=pairs[:2500], dev=swapped(pairs[2500:2800]), test=pairs[2800:])
    assert "exchanged" in only(report).what
    assert any("400 sampled from 2,500 pairs" in finding.what for finding in report.findings())


# ---- Its parts


def test_only_pairs_out_of_proportion_deviate() -> None:
    draw = np.random.default_rng(1)
    source = draw.integers(20, 200, 2000)
    target = (source * draw.normal(1.2, 0.05, 2000)).astype(int)
    target[[7, 70]] = source[[7, 70]] * [4, 0.1]
    deviations = LengthRatio.of(source, target).deviations(source, target)
    assert np.flatnonzero(np.abs(deviations) > length_ratios.UNLIKELY_RATIO).tolist() == [7, 70]
    assert deviations[7] > 0 > deviations[70]
    blank = np.array([0, 3]), np.array([5, 0])
    assert LengthRatio.of(*blank).deviations(*blank).tolist() == [0, 0]


def test_the_length_outliers_pairs_are_the_same_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    draw = np.random.default_rng(1)
    source = draw.integers(20, 200, 2000)
    target = (source * draw.normal(1.2, 0.05, 2000)).astype(int)
    target[100:1300:100] *= np.arange(4, 16)
    whole = length_outliers(source, target)
    assert whole[0] == 12
    assert len(whole[1]) == 10
    monkeypatch.setattr(length_ratios, "_LENGTHS_AT_A_TIME", 70)
    assert length_outliers(source, target) == whole


def test_what_is_held_of_a_large_corpus_is_bounded() -> None:
    n = 1_000_000
    draw = np.random.default_rng(1)
    source = draw.integers(20, 200, n).astype(np.int32)
    target = (source * 1.2).astype(np.int32)
    tracemalloc.start()
    length_outliers(source, target)
    alignment_slips(source, target)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 12_000_000  # bytes; one number of eight bytes for each pair would be 8,000,000


# ---- The trial


def test_the_size_of_a_checkpoint_is_foretold(tmp_path: Path, figures: Callable[[str, str], None]) -> None:
    model = replace(toy_run.MODEL, d_model=128, d_ff=512)
    config = toy_run.config(model=model, max_steps=2, eval_every=2)
    foreseer = MeasuredRun(config, toy_run.prepared(), toy_run.CPU)
    foreseer.warm_up()
    train(config, toy_run.prepared(), tmp_path, device=toy_run.CPU)
    written = sum(path.stat().st_size for path in (tmp_path / "checkpoints" / "step-00000002").iterdir())
    figures("doctor: foretold bytes of a checkpoint / written", f"{foreseer.checkpoint_bytes() / written:.4f}")
    assert foreseer.checkpoint_bytes() == pytest.approx(written, rel=0.02)


def test_the_plan_of_memory_counts_what_is_trained_and_what_is_not(tmp_path: Path) -> None:
    source = toy_run.written_model(tmp_path, name="source")
    whole, few = (
        toy_run.config(),
        replace(toy_run.config(), init=InitConfig(from_=str(source)), lora=LoraConfig(rank=2)),
    )
    plans = []
    for config in (whole, few):
        run = MeasuredRun(config, toy_run.prepared(), toy_run.CPU)
        run.warm_up()
        plans.append((memory_plan(run.trainer), run.trainer))
    (of_all, trainer), (of_lora, adapted) = plans
    n = sum(one.numel() for one in trainer.model.parameters())
    n_adapters = sum(one.numel() for name, one in adapted.model.named_parameters() if is_adapter(name))
    n_tensors = [sum(one.requires_grad for one in found.model.parameters()) for found in (trainer, adapted)]
    assert of_all.weights == of_all.gradients == 4 * n
    assert of_all.optimizer == 8 * n + 4 * n_tensors[0]  # two moments, and each tensor's count of steps
    assert of_all.copy == of_all.gradients + of_all.optimizer
    assert of_lora.weights == 4 * (n + n_adapters)
    assert (of_lora.gradients, of_lora.optimizer) == (4 * n_adapters, 8 * n_adapters + 4 * n_tensors[1])
    made: list[PrepackedLinear] = []
    with pytest.MonkeyPatch.context() as patch:
        init = PrepackedLinear.__init__
        patch.setattr(PrepackedLinear, "__init__", lambda self, *args: (init(self, *args), made.append(self))[0])
        if can_prepack(trainer.model):
            prepack(trainer.model)
    assert of_all.search == of_lora.search == sum(4 * one.weight.numel() for one in made)


def test_the_plan_of_memory_and_of_the_disk_count_what_is_frozen_in_16_bits(tmp_path: Path) -> None:
    source = toy_run.written_model(tmp_path, name="source")
    wide = replace(toy_run.config(), init=InitConfig(from_=str(source)), lora=LoraConfig(rank=2))
    narrow = replace(wide, train=replace(wide.train, frozen_precision=FrozenPrecision.bf16))
    runs = [MeasuredRun(config, toy_run.prepared(), toy_run.CPU) for config in (wide, narrow)]
    for run in runs:
        run.warm_up()
    before, after = (memory_plan(run.trainer) for run in runs)
    matrices = sum(one.numel() for one in runs[1].trainer.model.parameters() if one.dtype is torch.bfloat16)
    bases = [one for name, one in runs[1].trainer.optimizer_state().items() if name.startswith("lora_base/")]
    assert before.weights - after.weights == 2 * matrices > 0
    assert replace(after, weights=before.weights) == before
    # The model file is as large as ever; beside it are the matrices of the projections, without the embeddings.
    saved = 2 * sum(one.numel() for one in bases)
    assert runs[0].checkpoint_bytes() - runs[1].checkpoint_bytes() == saved > 0


def test_the_largest_batch_that_fits_is_named_when_the_plan_has_a_larger_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def run_shape(self: MeasuredRun, shape: BatchShape) -> float:
        if shape.tokens > 100:
            raise RuntimeError("[enforce fail at alloc_cpu.cpp:124] DefaultCPUAllocator: can't allocate memory")
        return 0.1

    monkeypatch.setattr(MeasuredRun, "run_shape", run_shape)
    finding = only(trained_report(max_tokens_per_microbatch=360))
    assert (finding.level, finding.where) == (Level.error, "memory")
    assert finding.kind is not None
    assert finding.kind.exit_code == 5
    assert finding.todo == "Set train.max_tokens_per_microbatch=90, which fits"


def test_a_machine_that_is_too_small_is_told_before_its_memory_runs_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(updates, "available_memory", lambda: 10_000)
    monkeypatch.setattr(MeasuredRun, "run_shape", lambda *_: pytest.fail("the largest batch was tried"))
    assert "does not fit" in only(trained_report(max_tokens_per_microbatch=100_000)).what


def test_a_bug_of_ours_is_not_taken_for_a_lack_of_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> float:
        raise RuntimeError("The size of tensor a (3) must match the size of tensor b (4)")

    monkeypatch.setattr(MeasuredRun, "run_shape", fail)
    with pytest.raises(RuntimeError, match="size of tensor"):
        trained_report()


def test_a_device_too_slow_for_the_largest_batch_is_told_without_trying(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(updates, "WORST_SECONDS", 1e-9)
    monkeypatch.setattr(MeasuredRun, "run_shape", lambda *_: pytest.fail("the largest batch was tried"))
    assert "was not tried" in only(trained_report()).what


def test_too_little_disk_is_an_error_and_checkpoints_that_are_there_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(updates.shutil, "disk_usage", lambda _: SimpleNamespace(free=10_000))
    config = replace(toy_run.config(), runs=str(tmp_path / "runs"), name="here")
    finding = only(report_of_training(config))
    assert (finding.level, finding.where) == (Level.error, "runs")
    there = tmp_path / "runs" / "here" / "checkpoints" / "step-00000001"
    there.mkdir(parents=True)
    (there / "model.safetensors").write_bytes(bytes(10_000_000))
    assert bad(report_of_training(config)) == []


def test_a_loss_that_is_no_number_is_an_error_of_its_own_kind() -> None:
    schedule = toy_run.ScheduleConfig(name="constant", lr=10.0, warmup_steps=1)
    model = replace(toy_run.MODEL, norm=toy_run.Norm.post)
    config = toy_run.config(model=model, schedule=schedule)
    prepared = toy_run.prepared()
    report = CheckReport()
    attempt = MeasuredRun(config, prepared, toy_run.CPU)
    with torch.no_grad():
        next(attempt.trainer.model.parameters()).fill_(float("inf"))
    attempt.warm_up()
    assert not attempt.is_finite
    updates._refuse_divergence(attempt, report.section("training"))
    error = report.first_error()
    assert error is not None
    assert error.kind is not None
    assert error.kind.exit_code == 6
    assert error.todo == "Lower schedule.lr, or set train.clip_norm"


def test_the_memory_of_mps_is_what_it_is_recommended_to_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    held = [2 << 30]
    monkeypatch.setattr(torch.mps, "empty_cache", lambda: held.__setitem__(0, 1 << 30))
    monkeypatch.setattr(torch.mps, "driver_allocated_memory", lambda: held[0])
    monkeypatch.setattr(torch.mps, "recommended_max_memory", lambda: 12 << 30)
    meter = updates._Meter(torch.device("mps"))
    held[0] = 4 << 30
    assert meter.read() == updates.Memory(peak=3 << 30, available=11 << 30)


def trained_report(**train: int) -> CheckReport:
    return report_of_training(toy_run.config(**train))


def report_of_training(config: toy_run.TrainConfig) -> CheckReport:
    report, prepared = CheckReport(), toy_run.prepared()
    check_training(config, prepared, toy_run.CPU, report.section("training"))
    return report


def test_the_estimate_is_the_arithmetic_of_its_figures() -> None:
    config = toy_run.config(max_steps=1000)
    report, prepared = CheckReport(), toy_run.prepared()
    check_training(config, prepared, toy_run.CPU, report.section("training"))
    figures = report.figures["training"]
    assert figures["total_seconds"] == pytest.approx(1000 * figures["seconds_per_update"])
    assert figures["epochs"] == pytest.approx(1000 / figures["updates_per_epoch"])
    # 60 sentences in updates of 40 tokens: what an epoch takes is known from the corpus alone.
    assert figures["updates_per_epoch"] == round(int(prepared.train.target_lengths.sum()) / 40)
    assert figures["peak_bytes"] >= 0
    assert bad(report) == []


ODD: list[tuple[dict[str, Any], str]] = [
    ({"max_steps": 2000}, "epochs"),
    ({"max_steps": 2}, "epochs"),
    ({"max_steps": 100, "eval_every": 101}, "eval_every"),
    ({"max_steps": 100, "eval_every": 10, "patience": 10}, "patience"),
    ({"max_steps": 9, "tokens_per_update": 10_000}, "update"),
]


@each("settings, check", ODD)
def test_a_plan_that_wastes_the_run_is_a_warning(settings: dict[str, Any], check: str) -> None:
    odd = toy_run.config(**{"eval_every": 1, **settings})
    report = CheckReport()
    updates._check_plan(odd, toy_run.prepared(), report.section("training"))
    warned = [finding.where for finding in report.findings() if finding.level.name == "warning"]
    assert warned == [check]
    report = CheckReport()
    updates._check_plan(toy_run.config(max_steps=100), toy_run.prepared(), report.section("training"))
    assert [finding.level.name for finding in report.findings()] == ["ok"]


@pytest.mark.parametrize(("seconds", "n_updates"), [(1.5, 5), (4.0, 3), (20.0, 1)])
def test_the_seconds_of_an_update_are_those_of_five_or_of_what_is_begun_in_ten_seconds(
    seconds: float, n_updates: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, steps = [0.0], list[int]()
    monkeypatch.setattr(updates.time, "perf_counter", lambda: clock[0])

    def run(batches: list[SimpleNamespace], *, step: int = 1) -> float:
        clock[0] += seconds
        steps.append(step)
        return seconds

    feed = SimpleNamespace(batches=lambda step: [SimpleNamespace(n_tokens=10)])
    dry_run = SimpleNamespace(feed=feed, seconds_per_token=0.1, run=run)
    found = updates._seconds_per_update(dry_run)  # type: ignore[arg-type]
    assert steps == list(range(1, n_updates + 1))
    assert found == (seconds, f"{n_updates} timed")


@each(
    "seconds, shown",
    [(0.0123, "12 ms"), (5, "5.0 s"), (600, "10 min"), (7200, "2.0 h"), (86400 * 3, "3.0 days")],
)
def test_durations_are_shown_in_a_fitting_unit(seconds: float, shown: str) -> None:
    assert duration(seconds) == shown


# ---- The command


def doctor(*arguments: str) -> int:
    return main(["doctor", *arguments])


def test_the_command_prints_a_report_and_touches_no_run(
    pairs: Pairs, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = write(tmp_path, train=pairs[:2500], dev=pairs[2500:2800], test=pairs[2800:])
    run = tmp_path / "runs" / "mine"
    run.mkdir(parents=True)
    (run / "config.yaml").write_text("as it was")
    before = toy_run.tree(tmp_path / "runs")
    assert doctor(*arguments, "name=mine") == 0
    captured = capsys.readouterr()
    assert "tfm: error" not in captured.err
    lines = captured.out.split("\n")
    assert lines[0] == "files, model tiny"
    assert [line for line in lines if line and not line.startswith(" ")][1:4] == ["text", "vocabulary", "training"]
    assert lines[-2].startswith("0 errors, 0 warnings (checks ")
    assert toy_run.tree(tmp_path / "runs") == before
    assert [path.name for path in (tmp_path / "runs").iterdir()] == ["mine"]


def test_without_a_run_directory_none_is_made(pairs: Pairs, tmp_path: Path) -> None:
    assert doctor(*write(tmp_path, train=pairs[:500])) == 0
    assert not (tmp_path / "runs").exists()


def test_json_is_one_object_with_findings_and_figures(
    pairs: Pairs, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = write(tmp_path, train=pairs[:2500], dev=swapped(pairs[2500:2800]), test=pairs[2800:])
    assert doctor("--json", *arguments) == 3
    captured = capsys.readouterr()
    report = json.loads(captured.out)
    assert (report["ok"], report["errors"]) == (False, 1)
    (error,) = [finding for finding in report["findings"] if finding["level"] == "error"]
    assert (error["where"], error["exit_code"]) == ("data.dev", 3)
    assert report["figures"]["training"]["total_seconds"] > 0
    (of_train,) = [figures for name, figures in report["figures"]["text"].items() if name.startswith("data.train")]
    assert {"uneven", "most_uneven"} <= of_train.keys()
    (line,) = [line for line in captured.err.split("\n") if line.startswith("tfm: error: ")]
    assert line == f"tfm: error: data.dev: {error['what']}. {error['todo']}"


@pytest.mark.parametrize(
    ("arguments", "status", "named"),
    [
        (["data=files", "data.source_lang=en", "data.target_lang=fr", "data.train=[no.en,no.fr]"], 3, "no.en"),
        (["train.precision=fp16", "device=cpu"], 5, "train.precision=fp16"),
        slow(["data.tokenizer.vocab_size=100000"], 2, "data.tokenizer.vocab_size=100000"),
        (["model.d_modle=3"], 2, "model.d_model"),
    ],
)
def test_what_keeps_the_report_from_being_made_is_one_line(
    arguments: list[str], status: int, named: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert doctor(*arguments, f"data.cache={tmp_path}") == status
    captured = capsys.readouterr()
    assert captured.out == ""
    (line,) = [line for line in captured.err.split("\n") if line.startswith("tfm: error: ")]
    assert named in line


def test_a_finding_is_one_line_in_a_pipe_and_wrapped_in_a_terminal() -> None:
    report = CheckReport()
    report.section("text").warn("data.dev", "word " * 40 + "end", "Do this")
    assert len(list(report.lines(None))) == 3
    wrapped = list(report.lines(80))
    assert len(wrapped) > 4
    assert max(map(len, wrapped)) <= 80
    assert all(line.startswith(" " * 24) for line in wrapped[3:])


def test_doctor_composes_what_train_composes() -> None:
    assert groups_of("doctor") == groups_of("train")
    for arguments in ([], ["model=base", "data=wmt14_en_de"], ["experiment=multi30k"], ["experiment=paper_big"]):
        train_config = to_plain(load_config("train", arguments))
        assert to_plain(load_config("doctor", arguments)) == {**train_config, "json": False, "suspects": None}


# ---- Real text


SETS = {
    "multi30k": ("multi30k/{}.en", "multi30k/{}.de", "train", "val", "test_2016_flickr"),
    "europarl": ("europarl_de_en_20k/{}.de", "europarl_de_en_20k/{}.en", "train", "valid", "test"),
    "tanaka": ("small_parallel_enja/{}.en", "small_parallel_enja/{}.ja", "train", "dev", "test"),
    "news": ("wmt14_en_de/newstest{}.en", "wmt14_en_de/newstest{}.fr", "2011", "2012", "2013"),
}
BREAKS: dict[str, Callable[[Pairs], Pairs]] = {
    "exchanged": swapped,
    "not aligned": lambda pairs: [(a, b) for (a, _), (_, b) in pairwise([*pairs, pairs[0]])],
    "are in data.train": lambda pairs: pairs,  # this is training text
    "with equal sides": lambda pairs: [(a, a) if i % 10 == 0 else (a, b) for i, (a, b) in enumerate(pairs)],
}


def real(shared_data: Path, name: str) -> dict[str, Pairs]:
    source, target, *splits = SETS[name]

    def side(pattern: str, split: str) -> list[str]:
        path = shared_data / pattern.format(split)
        return read_lines(path if path.exists() else path.with_name(f"{path.name}.gz")).texts

    return {
        key: list(zip(side(source, split), side(target, split), strict=True))[:20_000]
        for key, split in zip(("train", "dev", "test"), splits, strict=True)
    }


def labelled(pairs: Pairs) -> str:
    return "".join(f"{len(source) % 3}\t{source}\n" for source, _ in pairs)


@pytest.mark.parametrize("data", ["labels", "text"])
def test_of_another_task_only_the_updates_are_tried(
    data: str, pairs: Pairs, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "train.tsv"
    file.write_text(labelled(pairs[:500]), encoding="utf-8")
    arguments = [f"data={data}", f"data.train={file}", f"data.cache={tmp_path}/cache", f"runs={tmp_path}/runs"]
    sizes = ["data.tokenizer.vocab_size=300", "model.d_model=16", "model.d_ff=16", "device=cpu", "train.max_steps=100"]
    assert main(["doctor", "--json", *arguments, *sizes]) == 0
    report = json.loads(capsys.readouterr().out)
    assert set(report["figures"]) == {"training", "seconds"}
    assert report["figures"]["training"]["worst_seconds"] > 0


@pytest.mark.slow
@pytest.mark.parametrize("name", SETS)
def test_real_text_gives_no_false_alarm_and_each_fault_in_it_is_found(
    name: str, shared_data: Path, tmp_path: Path, figures: Callable[[str, str], None]
) -> None:
    splits = real(shared_data, name)
    source, target = (pattern.rpartition(".")[2] for pattern in SETS[name][:2])
    arguments = write(tmp_path, (source, target), **splits)
    config = load_config("doctor", [*arguments, "data.tokenizer.vocab_size=4000"])
    prepared: Prepared = prepare(config.data)
    report = CheckReport()
    check_text(config.data, prepared, report.section("text"))
    figures(f"doctor: pairs of {name} whose sides look like two languages", str(report.figures["text"]["told_apart"]))
    assert bad(report) == []
    for fault, break_ in BREAKS.items():
        text = splits["train"][:500] if fault == "are in data.train" else splits["dev"]
        sources, targets = zip(*break_(text), strict=True)
        broken = replace(prepared, dev=replace(prepared.dev, sources=list(sources), targets=list(targets)))
        report = CheckReport()
        check_text(config.data, broken, report.section("text"))
        assert fault in next(finding.what for finding in bad(report) if finding.where == "data.dev")
