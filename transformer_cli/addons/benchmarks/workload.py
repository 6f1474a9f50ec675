"""Workloads: the corpus of a config or random sentences with the lengths of WMT, and a random model to decode with."""

import io
from dataclasses import dataclass
from typing import cast

import numpy as np
import sentencepiece
import torch

from transformer_cli.addons.benchmarks.keys import BenchConfig, Lengths
from transformer_cli.config.model import Norm
from transformer_cli.data.cache import EncodedCorpus
from transformer_cli.data.clean import CleaningReport
from transformer_cli.data.corpus import ParallelText
from transformer_cli.data.prepare import Prepared, prepare
from transformer_cli.data.tokenizer import Tokenizer, Tokenizers
from transformer_cli.errors import ConfigError
from transformer_cli.models.file import ModelFile
from transformer_cli.models.transformer import Transformer

N_PAIRS = 200_000
# Lengths are log-normal. The mean of 29.3 tokens a sentence is that of WMT 14 en-de in the training logs of MLPerf; the
# standard deviation and the correlation of both sides are assumptions.
MEAN, DEVIATION, COMMON = np.log(29.3) - 0.5 * 0.6**2, 0.6, 0.95
BANNED_BIAS = 10.0  # logits of banned tokens are its square below the mean of the others
SHARPENING = 4.0  # factor on the logits of a random model, so that the argmax does not depend on rounding


@dataclass(frozen=True)
class WorkloadVocabulary:
    """The part of a tokenizer that training needs."""

    size: int
    pad_id: int = 0
    unk_id: int = 1
    bos_id: int = 2
    eos_id: int = 3

    def __len__(self) -> int:
        return self.size

    @property
    def end_ids(self) -> list[int]:
        return [self.eos_id]

    @property
    def prefix_ids(self) -> list[int]:
        return []

    @property
    def tag_ids(self) -> frozenset[int]:
        return frozenset()

    def without_tags(self) -> "WorkloadVocabulary":
        return self


def load_workload(config: BenchConfig) -> Prepared:
    """The corpus of `config`, or random sentences with a vocabulary without text."""
    if config.lengths is Lengths.corpus:
        return prepare(config.data)
    vocabulary = cast(Tokenizer, WorkloadVocabulary(config.data.tokenizer.vocab_size))
    nothing = ParallelText([], [])
    return Prepared(
        tokenizers=Tokenizers(vocabulary, vocabulary),
        train=random_sentences(len(vocabulary), longest=config.data.max_length, seed=config.data.seed),
        dev=nothing,
        test=None,
        fingerprint="random",
        report=CleaningReport(),
    )


def random_sentences(vocab_size: int, *, longest: int, seed: int) -> EncodedCorpus:
    """Pairs of random token ids with log-normal lengths, at most `longest` tokens a side, EOS included."""
    random = np.random.default_rng(seed)
    common, *own = random.standard_normal((3, N_PAIRS))
    sides = []
    for noise in own:
        normal = COMMON * common + np.sqrt(1 - COMMON**2) * noise
        lengths = np.clip(np.exp(MEAN + DEVIATION * normal).round().astype(np.int64), 2, longest)
        offsets = np.concatenate(([0], np.cumsum(lengths)))
        ids = random.integers(4, vocab_size, offsets[-1], dtype=np.int32)
        ids[offsets[1:] - 1] = WorkloadVocabulary.eos_id
        sides += [ids, offsets, lengths]
    return EncodedCorpus(*sides)


def random_model(config: BenchConfig, *, sharpening: float = SHARPENING) -> ModelFile:
    """A model with random weights and a made-up vocabulary, whose translations always reach the length limit.

    Less `sharpening` gives more near ties.

    The output of a layer norm without bias is orthogonal to a vector of ones. The bias of the last norm is such a
    vector, and the output embeddings of PAD, UNK, BOS and EOS are its negative: their logits are the same low number in
    every program, so that no search ends early. Raises ConfigError for norms without a bias, and
    for an output layer that does not multiply with that norm's output itself.
    """
    if config.model.norm_kind != "layer":
        raise ConfigError(
            f"model.norm_kind={config.model.norm_kind}: no choice for random weights. Name a trained model with"
            " --checkpoint"
        )
    if config.model.embedding_width < config.model.d_model:
        raise ConfigError(
            f"model.d_embedding={config.model.d_embedding}: no choice for random weights. Name a trained model with"
            " --checkpoint"
        )
    tokenizer = words(config.data.tokenizer.vocab_size)
    tokenizers = Tokenizers(tokenizer, tokenizer)
    torch.manual_seed(config.seed)
    model = Transformer(config.model, *tokenizers.vocabularies)
    output = model.target_embedding if model.own_output is None else model.own_output
    with torch.no_grad():
        output.weight.mul_(sharpening)
        ones_D = torch.full_like(output.weight[0], BANNED_BIAS * config.model.d_model**-0.5)
        last = model.decoder if config.model.norm is Norm.pre else model.decoder.layers[-1].around_feed_forward
        last.norm.bias.copy_(ones_D)  # type: ignore[operator]
        output.weight[[tokenizer.pad_id, tokenizer.unk_id, tokenizer.bos_id, tokenizer.eos_id]] = -ones_D
    return ModelFile(config.model, tokenizers, model.state_dict(), "xx", "yy", step=0)


def words(n_buckets: int) -> Tokenizer:
    """A word-level tokenizer with `n_buckets` pieces, its four control tokens included."""
    model, names = io.BytesIO(), [f"w{i}" for i in range(n_buckets - 4)]
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([" ".join(names[start : start + 50]) for start in range(0, len(names), 50)]),
        model_writer=model,
        model_type="word",
        vocab_size=n_buckets,
        character_coverage=1.0,
        normalization_rule_name="identity",
        pad_id=0,
        unk_id=1,
        bos_id=2,
        eos_id=3,
        num_threads=1,
        minloglevel=3,
    )
    return Tokenizer(model.getvalue())
