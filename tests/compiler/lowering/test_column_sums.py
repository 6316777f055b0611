"""Sums over leading dimensions, on CPUs a product: equal to eager PyTorch, on one device and on eight."""

from __future__ import annotations

from typing import Any

import jax
import pytest
import torch
from compiler.step_check import check_step
from torch import nn

import systolic

SHAPES: dict[str, tuple[tuple[int, ...], tuple[int, ...], bool]] = {
    "one dimension": ((512, 64), (0,), True),
    "two": ((16, 128, 32), (0, 1), True),
    "three": ((8, 16, 16, 32), (0, 1, 2), True),
    "more than are added in turn": ((2048, 16), (0,), True),
    "a prime number": ((1009, 32), (0,), False),
    "of several kept": ((16, 64, 32), (0,), True),
    "counted from the end": ((16, 128, 32), (-3, -2), True),
    "few rows": ((4, 8192), (0,), False),
    "few elements": ((64, 16), (0,), False),
    "in the middle": ((16, 128, 32), (1,), False),
    "the last ones": ((16, 128, 32), (1, 2), False),
    "apart": ((16, 128, 32), (0, 2), False),
}


@pytest.mark.parametrize("keepdim", [False, True])
@pytest.mark.parametrize("name", SHAPES)
def test_sums_and_means(name: str, keepdim: bool) -> None:
    shape, dims, is_product = SHAPES[name]
    torch.manual_seed(0)
    x = torch.randn(shape, dtype=torch.float64, requires_grad=True)
    compiled = check_step(
        lambda x: (x.sum(dims, keepdim=keepdim), x.cos().mean(dims, keepdim=keepdim)), x, rtol=1e-12, atol=1e-12
    )
    assert ("stablehlo.dot_general" in compiled.stablehlo()) == is_product


def test_float32_is_as_exact_as_eager_pytorch() -> None:
    """A hundred thousand numbers that all have one sign."""
    torch.manual_seed(0)
    x = torch.rand(16, 80, 80, 4) + 1000
    exact = x.double().sum((0, 1, 2))
    found = systolic.jit(lambda x: x.sum((0, 1, 2)))(x).cpu().double()
    assert ((found - exact).abs() / exact).max() < 2e-6


def test_infinite_values_stay_in_their_column() -> None:
    x = torch.ones(64, 512)
    x[3, 5], x[4, 6] = float("inf"), float("nan")
    torch.testing.assert_close(systolic.jit(lambda x: x.sum(0))(x).cpu(), x.sum(0), equal_nan=True)


LAYERS: dict[str, tuple[Any, tuple[int, ...]]] = {
    "layer norm": (lambda: nn.LayerNorm(64), (16, 32, 64)),
    "RMS norm": (lambda: nn.RMSNorm(64), (16, 32, 64)),
    "batch norm": (lambda: nn.BatchNorm2d(32), (16, 32, 8, 8)),
    "convolution": (lambda: nn.Conv2d(8, 32, 3), (16, 8, 12, 12)),
    "linear": (lambda: nn.Linear(64, 64), (16, 32, 64)),
}


@pytest.mark.parametrize("devices", [1, 8])
@pytest.mark.parametrize("name", LAYERS)
def test_gradients_of_layers(name: str, devices: int) -> None:
    make, shape = LAYERS[name]
    torch.manual_seed(0)
    layer, x = make(), torch.randn(shape)
    if name == "batch norm" and devices > 1:
        layer = layer.eval()  # in training each device has statistics of its own

    def step(x: torch.Tensor) -> list[torch.Tensor]:
        return list(torch.autograd.grad(layer(x).square().sum(), list(layer.parameters())))

    found = systolic.jit(step, devices=jax.devices()[:devices])(x)
    for ours, theirs in zip(found, step(x), strict=True):
        torch.testing.assert_close(ours.cpu(), theirs, rtol=2e-5, atol=2e-3)


def test_batch_statistics_of_one_device_are_products() -> None:
    """Their array has the dimension that divides the batch over devices, of size 1."""
    compiled = systolic.jit(nn.Sequential(nn.Conv2d(3, 32, 1), nn.BatchNorm2d(32)))
    compiled(torch.randn(8, 3, 24, 24))
    assert "stablehlo.dot_general" in compiled.stablehlo()
