"""Training loops as a user of other modules would write them, over the same sentences: sorted, and padded.

python -m transformer_cli.benchmarks.baselines '{"config": …, "net": "nn.Transformer", "compiled": false}'

Shapes: B batch, S source, T target, L either length, D width, V vocabulary.
"""

import importlib.util
import json
import sys
import time
import warnings
from collections.abc import Callable
from itertools import cycle
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transformer_cli.benchmarks.timing import finish
from transformer_cli.benchmarks.worker import Round, peak_bytes, serve
from transformer_cli.benchmarks.workload import material
from transformer_cli.config.bench import BenchConfig
from transformer_cli.config.compose import from_plain
from transformer_cli.config.model import Norm
from transformer_cli.data.cache import Array, EncodedCorpus
from transformer_cli.data.tokenizer import Tokenizer
from transformer_cli.errors import ConfigError
from transformer_cli.models.device import choose_device
from transformer_cli.models.embeddings import sinusoid_table
from transformer_cli.registry import Registry
from transformer_cli.training.precision import choose_dtype, set_float32_products

# Config and vocabulary → what turns source, its mask and target into logits_BTV.
Net = Callable[[BenchConfig, Tokenizer], nn.Module]
RIVALS: Registry[Net] = Registry("rival")
# Keys in which the rivals have no choice.
FIXED = (
    *("model.activation", "model.bias", "model.tie_embeddings", "model.norm_kind", "model.positions", "model.d_k"),
    *(
        "model.d_v",
        "model.scale_embeddings",
        "optimizer.name",
        "train.clip_norm",
        "train.ema",
        "train.activation_checkpointing",
    ),
)


@RIVALS.register("nn.Transformer")
class PlainTransformer(nn.Module):
    """Torch's own module as its documentation says to use it; it has dropout in more places than the paper."""

    positions_LD: Tensor

    def __init__(self, config: BenchConfig, vocabulary: Tokenizer) -> None:
        super().__init__()
        model = config.model
        self.embedding = nn.Embedding(len(vocabulary), model.d_model, padding_idx=vocabulary.pad_id)
        self.dropout, self.scale = nn.Dropout(model.dropout), model.d_model**0.5
        table_LD = sinusoid_table(
            config.data.max_length, model.d_model, interleaved=True, dtype=torch.float32, device=torch.device("cpu")
        )
        self.register_buffer("positions_LD", table_LD, persistent=False)
        with warnings.catch_warnings():  # of nested tensors, which only matter without gradients
            warnings.simplefilter("ignore")
            self.transformer = nn.Transformer(
                model.d_model,
                model.n_heads,
                model.n_encoder_layers,
                model.n_decoder_layers,
                model.d_ff,
                model.dropout,
                batch_first=True,
                norm_first=model.norm is Norm.pre,
            )
        nn.init.normal_(self.embedding.weight, std=model.d_model**-0.5)

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
        y_BLD: Tensor = self.dropout(x_BLD + self.positions_LD[: ids_BL.size(1)])
        return y_BLD


@RIVALS.register("nn.Transformer lean")
class MatchedTransformer(PlainTransformer):
    """The same with dropout and norms only where ours are."""

    def __init__(self, config: BenchConfig, vocabulary: Tokenizer) -> None:
        super().__init__(config, vocabulary)
        model = config.model
        for module in self.transformer.modules():
            if isinstance(module, nn.MultiheadAttention):
                module.dropout = model.attention_dropout
            if isinstance(module, nn.TransformerEncoderLayer | nn.TransformerDecoderLayer):
                module.dropout.p = model.activation_dropout  # the one inside the feed-forward layer
        if model.norm is Norm.post:
            self.transformer.encoder.norm = self.transformer.decoder.norm = None


@RIVALS.register("Hugging Face Marian")
class HuggingFaceMarian(nn.Module):
    """The translation model of `transformers`, with its fast attention. Its norms are where the paper has them."""

    def __init__(self, config: BenchConfig, vocabulary: Tokenizer) -> None:
        super().__init__()
        from transformers import MarianConfig, MarianMTModel

        model = config.model
        options: dict[str, Any] = {
            "vocab_size": len(vocabulary),
            "d_model": model.d_model,
            "encoder_layers": model.n_encoder_layers,
            "decoder_layers": model.n_decoder_layers,
            "encoder_attention_heads": model.n_heads,
            "decoder_attention_heads": model.n_heads,
            "encoder_ffn_dim": model.d_ff,
            "decoder_ffn_dim": model.d_ff,
            "dropout": model.dropout,
            "attention_dropout": model.attention_dropout,
            "activation_dropout": model.activation_dropout,
            "activation_function": "relu",
            "scale_embedding": True,
            "max_position_embeddings": config.data.max_length,
            "pad_token_id": vocabulary.pad_id,
            "bos_token_id": vocabulary.bos_id,
            "eos_token_id": vocabulary.eos_id,
            "decoder_start_token_id": vocabulary.bos_id,
            "forced_eos_token_id": None,
            "use_cache": False,
            "attn_implementation": "sdpa",
        }
        self.model = MarianMTModel(MarianConfig(**options))

    def forward(self, source_BS: Tensor, mask_BS: Tensor, target_BT: Tensor) -> Tensor:
        logits_BTV: Tensor = self.model(
            input_ids=source_BS, attention_mask=mask_BS.long(), decoder_input_ids=target_BT, use_cache=False
        ).logits
        return logits_BTV


