"""Projections: what F.linear computes, whichever library does it."""

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from transformer_cli.models import linear
from transformer_cli.models.linear import prefers_onednn, project

has_onednn = pytest.mark.skipif(not hasattr(torch.ops.mkldnn, "_linear_pointwise"), reason="a torch without oneDNN")


@pytest.fixture
def by_onednn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linear, "prefers_onednn", lambda: True)


@has_onednn
@pytest.mark.usefixtures("by_onednn")
@pytest.mark.parametrize("shape", [(37, 24), (3, 5, 24), (1, 24)])
@pytest.mark.parametrize("has_bias", [True, False])
def test_onednn_finds_the_products_and_gradients_of_float64(shape: tuple[int, ...], has_bias: bool) -> None:
    torch.manual_seed(0)
    x, weight, bias = (torch.randn(size, requires_grad=True) for size in (shape, (40, 24), (40,)))
    given = [x, weight, bias] if has_bias else [x, weight]
    wanted = [tensor.detach().double().requires_grad_() for tensor in given]
    y, y64 = project(*given), F.linear(*wanted)
    assert y.grad_fn is not None
    assert y.grad_fn.name().startswith("_Product")
    grad = torch.randn_like(y)
    y.backward(grad)
    y64.backward(grad.double())
    torch.testing.assert_close(y.double(), y64, rtol=1e-5, atol=1e-5)
    for mine, theirs in zip(given, wanted, strict=True):
        assert mine.grad is not None
        assert theirs.grad is not None
        torch.testing.assert_close(mine.grad.double(), theirs.grad, rtol=1e-5, atol=2e-5)


@has_onednn
@pytest.mark.usefixtures("by_onednn")
def test_what_needs_no_gradient_gets_none() -> None:
    x, weight = torch.randn(4, 8), torch.randn(6, 8, requires_grad=True)
    project(x, weight).sum().backward()
    assert x.grad is None
    torch.testing.assert_close(weight.grad, x.sum(0).expand(6, 8))


@pytest.mark.usefixtures("by_onednn")
def test_a_search_another_precision_and_autocast_stay_with_torchs_default() -> None:
    x, weight = torch.randn(4, 8), torch.randn(6, 8, requires_grad=True)
    with torch.no_grad():
        assert torch.equal(project(x, weight), F.linear(x, weight))
    assert project(x.double(), weight.double()).dtype is torch.float64
    with torch.autocast("cpu", torch.bfloat16):
        assert project(x, weight).dtype is torch.bfloat16


@pytest.mark.parametrize(("vendor", "expected"), [("AuthenticAMD", True), ("GenuineIntel", False)])
@has_onednn
def test_only_amds_cpus_prefer_onednn(vendor: str, expected: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "read_text", lambda *_, **__: f"processor\t: 0\nvendor_id\t: {vendor}\n")
    assert prefers_onednn.__wrapped__() is expected


@has_onednn
def test_where_no_vendor_is_told_torchs_default_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_: object, **__: object) -> str:
        raise FileNotFoundError

    monkeypatch.setattr(Path, "read_text", missing)
    assert prefers_onednn.__wrapped__() is False
