"""Training loops of baselines: other Transformers on the same sentences, sorted by length and padded.

python -m transformer_cli.addons.benchmarks.baselines '{"config": …, "net": "nn.Transformer", "compiled": false}'

Shapes: B batch, S source, T target, L either length, D width, V vocabulary.
"""

import importlib.util
import time
import warnings
from collections.abc import Callable
from itertools import cycle
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import clip_grad_norm_
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from transformer_cli.addons.benchmarks.keys import BenchConfig
from transformer_cli.addons.benchmarks.timing import finish
from transformer_cli.addons.benchmarks.worker import Round, config_and_parameters, peak_bytes, serve_rounds
from transformer_cli.addons.benchmarks.workload import load_workload
from transformer_cli.config.model import Norm
from transformer_cli.data.cache import Array, EncodedCorpus
from transformer_cli.data.tokenizer import Tokenizer
from transformer_cli.data.transfer import to_device
from transformer_cli.errors import ConfigError
from transformer_cli.models.device import choose_device
from transformer_cli.models.embeddings import sinusoid_table
from transformer_cli.registry import Registry
from transformer_cli.training.precision import choose_dtype, set_float32_products

# Makes a module from config and vocabulary; the module maps source, its mask and target to logits_BTV.
Net = Callable[[BenchConfig, Tokenizer], nn.Module]
BASELINES: Registry[Net] = Registry("baseline")
# Settings that the baselines support with their default value only.
_FIXED = (
    *("model.activation", "model.bias", "model.tie_embeddings", "model.norm_kind", "model.positions", "model.d_k"),
    *("model.d_embedding", "model.attention_window"),
    *(
        "model.d_v",
        "model.scale_embeddings",
        "optimizer.name",
        "train.activation_checkpointing",
    ),
)


@BASELINES.register("nn.Transformer")
class PlainTransformer(nn.Module):
    """nn.Transformer used as in its documentation. It applies dropout in more places than the paper."""

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
        with warnings.catch_warnings():  # about nested tensors, which matter in inference only
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


@BASELINES.register("nn.Transformer lean")
class MatchedTransformer(PlainTransformer):
    """nn.Transformer with dropout and norms in the same places as in tfm."""

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


@BASELINES.register("Hugging Face Marian")
class HuggingFaceMarian(nn.Module):
    """MarianMTModel of `transformers` with scaled_dot_product_attention. It is post-norm, as in the paper."""

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


def check_comparable(config: BenchConfig) -> None:
    """Raises ConfigError for settings that the baselines do not support, or if `transformers` is not installed."""
    usual = BenchConfig(subject=config.subject)
    for key in _FIXED:
        group, name = key.split(".")
        value, theirs = (getattr(getattr(one, group), name) for one in (config, usual))
        if value != theirs:
            shown, wanted = (str(getattr(one, "name", one)).lower() for one in (value, theirs))
            raise ConfigError(f"{key}={shown}: the baselines have {wanted}. Choose that, or rivals=false")
    if importlib.util.find_spec("transformers") is None:
        raise ConfigError(
            "rivals=true: the package transformers is not installed. `pip install transformers`, or set rivals=false"
        )


class Baseline:
    """Trains a baseline with torch's Adam and label-smoothed cross entropy."""

    def __init__(self, net: str, config: BenchConfig, device: torch.device, *, compiled: bool = False) -> None:
        torch.manual_seed(config.seed)
        self.config, self.device = config, device
        self.dtype = choose_dtype(config.train.precision, device)
        set_float32_products(config.train.precision, device)
        prepared = load_workload(config)
        self.corpus, self.vocabulary = prepared.train, prepared.tokenizers.target
        self.net = BASELINES[net](config, self.vocabulary).to(device).train()
        # Lengths change from batch to batch, so compile once with dynamic shapes.
        self.loss = torch.compile(self._loss, dynamic=True) if compiled else self._loss
        self.optimizer = torch.optim.Adam(self.net.parameters(), lr=1e-4, betas=(0.9, 0.98), eps=1e-9, fused=True)
        self.scaler = torch.amp.GradScaler(device.type, enabled=self.dtype is torch.float16)
        settings = config.train
        self.average: AveragedModel | None = None
        if settings.ema is not None:
            self.average = AveragedModel(self.net, multi_avg_fn=get_ema_multi_avg_fn(settings.ema))  # type: ignore[no-untyped-call]
        self.n_batches = -(-settings.tokens_per_update // settings.max_tokens_per_microbatch)  # in an update
        tokens = settings.tokens_per_update // self.n_batches
        self.batches = cycle(sorted_batches(self.corpus, tokens=tokens, seed=config.seed))

    def round(self) -> Round:
        n_target = n_source = n_padded_tokens = 0
        start = time.perf_counter()
        for _ in range(self.config.n_updates):
            batches = [next(self.batches) for _ in range(self.n_batches)]
            n_padded_tokens += self.update(batches)
            n_target += sum(int(self.corpus.target_lengths[indices].sum()) for indices in batches)
            n_source += sum(int(self.corpus.source_lengths[indices].sum()) for indices in batches)
        finish(self.device)
        return Round(n_target, n_source, n_padded_tokens, time.perf_counter() - start, peak_bytes(self.device))

    def update(self, batches: list[Array]) -> int:
        """One optimizer step; returns the number of tokens of the padded batches."""
        n_tokens = sum(int(self.corpus.target_lengths[indices].sum()) for indices in batches)
        n_padded_tokens = 0
        self.optimizer.zero_grad(set_to_none=True)
        for indices in batches:
            source_BS = self._padded(self.corpus.source_ids, self.corpus.source_offsets, indices)
            target_BT = self._padded(self.corpus.target_ids, self.corpus.target_offsets, indices)
            self.scaler.scale(self.loss(source_BS, target_BT) / n_tokens).backward()  # type: ignore[no-untyped-call]
            n_padded_tokens += source_BS.numel() + target_BT.numel()
        if self.config.train.clip_norm is not None:
            self.scaler.unscale_(self.optimizer)
            clip_grad_norm_(self.net.parameters(), self.config.train.clip_norm)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        if self.average is not None:
            self.average.update_parameters(self.net)
        return n_padded_tokens

    def _loss(self, source_BS: Tensor, target_BT: Tensor) -> Tensor:
        """The loss summed over the target tokens."""
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
        """The sentences of `indices`, padded and copied to the device asynchronously."""
        starts, ends = offsets[indices], offsets[indices + 1]
        positions_BL = starts[:, None] + np.arange((ends - starts).max())
        is_real_BL = positions_BL < ends[:, None]
        found_BL = np.full(positions_BL.shape, self.vocabulary.pad_id, np.int64)
        found_BL[is_real_BL] = ids[positions_BL[is_real_BL]]
        return to_device(torch.from_numpy(found_BL), self.device)


def sorted_batches(corpus: EncodedCorpus, *, tokens: int, seed: int) -> list[Array]:
    """All sentences sorted by length, split into batches of about `tokens` target tokens, in random order."""
    order = np.lexsort((corpus.target_lengths, corpus.source_lengths))
    ends = np.cumsum(corpus.target_lengths[order], dtype=np.int64)
    batches = [batch for batch in np.split(order, np.flatnonzero(np.diff(ends // tokens)) + 1) if len(batch)]
    return [batches[i] for i in np.random.default_rng(seed).permutation(len(batches))]


def _set_up() -> Callable[[], Round]:
    config, parameters = config_and_parameters()
    return Baseline(parameters["net"], config, choose_device(config.device), compiled=parameters["compiled"]).round


if __name__ == "__main__":
    serve_rounds(_set_up)