def refuse_unlike(config: BenchConfig) -> None:
    """Raises ConfigError for a run that the rivals cannot make, or where one of them is not installed."""
    usual = BenchConfig(subject=config.subject)
    for key in FIXED:
        group, name = key.split(".")
        value, theirs = (getattr(getattr(one, group), name) for one in (config, usual))
        if value != theirs:
            shown, wanted = (str(getattr(one, "name", one)).lower() for one in (value, theirs))
            raise ConfigError(f"{key}={shown}: the rivals have {wanted}. Choose that, or rivals=false")
    if importlib.util.find_spec("transformers") is None:
        raise ConfigError(
            "rivals=true: the package transformers is not installed. `pip install transformers`, or set rivals=false"
        )


class Rival:
    """A net with Adam and torch's label-smoothed cross entropy."""

    def __init__(self, net: str, config: BenchConfig, device: torch.device, *, compiled: bool = False) -> None:
        torch.manual_seed(config.seed)
        self.config, self.device = config, device
        self.dtype = choose_dtype(config.train.precision, device)
        set_float32_products(config.train.precision, device)
        prepared = material(config)
        self.corpus, self.vocabulary = prepared.train, prepared.tokenizers.target
        self.net = RIVALS[net](config, self.vocabulary).to(device).train()
        # Lengths change from batch to batch: compiled once, for any length.
        self.loss = torch.compile(self._loss, dynamic=True) if compiled else self._loss
        self.optimizer = torch.optim.Adam(self.net.parameters(), lr=1e-4, betas=(0.9, 0.98), eps=1e-9, fused=True)
        self.scaler = torch.amp.GradScaler(device.type, enabled=self.dtype is torch.float16)
        settings = config.train
        self.n_batches = -(-settings.tokens_per_update // settings.max_tokens_per_microbatch)  # in an update
        tokens = settings.tokens_per_update // self.n_batches
        self.batches = cycle(sorted_batches(self.corpus, tokens=tokens, seed=config.seed))

    def round(self) -> Round:
        n_target = n_source = n_cells = 0
        start = time.perf_counter()
        for _ in range(self.config.n_updates):
            batches = [next(self.batches) for _ in range(self.n_batches)]
            n_cells += self.update(batches)
            n_target += sum(int(self.corpus.target_lengths[indices].sum()) for indices in batches)
            n_source += sum(int(self.corpus.source_lengths[indices].sum()) for indices in batches)
        finish(self.device)
        return Round(n_target, n_source, n_cells, time.perf_counter() - start, peak_bytes(self.device))

    def update(self, batches: list[Array]) -> int:
        """Learn from some sentences; the cells of the padded batches."""
        n_tokens = sum(int(self.corpus.target_lengths[indices].sum()) for indices in batches)
        n_cells = 0
        self.optimizer.zero_grad(set_to_none=True)
        for indices in batches:
            source_BS = self._padded(self.corpus.source_ids, self.corpus.source_offsets, indices)
            target_BT = self._padded(self.corpus.target_ids, self.corpus.target_offsets, indices)
            self.scaler.scale(self.loss(source_BS, target_BT) / n_tokens).backward()  # type: ignore[no-untyped-call]
            n_cells += source_BS.numel() + target_BT.numel()
        self.scaler.step(self.optimizer)
        self.scaler.update()
        return n_cells

    def _loss(self, source_BS: Tensor, target_BT: Tensor) -> Tensor:
        """Summed over the tokens."""
        pad_id = self.vocabulary.pad_id
        target_in_BT = F.pad(target_BT[:, :-1], (1, 0), value=self.vocabulary.bos_id)
        with torch.autocast(self.device.type, self.dtype, enabled=self.dtype is not torch.float32):
            logits_BTV = self.net(source_BS, source_BS != pad_id, target_in_BT)
            return F.cross_entropy(
                logits_BTV.flatten(0, 1),
                target_BT.flatten(),
                ignore_index=pad_id,
                label_smoothing=self.config.train.label_smoothing,
                reduction="sum",
            )

    def _padded(self, ids: Array, offsets: Array, indices: Array) -> Tensor:
        """On the device; a GPU does not wait for it."""
        starts, ends = offsets[indices], offsets[indices + 1]
        places_BL = starts[:, None] + np.arange((ends - starts).max())
        is_real_BL = places_BL < ends[:, None]
        found_BL = np.full(places_BL.shape, self.vocabulary.pad_id, np.int64)
        found_BL[is_real_BL] = ids[places_BL[is_real_BL]]
        found = torch.from_numpy(found_BL)
        return (found.pin_memory() if self.device.type == "cuda" else found).to(self.device, non_blocking=True)


def sorted_batches(corpus: EncodedCorpus, *, tokens: int, seed: int) -> list[Array]:
    """All sentences by length, cut at `tokens` target tokens, in random order."""
    order = np.lexsort((corpus.target_lengths, corpus.source_lengths))
    ends = np.cumsum(corpus.target_lengths[order], dtype=np.int64)
    batches = [batch for batch in np.split(order, np.flatnonzero(np.diff(ends // tokens)) + 1) if len(batch)]
    return [batches[i] for i in np.random.default_rng(seed).permutation(len(batches))]


def make_ready() -> Callable[[], Round]:
    parameters = json.loads(sys.argv[1])
    config: BenchConfig = from_plain(BenchConfig, parameters["config"])
    return Rival(parameters["net"], config, choose_device(config.device), compiled=parameters["compiled"]).round


if __name__ == "__main__":
    serve(make_ready)
