"""`tfm bench`: counts, correctness checks before timing, and the command."""

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.addons.benchmarks.toy_bench import CPU, TRAINING, config
from tests.conftest import slow
from transformer_cli.addons.benchmarks import machine, matmuls, parts, tfm_training
from transformer_cli.addons.benchmarks.keys import BenchConfig, BenchSubject
from transformer_cli.addons.benchmarks.matmuls import count_projections, flops
from transformer_cli.addons.benchmarks.reference import check_error, check_with_reference, gradient_errors
from transformer_cli.addons.benchmarks.report import WIDTH
from transformer_cli.addons.benchmarks.run_bench import BENCHES
from transformer_cli.addons.benchmarks.startup import overrides_of, translating_overrides
from transformer_cli.addons.benchmarks.timing import Spread, best, in_turn, ratio
from transformer_cli.addons.benchmarks.training import Ceiling, skeleton, summary
from transformer_cli.addons.benchmarks.worker import Round
from transformer_cli.cli import main
from transformer_cli.config.compose import load_config, to_plain
from transformer_cli.config.train import TrainConfig
from transformer_cli.errors import EnvironmentFault
from transformer_cli.models import attention
from transformer_cli.models.attention import attend
from transformer_cli.models.inputs import Inputs
from transformer_cli.models.layouts import AttentionLayout, LengthGroups, PackedLayout
from transformer_cli.models.transformer import Transformer
from transformer_cli.training import trainer as trainer_module


@pytest.fixture(autouse=True)
def _briefly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("transformer_cli.addons.benchmarks.workload.N_PAIRS", 500)
    for module in (machine, matmuls):
        monkeypatch.setattr(module, "best", partial(best, budget_s=0.0))


# ---- Counting


def test_the_spread_is_the_median_and_the_quartiles() -> None:
    assert Spread.of([5, 1, 4, 2, 3]) == Spread(2, 3, 4)
    assert Spread(1, 2.5, 4).shown(".1f") == "2.5 (1.0–4.0)"
    assert Spread(950, 1000, 1150).shown_briefly() == "1,000 ± 10%"


def test_a_ratio_is_taken_round_by_round() -> None:
    # A machine that is ten times as slow in the second round changes nothing.
    assert ratio([2, 0.2, 3], [1, 0.1, 1]) == Spread(2, 2, 2.5)


def test_short_calls_are_repeated_within_a_round() -> None:
    calls = []
    taken = in_turn({"short": lambda: calls.append(1)}, rounds=3, device=CPU)
    assert len(taken["short"]) == 3
    assert max(taken["short"]) < 0.01
    assert len(calls) > 1000


def test_the_products_of_base_are_those_counted_by_hand() -> None:
    base: BenchConfig = load_config("bench", ["subject=train", "model=base", "data.tokenizer.vocab_size=37000"])
    found = flops(count_projections(skeleton(base, vocab_size=37_000), n_source=1, n_target=1))
    d, ff = 512, 2048
    per_source = 6 * (4 * d * d + 2 * d * ff) + 6 * 2 * d * d  # the encoder, and keys and values of it
    per_target = 6 * (4 * d * d + 2 * d * d + 2 * d * ff) + d * 37_000
    assert found == 6 * (per_source + per_target)  # two operations each, and twice as many on the way back
    assert found == pytest.approx(380.6e6, rel=0.01)  # with attention's own products at 29 tokens a side


def test_source_and_target_tokens_count_where_they_are() -> None:
    model = skeleton(config(), vocab_size=50)
    d, ff = 16, 32
    assert flops(count_projections(model, n_source=1, n_target=0)) == 6 * (4 * d * d + 2 * d * ff + 2 * d * d)
    assert flops(count_projections(model, n_source=0, n_target=1)) == 6 * (6 * d * d + 2 * d * ff + d * 50)


