"""R-Drop and SimCut: their losses against the papers' formulas, left to autograd."""

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.addons.classification import toy_classifier
from tests.conftest import slow
from tests.support.each import each
from tests.toy import run as toy_run
from tests.toy.run import CPU, tokenizers
from transformer_cli.addons.classification.classifier import Classifier
from transformer_cli.config.data import DataConfig
from transformer_cli.config.train import InitConfig, LoraConfig, Precision, TrainSettings
from transformer_cli.data.batching import Batch, Run, micro_batches
from transformer_cli.errors import ConfigError
from transformer_cli.models.embeddings import TokenEmbedding
from transformer_cli.models.kernel_choice import PackedKernel
from transformer_cli.training import consistency
from transformer_cli.training.consistency import TwoPasses, loss_by_blocks, rdrop_loss, simcut_loss
from transformer_cli.training.forward import inputs
from transformer_cli.training.trainer import Trainer, stable_seed
from transformer_cli.training.word_dropout import WordDropout


def logits_and_targets() -> tuple[Tensor, Tensor]:
    random = torch.Generator().manual_seed(3)
    logits = torch.randn(2 * 300, 23, generator=random, dtype=torch.float64)
    return logits, torch.randint(23, (300,), generator=random)


def cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(logits, targets, label_smoothing=0.1, reduction="sum")


def kl(p: Tensor, q: Tensor) -> Tensor:
    """KL(P ‖ Q) of the rows' logits; torch takes the logarithm of the second argument of KL first."""
    return F.kl_div(q.log_softmax(1), p.log_softmax(1), log_target=True, reduction="sum")


def test_the_loss_of_r_drop_is_half_of_the_papers() -> None:
    logits, targets = logits_and_targets()
    reference = logits.clone().requires_grad_()
    p, q = reference.chunk(2)
    paper = cross_entropy(p, targets) + cross_entropy(q, targets) + 5 * (kl(p, q) + kl(q, p)) / 2
    paper.backward()  # type: ignore[no-untyped-call]
    assert reference.grad is not None

    ours = logits.clone().requires_grad_()
    loss, nll = rdrop_loss(ours.clone(), targets, smoothing=0.1, alpha=5)
    (2 * loss).backward()  # type: ignore[no-untyped-call]
    torch.testing.assert_close(loss, paper.detach() / 2)
    torch.testing.assert_close(ours.grad, reference.grad)
    plain = F.cross_entropy(logits, targets.repeat(2), reduction="sum") / 2
    torch.testing.assert_close(nll, plain)


def test_the_loss_of_simcut_is_the_papers_with_its_gradient_through_both_passes() -> None:
    logits, targets = logits_and_targets()
    reference = logits.clone().requires_grad_()
    p, q = reference.chunk(2)
    paper = cross_entropy(p, targets) + 3 * kl(p, q)
    paper.backward()  # type: ignore[no-untyped-call]

    ours = logits.clone().requires_grad_()
    loss, nll = simcut_loss(ours.clone(), targets, smoothing=0.1, alpha=3)
    loss.backward()  # type: ignore[no-untyped-call]
    torch.testing.assert_close(loss, paper.detach())
    torch.testing.assert_close(ours.grad, reference.grad)
    torch.testing.assert_close(nll, F.cross_entropy(logits[:300], targets, reduction="sum"))


@pytest.mark.parametrize("kind", [rdrop_loss, simcut_loss])
@pytest.mark.parametrize("bias", [False, True])
def test_the_loss_of_blocks_is_that_of_all_targets_at_once(
    kind: Any, bias: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consistency, "BLOCK", 1)
    random = torch.Generator().manual_seed(3)
    states = torch.randn(2 * 600, 8, generator=random, dtype=torch.float64)
    targets = torch.randint(23, (600,), generator=random)
    output = TokenEmbedding(23, 8, pad_id=0, scaled=True, bias=bias).double()
    loss_of = partial(kind, smoothing=0.1, alpha=5.0)
    results = []
    for compute in (
        lambda y: loss_by_blocks(y, targets, output, loss_of),
        lambda y: loss_of(output.training_logits(y), targets),
    ):
        y = states.clone().requires_grad_()
        output.zero_grad()
        loss, nll = compute(y)
        (loss / 7).backward()
        results.append([loss, nll, y.grad, *(parameter.grad for parameter in output.parameters())])
    assert len(results[0]) == 4 + bias
    torch.testing.assert_close(*results)


@pytest.mark.parametrize("settings", [{"rdrop": 5.0}, {"simcut": 3.0, "token_cutoff": 0.3}])
def test_in_bf16_the_gradient_is_near_that_of_float32(settings: dict[str, float]) -> None:
    of_16_bits, exact = gradient(precision=Precision.bf16, **settings), gradient(precision=Precision.fp32, **settings)
    assert not torch.equal(of_16_bits, exact)
    assert (of_16_bits - exact).norm() < 0.02 * exact.norm()  # factors are rounded to 8 bits, by up to 0.004


