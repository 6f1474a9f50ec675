"""Label smoothing against a computation by hand, torch's own and finite differences."""

import math

import pytest
import torch
import torch.nn.functional as F

from tests.support.each import each
from transformer_cli.training.loss import masked_smoothed_nll, smoothed_nll


def random_logits(n_tokens: int = 5, vocab_size: int = 7, *, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    logits_KV = 3 * torch.randn(n_tokens, vocab_size, generator=generator, dtype=torch.float64)
    return logits_KV, torch.randint(vocab_size, (n_tokens,), generator=generator)


def test_loss_of_a_hand_computed_case() -> None:
    # Probabilities 1/2, 1/4, 1/8, 1/8; the target is the first; smoothing 0.2 gives 0.05 to each of the four.
    logits_KV = torch.tensor([[1 / 2, 1 / 4, 1 / 8, 1 / 8]], dtype=torch.float64).log()
    loss, nll = smoothed_nll(logits_KV, torch.tensor([0]), smoothing=0.2)
    assert nll.item() == pytest.approx(math.log(2))
    assert loss.item() == pytest.approx((0.85 * 1 + 0.05 * 2 + 0.05 * 3 + 0.05 * 3) * math.log(2))


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.5])
def test_loss_and_gradient_equal_those_of_torch(smoothing: float) -> None:
    logits_KV, targets_K = random_logits()
    expected_KV, given_KV = logits_KV.clone().requires_grad_(), logits_KV.clone().requires_grad_()
    expected = F.cross_entropy(expected_KV, targets_K, label_smoothing=smoothing, reduction="sum")
    (2 * expected).backward()
    loss, nll = smoothed_nll(given_KV * 1, targets_K, smoothing=smoothing)
    (2 * loss).backward()
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(nll, F.cross_entropy(logits_KV, targets_K, reduction="sum"))
    torch.testing.assert_close(given_KV.grad, expected_KV.grad)


def test_gradient_equals_finite_differences() -> None:
    logits_KV, targets_K = random_logits(2, 3)
    given_KV = logits_KV.clone().requires_grad_()
    smoothed_nll(given_KV * 1, targets_K, smoothing=0.1)[0].backward()
    assert given_KV.grad is not None
    for k in range(2):
        for v in range(3):
            step_KV = torch.zeros_like(logits_KV)
            step_KV[k, v] = 1e-6
            up, down = (smoothed_nll(logits_KV + sign * step_KV, targets_K, smoothing=0.1)[0] for sign in (1, -1))
            assert given_KV.grad[k, v].item() == pytest.approx((up - down).item() / 2e-6, abs=1e-8)


def test_gradient_vanishes_where_the_model_predicts_the_smoothed_distribution() -> None:
    wanted_KV = torch.full((1, 5), 0.1 / 5, dtype=torch.float64)
    wanted_KV[0, 3] += 0.9
    logits_KV = wanted_KV.log().requires_grad_()
    smoothed_nll(logits_KV * 1, torch.tensor([3]), smoothing=0.1)[0].backward()
    torch.testing.assert_close(logits_KV.grad, torch.zeros(1, 5, dtype=torch.float64))


def test_huge_logits_give_a_finite_loss() -> None:
    loss, nll = smoothed_nll(torch.tensor([[1e30, -1e30, 0.0]]), torch.tensor([0]), smoothing=0.0)
    assert loss.item() == nll.item() == 0


def test_in_float16_a_scaled_gradient_keeps_the_smoothing_of_every_token() -> None:
    vocabulary, scale = 37_000, 2.0**16
    logits_KV = torch.full((1, vocabulary), -9.0, dtype=torch.float16)
    logits_KV[0, 0] = 12.0
    leaf_KV = logits_KV.requires_grad_()
    loss, _ = smoothed_nll(leaf_KV * 1, torch.tensor([0]), smoothing=0.1)
    (loss * scale).backward()
    assert leaf_KV.grad is not None
    softmax = math.exp(-21) / (1 + (vocabulary - 1) * math.exp(-21))
    expected = (softmax - 0.1 / vocabulary) * scale  # by hand: softmax minus the wanted distribution
    assert leaf_KV.grad[0, 1:].float().mean().item() == pytest.approx(expected, rel=1e-3)


def test_half_precision_logits_are_summed_in_single_precision() -> None:
    logits_KV, targets_K = random_logits(50, 4000)
    half_KV = logits_KV.bfloat16().requires_grad_()
    expected = F.cross_entropy(half_KV.detach().float(), targets_K, label_smoothing=0.1, reduction="sum")
    loss, _ = smoothed_nll(half_KV * 1, targets_K, smoothing=0.1)
    loss.backward()
    assert loss.dtype is torch.float32
    torch.testing.assert_close(loss, expected)
    assert half_KV.grad is not None
    assert half_KV.grad.dtype is torch.bfloat16


def test_a_second_backward_is_refused_not_wrong() -> None:
    logits_KV, targets_K = random_logits()
    loss, _ = smoothed_nll(logits_KV.requires_grad_() * 1, targets_K, smoothing=0.1)
    (2 * loss).backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        (2 * loss).backward()


@each("dtype", [torch.float64, torch.float32, torch.bfloat16])
@each("smoothing", [0.0, 0.1])
def test_for_a_compiler_loss_and_gradient_are_the_same(smoothing: float, dtype: torch.dtype) -> None:
    logits_KV, targets_K = random_logits(50, 300)
    expected_KV, given_KV = (logits_KV.to(dtype).requires_grad_() for _ in range(2))
    expected, expected_nll = smoothed_nll(expected_KV * 1, targets_K, smoothing=smoothing)
    found, nll = masked_smoothed_nll(given_KV, targets_K, smoothing=smoothing)
    (2 * expected).backward()
    (2 * found).backward()
    torch.testing.assert_close((found, nll), (expected, expected_nll))
    torch.testing.assert_close(given_KV.grad, expected_KV.grad)


def test_what_nobody_learns_has_no_loss_and_no_gradient() -> None:
    logits_KV, targets_K = random_logits(6, 7)
    targets_K[[1, 4]] = -1
    leaf_KV = logits_KV.clone().requires_grad_()
    loss, nll = masked_smoothed_nll(leaf_KV, targets_K, smoothing=0.1)
    loss.backward()
    ignoring = {"ignore_index": -1, "reduction": "sum"}
    torch.testing.assert_close(loss, F.cross_entropy(logits_KV, targets_K, label_smoothing=0.1, **ignoring))
    torch.testing.assert_close(nll, F.cross_entropy(logits_KV, targets_K, **ignoring))
    assert leaf_KV.grad is not None
    assert not leaf_KV.grad[[1, 4]].any()


def test_the_first_token_of_the_vocabulary_is_a_target_like_any_other() -> None:
    logits_KV, _ = random_logits(4, 7)
    for targets_K in (torch.tensor([0, 6, 0, 1]), torch.zeros(4, dtype=torch.long)):
        for loss_of in (smoothed_nll, masked_smoothed_nll):
            leaf_KV, expected_KV = (logits_KV.clone().requires_grad_() for _ in range(2))
            loss, nll = loss_of(leaf_KV * 1, targets_K, smoothing=0.1)
            expected = F.cross_entropy(expected_KV, targets_K, label_smoothing=0.1, reduction="sum")
            loss.backward()
            expected.backward()
            torch.testing.assert_close(loss, expected)
            torch.testing.assert_close(nll, F.cross_entropy(logits_KV, targets_K, reduction="sum"))
            torch.testing.assert_close(leaf_KV.grad, expected_KV.grad)
