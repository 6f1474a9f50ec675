"""Guided alignment: its loss against a computation by hand, and what it is to updates, files and other settings."""

import math
import re
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.data.test_prepare import config as data
from tests.toy import run as toy_run
from tests.toy.run import CPU, assert_resumes, metrics, prepared, run, tokenizers
from transformer_cli.commands.average.run import averaged
from transformer_cli.config.data import DataConfig
from transformer_cli.config.model import Autoregression, Norm, Positions
from transformer_cli.config.train import Compile, InitConfig, Precision, TrainConfig, TrainSettings
from transformer_cli.data.alignments import WORD_ALIGNMENT, aligner_of
from transformer_cli.data.batching import Batch, Run, micro_batches
from transformer_cli.data.cache import Alignment, EncodedCorpus
from transformer_cli.data.corpus import ParallelText
from transformer_cli.data.prepare import Prepared
from transformer_cli.decoding.alignment import align_words, word_numbers
from transformer_cli.errors import CheckpointError, ConfigError, DataError, EnvironmentFault
from transformer_cli.inference.force_decode import force_decode
from transformer_cli.models.attention import SelfAttention
from transformer_cli.models.facts import as_text, model_facts
from transformer_cli.models.file import ModelFile, read_model, unpack_model
from transformer_cli.models.kernel_choice import PackedKernel
from transformer_cli.models.layouts import PaddedLayout
from transformer_cli.models.transformer import Transformer
from transformer_cli.training.divergence_dump import read_divergence_dump, write_divergence_dump
from transformer_cli.training.forward import inputs
from transformer_cli.training.guided_alignment import ReferenceAlignment, taught_attention
from transformer_cli.training.ranks import Ranks
from transformer_cli.training.run import Start, prepare_run
from transformer_cli.training.signals import StopRequest
from transformer_cli.training.trainer import Trainer, model_options
from transformer_cli.training.validation import encode_pairs

__all__ = ["data"]  # a fixture

NO_DROPOUT = replace(toy_run.MODEL, dropout=0.0)
RECURRENT = replace(NO_DROPOUT, decoder=Autoregression.ssru)
FULL: dict[str, Any] = {"full_context_alignment": True, "model": replace(NO_DROPOUT, n_decoder_layers=3)}


def corpus() -> Prepared:
    return toy_run.aligned(prepared())


def batches(n: int = 30, *, max_tokens: int = 60) -> list[Batch]:
    return micro_batches(corpus().train, np.arange(n), tokenizers(), max_tokens=max_tokens)


def config(weight: float = 0.5, **settings: Any) -> TrainConfig:
    return toy_run.config(guided_alignment=weight, **{"model": NO_DROPOUT, **settings})


def by_hand(weights_BTS: Tensor, pairs: Sequence[Sequence[tuple[int, int]]]) -> float:
    """-Σ a(t, s) log attention(t, s) of links (s, t), with a row of a that sums to 1."""
    total = 0.0
    for b, links in enumerate(pairs):
        for s, t in links:
            total -= math.log(weights_BTS[b, t, s].item()) / sum(other == t for _, other in links)
    return total


def test_the_loss_of_two_pairs_is_as_computed_by_hand() -> None:
    """Queries and keys of width 1: the scores of a target token are its query times the keys.

    Token 1 of the first pair is linked to both source tokens: log(1 + e^1) - (0 + 1) / 2. Token 0 of the second is
    linked to the last of three: log(e^2 + 1 + e^1) - 1.
    """
    ids = torch.zeros(5, dtype=torch.long)
    links_2L = torch.tensor([[1, 1, 2], [0, 1, 4]])
    batch = Batch(ids, ids[:3], ids[:3], [Run(1, 2, 2), Run(1, 3, 1)], links_2L=links_2L)
    q_T1E, k_S1E = (torch.tensor(x).view(-1, 1, 1) for x in ([7.0, 1.0, 1.0], [0.0, 1.0, 2.0, 0.0, 1.0]))
    found = ReferenceAlignment.of(batch, CPU).cross_entropy(q_T1E, k_S1E)
    expected = (math.log(1 + math.e) - 0.5) + (math.log(math.e**2 + 1 + math.e) - 1)
    assert found.item() == pytest.approx(expected, rel=1e-6)
    assert batch.n_linked == 2


