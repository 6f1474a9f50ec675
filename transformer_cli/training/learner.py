"""What learns: the model, its optimizer and the precision they work in; and one update of them.

Shapes: K target tokens that are real, V vocabulary.
"""

import hashlib
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils import clip_grads_with_norm_, get_total_norm
from torch.optim import Optimizer

from transformer_cli.data.batching import Batch
from transformer_cli.data.tokenizer import Tokenizers
from transformer_cli.errors import EnvironmentFault
from transformer_cli.models.transformer import Transformer, build_model
from transformer_cli.schema import Precision, TrainConfig
from transformer_cli.training.checkpoints import Checkpoint
from transformer_cli.training.loss import smoothed_nll
from transformer_cli.training.optimizers import build_optimizer, load_optimizer_tensors, optimizer_tensors, set_rate
from transformer_cli.training.validation import predict


@dataclass(frozen=True)
class UpdateStats:
    """Tensors stay on the device: whoever looks at them waits for it."""

    loss: Tensor  # nats per target token, smoothed
    nll: Tensor  # nats per target token
    grad_norm: Tensor  # before clipping
    finite: Tensor
    n_tokens: int  # target tokens
    n_cells: int  # of the padded batches, both sides


class Learner:
    """A model and its optimizer on a device. Raises EnvironmentFault for a precision that the device does not have."""

    def __init__(self, config: TrainConfig, tokenizers: Tokenizers, device: torch.device) -> None:
        self.device, self.settings, self.seed = device, config.train, config.seed
        self.dtype = choose_dtype(config.train.precision, device)
        torch.manual_seed(stable_seed(config.seed))
        self.model: Transformer = build_model(
            config.model,
            source_vocab_size=len(tokenizers.source),
            target_vocab_size=len(tokenizers.target),
            source_pad_id=tokenizers.source.pad_id,
            target_pad_id=tokenizers.target.pad_id,
        ).to(device)  # after drawing the weights on the CPU: the same ones for every device
        self.model.train()
        self.optimizer: Optimizer = build_optimizer(self.model, config.optimizer)
        self.scaler = torch.amp.GradScaler(device.type, enabled=self.dtype is torch.float16)

    def autocast(self) -> AbstractContextManager[Any]:
        return torch.autocast(self.device.type, self.dtype, enabled=self.dtype is not torch.float32)

    def update(self, batches: Sequence[Batch], *, step: int, rate: float) -> UpdateStats:
        """One step of the optimizer over all `batches`."""
        n_tokens = sum(batch.n_target_tokens for batch in batches)
        loss, nll = torch.zeros(2, device=self.device)
        for i, batch in enumerate(batches):
            torch.manual_seed(stable_seed(self.seed, step, i))
            with self.autocast():
                logits_KV, targets_K = predict(self.model, batch, self.device)
            part, part_nll = smoothed_nll(logits_KV, targets_K, smoothing=self.settings.label_smoothing)
            self.scaler.scale(part / n_tokens).backward()  # type: ignore[no-untyped-call]
            loss += part.detach() / n_tokens
            nll += part_nll / n_tokens
        grad_norm = self._clip()
        set_rate(self.optimizer, rate)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.optimizer.zero_grad(set_to_none=True)
        # With a scaler, gradients that are too large are its own business: it skips the step and scales less.
        finite = loss.isfinite() if self.scaler.is_enabled() else loss.isfinite() & grad_norm.isfinite()
        n_cells = sum(batch.source_BS.numel() + batch.target_in_BT.numel() for batch in batches)
        return UpdateStats(loss, nll, grad_norm, finite, n_tokens, n_cells)

    def _clip(self) -> Tensor:
        self.scaler.unscale_(self.optimizer)
        parameters = [parameter for parameter in self.model.parameters() if parameter.grad is not None]
        norm = get_total_norm([parameter.grad for parameter in parameters if parameter.grad is not None])
        if self.settings.clip_norm is not None:
            clip_grads_with_norm_(parameters, self.settings.clip_norm, norm)
        return norm

    def remembered(self) -> dict[str, Tensor]:
        """The optimizer's tensors, by parameter name."""
        return optimizer_tensors(self.optimizer, self.model.named_parameters())

    def restore(self, checkpoint: Checkpoint) -> None:
        self.model.load_state_dict(checkpoint.model.weights)
        load_optimizer_tensors(self.optimizer, self.model.named_parameters(), checkpoint.optimizer)
        self.scaler.load_state_dict(checkpoint.state["scaler"])


def stable_seed(*numbers: int) -> int:
    """One 64-bit seed from several numbers, the same on every machine and in every Python."""
    return int.from_bytes(hashlib.sha256(repr(numbers).encode()).digest()[:8], "little")


def choose_dtype(wanted: Precision, device: torch.device) -> torch.dtype:
    """The type of matrix products; weights stay float32. Raises EnvironmentFault for one that `device` lacks."""
    on_gpu = device.type == "cuda"
    has_bf16 = not on_gpu or torch.cuda.is_bf16_supported(including_emulation=False)
    if wanted is Precision.fp16 and not on_gpu:
        raise EnvironmentFault("train.precision=fp16: needs a GPU. Use train.precision=fp32")
    if wanted is Precision.bf16 and not has_bf16:
        raise EnvironmentFault("train.precision=bf16: this GPU does not have it. Use train.precision=fp16")
    if wanted is Precision.auto:
        wanted = (Precision.bf16 if has_bf16 else Precision.fp16) if on_gpu else Precision.fp32
    return {Precision.fp32: torch.float32, Precision.bf16: torch.bfloat16, Precision.fp16: torch.float16}[wanted]