@pytest.mark.parametrize("loss_of", [rdrop_loss, simcut_loss])
def test_equal_passes_cost_no_more_than_one(loss_of: object) -> None:
    logits, targets = logits_and_targets()
    one = logits[:300]
    assert callable(loss_of)
    loss, _ = loss_of(torch.cat([one, one]), targets, smoothing=0.1, alpha=5)
    torch.testing.assert_close(loss, cross_entropy(one, targets))


# ---- Training


def gradient(**settings: Any) -> Tensor:
    """The gradient of one update of several micro-batches, without dropout."""
    trainer = Trainer(toy_run.config(model=replace(toy_run.MODEL, dropout=0.0), **settings), tokenizers(), CPU)
    trainer.train_step(updates()[0], step=1, lr=0.0)
    return torch.cat([x.grad.flatten() for x in trainer.model.parameters() if x.grad is not None])


def updates() -> list[list[Batch]]:
    corpus = toy_run.prepared().train
    halves = np.arange(30), np.arange(30, 60)
    return [micro_batches(corpus, rows, tokenizers(), max_tokens=60) for rows in halves]


def test_without_dropout_r_drop_is_plain_training() -> None:
    torch.testing.assert_close(gradient(rdrop=5.0), gradient())


def test_without_dropout_and_cuts_simcut_is_plain_training() -> None:
    torch.testing.assert_close(gradient(simcut=3.0, token_cutoff=0.0), gradient())
    assert not torch.allclose(gradient(simcut=3.0, token_cutoff=0.3), gradient())


@each("kernel", [PackedKernel.varlen, PackedKernel.buckets])
@each("settings", [{"rdrop": 5.0}, {"simcut": 3.0, "token_cutoff": 0.3}])
def test_every_kernel_computes_the_same_loss(settings: dict[str, float], kernel: PackedKernel) -> None:
    config = toy_run.config(model=replace(toy_run.MODEL, dropout=0.0), **settings)
    trainer = Trainer(config, tokenizers(), CPU)
    two_passes = TwoPasses(config.train, WordDropout(config.train, tokenizers(), CPU))
    losses = []
    for choice in (PackedKernel.per_length, kernel):
        torch.manual_seed(1)
        loss, _ = two_passes.loss(trainer.model, updates()[0][0], CPU, choice)
        losses.append(loss)
    torch.testing.assert_close(*losses)


def by_the_formula(trainer: Trainer, batches: list[Batch]) -> tuple[Tensor, dict[str, Tensor | None]]:
    """The loss of update 3 and its gradients, of all logits at once and left to autograd."""
    settings, two_passes = trainer.settings, trainer.two_passes
    assert two_passes is not None
    trainer.model.zero_grad()
    total = torch.zeros(())
    for i, batch in enumerate(batches):
        torch.manual_seed(stable_seed(1, 3, i))
        given = inputs(batch, CPU, PackedKernel.per_length)
        twice = given.twice()
        with two_passes.cuts(trainer.model, twice):
            p, q = trainer.model.logits(twice).chunk(2)
        loss = cross_entropy(p, given.target_out_T) + settings.simcut * kl(p, q)
        if settings.rdrop:
            likelihood = cross_entropy(p, given.target_out_T) + cross_entropy(q, given.target_out_T)
            loss = (likelihood + settings.rdrop * (kl(p, q) + kl(q, p)) / 2) / 2
        part = loss / sum(one.n_target_tokens for one in batches)
        part.backward()
        total += part.detach()
    return total, {name: parameter.grad for name, parameter in trainer.model.named_parameters()}


BASE = InitConfig(from_="base")
LANGUAGE_MODEL = DataConfig(task="language_model", source_lang="en", target_lang="en", max_length=20)


@each("settings", [{"rdrop": 5.0}, {"simcut": 3.0, "token_cutoff": 0.3}])
@each(
    "changes",
    [
        {},
        {"init": replace(BASE, freeze=["embeddings"])},
        {"init": BASE, "lora": LoraConfig(rank=2)},
        {"init": BASE, "lora": LoraConfig(rank=2, also=["embeddings"])},
        {"model": replace(toy_run.MODEL, d_embedding=8, output_bias=True)},
        {"model": replace(toy_run.MODEL, d_embedding=8), "init": replace(BASE, freeze=["source_embedding.weight"])},
        {"model": replace(toy_run.MODEL, d_embedding=8, name="decoder"), "data": LANGUAGE_MODEL},
    ],
)
def test_several_micro_batches_add_up_to_the_papers_formula_with_dropout_on(
    changes: dict[str, Any], settings: dict[str, float]
) -> None:
    trainer = Trainer(replace(toy_run.config(best_metric="nll", **settings), **changes), tokenizers(), CPU)
    for name, parameter in trainer.model.named_parameters():
        if name.endswith("lora_b"):
            nn.init.normal_(parameter)  # zero, its A would have no gradient
    batches = updates()[0]
    assert len(batches) > 2
    stats = trainer.train_step(batches, step=3, lr=0.0)
    found = {name: parameter.grad for name, parameter in trainer.model.named_parameters()}
    loss, expected = by_the_formula(trainer, batches)
    torch.testing.assert_close(stats.loss, loss)
    assert any(gradient is not None and gradient.any() for gradient in expected.values())
    for name, parameter in trainer.model.named_parameters():
        assert (expected[name] is None) == (not parameter.requires_grad), name
        torch.testing.assert_close(found[name], expected[name], msg=name, rtol=1e-4, atol=1e-6)