@pytest.mark.parametrize("kernel", PackedKernel)
@pytest.mark.parametrize("decoder", Autoregression)
def test_packed_pairs_have_the_loss_of_padded_ones(kernel: PackedKernel, decoder: Autoregression) -> None:
    assert_packed_as_padded(kernel, config(model=replace(NO_DROPOUT, decoder=decoder, n_decoder_layers=3)))


@pytest.mark.parametrize("kernel", PackedKernel)
@pytest.mark.parametrize("changes", [{}, {"norm": Norm.post, "positions": Positions.rotary, "attention_window": 3}])
def test_with_full_context_packed_pairs_have_the_loss_of_padded_ones(
    kernel: PackedKernel, changes: dict[str, Any]
) -> None:
    model = replace(NO_DROPOUT, n_decoder_layers=3, **changes)
    assert_packed_as_padded(kernel, config(model=model, full_context_alignment=True))


def assert_packed_as_padded(kernel: PackedKernel, settings: TrainConfig) -> None:
    trainer = Trainer(settings, tokenizers(), CPU)
    model, decoder = trainer.model, settings.model.decoder
    assert isinstance(model, Transformer)
    assert model.alignment_head == ((1, 0) if decoder is Autoregression.self_attention else (2, 0))
    total, expected = 0.0, 0.0
    for batch in batches(10):
        with taught_attention(model) as taught:
            model.logits(inputs(batch, CPU, kernel))
        total += taught.loss(batch, CPU).item()
    train = corpus().train
    assert train.alignment is not None
    for i in range(10):
        source, target = (ids[at[i] : at[i + 1]].tolist() for ids, at in sides(train))
        padding, bos_id = [tokenizers().source.pad_id] * 2, tokenizers().target.bos_id
        target_in_BT = torch.tensor([[bos_id, *target[:-1]]])
        weights_BTS = model.alignment(torch.tensor([[*source, *padding]]), target_in_BT)
        own = slice(*train.alignment.offsets[i : i + 2].tolist())
        links = list(zip(train.alignment.sources[own].tolist(), train.alignment.targets[own].tolist(), strict=True))
        expected += by_hand(weights_BTS, [links])
    assert total == pytest.approx(expected, rel=1e-5)


def full_context_model(seed: int = 0) -> Transformer:
    torch.manual_seed(seed)
    settings = config(model=replace(NO_DROPOUT, n_decoder_layers=3), full_context_alignment=True)
    model = Trainer(settings, tokenizers(), CPU).model
    assert isinstance(model, Transformer)
    return model.eval()


def test_with_full_context_the_alignment_of_a_word_depends_on_those_behind_it_and_its_prediction_does_not() -> None:
    model, source_BS = full_context_model(), torch.tensor([[5, 6, 7, 8]])
    one_BT, other_BT = (torch.tensor([[tokenizers().target.bos_id, 5, 6, last]]) for last in (7, 8))
    one_BTS, other_BTS = model.alignment(source_BS, one_BT), model.alignment(source_BS, other_BT)
    assert not torch.allclose(one_BTS[:, 0], other_BTS[:, 0])
    torch.testing.assert_close(model(source_BS, one_BT)[:, :3], model(source_BS, other_BT)[:, :3])
    model.full_context_alignment = False
    torch.testing.assert_close(*(model.alignment(source_BS, x_BT)[:, :3] for x_BT in (one_BT, other_BT)))


def test_with_full_context_the_alignment_of_a_word_is_the_attention_of_the_position_that_reads_it() -> None:
    """All layers written out: those below with self-attention that is not causal."""
    model = full_context_model()
    ids, target = torch.tensor([[5, 6, 7, 8]]), torch.tensor([[tokenizers().target.bos_id, 5, 6]])
    source_layout, target_layout = model.source_layout(ids), PaddedLayout(3)
    memory = model.encode(ids, source_layout)
    x, rotation = model.decoder.embed_positions(model.target_embedding(target), target_layout)
    lower, taught = model.decoder.layers[0], model.decoder.layers[1]
    for layer in (lower, taught):
        norm = layer.around_self_attention.norm
        assert isinstance(layer.self_attention, SelfAttention)
        x = x + layer.self_attention(norm(x), target_layout, rotation=rotation)
        if layer is lower:
            x = x + layer.cross_attention(layer.around_cross_attention.norm(x), target_layout, memory, source_layout)
            x = x + layer.feed_forward(layer.around_feed_forward.norm(x))
    x = taught.around_cross_attention.norm(x)
    expected_TS = taught.cross_attention.weights(x, target_layout, memory, source_layout)[0, 0]
    found_TS = model.alignment(ids, target)[0]
    torch.testing.assert_close(found_TS, expected_TS[[1, 2, 2]])  # EOS, which is not read, has that of the last


