"""LayerDrop (Fan et al. 2020) and word dropout (Sennrich et al. 2016): what is dropped, how often, and where not."""

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.data.test_packed_tokenizer import packed
from tests.toy import run as toy_run
from tests.toy.run import CPU, tokenizers
from transformer_cli.config.compose import load_config
from transformer_cli.config.data import TokenizerConfig
from transformer_cli.config.model import Tying
from transformer_cli.config.train import Compile, TrainConfig
from transformer_cli.data.batching import Batch, Run, micro_batches
from transformer_cli.data.tokenizer import Tokenizer, Tokenizers, train_tokenizer
from transformer_cli.errors import ConfigError, EnvironmentFault
from transformer_cli.models.inputs import Inputs
from transformer_cli.models.kernel_choice import PackedKernel
from transformer_cli.models.transformer import Transformer
from transformer_cli.training import word_dropout
from transformer_cli.training.consistency import TwoPasses
from transformer_cli.training.forward import inputs
from transformer_cli.training.trainer import Trainer
from transformer_cli.training.word_dropout import WordDropout

DEEP = replace(toy_run.MODEL, n_encoder_layers=2, n_decoder_layers=2, dropout=0.0)


def batches() -> list[Batch]:
    return micro_batches(toy_run.prepared().train, np.arange(20), tokenizers(), max_tokens=60)


def given() -> Inputs:
    return inputs(batches()[0], CPU, PackedKernel.per_length)


def trainer(config: TrainConfig) -> Trainer:
    return Trainer(config, tokenizers(), CPU)


# ---- Layer drop


@torch.no_grad()
def without(model: Transformer, kept: tuple[bool, ...]) -> Tensor:
    """The logits of the model that has only these of its four layers."""
    model.eval()
    with pytest.MonkeyPatch.context() as patch:
        for layer, keep in zip([*model.encoder.layers, *model.decoder.layers], kept, strict=True):
            if not keep:
                patch.setattr(layer, "forward", lambda x_LD, *args: x_LD)
        logits = model.logits(given())
    model.train()
    return logits


@torch.no_grad()
def test_training_skips_each_layer_by_itself_and_scales_none() -> None:
    model = trainer(toy_run.config(model=replace(DEEP, layer_drop=0.25))).model
    assert isinstance(model, Transformer)
    layers = [*model.encoder.layers, *model.decoder.layers]
    called: set[object] = set()
    for layer in layers:
        layer.register_forward_hook(lambda layer, args, y_LD: called.add(layer))
    counts: Counter[tuple[bool, ...]] = Counter()
    for _ in range(200):
        called.clear()
        logits = model.logits(given())
        kept = tuple(layer in called for layer in layers)
        if not counts[kept]:
            assert torch.equal(logits, without(model, kept))
        counts[kept] += 1
    shares = np.array(list(counts.elements())).mean(axis=0)
    assert np.abs(shares - 0.75).max() < 0.12  # four standard deviations
    assert 0.18 < counts[True, True, True, True] / 200 < 0.45  # 0.75^4 = 0.32: the layers are drawn apart


def test_a_model_that_predicts_skips_nothing() -> None:
    whole, skipping = (trainer(toy_run.config(model=replace(DEEP, layer_drop=p))).model.eval() for p in (0.0, 0.9))
    assert torch.equal(whole.logits(given()), skipping.logits(given()))


@pytest.mark.parametrize("activation_checkpointing", [False, True])
def test_a_layer_that_every_batch_skips_has_a_gradient_of_zero(activation_checkpointing: bool) -> None:
    model = replace(DEEP, layer_drop=0.999)
    one = trainer(toy_run.config(model=model, activation_checkpointing=activation_checkpointing))
    one.train_step(batches(), step=1, lr=0.01)
    for name, parameter in one.model.named_parameters():
        assert parameter.grad is not None
        assert not (parameter.grad.any() and ".layers." in name), name
    assert one.model.source_embedding.weight.grad.any()


# ---- Word dropout


def words_of(side: str, **settings: float) -> tuple[Tensor, Tensor]:
    """The ids of one side of 300 pairs and the factors that their embeddings are multiplied by."""
    one = trainer(toy_run.config(model=DEEP, **settings))
    (batch,) = micro_batches(toy_run.prepared(300).train, np.arange(300), tokenizers(), max_tokens=100_000)
    found: list[tuple[Tensor, Tensor]] = []
    whole = one.model.source_embedding.forward
    many = inputs(batch, CPU, PackedKernel.per_length)
    with pytest.MonkeyPatch.context() as patch:
        stacks = {"source": one.model.encoder, "target": one.model.decoder}
        forward = stacks[side].forward

        def record(x_LD: Tensor, *args: Any) -> Tensor:
            ids_L = many.source_S if side == "source" else many.target_in_T
            expected_LD = whole(ids_L)
            found.append((ids_L, (x_LD * expected_LD).sum(dim=1) / (expected_LD * expected_LD).sum(dim=1)))
            torch.testing.assert_close(x_LD, expected_LD * found[-1][1][:, None])  # all columns by the same factor
            return forward(x_LD, *args)

        patch.setattr(stacks[side], "forward", record)
        with one.word_dropout.applied(one.model, many):
            one.model.logits(many)
    return found[0]