def test_a_summary_counts_only_real_tokens() -> None:
    toy = config("n_updates=2")
    done = Round(n_target_tokens=1000, n_source_tokens=800, n_padded_tokens=3600, seconds=0.5, peak_bytes=10**9)
    ceiling = Ceiling(toy, done, CPU)
    ceiling.shares, ceiling.rates = [0.5], [1e9]
    twice_as_slow = replace(done, seconds=1.0)
    found = summary(toy, {"tfm": [done], "other": [twice_as_slow]}, ceiling)
    assert found.ratios["tfm to other"] == Spread(2, 2, 2)
    useful = found.ratios["useful FLOP/s to a large product"].median
    assert useful == pytest.approx(ceiling.flops(done) / 0.5 / 1e9)
    name, rate, faster, milliseconds, filled, _, memory = found.rows[1]
    assert (name, rate, faster) == ("other", "1,000 ± 0%", "2.00 (2.00–2.00)")
    assert (milliseconds, filled, memory) == ("500.0", "50.0%", "1.0 GB")


def test_the_tables_fit_a_terminal() -> None:
    toy = config()
    done = Round(25_000_000, 25_000_000, 51_000_000, 24.0, 10**11)
    ceiling = Ceiling(toy, replace(done, n_target_tokens=10, n_source_tokens=10), CPU)
    ceiling.shares, ceiling.rates = [0.5], [790e12]
    found = summary(toy, {"tfm": [done], "nn.Transformer, compiled": [done]}, ceiling)
    assert max(map(len, found.text(CPU).split("\n"))) <= WIDTH


# ---- Wrong results are not timed


@pytest.fixture
def trained() -> Iterator[Callable[..., tfm_training.TfmTraining]]:
    """Makes a trainer with overrides, and closes its prefetch thread after the test."""
    with ExitStack() as stack:

        def made(*overrides: str) -> tfm_training.TfmTraining:
            trainer = tfm_training.TfmTraining(config(*overrides), CPU)
            stack.callback(trainer.ahead.close)
            return trainer

        yield made


def check_of(trainer: tfm_training.TfmTraining) -> None:
    check_with_reference(trainer.run.trainer, trainer.batches(1)[0], trainer.config, trainer.prepared.tokenizers)


@pytest.mark.parametrize(
    ("precision", "norm"), [("fp32", "pre"), ("bf16", "post"), slow("fp32", "post"), slow("bf16", "pre")]
)
def test_a_right_model_passes(precision: str, norm: str, trained: Callable[..., tfm_training.TfmTraining]) -> None:
    trainer = trained(f"train.precision={precision}", f"norm={norm}", "model.dropout=0.5")
    before = {name: tensor.clone() for name, tensor in trainer.run.trainer.model.state_dict().items()}
    check_of(trainer)
    assert all(torch.equal(tensor, before[name]) for name, tensor in trainer.run.trainer.model.state_dict().items())
    assert trainer.run.trainer.model.training


def attends_wrongly(monkeypatch: pytest.MonkeyPatch, wrong: Callable[..., Tensor]) -> None:
    """Packed sentences by `wrong`; padded ones, of which the reference is computed, as before."""

    def chosen(q: Tensor, k: Tensor, v: Tensor, *layouts: AttentionLayout, **options: Any) -> Tensor:
        kernel = wrong if isinstance(layouts[0], PackedLayout) else attend
        return kernel(q, k, v, *layouts, **options)

    monkeypatch.setattr(attention, "attend", chosen)
    monkeypatch.setattr(parts, "attend", chosen)


