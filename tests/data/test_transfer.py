"""Copies from a device to the memory of the CPU."""

import pytest
import torch

from transformer_cli.data.transfer import on_host

NEEDS_GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


def test_what_is_on_the_host_is_not_copied() -> None:
    given = [torch.zeros(2), torch.ones(3, dtype=torch.bool)]
    assert all(one is other for one, other in zip(on_host(given), given, strict=True))


def test_an_empty_tensor_is_not_the_last() -> None:
    assert [x.numel() for x in on_host([torch.zeros(0), torch.zeros(1)])] == [0, 1]
    with pytest.raises(AssertionError, match="empty"):
        on_host([torch.zeros(1), torch.zeros(0)])


@pytest.mark.gpu
@NEEDS_GPU
def test_all_copies_are_there_when_the_last_one_is() -> None:
    for seed in range(20):
        torch.manual_seed(seed)
        x = torch.rand(2000, 2000, device="cuda")
        for _ in range(10):
            x = x @ x
            x = x / x.amax()
        given = [x, x.argmax(dim=1), x.amax()[None]]
        found = [copy.clone() for copy in on_host(given)]  # read at once
        assert all(copy.equal(one.cpu()) for copy, one in zip(found, given, strict=True))