def test_the_first_pass_is_whole_and_the_second_keeps_bos_and_eos() -> None:
    config = toy_run.config(simcut=3.0, token_cutoff=0.5)
    trainer = Trainer(config, tokenizers(), CPU)
    seen: list[tuple[Tensor, Tensor]] = []

    def record(module: nn.Module, args: tuple[Tensor, ...], kwargs: dict[str, Any], result: Tensor) -> None:
        seen.append((args[0], result.detach()))

    embedding = trainer.model.source_embedding
    inner = embedding.forward

    def forward(ids: Tensor) -> Tensor:
        return inner(ids) + 100.0  # so that no row is zero unless it is cut

    embedding.forward = forward  # type: ignore[method-assign]
    assert isinstance(trainer.two_passes, TwoPasses)
    twice = inputs(updates()[0][0], CPU, PackedKernel.per_length).twice()
    with trainer.two_passes.cuts(trainer.model, twice):
        embedding.register_forward_hook(record, with_kwargs=True)
        trainer.model.logits(twice)
    assert len(seen) == 2  # source and target of the shared embedding
    for ids, vectors in seen:
        is_cut = (vectors == 0).all(dim=1)
        first, second = is_cut.chunk(2)
        assert not first.any()
        is_control = torch.isin(ids.chunk(2)[1], torch.tensor([tokenizers().source.eos_id, tokenizers().target.bos_id]))
        assert not second[is_control].any()
        assert 0.3 < second[~is_control].float().mean() < 0.7


@pytest.mark.parametrize("settings", [{"rdrop": 5.0}, slow({"simcut": 3.0})])
def test_a_resumed_run_is_the_run_that_was_not_stopped(settings: dict[str, float], tmp_path: Path) -> None:
    config = toy_run.config(save_every=1, **settings)
    toy_run.assert_resumes(tmp_path, config, stopped_before=6)


def test_two_ways_at_once_and_a_share_of_cut_tokens_where_none_are_cut_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"train\.rdrop=5 train\.simcut=3: are two ways to the same end"):
        TrainSettings(rdrop=5.0, simcut=3.0)
    with pytest.raises(ConfigError, match=r"train\.token_cutoff=0\.3: has no effect without train\.simcut\. Set train"):
        TrainSettings(rdrop=5.0, token_cutoff=0.3)


# ---- Classifiers, of which a sentence has one target: Wu et al. 2021, section 3.4


@pytest.mark.parametrize("settings", [{"rdrop": 2.0}, {"simcut": 2.0, "token_cutoff": 0.3}])
def test_a_classifier_has_the_loss_of_the_papers(settings: dict[str, float]) -> None:
    file = toy_classifier.random_model(replace(toy_classifier.SIZES, dropout=0.3, convolution=3, pooling="max"))
    model = file.build_as(Classifier, CPU).train()
    source_S, targets = torch.randint(4, 30, (4 + 6 + 6,)), torch.tensor([0, 1, 1])
    batch = Batch(source_S, targets, targets, [Run(1, 4, 1), Run(2, 6, 1)])
    train = TrainSettings(**settings)
    two_passes = TwoPasses(train, WordDropout(train, file.tokenizers, CPU))

    torch.manual_seed(1)
    loss, nll = two_passes.loss(model, batch, CPU, PackedKernel.per_length)
    torch.manual_seed(1)
    twice = inputs(batch, CPU, PackedKernel.per_length).twice()
    with two_passes.cuts(model, twice):
        p, q = model.logits(twice).chunk(2)
    assert kl(p, q) > 0.01
    if "rdrop" in settings:
        expected = (cross_entropy(p, targets) + cross_entropy(q, targets)) / 2 + 2 / 2 * (kl(p, q) + kl(q, p)) / 2
    else:
        expected = cross_entropy(p, targets) + 2 * kl(p, q)
        torch.testing.assert_close(nll, F.cross_entropy(p, targets, reduction="sum"))
    torch.testing.assert_close(loss, expected)
