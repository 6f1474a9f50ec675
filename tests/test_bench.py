"""`tfm bench`: what it counts, what it refuses to time, and that rivals and we do the same."""

import json
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from tests.conftest import ROOT
from transformer_cli.benchmarks import baselines as rivals
from transformer_cli.benchmarks import machine, matmuls, ours, parts
from transformer_cli.benchmarks.baselines import Rival, refuse_unlike, sorted_batches
from transformer_cli.benchmarks.matmuls import flops, projections
from transformer_cli.benchmarks.reference import check, check_model, gradient_errors
from transformer_cli.benchmarks.report import WIDTH
from transformer_cli.benchmarks.startup import overrides_of
from transformer_cli.benchmarks.timing import Spread, best, in_turn, ratio
from transformer_cli.benchmarks.training import Ceiling, skeleton, summary
from transformer_cli.benchmarks.worker import Contestant, Round
from transformer_cli.benchmarks.workload import random_sentences
from transformer_cli.cli import main
from transformer_cli.commands.bench import BENCHES
from transformer_cli.config.bench import BenchConfig, BenchSubject
from transformer_cli.config.compose import load_config, to_plain
from transformer_cli.config.train import TrainConfig
from transformer_cli.errors import ConfigError, EnvironmentFault
from transformer_cli.models import attention
from transformer_cli.models.attention import attend
from transformer_cli.models.layouts import AttentionLayout, LengthGroups, PackedLayout
from transformer_cli.models.transformer import Transformer
from transformer_cli.training import trainer as learning

CPU = torch.device("cpu")
MATCHED = "nn.Transformer lean"
_WRITTEN = """
    lengths=wmt rounds=1 rivals=false device=cpu data.max_length=60 data.tokenizer.vocab_size=50
    model.d_model=16 model.d_ff=32 model.n_heads=2 model.n_encoder_layers=1 model.n_decoder_layers=1
    train.tokens_per_update=600 train.max_tokens_per_microbatch=300
"""
TOY = _WRITTEN.split()


@pytest.fixture(autouse=True)
def _briefly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("transformer_cli.benchmarks.workload.N_PAIRS", 500)
    for module in (machine, matmuls):
        monkeypatch.setattr(module, "best", partial(best, budget_s=0.0))


@cache
def config(*overrides: str) -> BenchConfig:
    loaded: BenchConfig = load_config("bench", ["subject=train", *TOY, *overrides])
    return loaded


# ---- Counting


def test_the_spread_is_the_median_and_the_quartiles() -> None:
    assert Spread.of([5, 1, 4, 2, 3]) == Spread(2, 3, 4)
    assert Spread(1, 2.5, 4).shown(".1f") == "2.5 (1.0–4.0)"
    assert Spread(950, 1000, 1150).shown_briefly() == "1,000 ± 10%"


def test_a_ratio_is_taken_round_by_round() -> None:
    # A machine that is ten times as slow in the second round changes nothing.
    assert ratio([2, 0.2, 3], [1, 0.1, 1]) == Spread(2, 2, 2.5)


def test_what_is_short_is_called_several_times_in_a_round() -> None:
    calls = []
    taken = in_turn({"short": lambda: calls.append(1)}, rounds=3, device=CPU)
    assert len(taken["short"]) == 3
    assert max(taken["short"]) < 0.01
    assert len(calls) > 1000


def test_the_products_of_base_are_those_counted_by_hand() -> None:
    base: BenchConfig = load_config("bench", ["subject=train", "model=base", "data.tokenizer.vocab_size=37000"])
    found = flops(projections(skeleton(base, vocab_size=37_000), n_source=1, n_target=1))
    d, ff = 512, 2048
    per_source = 6 * (4 * d * d + 2 * d * ff) + 6 * 2 * d * d  # the encoder, and keys and values of it
    per_target = 6 * (4 * d * d + 2 * d * d + 2 * d * ff) + d * 37_000
    assert found == 6 * (per_source + per_target)  # two operations each, and twice as many on the way back
    assert found == pytest.approx(380.6e6, rel=0.01)  # with attention's own products at 29 tokens a side


def test_source_and_target_tokens_count_where_they_are() -> None:
    model = skeleton(config(), vocab_size=50)
    d, ff = 16, 32
    assert flops(projections(model, n_source=1, n_target=0)) == 6 * (4 * d * d + 2 * d * ff + 2 * d * d)
    assert flops(projections(model, n_source=0, n_target=1)) == 6 * (6 * d * d + 2 * d * ff + d * 50)


def test_a_summary_counts_only_real_tokens() -> None:
    toy = config("n_updates=2")
    done = Round(n_target_tokens=1000, n_source_tokens=800, n_cells=3600, seconds=0.5, peak_bytes=10**9)
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


