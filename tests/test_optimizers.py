"""Adam against its definition, and its state through a file and back."""

import pytest
import torch
from torch import nn

from transformer_cli.errors import CheckpointError
from transformer_cli.schema import OptimizerConfig
from transformer_cli.training.optimizers import (
    OPTIMIZERS,
    build_optimizer,
    load_optimizer_tensors,
    optimizer_tensors,
    set_rate,
)


def toy(*, seed: int = 0, width: int = 3) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Linear(width, 2).double()


def step(model: nn.Module, optimizer: torch.optim.Optimizer, *, rate: float = 0.1, seed: int = 0) -> None:
    generator = torch.Generator().manual_seed(seed)
    for parameter in model.parameters():
        parameter.grad = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
    set_rate(optimizer, rate)
    optimizer.step()


def test_adam_is_algorithm_1_of_its_paper() -> None:
    model, config = toy(), OptimizerConfig()
    optimizer, expected = build_optimizer(model, config), [p.detach().clone() for p in model.parameters()]
    m, v = [torch.zeros_like(p) for p in expected], [torch.zeros_like(p) for p in expected]
    beta1, beta2 = config.betas
    for t in range(1, 4):
        step(model, optimizer, rate=0.1 / t, seed=t)
        for i, parameter in enumerate(model.parameters()):
            assert parameter.grad is not None
            m[i] = beta1 * m[i] + (1 - beta1) * parameter.grad
            v[i] = beta2 * v[i] + (1 - beta2) * parameter.grad**2
            m_hat, v_hat = m[i] / (1 - beta1**t), v[i] / (1 - beta2**t)
            expected[i] -= 0.1 / t * m_hat / (v_hat.sqrt() + config.eps)
            torch.testing.assert_close(parameter.detach(), expected[i])


def test_adamw_decays_matrices_and_leaves_biases_alone() -> None:
    decayed, plain = toy(), toy()
    step(decayed, build_optimizer(decayed, OptimizerConfig(name="adamw", weight_decay=0.5)))
    step(plain, build_optimizer(plain, OptimizerConfig(name="adamw")))
    before = toy()
    torch.testing.assert_close(decayed.weight, plain.weight - 0.1 * 0.5 * before.weight)
    torch.testing.assert_close(decayed.bias, plain.bias)


@pytest.mark.parametrize("name", OPTIMIZERS.names())
def test_restored_state_continues_to_the_last_bit(name: str) -> None:
    model, config = toy(), OptimizerConfig(name=name, weight_decay=0.1)
    optimizer = build_optimizer(model, config)
    step(model, optimizer, seed=1)
    copy = toy(seed=9)
    copy.load_state_dict(model.state_dict())
    restored = build_optimizer(copy, config)
    load_optimizer_tensors(restored, copy.named_parameters(), optimizer_tensors(optimizer, model.named_parameters()))
    step(model, optimizer, seed=2)
    step(copy, restored, seed=2)
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), copy.parameters(), strict=True))


def test_state_of_another_model_is_refused() -> None:
    model, wider = toy(), toy(width=5)
    optimizer = build_optimizer(wider, OptimizerConfig())
    step(wider, optimizer)
    tensors = optimizer_tensors(optimizer, wider.named_parameters())
    other = build_optimizer(model, OptimizerConfig())
    with pytest.raises(
        CheckpointError, match=r"optimizer state 'exp_avg/weight': \[2, 5\] of float64, but .* \[2, 3\]"
    ):
        load_optimizer_tensors(other, model.named_parameters(), tensors)
