"""Training loops as a user of other modules would write them, over the same sentences: sorted, and padded.

python -m transformer_cli.benchmarks.rivals '{"config": …, "name": "nn.Transformer"}'

Shapes: B batch, S source, T target, L either length, D width, V vocabulary.
"""

import json
import sys
import time
from collections.abc import Callable
from itertools import cycle
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from transformer_cli.benchmarks.contestant import Round, peak_bytes, serve
from transformer_cli.benchmarks.material import material
from transformer_cli.benchmarks.timing import finish
from transformer_cli.config import from_plain
from transformer_cli.data.cache import Array, EncodedCorpus
from transformer_cli.data.tokenizer import Tokenizer
from transformer_cli.errors import ConfigError
from transformer_cli.models.device import choose_device
from transformer_cli.models.embeddings import waves
from transformer_cli.registry import Registry
from transformer_cli.schema import Activation, BenchConfig, ModelConfig, Norm
from transformer_cli.training.learner import choose_dtype

# Model config and vocabulary → what turns source, its mask and target into logits_BTV.
Net = Callable[[ModelConfig, Tokenizer], nn.Module]
RIVALS: Registry[Net] = Registry("rival")


@RIVALS.register("nn.Transformer")
class PlainTransformer(nn.Module):
    """Torch's own module as its documentation says to use it."""

    def __init__(self, config: ModelConfig, vocabulary: Tokenizer) -> None:
        super().__init__()
        self.embedding = nn.Embedding(len(vocabulary), config.d_model, padding_idx=vocabulary.pad_id)
        self.dropout, self.scale = nn.Dropout(config.dropout), config.d_model**0.5
        self.transformer = nn.Transformer(
            config.d_model,
            config.n_heads,
            config.n_encoder_layers,
            config.n_decoder_layers,
            config.d_ff,
            config.dropout,
            batch_first=True,
            norm_first=config.norm is Norm.pre,
        )
        nn.init.normal_(self.embedding.weight, std=config.d_model**-0.5)

    def forward(self, source_BS: Tensor, mask_BS: Tensor, target_BT: Tensor) -> Tensor:
        y_BTD = self.transformer(
            self.embed(source_BS),
            self.embed(target_BT),
            tgt_mask=nn.Transformer.generate_square_subsequent_mask(target_BT.size(1), device=target_BT.device),
            src_key_padding_mask=~mask_BS,
            memory_key_padding_mask=~mask_BS,
            tgt_is_causal=True,
        )
        return F.linear(y_BTD, self.embedding.weight)

    def embed(self, ids_BL: Tensor) -> Tensor:
        x_BLD = self.embedding(ids_BL) * self.scale
        table_LD = waves(1024, x_BLD.size(-1), interleaved=True, dtype=x_BLD.dtype, device=x_BLD.device)
        y_BLD: Tensor = self.dropout(x_BLD + table_LD[: x_BLD.size(1)])
        return y_BLD


@RIVALS.register("Hugging Face Marian")
class HuggingFaceMarian(nn.Module):
    """The translation model of `transformers`, with its fast attention."""

    def __init__(self, config: ModelConfig, vocabulary: Tokenizer) -> None:
        super().__init__()
        from transformers import MarianConfig, MarianMTModel

        options: dict[str, Any] = {
            "vocab_size": len(vocabulary),
            "d_model": config.d_model,
            "encoder_layers": config.n_encoder_layers,
            "decoder_layers": config.n_decoder_layers,
            "encoder_attention_heads": config.n_heads,
            "decoder_attention_heads": config.n_heads,
            "encoder_ffn_dim": config.d_ff,
            "decoder_ffn_dim": config.d_ff,
            "dropout": config.dropout,
            "attention_dropout": 0.0,
            "activation_dropout": 0.0,
            "activation_function": "relu",
            "scale_embedding": True,
            "max_position_embeddings": 1024,
            "pad_token_id": vocabulary.pad_id,
            "bos_token_id": vocabulary.bos_id,
            "eos_token_id": vocabulary.eos_id,
            "decoder_start_token_id": vocabulary.bos_id,
            "forced_eos_token_id": None,
            "use_cache": False,
        }
        options["attn_implementation"] = "sdpa"
        self.model = MarianMTModel(MarianConfig(**options))

    def forward(self, source_BS: Tensor, mask_BS: Tensor, target_BT: Tensor) -> Tensor:
        logits_BTV: Tensor = self.model(
            input_ids=source_BS, attention_mask=mask_BS.long(), decoder_input_ids=target_BT, use_cache=False
        ).logits
        return logits_BTV