def test_with_full_context_an_alignment_does_not_depend_on_padding() -> None:
    model, (source, target) = full_context_model(), (tokenizers().source, tokenizers().target)
    rows = [([5, 6, 7, 8], [5, 6]), ([6, 7], [5, 8, 9, 6, 7])]
    source_BS = torch.tensor([[*a, *[source.pad_id] * (5 - len(a))] for a, _ in rows])
    target_BT = torch.tensor([[target.bos_id, *b, *[target.pad_id] * (5 - len(b))] for _, b in rows])
    both_BTS = model.alignment(source_BS, target_BT)
    for (a, b), found_TS in zip(rows, both_BTS, strict=True):
        alone_BTS = model.alignment(torch.tensor([a]), torch.tensor([[target.bos_id, *b]]))
        torch.testing.assert_close(found_TS[: len(b) + 1, : len(a)], alone_BTS[0])


def sides(corpus: EncodedCorpus) -> list[tuple[Any, Any]]:
    return [(corpus.source_ids, corpus.source_offsets), (corpus.target_ids, corpus.target_offsets)]


def gradient(weight: float, *, max_tokens: int = 60, **settings: Any) -> Tensor:
    trainer = Trainer(config(weight, **settings), tokenizers(), CPU)
    trainer.train_step(batches(max_tokens=max_tokens), step=1, lr=0.0)
    return torch.cat([x.grad.flatten() for x in trainer.model.parameters() if x.grad is not None])


def test_the_loss_is_added_with_its_weight_as_a_mean_over_linked_tokens_whatever_the_micro_batches() -> None:
    plain, half, one = (gradient(weight) for weight in (0.0, 0.5, 1.0))
    torch.testing.assert_close(half - plain, (one - plain) / 2, rtol=1e-4, atol=1e-7)
    torch.testing.assert_close(gradient(0.5, max_tokens=1000), half, rtol=1e-4, atol=1e-7)
    trainer = Trainer(config(1.0), tokenizers(), CPU)
    all_at_once = batches(max_tokens=1000)
    (batch,) = all_at_once
    with taught_attention(trainer.model) as taught:
        trainer.model.logits(inputs(batch, CPU, PackedKernel.per_length))
    (taught.loss(batch, CPU) / batch.n_linked).backward()  # type: ignore[no-untyped-call]
    parts = [torch.zeros_like(x) if x.grad is None else x.grad for x in trainer.model.parameters()]
    torch.testing.assert_close(one - plain, torch.cat([x.flatten() for x in parts]), rtol=1e-3, atol=1e-6)


def test_an_update_reports_the_term_apart_and_an_nll_without_it() -> None:
    found = [Trainer(config(weight), tokenizers(), CPU).train_step(batches(), step=1, lr=0.0) for weight in (0.0, 2.0)]
    plain, guided = found
    assert plain.alignment is None
    assert guided.alignment is not None
    assert guided.nll.item() == plain.nll.item()
    assert guided.loss.item() == pytest.approx(plain.loss.item() + 2 * guided.alignment.item(), rel=1e-6)
    assert guided.n_linked == sum(batch.n_linked for batch in batches())
    with_context = Trainer(config(2.0, full_context_alignment=True), tokenizers(), CPU)
    full = with_context.train_step(batches(), step=1, lr=0.0)
    assert full.nll.item() == plain.nll.item()
    assert full.alignment is not None
    assert full.alignment.item() != guided.alignment.item()


@pytest.mark.parametrize("full_context", [False, True])
def test_a_learning_head_follows_the_alignment(*, full_context: bool) -> None:
    trainer = Trainer(config(1.0, full_context_alignment=full_context), tokenizers(), CPU)
    losses = [trainer.train_step(batches(max_tokens=1000), step=step, lr=0.01).alignment for step in range(1, 31)]
    assert losses[0] is not None
    assert losses[-1] is not None
    assert losses[-1].item() < 0.6 * losses[0].item()