@pytest.mark.parametrize("side", ["source", "target"])
def test_whole_words_are_dropped_on_the_side_that_is_named_and_the_others_scaled(side: str) -> None:
    settings = {"source_word_dropout": 0.1, "target_word_dropout": 0.3}
    p = settings[f"{side}_word_dropout"]
    ids, factors = words_of(side, **settings)
    is_control = torch.isin(ids, torch.tensor([tokenizers().source.eos_id, tokenizers().target.bos_id]))
    assert is_control.sum() == 300
    torch.testing.assert_close(factors[is_control], torch.ones(300))
    words = factors[~is_control]
    is_dropped = words == 0
    torch.testing.assert_close(words[~is_dropped], torch.full(((~is_dropped).sum(),), 1 / (1 - p)))
    assert abs(is_dropped.float().mean().item() - p) < 4 * (p * (1 - p) / len(words)) ** 0.5


def test_a_side_without_word_dropout_is_whole() -> None:
    _, factors = words_of("source", target_word_dropout=0.5)
    torch.testing.assert_close(factors, torch.ones_like(factors))


@pytest.mark.parametrize("kind", ["word dropout", "SimCut"])
def test_tags_are_whole_on_the_side_that_has_them_and_only_there(kind: str) -> None:
    source = train_tokenizer(toy_run.sentences(50, seed=1), TokenizerConfig(vocab_size=25), seed=1, tags=["<a>", "<b>"])
    target = Tokenizer(packed(whole=[], prefix=[">>fra<<"], bos=0).to_bytes())  # every sentence begins with 2, its tag
    ids = [4, 5, 7, 8, source.eos_id], [target.bos_id, 2, 4, 5, 6]  # words of the target are numbered as the tags
    spared = {4, 5, source.eos_id}, {target.bos_id, 2}
    if kind == "SimCut":
        settings = {"simcut": 3.0, "token_cutoff": 0.5}
    else:
        settings = {"source_word_dropout": 0.5, "target_word_dropout": 0.5}
    config = toy_run.config(model=replace(DEEP, tie_embeddings=Tying.none), **settings)
    one = Trainer(config, Tokenizers(source, target), CPU)
    assert isinstance(one.model, Transformer)
    source_S, target_T = (torch.tensor(of_side * 50) for of_side in ids)
    given = inputs(Batch(source_S, target_T, target_T, [Run(50, 5, 5)]), CPU, PackedKernel.per_length).twice()
    dropping = one.word_dropout.applied if one.two_passes is None else one.two_passes.cuts
    with dropping(one.model, given):
        rows = one.model.source_embedding(given.source_S), one.model.target_embedding(given.target_in_T)
    for of_side, whole, x_LD in zip(ids, spared, rows, strict=True):
        is_dropped = (x_LD == 0).all(dim=1).unflatten(0, (-1, 5)).any(dim=0).tolist()
        assert is_dropped == [number not in whole for number in of_side]


def test_the_ids_that_are_spared_are_on_the_device_before_the_first_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Made for each batch, they would be copied to an accelerator each time."""
    monkeypatch.setattr(word_dropout, "to_device", Tensor.to)  # pinned memory needs an accelerator
    settings = toy_run.config(simcut=3.0, source_word_dropout=0.5).train
    for device in (CPU, torch.device("meta")):
        words = WordDropout(settings, tokenizers(), device)
        assert [ids.device for ids in words.spared] == [device, device]
        assert TwoPasses(settings, words).words is words


# ---- Both


def test_a_resumed_run_is_the_run_that_was_not_stopped(tmp_path: Path) -> None:
    model = replace(DEEP, dropout=0.1, layer_drop=0.3)
    config = toy_run.config(model=model, save_every=1, source_word_dropout=0.2, target_word_dropout=0.1)
    toy_run.assert_resumes(tmp_path, config, stopped_before=6)


def test_word_dropout_is_not_compiled() -> None:
    with pytest.raises(
        EnvironmentFault, match=r"train\.compile=default: does not go with train\.source_word_dropout=0\.1"
    ):
        trainer(toy_run.config(compile=Compile.default, source_word_dropout=0.1))


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["data=text", "train.source_word_dropout=0.1"], "data.task=language_model has no encoder"),
        (["data=trec", "train.target_word_dropout=0.1"], "data.task=classification has no decoder"),
    ],
)
def test_word_dropout_of_a_side_that_is_not_there_is_refused(overrides: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_config("train", overrides)
