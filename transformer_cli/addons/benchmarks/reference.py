"""Correctness check before timing: compares loss and gradient with a plain computation in float64.

Shapes: B sentences, S source, T target, V vocabulary.
"""

from collections.abc import Iterable, Mapping, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from transformer_cli.addons.benchmarks.keys import BenchConfig
from transformer_cli.config.train import Precision
from transformer_cli.data.batching import Batch
from transformer_cli.data.fixed_size import Sizes
from transformer_cli.data.tokenizer import Tokenizers
from transformer_cli.errors import EnvironmentFault
from transformer_cli.models.transformer import Transformer
from transformer_cli.training.precision import choose_dtype
from transformer_cli.training.trainer import Trainer

N_CHECKED = {"cpu": 256, "cuda": 4096}  # target tokens: float64 is slow
_FLOOR = 0.01  # of the whole gradient's norm: smaller parts, such as the bias of a key, are rounding errors

# Relative errors of the loss and of a parameter's gradient that rounding may cause. With base, post-LN, the latter was
# 1.4e-6 in fp32 and 0.066 in bf16. A ReLU whose input is almost zero may be active in one precision only: one such
# neuron has caused 2.2e-3 in fp32 (1e-14 for the same batch in float64).
TOLERANCES = {torch.float32: (1e-5, 1e-2), torch.float16: (1e-3, 0.02), torch.bfloat16: (5e-3, 0.1)}
TF32_TOLERANCES = (1e-3, 0.02)


def tolerances(precision: Precision, device: torch.device) -> tuple[float, float]:
    """Tolerances of the loss and of a gradient."""
    return TF32_TOLERANCES if precision is Precision.tf32 else TOLERANCES[choose_dtype(precision, device)]


def check_with_reference(trainer: Trainer, batch: Batch, config: BenchConfig, tokenizers: Tokenizers) -> None:
    """Compare loss and gradient on part of a batch, without dropout. Raises EnvironmentFault.

    Weights do not change; the next train step clears the gradient.
    """
    while batch.n_target_tokens > N_CHECKED[trainer.device.type] and batch.n_pairs > 1:
        batch = batch.halves()[1]
    trainer.model.eval()
    trainer.gradients.clear()
    constant = trainer.compiled_sizes
    if trainer.compiled is not None and constant:  # otherwise so few tokens would not be compiled
        trainer.compiled.prepare([Sizes.around([Sizes.of(batch)], longest=constant[-1].longest)])
    loss, *_ = trainer.forward_backward(batch, seed=0, n_tokens=batch.n_target_tokens).tolist()
    if trainer.compiled is not None and trainer.compiled_sizes:  # the compiler has not failed
        trainer.compiled.prepare(constant)
    trainer.model.train()
    scale = trainer.scaler.get_scale()
    found = {name: p.grad.double() / scale for name, p in trainer.model.named_parameters() if p.grad is not None}

    assert isinstance(trainer.whole_model, Transformer)
    wanted, expected = expected_of(trainer.whole_model, batch, config, tokenizers)
    of_loss, most = tolerances(config.train.precision, trainer.device)
    check_error("the loss", abs(loss - wanted) / wanted, of_loss)
    whole, errors = gradient_errors(found, expected)
    check_error("the gradient", whole, most / 2)
    for name, error in errors.items():
        check_error(f"the gradient of {name}", error, most)


def check_error(what: str, error: float, most: float) -> None:
    """Raises EnvironmentFault if `error` is above `most`."""
    if not error <= most:  # also true for NaN
        raise EnvironmentFault(
            f"{what} is {error:.1e} (relative) off the plain computation in float64; {most:.0e} is rounding. Wrong"
            " results are not timed: run the tests on this machine, or another version of torch"
        )


def expected_of(
    model: Transformer, batch: Batch, config: BenchConfig, tokenizers: Tokenizers
) -> tuple[float, dict[str, Tensor]]:
    """The summed loss, and the gradient of the mean loss, of the same weights on padded sentences."""
    source, target = tokenizers.source, tokenizers.target
    plain = Transformer(config.model, *tokenizers.vocabularies)
    plain.load_state_dict(model.state_dict())
    device = next(model.parameters()).device
    plain = plain.to(device, torch.float64).eval()

    sources, targets = zip(*batch.pairs(), strict=True)
    source_BS, target_BT = pad_rows(sources, source.pad_id, device), pad_rows(targets, target.pad_id, device)
    target_in_BT = F.pad(target_BT[:, :-1], (1, 0), value=tokenizers.target.bos_id)
    logits_BTV = plain(source_BS, target_in_BT)
    loss = F.cross_entropy(
        logits_BTV.flatten(0, 1),
        target_BT.flatten(),
        ignore_index=target.pad_id,
        label_smoothing=config.train.label_smoothing,
        reduction="sum",
    )
    (loss / batch.n_target_tokens).backward()  # type: ignore[no-untyped-call]
    return loss.item(), {name: p.grad for name, p in plain.named_parameters() if p.grad is not None}


def pad_rows(rows: Iterable[Sequence[int]], pad_id: int, device: torch.device) -> Tensor:
    return pad_sequence([torch.tensor(row) for row in rows], batch_first=True, padding_value=pad_id).to(device)


def gradient_errors(found: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> tuple[float, dict[str, float]]:
    """Relative errors of the whole gradient, and of each parameter with at least FLOOR of the whole as its norm."""
    assert found.keys() == expected.keys(), "gradients of other parameters"
    off = {name: (found[name] - gradient).norm() for name, gradient in expected.items()}
    norms = {name: gradient.norm() for name, gradient in expected.items()}
    whole = torch.stack(list(norms.values())).norm()
    least = _FLOOR * whole
    errors = {name: float(error / torch.maximum(norms[name], least)) for name, error in off.items()}
    return float(torch.stack(list(off.values())).norm() / whole), errors
