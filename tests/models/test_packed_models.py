"""Every model, by every kernel for packed sentences: the same logits and gradients, and few calls of attention."""

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from tests.support.rehearsal import META, rehearse
from tests.toy.run import MODEL
from transformer_cli.config.model import Autoregression, ModelConfig, Positions, Vocabulary
from transformer_cli.data.batching import Batch, Run
from transformer_cli.data.length_buckets import MOST_BUCKETS
from transformer_cli.models.build import build_model
from transformer_cli.models.kernel_choice import PackedKernel
from transformer_cli.models.transformer import Model
from transformer_cli.training.forward import predict_batch

CPU = torch.device("cpu")
N_TYPES, N_LAYERS = 30, 2
DEEP = replace(MODEL, n_encoder_layers=N_LAYERS, n_decoder_layers=N_LAYERS, dropout=0.0)
MODELS = {
    "transformer": DEEP,
    "uneven heads": replace(DEEP, d_k=4, d_v=6),
    "rotary": replace(DEEP, positions=Positions.rotary),
    "window": replace(DEEP, attention_window=4, d_embedding=6),
    "SSRU": replace(DEEP, decoder=Autoregression.ssru),
    "language model": replace(DEEP, name="decoder"),
    "classifier, mean": replace(DEEP, name="classifier", pooling="mean"),
    "classifier, first": replace(DEEP, name="classifier", pooling="first"),
    "classifier, self-attentive": replace(
        DEEP, name="classifier", pooling="self_attentive", pooling_options={"hops": 2, "width": 6}
    ),
    "classifier, max": replace(DEEP, name="classifier", pooling="max", convolution=3),
}
each_model = pytest.mark.parametrize("config", MODELS.values(), ids=MODELS)


def model(config: ModelConfig) -> Model:
    torch.manual_seed(0)
    return build_model(config, Vocabulary(N_TYPES, pad_id=0), Vocabulary(N_TYPES, pad_id=0))


def batch(config: ModelConfig, lengths: list[tuple[int, int]]) -> Batch:
    """A source of a language model is empty, and a classifier has one target for each sentence."""
    if config.name == "decoder":
        lengths = [(0, target) for _, target in lengths]
    if config.name == "classifier":
        lengths = [(source, 1) for source, _ in lengths]
    torch.manual_seed(1)
    source_S, in_T, out_T = (torch.randint(3, N_TYPES, (sum(pair[side] for pair in lengths),)) for side in (0, 1, 1))
    return Batch(source_S, in_T, out_T, [Run(1, *pair) for pair in sorted(lengths)])


@each_model
@pytest.mark.parametrize("kernel", [PackedKernel.varlen, PackedKernel.buckets])
def test_logits_and_gradients_are_those_of_one_call_for_each_length(config: ModelConfig, kernel: PackedKernel) -> None:
    own = model(config).double()
    given = batch(config, [(4, 3), (4, 9), (7, 5), (30, 26), (31, 2)])

    def computed(kernel: PackedKernel) -> list[Tensor]:
        own.zero_grad(set_to_none=True)
        logits_KV, targets_K = predict_batch(own, given, CPU, kernel)
        F.cross_entropy(logits_KV, targets_K).backward()  # type: ignore[no-untyped-call]
        return [logits_KV.detach(), *(p.grad for p in own.parameters() if p.grad is not None)]

    expected = computed(PackedKernel.per_length)
    assert len(expected) > 10
    for one, other in zip(computed(kernel), expected, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.slow
@each_model
@pytest.mark.parametrize("attention_dropout", [0.0, 0.1])
def test_in_buckets_attention_is_called_a_few_times_whatever_the_lengths(
    config: ModelConfig, attention_dropout: float
) -> None:
    own = model(replace(config, attention_dropout=attention_dropout)).to(META)
    given = batch(config, [(source, target) for source in range(1, 60) for target in (source, source + 3)])
    with rehearse() as seen:
        logits_KV, targets_K = predict_batch(own, given, META, PackedKernel.buckets)
        F.cross_entropy(logits_KV, targets_K).backward()  # type: ignore[no-untyped-call]
    n_attentions = {"transformer": 3, "decoder": 1, "classifier": 1}[config.name] * N_LAYERS
    assert n_attentions < seen.n_sdpa <= n_attentions * MOST_BUCKETS
