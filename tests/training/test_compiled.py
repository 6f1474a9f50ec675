"""Compiled by layer: the same numbers as without, a graph for each kind of layer, or none where there is no way."""

import logging
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from tests.conftest import slow
from tests.support.compiling import graph_breaks_and_recompilations
from tests.toy.run import CPU, MODEL, config, prepared, tokenizers
from transformer_cli.config.model import Autoregression, Positions
from transformer_cli.config.train import Compile, Precision, Sharding
from transformer_cli.data.batching import Batch, micro_batches
from transformer_cli.data.cache import EncodedCorpus
from transformer_cli.data.feed import Feed
from transformer_cli.data.fixed_size import FixedSizeBatch, Sizes, size_for
from transformer_cli.errors import EnvironmentFault
from transformer_cli.models.kernel_choice import Gpu, PackedKernel
from transformer_cli.models.transformer import ModelOptions
from transformer_cli.training import compiled as fused
from transformer_cli.training import forward
from transformer_cli.training import trainer as training
from transformer_cli.training.compiled import CompiledLoss, chosen_ways
from transformer_cli.training.progress import MetricAccumulator
from transformer_cli.training.ranks import Ranks
from transformer_cli.training.signals import StopRequest
from transformer_cli.training.trainer import Trainer, model_options

LONGEST = 20
# What the compiler says of itself, when it is imported and when it asks an input of a layer for its gradient.
OF_TORCH = pytest.mark.filterwarnings(
    "ignore:`torch.jit.script_method` is deprecated:DeprecationWarning", "ignore:The .grad attribute:UserWarning"
)


def trainer(compile: Compile = Compile.none, *, activation_checkpointing: bool = False, **model: Any) -> Trainer:
    settings = config(
        model=replace(MODEL, **{"dropout": 0.0, **model}),
        compile=compile,
        activation_checkpointing=activation_checkpointing,
    )
    return Trainer(settings, tokenizers(), CPU)


def batches(n: int = 4, *, seed: int = 0, n_pairs: int = 60) -> list[Batch]:
    """Batches of the same number of pairs, each of other lengths."""
    corpus, random = prepared(400).train, np.random.default_rng(seed)
    chosen = [np.sort(random.choice(len(corpus), n_pairs, replace=False)) for _ in range(n)]
    return [micro_batches(corpus, indices, tokenizers(), max_tokens=10_000)[0] for indices in chosen]


def gradients(one: Trainer) -> dict[str, Tensor]:
    return {name: parameter.grad for name, parameter in one.model.named_parameters() if parameter.grad is not None}


def assert_same(found: Trainer, expected: Trainer, batch: Batch) -> None:
    """Loss, NLL and gradients, to 1e-6 of the largest of each tensor."""
    for one in (found, expected):
        one.gradients.clear()
    sums = [one.forward_backward(batch, seed=1, n_tokens=100) for one in (found, expected)]
    torch.testing.assert_close(*sums, rtol=1e-6, atol=0)
    wanted = gradients(expected)
    assert list(gradients(found)) == list(wanted)
    for name, gradient in gradients(found).items():
        torch.testing.assert_close(gradient, wanted[name], rtol=0, atol=1e-6 * wanted[name].abs().max().item())


def uncompiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the function that would be compiled run as it is written."""
    monkeypatch.setattr(torch, "compile", lambda function, **kwargs: function)


def traced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the graph be made, and run as it is."""
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="aot_eager"))