def attends_to_the_future(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(*args: Any, causal: bool = False, **kwargs: Any) -> Tensor:
        return attend(*args, **kwargs)

    attends_wrongly(monkeypatch, wrong)


def attends_across_sentences(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(q: Tensor, k: Tensor, v: Tensor, queries: PackedLayout, keys: PackedLayout, **kwargs: Any) -> Tensor:
        as_one = [replace(layout, groups=[(1, len(layout.positions))]) for layout in (queries, keys)]
        return attend(q, k, v, *as_one, **kwargs)

    attends_wrongly(monkeypatch, wrong)


def loses_the_positions(monkeypatch: pytest.MonkeyPatch) -> None:
    of_groups = PackedLayout.of_groups

    def wrong(groups: LengthGroups, device: torch.device) -> PackedLayout:
        layout = of_groups(groups, device)
        return replace(layout, positions=torch.zeros_like(layout.positions))

    monkeypatch.setattr(PackedLayout, "of_groups", wrong)


def smooths_too_much(monkeypatch: pytest.MonkeyPatch) -> None:
    right = trainer_module.smoothed_nll
    monkeypatch.setattr(trainer_module, "smoothed_nll", lambda *args, smoothing: right(*args, smoothing=2 * smoothing))


def loses_a_gradient(monkeypatch: pytest.MonkeyPatch) -> None:
    right = Transformer.logits

    def wrong(model: Transformer, given: Inputs) -> Tensor:
        model.decoder.layers[0].cross_attention.to_q.weight.register_hook(torch.zeros_like)
        return right(model, given)

    monkeypatch.setattr(Transformer, "logits", wrong)


WRONG = [attends_to_the_future, attends_across_sentences, loses_the_positions, smooths_too_much, loses_a_gradient]


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("make_wrong", WRONG)
def test_a_wrong_model_is_not_timed(
    make_wrong: Callable[[pytest.MonkeyPatch], None],
    precision: str,
    trained: Callable[..., tfm_training.TfmTraining],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    trainer = trained(f"train.precision={precision}")
    make_wrong(monkeypatch)
    with pytest.raises(EnvironmentFault, match=r"is .* off the plain computation in float64"):
        check_of(trainer)


def test_the_error_of_a_gradient_is_that_of_its_worst_part() -> None:
    expected = {"large": torch.tensor([3.0, 4.0]), "small": torch.tensor([0.5])}
    found = {"large": torch.tensor([3.0, 4.5]), "small": torch.tensor([0.4])}
    whole, errors = gradient_errors(found, expected)
    assert whole == pytest.approx((0.5**2 + 0.1**2) ** 0.5 / 25.25**0.5)
    assert errors == {"large": pytest.approx(0.1), "small": pytest.approx(0.2)}
    check_error("x", errors["large"], 0.11)
    with pytest.raises(EnvironmentFault, match="nan"):
        check_error("x", float("nan"), 0.1)


@pytest.mark.parametrize("part", ["loss", "attention"])
def test_a_wrong_part_is_not_timed(
    part: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    right = parts.smoothed_nll
    monkeypatch.setattr(parts, "smoothed_nll", lambda *args, smoothing: right(*args, smoothing=0.5))
    attends_across_sentences(monkeypatch)
    assert main(["bench", part, *TRAINING]) == 5
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith(f"tfm: error: the gradient of {part} is ")
    assert captured.err.count("\n") == 1


def counted(monkeypatch: pytest.MonkeyPatch, where: Any, name: str, calls: set[str]) -> None:
    right = getattr(where, name)

    def counting(*args: Any, **kwargs: Any) -> Any:
        calls.add(name)
        return right(*args, **kwargs)

    monkeypatch.setattr(where, name, counting)


OF_TORCH = pytest.mark.filterwarnings("ignore:`torch.jit.script_method` is deprecated:DeprecationWarning")


@OF_TORCH
@pytest.mark.parametrize(
    ("compile", "expected"),
    [
        ("none", {"project", "smoothed_nll", "of_groups"}),
        ("default", {"project", "masked_smoothed_nll", "attend_varlen", "compile"}),
    ],
)
def test_parts_use_the_functions_of_training(
    compile: str, expected: set[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from transformer_cli.models import embeddings, packed_attention

    calls: set[str] = set()
    monkeypatch.setattr(torch, "compile", lambda function, **kwargs: function)
    counted(monkeypatch, torch, "compile", calls)
    counted(monkeypatch, embeddings, "project", calls)
    for name in ("smoothed_nll", "masked_smoothed_nll"):
        counted(monkeypatch, parts, name, calls)
    counted(monkeypatch, PackedLayout, "of_groups", calls)
    counted(monkeypatch, packed_attention, "attend_varlen", calls)
    for part in ("loss", "attention"):
        assert main(["bench", part, *TRAINING, f"train.compile={compile}"]) == 0
    assert "| tfm " in capsys.readouterr().out
    assert calls == expected


@OF_TORCH
def test_the_check_uses_the_compiled_step(
    monkeypatch: pytest.MonkeyPatch, trained: Callable[..., tfm_training.TfmTraining]
) -> None:
    """Even for a batch with fewer tokens than training would compile for."""
    n_calls = 0

    def compiling(function: Callable[..., Any], **kwargs: Any) -> Callable[..., Any]:
        def compiled(*args: Any, **kwargs: Any) -> Any:
            nonlocal n_calls
            n_calls += function.__name__ == "_loss_of_states"
            return function(*args, **kwargs)

        return compiled

    monkeypatch.setattr(torch, "compile", compiling)
    monkeypatch.setattr("transformer_cli.addons.benchmarks.reference.N_CHECKED", {"cpu": 400})
    large = ("train.tokens_per_update=1200", "train.max_tokens_per_microbatch=1200")
    trainer = trained("train.compile=default", *large)
    constant = trainer.run.trainer.compiled_sizes
    check_of(trainer)
    assert n_calls == 1
    assert trainer.run.trainer.compiled_sizes == constant


# ---- The command


@pytest.mark.parametrize("subject", [slow("machine"), "loss", "attention", "data", slow("train")])
def test_each_subject_prints_a_table(subject: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", subject, *TRAINING]) == 0
    text = capsys.readouterr().out
    assert text.startswith(f"tfm bench {subject}: ")
    lines = text.split("\n")
    assert max(map(len, lines)) <= WIDTH
    table = [line for line in lines if line.startswith("|")]
    assert len(table) > 2
    assert len({len(line) for line in table}) == 1


def test_json_has_all_sections(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "loss", "--json", *TRAINING]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert list(printed) == ["subject", "machine", "settings", "ratios", "figures"]
    assert printed["subject"] == "loss"
    assert printed["machine"]["torch"] == torch.__version__
    assert printed["machine"]["commit"]
    assert printed["settings"]["model"]["d_model"] == 16
    assert set(printed["ratios"]["tfm to F.cross_entropy"]) == {"low", "median", "high"}
    assert len(printed["figures"]["tfm"]) == 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nonsense"], "subject=nonsense: unknown. Choose machine, train,"),
        ([], "`tfm bench`: no subject given. Name one: machine, train, loss,"),
        (["train", "rounds=0"], "rounds=0: out of range"),
        (["train", "n_updates=0"], "n_updates=0: out of range"),
        (["train", "train.max_tokens_per_microbatch=auto"], "train.max_tokens_per_microbatch=auto: "),
        (["train", "train.sharding=full", "train.ema=null"], "train.sharding=full: "),
        (["train", "model.bias=false"], "model.bias=false: the baselines have true"),
    ],
)
def test_bad_input_is_one_line(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", *words]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith(f"tfm: error: {message}")
    assert captured.err.count("\n") == 1


def test_start_times_the_run_of_the_config() -> None:
    wanted = config(
        "data.train=[a b.en,c.de]", "data.root=null", "data=files", "data.source_lang=en", "data.target_lang=de"
    )
    overrides = overrides_of(wanted)
    found = load_config("train", overrides)
    plain = to_plain(wanted)
    assert to_plain(found) == {key: plain[key] for key in to_plain(TrainConfig(data=wanted.data))}
    assert overrides_of(load_config("bench", ["subject=start"])) == []


def test_start_translates_in_the_direction_that_is_asked_for() -> None:
    wanted = load_config("bench", ["subject=start", "checkpoint=m", "source_lang=en", "target_lang=fr"])
    found = load_config("translate", translating_overrides(wanted))
    assert (found.checkpoint, found.source_lang, found.target_lang) == ("m", "en", "fr")


@pytest.mark.slow
def test_start_measures_the_whole_and_its_parts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["bench", "start", "rounds=1", "device=cpu", f"data.cache={tmp_path}", "--json"]
    assert main(words) == 0
    figures = json.loads(capsys.readouterr().out)["figures"]
    (whole,), (parts,) = figures["whole"], figures["parts"]
    assert parts["the first update"] > 0
    assert sum(parts.values()) == pytest.approx(whole, rel=0.5)  # tolerates load on the machine


def test_every_subject_has_a_bench() -> None:
    assert set(BENCHES) == set(BenchSubject)