# ---- Nothing that is wrong is timed


@pytest.fixture
def trained() -> Iterator[Callable[..., ours.OwnTraining]]:
    """Makes a trainer with some overrides; in the end its thread ends, too."""
    with ExitStack() as stack:

        def made(*overrides: str) -> ours.OwnTraining:
            trainer = ours.OwnTraining(config(*overrides), CPU)
            stack.callback(trainer.ahead.close)
            return trainer

        yield made


def check_of(trainer: ours.OwnTraining) -> None:
    check_model(trainer.run.trainer, trainer.batches(1)[0], trainer.config, trainer.prepared.tokenizers)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("norm", ["pre", "post"])
def test_a_right_model_passes(precision: str, norm: str, trained: Callable[..., ours.OwnTraining]) -> None:
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


def sees_the_future(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(*args: Any, causal: bool = False, **options: Any) -> Tensor:
        return attend(*args, **options)

    attends_wrongly(monkeypatch, wrong)


def sees_other_sentences(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(q: Tensor, k: Tensor, v: Tensor, queries: PackedLayout, keys: PackedLayout, **options: Any) -> Tensor:
        as_one = (replace(layout, groups=[(1, len(layout.positions))]) for layout in (queries, keys))
        return attend(q, k, v, *as_one, **options)

    attends_wrongly(monkeypatch, wrong)


def does_not_know_where_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    of_groups = PackedLayout.of_groups

    def wrong(groups: LengthGroups, device: torch.device) -> PackedLayout:
        layout = of_groups(groups, device)
        return replace(layout, positions=torch.zeros_like(layout.positions))

    monkeypatch.setattr(PackedLayout, "of_groups", wrong)


def smooths_too_much(monkeypatch: pytest.MonkeyPatch) -> None:
    right = learning.smoothed_nll
    monkeypatch.setattr(learning, "smoothed_nll", lambda *args, smoothing: right(*args, smoothing=2 * smoothing))


def loses_a_gradient(monkeypatch: pytest.MonkeyPatch) -> None:
    right = learning.predict_batch

    def wrong(model: Transformer, *args: Any) -> tuple[Tensor, Tensor]:
        model.decoder.layers[0].cross_attention.to_q.weight.register_hook(torch.zeros_like)
        return right(model, *args)

    monkeypatch.setattr(learning, "predict_batch", wrong)


WRONG = [sees_the_future, sees_other_sentences, does_not_know_where_it_is, smooths_too_much, loses_a_gradient]


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("make_wrong", WRONG)
def test_a_wrong_model_is_not_timed(
    make_wrong: Callable[[pytest.MonkeyPatch], None],
    precision: str,
    trained: Callable[..., ours.OwnTraining],
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
    check("x", errors["large"], 0.11)
    with pytest.raises(EnvironmentFault, match="nan"):
        check("x", float("nan"), 0.1)


@pytest.mark.parametrize("part", ["loss", "attention"])
def test_a_wrong_part_is_not_timed(
    part: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    right = parts.smoothed_nll
    monkeypatch.setattr(parts, "smoothed_nll", lambda *args, smoothing: right(*args, smoothing=0.5))
    sees_other_sentences(monkeypatch)
    assert main(["bench", part, *TOY]) == 5
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
def test_parts_are_those_that_training_has(
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
        assert main(["bench", part, *TOY, f"train.compile={compile}"]) == 0
    assert "| tfm " in capsys.readouterr().out
    assert calls == expected


@OF_TORCH
def test_what_is_compiled_is_what_is_checked(
    monkeypatch: pytest.MonkeyPatch, trained: Callable[..., ours.OwnTraining]
) -> None:
    """Of a few tokens, which training would not compile for."""
    n_calls = 0

    def compiling(function: Callable[..., Any], **kwargs: Any) -> Callable[..., Any]:
        def compiled(*args: Any) -> Any:
            nonlocal n_calls
            n_calls += 1
            return function(*args)

        return compiled

    monkeypatch.setattr(torch, "compile", compiling)
    monkeypatch.setattr("transformer_cli.benchmarks.reference.N_CHECKED", {"cpu": 400})
    large = ("train.tokens_per_update=1200", "train.max_tokens_per_microbatch=1200")
    trainer = trained("train.compile=default", *large)
    constant = trainer.run.trainer.compiled_sizes
    check_of(trainer)
    assert n_calls == 1
    assert trainer.run.trainer.compiled_sizes == constant


# ---- Rivals


def test_every_sentence_is_in_one_batch_of_the_rivals() -> None:
    corpus = random_sentences(50, longest=60, seed=1)
    batches = sorted_batches(corpus, tokens=300, seed=1)
    assert sorted(np.concatenate(batches).tolist()) == list(range(len(corpus)))
    assert max(int(corpus.target_lengths[batch].sum()) for batch in batches) < 300 + 60


def test_random_sentences_end_and_are_as_long_as_those_of_wmt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("transformer_cli.benchmarks.workload.N_PAIRS", 50_000)
    corpus = random_sentences(1000, longest=256, seed=1)
    assert corpus.target_lengths.mean() == pytest.approx(29.3, rel=0.02)
    assert (corpus.target_ids[corpus.target_offsets[1:] - 1] == 3).all()
    assert np.array_equal(np.diff(corpus.source_offsets), corpus.source_lengths)


@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("net", [MATCHED, "Hugging Face Marian"])
def test_rivals_have_the_same_parameters_and_tokens(
    net: str, norm: str, trained: Callable[..., ours.OwnTraining]
) -> None:
    if net == "Hugging Face Marian":
        pytest.importorskip("transformers")
        if norm == "pre":
            pytest.skip("it has none")
    trainer = trained(f"norm={norm}")
    rival = Rival(net, trainer.config, CPU)
    theirs, mine = (
        sum(p.numel() for p in model.parameters() if p.requires_grad)
        for model in (rival.net, trainer.run.trainer.model)
    )
    assert theirs == mine
    rounds = [one.round() for one in (trainer, trainer, rival, rival)]
    for one in rounds:
        assert 450 < one.n_target_tokens < 750
        assert one.n_target_tokens + one.n_source_tokens <= one.n_cells
    assert all(p.grad is not None for p in rival.net.parameters() if p.requires_grad)


class Drawn(TorchDispatchMode):
    """Counts the masks of dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.n = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.n += func.overloadpacket.__name__ == "bernoulli_"
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize(
    ("net", "places"),
    [
        (MATCHED, 2 + 2 + 3),  # both embeddings, and each sub-layer of an encoder's and of a decoder's layer
        ("Hugging Face Marian", 2 + 2 + 3),
        ("nn.Transformer", 2 + 2 + 3 + 3 + 2),  # also the weights of each attention, and inside each feed-forward layer
    ],
)
def test_rivals_drop_out_what_the_paper_does_and_torchs_own_more(net: str, places: int) -> None:
    if net == "Hugging Face Marian":
        pytest.importorskip("transformers")
    source_BS, target_BT = torch.tensor([[7, 8, 9, 3]]), torch.tensor([[5, 6, 3]])
    with Drawn() as drawn:
        Rival(net, config("model.dropout=0.5"), CPU)._loss(source_BS, target_BT)
    assert drawn.n == places


@pytest.mark.parametrize("net", ["nn.Transformer", MATCHED])
def test_padding_changes_no_loss_of_a_rival(net: str) -> None:
    rival = Rival(net, config("model.dropout=0"), CPU)
    source_BS, target_BT = torch.tensor([[7, 8, 9, 3]]), torch.tensor([[5, 6, 3]])
    alone = rival._loss(source_BS, target_BT)
    padded = rival._loss(torch.nn.functional.pad(source_BS, (0, 3)), torch.nn.functional.pad(target_BT, (0, 2)))
    assert padded.item() == pytest.approx(alone.item(), rel=1e-5)


@pytest.mark.parametrize(
    "override", ["model.bias=false", "model.activation=gelu", "optimizer=muon", "train.ema=0.9", "train.clip_norm=1"]
)
def test_rivals_are_not_compared_with_what_they_do_not_have(override: str) -> None:
    with pytest.raises(ConfigError, match=r"the rivals have .*rivals=false"):
        refuse_unlike(config(override))


def test_a_rival_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rivals.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"transformers is not installed.*rivals=false"):
        refuse_unlike(config())


# ---- Contestants


@pytest.fixture
def contestant(tmp_path: Path) -> Callable[[str], Contestant]:
    """A process that runs a program after it has read its first line."""

    def made(program: str) -> Contestant:
        (tmp_path / "contestant.py").write_text(f"import sys\nsys.stdin.readline()\n{program}\n", encoding="utf-8")
        return Contestant("x", "contestant", {}, os.environ | {"PYTHONPATH": str(tmp_path)})

    return made


def test_a_contestant_that_dies_is_named(contestant: Callable[[str], Contestant]) -> None:
    dying = contestant("sys.exit(9)")
    with pytest.raises(EnvironmentFault, match="x: ended with status 9"):
        dying.round()
    dying.close()


def test_the_fault_of_a_contestant_is_ours(contestant: Callable[[str], Contestant]) -> None:
    faulty = contestant('print(\'{"fault": "ConfigError", "message": "a=1: no"}\')')
    with pytest.raises(ConfigError, match="x: a=1: no"):
        faulty.round()
    faulty.close()


def test_a_contestant_that_is_closed_is_gone(contestant: Callable[[str], Contestant]) -> None:
    working = contestant("import time; time.sleep(60)")
    working.close()
    assert working._process.returncode is not None
    with pytest.raises(ProcessLookupError):
        os.kill(working._process.pid, 0)


def test_the_memory_of_a_contestant_is_its_own(tmp_path: Path) -> None:
    program = """
import torch
from transformer_cli.benchmarks.worker import peak_bytes
print('{"n_target_tokens": 1, "n_source_tokens": 1, "n_cells": 2, "seconds": 1, "peak_bytes": %d}'
      % peak_bytes(torch.device("cpu")), flush=True)
"""
    (tmp_path / "modest.py").write_text(program, encoding="utf-8")
    mine = torch.ones(2**30, dtype=torch.uint8)
    modest = Contestant("x", "modest", {}, os.environ | {"PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"})
    assert 10**8 < modest.round().peak_bytes < len(mine)
    modest.close()


# ---- The command


@pytest.mark.parametrize("subject", ["machine", "loss", "attention", "data", "train"])
def test_each_subject_prints_a_table(subject: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", subject, *TOY]) == 0
    text = capsys.readouterr().out
    assert text.startswith(f"tfm bench {subject}: ")
    lines = text.split("\n")
    assert max(map(len, lines)) <= WIDTH
    table = [line for line in lines if line.startswith("|")]
    assert len(table) > 2
    assert len({len(line) for line in table}) == 1


def test_json_tells_all(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "loss", "--json", *TOY]) == 0
    told = json.loads(capsys.readouterr().out)
    assert list(told) == ["subject", "machine", "settings", "ratios", "figures"]
    assert told["subject"] == "loss"
    assert told["machine"]["torch"] == torch.__version__
    assert told["machine"]["commit"]
    assert told["settings"]["model"]["d_model"] == 16
    assert set(told["ratios"]["tfm to F.cross_entropy"]) == {"low", "median", "high"}
    assert len(told["figures"]["tfm"]) == 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nonsense"], "subject: Invalid value 'nonsense', expected one of [machine, train,"),
        ([], "`tfm bench`: no subject given. Name one: machine, train, loss,"),
        (["train", "rounds=0"], "rounds=0: out of range"),
        (["train", "n_updates=0"], "n_updates=0: out of range"),
        (["train", "train.max_tokens_per_microbatch=auto"], "train.max_tokens_per_microbatch=auto: "),
        (["train", "train.sharding=full"], "train.sharding=full: "),
        (["train", "model.bias=false"], "model.bias=false: the rivals have true"),
    ],
)
def test_bad_input_is_one_line(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", *words]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith(f"tfm: error: {message}")
    assert captured.err.count("\n") == 1


def test_the_start_that_is_timed_is_that_of_this_config() -> None:
    wanted = config(
        "data.train=[a b.en,c.de]", "data.root=null", "data=files", "data.source_lang=en", "data.target_lang=de"
    )
    overrides = overrides_of(wanted)
    found = load_config("train", overrides)
    plain = to_plain(wanted)
    assert to_plain(found) == {key: plain[key] for key in to_plain(TrainConfig(data=wanted.data))}
    assert overrides_of(load_config("bench", ["subject=start"])) == []


@pytest.mark.slow
def test_the_start_is_told_with_its_parts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["bench", "start", "rounds=1", "device=cpu", f"data.cache={tmp_path}", "--json"]
    assert main(words) == 0
    figures = json.loads(capsys.readouterr().out)["figures"]
    (whole,), (parts,) = figures["whole"], figures["parts"]
    assert parts["the first update"] > 0
    assert sum(parts.values()) == pytest.approx(whole, rel=0.5)  # on a machine that others use too


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's compiler uses what torch deprecates
def test_a_compiled_rival_has_the_same_loss() -> None:
    toy = config("model.dropout=0")
    plain, compiled = (Rival("nn.Transformer", toy, CPU, compiled=compiled) for compiled in (False, True))
    source_BS, target_BT = torch.tensor([[7, 8, 9, 3], [7, 3, 0, 0]]), torch.tensor([[5, 6, 3], [6, 3, 0]])
    assert compiled.loss(source_BS, target_BT).item() == pytest.approx(
        plain.loss(source_BS, target_BT).item(), rel=1e-4
    )


def test_every_subject_has_a_bench() -> None:
    assert set(BENCHES) == set(BenchSubject)