@pytest.mark.parametrize("settings", [{"rdrop": 5.0}, {"simcut": 3.0, "token_cutoff": 0.0}])
def test_of_two_equal_passes_the_loss_is_that_of_one(settings: dict[str, Any]) -> None:
    for more in ({}, FULL):
        torch.testing.assert_close(gradient(0.5, **settings, **more), gradient(0.5, **more), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("more", [{}, FULL])
def test_recomputed_activations_give_the_same_gradient(more: dict[str, Any]) -> None:
    torch.testing.assert_close(gradient(0.5, activation_checkpointing=True, **more), gradient(0.5, **more))


def test_projections_made_at_once_give_the_same_loss() -> None:
    """A GPU projects so."""
    found = []
    for projects in (False, True):
        options = partial(model_options)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(
                "transformer_cli.training.trainer.model_options",
                lambda *args, p=projects, o=options: replace(o(*args), projects_memory_at_once=p),
            )
            found.append(gradient(1.0))
    torch.testing.assert_close(*found)


def test_in_bf16_the_gradient_is_near_that_of_float32() -> None:
    of_16_bits, exact = (gradient(1.0, precision=precision) for precision in (Precision.bf16, Precision.fp32))
    assert not torch.equal(of_16_bits, exact)
    assert (of_16_bits - exact).norm() < 0.03 * exact.norm()


def test_halves_of_a_batch_have_its_links() -> None:
    (batch,) = batches(max_tokens=1000)
    first, second = batch.halves()
    together = []
    for half, before in ((first, (0, 0)), (second, (first.n_target_tokens, len(first.source_S)))):
        assert half.links_2L is not None
        together.append(half.links_2L + torch.tensor(before)[:, None])
    assert batch.links_2L is not None
    assert torch.equal(torch.cat(together, dim=1), batch.links_2L)
    assert first.n_linked + second.n_linked == batch.n_linked


# ---- Runs


@pytest.mark.parametrize("full_context", [False, True])
def test_a_resumed_run_is_that_of_one_that_was_never_stopped(tmp_path: Path, *, full_context: bool) -> None:
    often = {"log_every": 3, "max_steps": 6, "eval_every": 6}
    model = replace(toy_run.MODEL, n_decoder_layers=2, layer_drop=0.2) if full_context else toy_run.MODEL
    settings = config(model=model, full_context_alignment=full_context, **often)
    assert_resumes(tmp_path, settings, stopped_before=5, corpus=corpus())
    logged = [entry for entry in metrics(tmp_path / "whole") if entry["kind"] == "train"]
    assert all(entry["alignment_loss"] > 0 for entry in logged)
    assert not any("alignment_loss" in entry for entry in metrics(tmp_path / "whole") if entry["kind"] != "train")


def test_the_model_file_names_the_taught_head_and_its_alignment_is_that_of_the_head(tmp_path: Path) -> None:
    result = run(tmp_path / "guided", config(max_steps=2), corpus=corpus())
    guided = read_model(result.model_path)
    assert guided.alignment_head == (0, 0)
    taught = "was taught to head 1 of decoder layer 1"
    assert re.search(rf"^word alignment  +{taught}$", as_text(model_facts(result.model_path)), re.MULTILINE)
    model = guided.build(CPU)
    ids = torch.tensor([[5, 6, 7]])
    (cross_BHTS,) = model.attention_weights(ids, ids, only="cross")["cross"]
    assert torch.equal(model.alignment(ids, ids), cross_BHTS[:, 0])
    plain = read_model(run(tmp_path / "plain", config(0.0, max_steps=2)).model_path)
    assert plain.alignment_head is None
    assert "alignment_head" not in model_facts(tmp_path / "plain/model.safetensors")
    assert torch.equal(
        plain.build(CPU).alignment(ids, ids), plain.build(CPU).attention_weights(ids, ids)["cross"][0].mean(1)
    )


def test_a_model_of_full_context_says_so_and_keeps_it(tmp_path: Path) -> None:
    path = run(tmp_path / "full", config(max_steps=2, full_context_alignment=True), corpus=corpus()).model_path
    file = read_model(path)
    assert file.full_context_alignment
    assert file.causal_alignment_head is None
    assert file.build(CPU).full_context_alignment
    assert "was taught to head 1 of decoder layer 1 with full context" in as_text(model_facts(path))
    tuned = replace(config(0.0, max_steps=2), init=InitConfig(from_=str(path)))
    assert read_model(run(tmp_path / "tuned", tuned).model_path).full_context_alignment
    again = replace(config(max_steps=2), init=InitConfig(from_=str(path)))
    causal = read_model(run(tmp_path / "again", again, corpus=corpus()).model_path)
    assert not causal.full_context_alignment
    assert causal.causal_alignment_head == causal.alignment_head == (0, 0)
    assert averaged({path: lambda: file, tmp_path: lambda: file}).full_context_alignment
    mixed = averaged({path: lambda: file, tmp_path: lambda: causal})
    assert (mixed.alignment_head, mixed.full_context_alignment) == (None, False)


@pytest.mark.parametrize("head", [[1, 0], [0, 2], [0], "0", [0, True], [-1, 0]])
def test_a_head_that_the_model_does_not_have_is_refused(head: Any, tmp_path: Path) -> None:
    file = replace(toy_run.model_file(), alignment_head=head)
    with pytest.raises(CheckpointError, match="damaged or not written by tfm"):
        unpack_model(toy_run.packed(file), tmp_path / "model.safetensors")


def test_without_the_weight_links_change_nothing(tmp_path: Path) -> None:
    folders = tmp_path / "with", tmp_path / "without"
    for folder, of_run in zip(folders, (corpus(), prepared()), strict=True):
        run(folder, config(0.0, max_steps=4), corpus=of_run)
    toy_run.assert_same_run(*folders)


def test_a_kept_update_is_replayed_with_its_links(tmp_path: Path) -> None:
    trainer = Trainer(config(), tokenizers(), CPU)
    pairs = corpus().train.pick(np.arange(12))
    model = replace(toy_run.model_file(dropout=0.0), weights=trainer.weights())
    folder = write_divergence_dump(tmp_path, trainer, model, config(), tokenizers(), step=3, pairs=pairs)
    dump = read_divergence_dump(folder)
    assert [finding.state() for finding in dump.replay(CPU)] == dump.recorded
    without = replace(dump, pairs=replace(dump.pairs, alignment=None))
    assert [finding.state() for finding in without.replay(CPU)] != dump.recorded


@pytest.mark.parametrize(
    ("settings", "data", "words"),
    [
        ({}, {"task": "language_model"}, "data.task=language_model has no cross-attention. Leave it out"),
        ({}, {"subword_dropout": 0.1}, "cuts words into other pieces than train.guided_alignment=0.5 has links of"),
        ({"weight": 0.0}, {"alignments": "links"}, "has no effect without train.guided_alignment"),
        ({"weight": 0.0, **FULL}, {}, "full_context_alignment=true: has no effect without train.guided_alignment"),
        ({**FULL, "model": RECURRENT}, {}, "model.decoder=ssru cannot attend to the rest of the target"),
        ({}, {"alignments": "links", "detokenize": True}, "data.detokenize=true changes the numbers of the words"),
        ({}, {"alignments": "links", "line_tags": ["<x>"]}, "data.line_tags=.<x>. changes the numbers of the words"),
    ],
)
def test_what_guided_alignment_does_not_go_with_is_refused(
    settings: dict[str, Any], data: dict[str, Any], words: str
) -> None:
    model = {"model": replace(NO_DROPOUT, name="decoder")} if "task" in data else {}
    with pytest.raises(ConfigError, match=words) as error:
        config(data=replace(toy_run.DATA, **data), **{**model, **settings})
    assert "\n" not in str(error.value)


def test_a_compiler_is_refused_in_one_line() -> None:
    with pytest.raises(EnvironmentFault, match=r"does not go with train.guided_alignment=0.5. Set train.compile=none"):
        Trainer(config(compile=Compile.default), tokenizers(), CPU)


def test_fine_tuning_and_resuming_keep_the_head(tmp_path: Path) -> None:
    path = run(tmp_path / "guided", config(max_steps=2), corpus=corpus()).model_path
    tuned = replace(config(0.0, max_steps=2), init=InitConfig(from_=str(path)))
    assert read_model(run(tmp_path / "tuned", tuned).model_path).alignment_head == (0, 0)
    longer = replace(tuned, train=replace(tuned.train, max_steps=4))
    assert read_model(run(tmp_path / "tuned", longer).model_path).alignment_head == (0, 0)
    deeper = replace(tuned, model=replace(NO_DROPOUT, n_decoder_layers=2), init=replace(tuned.init, decoder_layers=2))
    assert read_model(run(tmp_path / "deeper", deeper).model_path).alignment_head is None


def test_other_links_are_other_data_to_a_run_that_goes_on(tmp_path: Path) -> None:
    def of(digest: str) -> Prepared:
        return replace(corpus(), inputs={WORD_ALIGNMENT: digest})

    run(tmp_path, config(max_steps=2), corpus=of("a" * 64))
    with pytest.raises(DataError, match=r"other data: word alignment had SHA-256 aaaaaaaaaaaa, and now bbbbbbbbbbbb"):
        run(tmp_path, config(max_steps=4), corpus=of("b" * 64))
    run(tmp_path, config(max_steps=4), corpus=of("a" * 64))


# ---- Alignments


@pytest.mark.slow
@pytest.mark.parametrize(
    ("decoder", "full_context"),
    [(Autoregression.self_attention, False), (Autoregression.self_attention, True), (Autoregression.ssru, False)],
)
def test_a_guided_model_aligns_a_reversed_text_and_another_one_does_not(
    decoder: Autoregression, tmp_path: Path, *, full_context: bool
) -> None:
    """The links that it is taught are those that the aligner finds, and it is scored against the true ones."""
    lines, dev = toy_run.sentences(400, seed=3), toy_run.sentences(100, seed=4)
    text = ParallelText(lines, [line[::-1] for line in lines])
    train = encode_pairs(text, tokenizers(), max_length=20)
    links = list(aligner_of(train, tokenizers(), tmp_path).links())
    sources, targets, n = (np.concatenate(column) for column in zip(*links, strict=True))
    alignment = Alignment(sources, targets, np.concatenate(([0], np.cumsum(n))))
    of_text = toy_run.prepared_of(tokenizers(), replace(train, alignment=alignment), ParallelText(dev[:5], dev[:5]))
    model = replace(NO_DROPOUT, decoder=decoder, d_model=32, d_ff=64, n_decoder_layers=2)
    settings = {"model": model, "tokens_per_update": 600, "max_tokens_per_microbatch": 600, "max_steps": 400}
    scores = []
    for weight in (0.0, 1.0):
        often = {"log_every": 400, "eval_every": 400, "save_every": 400}
        taught = config(weight, full_context_alignment=full_context and weight > 0, **settings, **often)
        result = run(tmp_path / str(weight), taught, corpus=of_text)
        scores.append(f1_of(read_model(result.model_path), dev))
    without, guided = (1 - score for score in scores)
    assert guided <= 0.03
    assert guided < without / 2  # some of the attention of a model that translates follows the words by itself


def f1_of(file: ModelFile, lines: Sequence[str]) -> float:
    """The F1 of the links of lines and their reverse; word i of n is translated by word n - 1 - i."""
    ids = [tokenizers().source.encode(some) for some in (list(lines), [line[::-1] for line in lines])]
    pairs = list(zip(*ids, strict=True))
    forced = force_decode(file.build(CPU), pairs, tokenizers(), device=CPU, batch_tokens=1000, with_attention=True)
    n_right = n_words = 0
    for (source, target), scores in zip(pairs, forced, strict=True):
        assert scores.attention_TS is not None
        words = word_numbers(source, tokenizers().source), word_numbers(target, tokenizers().target)
        found = align_words(scores.attention_TS, *words)
        n_right += sum(i == len(found) - 1 - j for j, i in enumerate(found))
        n_words += len(found)
    return n_right / n_words  # each word has one link, found and true: precision and recall are the same


def test_a_run_aligns_its_text_only_if_a_head_is_taught(data: DataConfig) -> None:
    for weight in (0.0, 0.5):
        settings = TrainConfig(data=data, train=TrainSettings(guided_alignment=weight))
        start = Start(settings, CPU, None, [])
        found = prepare_run(start, settings, Ranks(StopRequest()), owns_process=False)
        assert (found.train.alignment is not None) == (WORD_ALIGNMENT in found.inputs) == bool(weight)
        assert bool(list(Path(data.cache).glob("*/aligned-*"))) == bool(weight)
