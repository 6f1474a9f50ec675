"""What is timed must be right: its loss and gradient beside the plain computation of the same in float64.

Shapes: B sentences, S source, T target, V vocabulary.
"""

from collections.abc import Iterable, Mapping, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from transformer_cli.config.bench import BenchConfig
from transformer_cli.config.train import Precision
from transformer_cli.data.batching import Batch
from transformer_cli.data.fixed_size import Sizes
from transformer_cli.data.tokenizer import Tokenizers
from transformer_cli.errors import EnvironmentFault
from transformer_cli.models.transformer import Transformer
from transformer_cli.training.trainer import Learner, choose_dtype

N_CHECKED = {"cpu": 256, "cuda": 4096}  # target tokens: float64 takes its time
FLOOR = 0.01  # of the whole gradient: a part that is smaller, as that of a key's bias, is nothing but rounding

# How far off rounding may take the loss and a parameter's gradient. At base, post-LN, the latter was 1.4e-6 off in fp32
# and 0.066 in bf16; but where a ReLU's input is zero to the last bits, it passes in one precision and not in the other,
# and one such neuron has made it 2.2e-3 in fp32 (in float64 the same batch was 1e-14 off).
TOLERANCES = {torch.float32: (1e-5, 1e-2), torch.float16: (1e-3, 0.02), torch.bfloat16: (5e-3, 0.1)}
TF32_TOLERANCES = (1e-3, 0.02)


def tolerances(precision: Precision, device: torch.device) -> tuple[float, float]:
    """Of the loss and of a gradient."""
    return TF32_TOLERANCES if precision is Precision.tf32 else TOLERANCES[choose_dtype(precision, device)]


def check_model(learner: Learner, batch: Batch, config: BenchConfig, tokenizers: Tokenizers) -> None:
    """Compare the loss and gradient of some of a batch, without dropout. Raises EnvironmentFault.

    The weights stay as they are; the gradient is cleared by whoever learns next.
    """
    while batch.n_target_tokens > N_CHECKED[learner.device.type] and batch.n_pairs > 1:
        batch = batch.halves()[1]
    learner.model.eval()
    learner.gradients.clear()
    constant = learner.compiled_sizes
    if learner.fused is not None and constant:  # or so few tokens would not be compiled for
        learner.fused.prepare([Sizes.around([Sizes.of(batch)], longest=constant[-1].longest)])
    loss, _ = learner.learn_from(batch, seed=0, n_tokens=batch.n_target_tokens).tolist()
    if learner.fused is not None and learner.compiled_sizes:  # the compiler has not failed
        learner.fused.prepare(constant)
    learner.model.train()
    scale = learner.scaler.get_scale()
    ours = {name: p.grad.double() / scale for name, p in learner.model.named_parameters() if p.grad is not None}

    assert isinstance(learner.whole_model, Transformer)
    wanted, expected = expected_of(learner.whole_model, batch, config, tokenizers)
    of_loss, most = tolerances(config.train.precision, learner.device)
    check("the loss", abs(loss - wanted) / wanted, of_loss)
    whole, errors = gradient_errors(ours, expected)
    check("the gradient", whole, most / 2)
    for name, error in errors.items():
        check(f"the gradient of {name}", error, most)


def check(what: str, error: float, most: float) -> None:
    """Raises EnvironmentFault."""
    if not error <= most:  # a NaN is no less wrong
        raise EnvironmentFault(
            f"{what} is {error:.1e} (relative) off the plain computation in float64; {most:.0e} is rounding. Nothing"
            " is timed that is wrong: run the tests on this machine, or another version of torch"
        )


def expected_of(
    model: Transformer, batch: Batch, config: BenchConfig, tokenizers: Tokenizers
) -> tuple[float, dict[str, Tensor]]:
    """The loss, summed, and its gradient for each target token, of the model's weights on padded sentences."""
    source_pad, target_pad = tokenizers.source.pad_id, tokenizers.target.pad_id
    plain = Transformer(
        config.model,
        source_vocab_size=len(tokenizers.source),
        target_vocab_size=len(tokenizers.target),
        source_pad_id=source_pad,
        target_pad_id=target_pad,
    )
    plain.load_state_dict(model.state_dict())
    device = next(model.parameters()).device
    plain = plain.to(device, torch.float64).eval()

    sources, targets = zip(*batch.pairs(), strict=True)
    source_BS, target_BT = padded(sources, source_pad, device), padded(targets, target_pad, device)
    target_in_BT = F.pad(target_BT[:, :-1], (1, 0), value=tokenizers.target.bos_id)
    logits_BTV = plain(source_BS, target_in_BT)
    loss = F.cross_entropy(
        logits_BTV.flatten(0, 1),
        target_BT.flatten(),
        ignore_index=target_pad,
        label_smoothing=config.train.label_smoothing,
        reduction="sum",
    )
    (loss / batch.n_target_tokens).backward()  # type: ignore[no-untyped-call]
    return loss.item(), {name: p.grad for name, p in plain.named_parameters() if p.grad is not None}


def padded(rows: Iterable[Sequence[int]], pad_id: int, device: torch.device) -> Tensor:
    return pad_sequence([torch.tensor(row) for row in rows], batch_first=True, padding_value=pad_id).to(device)


def gradient_errors(found: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> tuple[float, dict[str, float]]:
    """Relative: of the whole; and of each parameter, where FLOOR of the whole is the least that counts."""
    assert found.keys() == expected.keys(), "gradients of other parameters"
    off = {name: (found[name] - gradient).norm() for name, gradient in expected.items()}
    norms = {name: gradient.norm() for name, gradient in expected.items()}
    whole = torch.stack(list(norms.values())).norm()
    least = FLOOR * whole
    errors = {name: float(error / torch.maximum(norms[name], least)) for name, error in off.items()}
    return float(torch.stack(list(off.values())).norm() / whole), errors