def refuse_unlike(config: ModelConfig) -> None:
    """Raises ConfigError for a model that the rivals do not have."""
    if config.activation is not Activation.relu or not config.bias:
        raise ConfigError(
            f"model.activation={config.activation.name}, model.bias={config.bias}: the rivals have relu and biases."
            " Choose those, or rivals=false"
        )


class Rival:
    """A net with Adam and torch's label-smoothed cross entropy."""

    def __init__(self, name: str, config: BenchConfig, device: torch.device) -> None:
        torch.manual_seed(config.seed)
        self.config, self.device = config, device
        self.dtype = choose_dtype(config.train.precision, device)
        self.corpus, tokenizers = material(config)
        self.vocabulary = tokenizers.target
        self.net = RIVALS[name](config.model, self.vocabulary).to(device).train()
        self.optimizer = torch.optim.Adam(self.net.parameters(), lr=1e-4, betas=(0.9, 0.98), eps=1e-9, fused=True)
        self.batches = cycle(sorted_batches(self.corpus, tokens=config.train.tokens_per_update, seed=config.seed))

    def round(self) -> Round:
        n_target = n_source = n_cells = 0
        start = time.perf_counter()
        for _ in range(self.config.n_updates):
            indices = next(self.batches)
            n_cells += self.update(indices)
            n_target += int(self.corpus.target_lengths[indices].sum())
            n_source += int(self.corpus.source_lengths[indices].sum())
        finish(self.device)
        return Round(n_target, n_source, n_cells, time.perf_counter() - start, peak_bytes(self.device))

    def update(self, indices: Array) -> int:
        """Learn from some sentences; the cells of the padded batch."""
        pad_id = self.vocabulary.pad_id
        source_BS = self._padded(self.corpus.source_ids, self.corpus.source_offsets, indices)
        target_BT = self._padded(self.corpus.target_ids, self.corpus.target_offsets, indices)
        target_in_BT = F.pad(target_BT[:, :-1], (1, 0), value=self.vocabulary.bos_id)
        self.optimizer.zero_grad(set_to_none=True)
        with torch.autocast(self.device.type, self.dtype, enabled=self.dtype is not torch.float32):
            logits_BTV = self.net(source_BS, source_BS != pad_id, target_in_BT)
            loss = F.cross_entropy(
                logits_BTV.flatten(0, 1),
                target_BT.flatten(),
                ignore_index=pad_id,
                label_smoothing=self.config.train.label_smoothing,
            )
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()
        return source_BS.numel() + target_BT.numel()

    def _padded(self, ids: Array, offsets: Array, indices: Array) -> Tensor:
        rows = [torch.from_numpy(ids[offsets[i] : offsets[i + 1]].astype(np.int64)) for i in indices]
        return pad_sequence(rows, batch_first=True, padding_value=self.vocabulary.pad_id).to(self.device)


def sorted_batches(corpus: EncodedCorpus, *, tokens: int, seed: int) -> list[Array]:
    """All sentences by length, cut at `tokens` target tokens, in random order."""
    order = np.lexsort((corpus.target_lengths, corpus.source_lengths))
    ends = np.cumsum(corpus.target_lengths[order], dtype=np.int64)
    batches = [batch for batch in np.split(order, np.flatnonzero(np.diff(ends // tokens)) + 1) if len(batch)]
    return [batches[i] for i in np.random.default_rng(seed).permutation(len(batches))]


def main() -> None:
    parameters = json.loads(sys.argv[1])
    config: BenchConfig = from_plain(BenchConfig, parameters["config"])
    serve(Rival(parameters["name"], config, choose_device(config.device)).round)


if __name__ == "__main__":
    main()