@OF_TORCH
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"positions": Positions.learned, "max_positions": 262},
        {"positions": Positions.rotary, "n_decoder_layers": 2, "n_encoder_layers": 2},
        {"decoder": Autoregression.ssru, "n_decoder_layers": 2},
    ],
)
def test_padding_a_batch_changes_neither_loss_nor_gradient(
    changes: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    uncompiled(monkeypatch)
    padded, plain = trainer(Compile.default, **changes), trainer(**changes)
    padded.expect(batches(), longest=260)  # of other batches
    for batch in batches():
        assert padded.compiled is not None
        assert padded.compiled.n_padded_tokens(batch) > batch.n_tokens
        assert_same(padded, plain, batch)


@OF_TORCH
@pytest.mark.parametrize("tie", ["three_way", "decoder", "none"])
def test_what_a_gpu_likes_changes_neither_loss_nor_gradient(tie: str, monkeypatch: pytest.MonkeyPatch) -> None:
    uncompiled(monkeypatch)
    changes = {"n_decoder_layers": 3, "tie_embeddings": type(MODEL.tie_embeddings)[tie]}
    plain = trainer(**changes)
    options = ModelOptions(projects_memory_at_once=True, vocab_multiple_of=64)
    monkeypatch.setattr(training, "model_options", lambda *args: options)
    like_a_gpu = trainer(Compile.default, **changes)
    assert like_a_gpu.model.output_embedding.n_padding_rows > 0
    assert len(tokenizers().target) % 64
    like_a_gpu.expect(batches(), longest=LONGEST)
    assert_same(like_a_gpu, plain, batches(1)[0])
    shapes = [{name: x.shape for name, x in one.model.state_dict().items()} for one in (like_a_gpu, plain)]
    assert shapes[0] == shapes[1]  # a checkpoint knows nothing of it


@pytest.mark.parametrize("kernel", [PackedKernel.varlen, PackedKernel.buckets])
def test_with_the_kernels_of_a_gpu_a_batch_learns_the_same(kernel: PackedKernel) -> None:
    like_a_gpu, plain = trainer(), trainer()
    like_a_gpu.kernel = kernel
    assert_same(like_a_gpu, plain, batches(1)[0])
    assert_same(like_a_gpu, plain, like_a_gpu.ready(batches(1))[0])


N_REGIONS = 5  # layers and positions of each stack, and the loss with its product


@pytest.mark.slow
@OF_TORCH
@pytest.mark.parametrize("activation_checkpointing", [slow(False), True])
def test_each_kind_of_layer_is_compiled_once_for_each_size(
    activation_checkpointing: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    traced(monkeypatch)
    deep = {"n_encoder_layers": 3, "n_decoder_layers": 3}
    compiled = trainer(Compile.default, activation_checkpointing=activation_checkpointing, **deep)
    plain = trainer(**deep)
    compiled.expect(batches(), longest=LONGEST)
    assert compiled.compiled_sizes
    first, *others = batches()
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    assert_same(compiled, plain, first)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == N_REGIONS
    for step, batch in enumerate(others, 1):
        assert_same(compiled, plain, batch)
        for one in (compiled, plain):
            one.train_step([batch], step=step, lr=0.001 * step)
    used = {size_for(batch, compiled.compiled_sizes) for batch in (first, *others)}
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == N_REGIONS * len(used)
    assert not torch._dynamo.utils.counters["graph_break"]


@pytest.mark.slow
@OF_TORCH
@pytest.mark.parametrize("name", ["transformer", slow("decoder")])
def test_an_epoch_is_compiled_for_as_many_sizes_as_there_are(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    traced(monkeypatch)
    sizes = {"tokens_per_update": 200, "max_tokens_per_microbatch": 100}
    settings = config(compile=Compile.default, best_metric="nll", **sizes)
    task = "language_model" if name == "decoder" else "translation"
    settings = replace(settings, model=replace(MODEL, name=name), data=replace(settings.data, task=task))
    corpus = prepared(400)
    if name == "decoder":
        targets = [ids.tolist() for ids in np.split(corpus.train.target_ids, corpus.train.target_offsets[1:-1])]
        corpus = replace(corpus, train=EncodedCorpus.of([[]] * len(targets), targets))
    feed, one = Feed(settings, corpus), Trainer(settings, tokenizers(), CPU)
    assert feed.plan.updates_per_epoch > 5

    def epoch() -> None:
        one.expect(feed.expected(), longest=LONGEST)
        for step in range(1, 1 + feed.plan.updates_per_epoch):
            assert one.train_step(one.ready(feed.batches(step)), step=step, lr=0.001).finite

    found = graph_breaks_and_recompilations(epoch)
    assert not found.graph_breaks
    n_regions = N_REGIONS if name == "transformer" else 3
    assert n_regions <= found.n_compiled <= n_regions * len(one.compiled_sizes)


@pytest.mark.slow
@OF_TORCH
def test_gradients_of_the_last_layers_are_complete_before_the_first_are_computed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The buckets of the last ones are reduced meanwhile. Compiled as one graph, all would be complete at its end."""
    traced(monkeypatch)
    deep = {"n_encoder_layers": 2, "n_decoder_layers": 2}
    one = trainer(Compile.default, **deep)
    one.expect(batches(), longest=LONGEST)
    events: list[str] = []
    for name, parameter in one.model.named_parameters():
        when = partial(lambda name, _: events.append(name), name)
        parameter.register_post_accumulate_grad_hook(when)  # type: ignore[no-untyped-call]
    first = one.model.stacks[0].layers[0].feed_forward.to_out.weight
    at_last_layer: list[bool] = []
    last = one.model.stacks[1].layers[1].feed_forward.to_out.weight
    last.register_post_accumulate_grad_hook(lambda _: at_last_layer.append(first.grad is None))  # type: ignore[no-untyped-call]
    one.forward_backward(batches(1)[0], seed=1, n_tokens=100)
    assert at_last_layer == [True]
    layers = [name.rsplit(".layers.", 1)[1][0] + name[0] for name in events if ".layers." in name]
    assert list(dict.fromkeys(layers)) == ["1d", "0d", "1e", "0e"]


@OF_TORCH
def test_a_batch_that_fits_no_constant_size_is_not_compiled_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """The compiler would otherwise stop after so many of them, and a resumed run would count anew."""
    compiled_for: list[Sizes] = []

    by_layer = CompiledLoss._loss_by_layer

    def spy(self: CompiledLoss, of_states: Any, memory: Tensor, sizes: Sizes) -> Any:
        compiled_for.append(sizes)
        return by_layer(self, of_states, memory, sizes)

    uncompiled(monkeypatch)
    monkeypatch.setattr(CompiledLoss, "_loss_by_layer", spy)
    one, plain = trainer(Compile.default), trainer()
    one.expect(batches(), longest=LONGEST)
    (fitting,), (large,), (small,) = (batches(1, n_pairs=n) for n in (60, 300, 20))
    for batch in (large, small):
        assert_same(one, plain, batch)
        assert one.compiled is not None
        assert one.compiled.n_padded_tokens(batch) == batch.n_tokens
    assert compiled_for == []
    assert_same(one, plain, fitting)
    assert set(compiled_for) <= set(one.compiled_sizes)
    assert compiled_for


@OF_TORCH
@pytest.mark.slow
def test_every_run_of_a_process_is_compiled_however_many_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """The runs of a sweep share a process."""
    torch._dynamo.reset()
    n_graphs = 0

    def counting(graph: Any, inputs: Any) -> Any:
        nonlocal n_graphs
        n_graphs += 1
        return graph.forward

    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend=counting))
    (batch,) = batches(1)
    for d_model in (16, 24, 32):
        one = trainer(Compile.default, d_model=d_model)
        assert one.compiled is not None
        for n_more in range(3):
            size = Sizes.around([Sizes.of(batch)], longest=128)
            one.compiled.prepare([size._replace(n_pairs=size.n_pairs + n_more)])
            one.forward_backward(batch, seed=1, n_tokens=100)
    assert n_graphs == 3 * (2 * 3 + 3)  # layers know the number of sentences; positions and loss do not


@OF_TORCH
def test_what_is_ready_is_not_filled_again_unless_the_compiler_has_failed_since(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    uncompiled(monkeypatch)
    one, plain = trainer(), trainer()
    one.compiled = CompiledLoss(one.model, Compile.auto, CPU, smoothing=0.1)
    one.expect(batches(), longest=LONGEST)
    calls = 0

    def counted(by: Callable[..., Tensor]) -> Callable[..., Tensor]:
        def padded(*args: Any) -> Tensor:
            nonlocal calls
            calls += 1
            return by(*args)

        return padded

    for module in (fused, forward):
        monkeypatch.setattr(module, "padded", counted(module.padded))
    first, second = one.ready(batches(2))
    assert calls == 2
    assert_same(one, plain, first)
    assert calls == 2
    assert_same(one, plain, second.halves()[0])  # which was in no buffer
    assert calls == 3
    one.compiled.disable_compile(RuntimeError("of the compiler"))
    assert_same(one, plain, second)
    assert calls == 4


def test_a_rank_readies_its_own_share() -> None:
    one = trainer()
    one.kernel = PackedKernel.varlen
    one.ranks.rank, one.ranks.world_size = 1, 3
    given = batches(5)
    found = one.ready(given)
    assert [isinstance(batch, FixedSizeBatch) for batch in found] == [False, True, False, False, True]
    assert [batch.runs for batch in found] == [batch.runs for batch in given]


@OF_TORCH
@pytest.mark.slow
@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_compiled_kernels_learn_what_plain_ones_learn(dropout: float, figures: Callable[[str, str], None]) -> None:
    """The masks of dropout differ: what both have in common is that they depend on the seed alone."""
    torch._dynamo.reset()
    compiled, other = (trainer(Compile.default, dropout=dropout) for _ in range(2))
    plain = other if dropout else trainer()
    for one in (compiled, other):
        one.expect(batches(), longest=LONGEST)
    losses = []
    for step, batch in enumerate(batches(6, seed=1), 1):
        found, expected = (one.train_step([batch], step=step, lr=0.01).loss.item() for one in (compiled, plain))
        assert found == pytest.approx(expected, rel=1e-5)
        losses.append(found)
    assert losses[-1] < losses[0]
    if dropout:
        (batch,) = batches(1)
        sums = [compiled.forward_backward(batch, seed=seed, n_tokens=100) for seed in (1, 2, 1)]
        assert torch.equal(sums[0], sums[2])
        assert not torch.equal(sums[0], sums[1])
    else:
        figures("loss after 6 compiled updates", f"{abs(found / expected - 1):.0e} from that of plain ones")


class Broken:
    """A compiler that is not installed."""

    def __call__(self, graph: Any, inputs: Any) -> Any:
        raise RuntimeError("No working C++ compiler found\nin any of the usual places")


def broken(monkeypatch: pytest.MonkeyPatch) -> None:
    torch._dynamo.reset()
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend=Broken()))


@OF_TORCH
def test_under_auto_a_compiler_that_fails_is_told_of_and_done_without(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    broken(monkeypatch)
    without, plain = trainer(), trainer()
    without.compiled = CompiledLoss(without.model, Compile.auto, CPU, smoothing=0.1)
    without.expect(batches(), longest=LONGEST)
    caplog.clear()
    for batch in batches(2):
        assert_same(without, plain, batch)
    (warning,) = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert warning.getMessage().startswith("train.compile=auto: nothing is compiled, as the compiler fails (")
    assert "No working C++ compiler found" in warning.getMessage()
    assert "\n" not in warning.getMessage()


@OF_TORCH
def test_a_compiler_that_was_asked_for_and_fails_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    broken(monkeypatch)
    asked = trainer(Compile.default)
    asked.expect(batches(), longest=LONGEST)
    wanted = r"train\.compile=default: the compiler fails \(.*No working C\+\+ compiler found.*train\.compile=none"
    with pytest.raises(EnvironmentFault, match=wanted):
        asked.forward_backward(batches(1)[0], seed=1, n_tokens=100)


@OF_TORCH
@pytest.mark.parametrize("n_before", [slow(1), 3])
def test_a_compiler_that_fails_in_a_backward_pass_leaves_no_gradient_twice(
    n_before: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Backward passes are compiled when they are reached: those of later layers have added their gradients by then."""
    from functorch.compile import make_boxed_func  # seconds, which the tests of other files need not wait
    from torch._dynamo.backends.common import aot_autograd
    from torch._dynamo.exc import TorchDynamoException

    torch._dynamo.reset()
    n_compiled = 0

    def backward(graph: Any, inputs: Any) -> Any:
        nonlocal n_compiled
        n_compiled += 1
        if n_compiled > n_before:
            raise TorchDynamoException("no room for a kernel")
        return make_boxed_func(graph.forward)

    backend = aot_autograd(fw_compiler=lambda graph, _: make_boxed_func(graph.forward), bw_compiler=backward)
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend=backend))
    failing, plain = trainer(), trainer()
    failing.compiled = CompiledLoss(failing.model, Compile.auto, CPU, smoothing=0.1)
    failing.expect(batches(), longest=LONGEST)
    for one in (failing, plain):
        one.train_step(batches(2), step=1, lr=0.0)
    assert n_compiled > n_before
    assert failing.compiled_sizes == []
    expected = gradients(plain)
    for name, gradient in gradients(failing).items():
        most = expected[name].abs().max().item()
        torch.testing.assert_close(gradient, expected[name], rtol=0, atol=1e-6 * most, msg=name)


@OF_TORCH
def test_a_batch_too_large_for_the_memory_is_not_the_compilers_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    def too_large(*args: Any, **kwargs: Any) -> Any:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(torch, "compile", lambda function, **kwargs: too_large)
    one = trainer(Compile.default)
    one.expect(batches(), longest=LONGEST)
    with pytest.raises(torch.OutOfMemoryError):
        one.forward_backward(batches(1)[0], seed=1, n_tokens=100)


@pytest.mark.parametrize(
    ("compile", "changes", "reason"),
    [(Compile.default, {"attention_dropout": 0.1}, r"model\.attention_dropout=0\.1"), (Compile.graphs, {}, "a CPU")],
)
def test_what_does_not_go_together_is_refused(compile: Compile, changes: dict[str, float], reason: str) -> None:
    wanted = rf"train\.compile={compile.name}: does not go with {reason}\. Set train\.compile=none"
    with pytest.raises(EnvironmentFault, match=wanted):
        trainer(compile, **changes)


def test_a_model_in_parts_is_not_compiled() -> None:
    settings = config(compile=Compile.default, sharding=Sharding.full)
    with pytest.raises(EnvironmentFault, match=r"does not go with train\.sharding=full"):
        chosen_ways(settings, CPU, torch.float32, is_sharded=True)


def test_on_a_cpu_nothing_is_compiled_unless_asked_for() -> None:
    assert trainer(Compile.auto).compiled is None
    assert trainer(Compile.none).compiled is None


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"precision": Precision.fp32}, "attention in float32"),
        ({"max_steps": 500}, "a run of 12,500,000 target tokens, fewer than 25,000,000"),
        ({"max_steps": 500, "activation_checkpointing": True}, "a run of 500 updates, fewer than 5,000"),
        ({"model": replace(MODEL, attention_dropout=0.1)}, "model.attention_dropout=0.1"),
        ({"activation_checkpointing": True}, None),
        ({"max_steps": "auto"}, None),
        ({}, None),
    ],
)
def test_what_auto_does_not_compile_is_said(
    changes: dict[str, Any], reason: str | None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(Gpu, "of", lambda device: Gpu((9, 0), has_flash=True, has_varlen=True))
    usual = {"max_steps": 5000, "tokens_per_update": 25_000, "max_tokens_per_microbatch": 25_000}
    settings = config(**{**usual, "model": replace(MODEL, d_model=64), **changes})
    dtype = torch.float32 if "precision" in changes else torch.bfloat16
    assert chosen_ways(settings, torch.device("cuda"), dtype).compiles is (reason is None)
    said = [record.getMessage() for record in caplog.records]
    is_captured = reason is not None and "target tokens" in reason
    instead = "updates are CUDA graphs of what is not compiled" if is_captured else "nothing is compiled"
    assert said == ([f"train.compile=auto: {instead} ({reason})"] if reason else [])


def test_one_graph_of_checkpointed_layers_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The dropout of the graph would come from seeds of its own: the same in every update."""
    monkeypatch.setattr(Gpu, "of", lambda device: Gpu((9, 0), has_flash=True, has_varlen=True))
    settings = config(compile=Compile.graphs, activation_checkpointing=True)
    says = r"^train\.compile=graphs: does not go with train\.activation_checkpointing=true\. Set train\.compile=default"
    with pytest.raises(EnvironmentFault, match=says):
        chosen_ways(settings, torch.device("cuda"), torch.bfloat16)


def test_a_gpu_gets_large_products_unless_gradients_are_reduced_meanwhile() -> None:
    cuda, alone = torch.device("cuda"), Ranks(StopRequest())
    several = Ranks(StopRequest())
    several.world_size = 2
    for checkpointing in (False, True):
        settings = config(activation_checkpointing=checkpointing)
        large = ModelOptions(checkpointing, projects_memory_at_once=not checkpointing, vocab_multiple_of=64)
        assert model_options(settings, cuda, alone) == large
        assert model_options(settings, cuda, several) == replace(large, projects_memory_at_once=False)
        assert model_options(settings, CPU, alone) == ModelOptions(checkpointing)


class Asked(TorchDispatchMode):
    """The operations for whose result a CPU would wait for a GPU."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        if name in {"_local_scalar_dense", "nonzero", "is_nonzero", "equal"}:
            self.names.add(name)
        return func(*args, **(kwargs or {}))


@OF_TORCH
@pytest.mark.parametrize("optimizer", ["adam", "adamw", "muon"])
def test_an_update_waits_for_nothing(optimizer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    uncompiled(monkeypatch)
    model = replace(MODEL, dropout=0.0)
    settings = config(model=model, compile=Compile.default, optimizer=optimizer, ema=0.9, clip_norm=1.0)
    one, interval = Trainer(settings, tokenizers(), CPU), MetricAccumulator(CPU)
    one.expect(batches(), longest=LONGEST)
    one.train_step(batches(), step=1, lr=0.01)
    with Asked() as asked:
        interval.add(one.train_step(batches(), step=2, lr=0.02), n_real=1)
    assert not asked.names
    with Asked() as asked:
        interval.means()
    assert asked.names == {"_local_scalar_dense"}


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@OF_TORCH
@pytest.mark.parametrize("compile", [Compile.none, Compile.default, Compile.graphs])
def test_on_a_gpu_updates_are_those_of_a_cpu(compile: Compile) -> None:
    wide = {"d_model": 128, "n_heads": 2, "dropout": 0.0}  # heads that the kernel takes
    settings = config(model=replace(MODEL, **wide), compile=compile, precision=Precision.bf16)
    on_gpu, plain = Trainer(settings, tokenizers(), torch.device("cuda")), trainer(**wide)
    assert (on_gpu.compiled is None) is (compile is Compile.none)
    on_gpu.expect(batches(), longest=LONGEST)
    for step in range(1, 9):
        four = batches(seed=step)  # two of them in an update, so that gradients are added up
        losses = [one.train_step(four[:2], step=step, lr=0.001).loss.item() for one in (on_gpu, plain)]
        assert losses[0] == pytest.approx(losses[1], rel=0.02)


def test_pictures_of_attention_are_the_same_where_all_layers_are_projected_at_once() -> None:
    plain, at_once = trainer(n_decoder_layers=2).model, trainer(n_decoder_layers=2).model
    at_once.decoder.projects_memory_at_once = True
    source_BS, target_BT = torch.tensor([[5, 6, 7]]), torch.tensor([[8, 9]])
    expected, found = (model.attention_weights(source_BS, target_BT) for model in (plain, at_once))
    assert [len(weights) for weights in found.values()] == [1, 2, 2]
    for name, weights in expected.items():
        torch.testing.assert_close(found[name], weights)
