"""How many sentences a batch has without gradients: from the memory of a GPU, or as `batch_tokens` says.

On a CPU larger batches are hardly faster, and auto is a constant. On a GPU they are, up to some thousands of rows.
Should the estimate be too high, `models.memory.SplitBatches` halves the batch.
"""

from collections.abc import Callable, Sequence
from functools import partial

import torch

from transformer_cli.config.checks import AUTO
from transformer_cli.inference.cuda_graphs import rounded_up
from transformer_cli.models.attention import SelfAttention
from transformer_cli.models.ensemble import AnyModel, Ensemble
from transformer_cli.models.memory import free_memory
from transformer_cli.models.transformer import Transformer

BatchTokens = int | str  # a number, or auto

CPU_TOKENS = 4096
# With a beam, twice as many on a CPU: 1.05 times as fast, for 1.5 times the memory. The logits of all rows are so many
# numbers at most, 128 MiB, if that is not fewer sentences than without.
_CPU_TOKENS_OF_BEAMS, _CPU_LOGITS = 8192, 1 << 25
ACCELERATOR_TOKENS = 16_384  # on an accelerator that does not say how much memory is free
SHARE = 0.25  # of the free memory, which is what the static buffers of CUDA graphs may take for several shapes
MOST_ROWS = 4096  # of a search: the products of a step have long filled the largest GPU, and longer waits grow
MOST_TOKENS = 65_536  # of one forward pass, for the same reason
BYTES_PER_TOKEN = 100_000  # of a forward pass: 4 × (2 × d_ff + 16 × d_model) of the big model
# Float32 numbers for each entry of the vocabulary: logits, log-probabilities, and what a search sorts and masks.
VOCABULARY_COPIES = 8
_ACTIVATIONS = 8  # vectors of d_model for each source token while the encoder computes


def forward_tokens(batch_tokens: BatchTokens, device: torch.device) -> int:
    """Padded tokens of one forward pass without a cache: force-decoding, classification, sentence vectors."""
    if batch_tokens != AUTO:
        return int(batch_tokens)
    if device.type == "cpu":
        return CPU_TOKENS
    free = free_memory(device)
    return ACCELERATOR_TOKENS if free is None else max(1, min(MOST_TOKENS, int(SHARE * free) // BYTES_PER_TOKEN))


def sentences_per_batch(
    batch_tokens: BatchTokens,
    model: AnyModel,
    device: torch.device,
    *,
    n_beams: int,
    n_target_of: Callable[[int], int],
    free: int | None,
) -> Callable[[int], int]:
    """How many sentences one search has, by the tokens of the longest source, EOS counted; it may be none.

    `n_target_of` is the longest translation of a source, `free` the free memory when no batch had begun.
    """
    if batch_tokens == AUTO and free is not None:

        def most(n_source: int) -> int:
            target = 1 << (n_target_of(n_source) - 1).bit_length()  # as a CUDA graph pads it
            sizes = {"n_source": rounded_up(n_source), "n_target": target, "n_beams": n_beams}
            return rows_that_fit(free, bytes_per_sentence(model, **sizes), n_beams=n_beams)

        return most
    if batch_tokens == AUTO and device.type == "cpu":
        vocabulary = max(len(one.output_embedding.weight) for one in _members(model))
        few, many = CPU_TOKENS // n_beams, min(CPU_TOKENS, _CPU_TOKENS_OF_BEAMS // n_beams)
        most_sentences = _CPU_LOGITS // (vocabulary * n_beams)
        return lambda n_source: max(few // n_source, min(many // n_source, most_sentences))
    max_tokens = (ACCELERATOR_TOKENS if batch_tokens == AUTO else int(batch_tokens)) // n_beams
    return partial(int.__floordiv__, max_tokens)


def rows_that_fit(free: int, per_sentence: int, *, n_beams: int) -> int:
    """Sentences of a batch, with `n_beams` rows each, for which `free` bytes suffice; one at least.

    A size of which there is a CUDA graph, so that none is padded to the next: 2^k or 3 · 2^k.
    """
    n_sentences = max(1, min(int(SHARE * free) // per_sentence, MOST_ROWS // n_beams))
    power = 1 << (n_sentences.bit_length() - 1)
    return power + power // 2 if n_sentences >= power + power // 2 else power


def bytes_per_sentence(model: AnyModel, *, n_source: int, n_target: int, n_beams: int) -> int:
    """Memory of one sentence in a search.

    For each member and decoder layer: keys and values of `n_target` tokens of each beam, and of `n_source` tokens of
    the source, which exist twice while the cache is made. The encoder's activations and the mask of the beams' history.
    The logits of each member, and the float32 copies of them that the search makes.
    """
    total, n_vocab = 0, 0
    for member in _members(model):
        item = next(member.parameters()).element_size()
        layer, n_layers = member.decoder.layers[0], len(member.decoder.layers)
        attention, cross = layer.self_attention, sum(layer.cross_attention.widths)
        n_vocab, d_model = len(member.output_embedding.weight), layer.cross_attention.to_out.out_features
        target = n_beams * n_layers * d_model  # a state for each layer, which does not grow
        if isinstance(attention, SelfAttention):
            target = n_target * n_beams * (n_layers * sum(attention.widths[1:]) + n_beams)
        source = n_source * (2 * n_layers * cross + widest(member) + _ACTIVATIONS * d_model)
        total += item * (target + source) + 4 * n_vocab * n_beams
    return total + 4 * VOCABULARY_COPIES * n_vocab * n_beams


def _members(model: AnyModel) -> Sequence[Transformer]:
    return model.members if isinstance(model, Ensemble) else [model]


def widest(model: Transformer) -> int:
    """Hidden units of the feed-forward network, its gate counted."""
    return max((layer.feed_forward.to_hidden.out_features for layer in model.encoder.layers), default=0)
