"""Resizing, padding and sampling of images against eager PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from compiler.lowering.op_check import check_op

pytestmark = pytest.mark.thin(6, 4)

SHAPES = {1: (2, 3, 7), 2: (2, 3, 5, 6), 3: (1, 2, 3, 4, 5)}
MODES = {
    "nearest": (1, 2, 3),
    "nearest-exact": (1, 2, 3),
    "linear": (1,),
    "bilinear": (2,),
    "bicubic": (2,),
    "trilinear": (3,),
}
CASES = [(mode, dims) for mode, all_dims in MODES.items() for dims in all_dims]
SIZES: dict[str, Callable[[int], dict[str, Any]]] = {
    "twice": lambda dims: {"scale_factor": 2},
    "factor": lambda dims: {"scale_factor": 1.7},
    "shrink": lambda dims: {"scale_factor": 0.6},
    "size": lambda dims: {"size": (9, 4, 3)[:dims]},
    "recomputed": lambda dims: {"scale_factor": 1.7, "recompute_scale_factor": True},
}


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(("mode", "dims"), CASES)
def test_interpolate(mode: str, dims: int, size: str) -> None:
    torch.manual_seed(0)
    x = torch.randn(SHAPES[dims], requires_grad=True)
    # sixteen terms of either sign cancel in a bicubic sum: one rounding of a term of size one is 1e-7
    atol = 3e-6 if mode == "bicubic" else 1e-6
    check_op(lambda x: F.interpolate(x, mode=mode, **SIZES[size](dims)), x, atol=atol)
    if "linear" in mode or mode == "bicubic":
        check_op(lambda x: F.interpolate(x, mode=mode, align_corners=True, **SIZES[size](dims)), x, atol=atol)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
def test_antialias(mode: str, size: str) -> None:
    torch.manual_seed(0)
    x = torch.randn(SHAPES[2], requires_grad=True)
    check_op(lambda x: F.interpolate(x, mode=mode, antialias=True, **SIZES[size](2)), x)


@pytest.mark.parametrize("size", ["factor", "shrink", "size"])
@pytest.mark.parametrize(("mode", "dims"), CASES)
def test_float64_is_not_rounded_to_float32(mode: str, dims: int, size: str) -> None:
    torch.manual_seed(0)
    x = torch.randn(SHAPES[dims], dtype=torch.float64, requires_grad=True)
    check_op(lambda x: F.interpolate(x, mode=mode, **SIZES[size](dims)), x, rtol=1e-12, atol=1e-12)
    if "linear" in mode or mode == "bicubic":
        check_op(lambda x: F.interpolate(x, mode=mode, align_corners=True, **SIZES[size](dims)), x, rtol=1e-12, atol=1e-12)
    if mode in ("bilinear", "bicubic"):
        check_op(lambda x: F.interpolate(x, mode=mode, antialias=True, **SIZES[size](dims)), x, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("mode", ["nearest", "bilinear"])
def test_bfloat16(mode: str) -> None:
    x = torch.randn(SHAPES[2]).to(torch.bfloat16).requires_grad_()
    check_op(lambda x: F.interpolate(x, mode=mode, scale_factor=2), x, rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("mode", ["reflect", "replicate", "circular"])
@pytest.mark.parametrize(
    ("shape", "padding"),
    [((2, 3, 7), (2, 1)), ((2, 3, 5, 6), (1, 0, 2, 3)), ((1, 2, 3, 4, 5), (1, 2, 3, 1, 2, 0)), ((3, 7), (0, 4))],
)
def test_pad(shape: tuple[int, ...], padding: tuple[int, ...], mode: str) -> None:
    check_op(lambda x: F.pad(x, padding, mode), torch.randn(shape, requires_grad=True))


def test_negative_padding() -> None:
    check_op(lambda x: F.pad(x, (-1, 2), "replicate"), torch.randn(2, 3, 6, requires_grad=True))


REARRANGED: dict[str, tuple[Callable[..., Any], tuple[int, ...]]] = {
    "pixel_shuffle": (lambda x: F.pixel_shuffle(x, 2), (2, 12, 3, 4)),
    "pixel_unshuffle": (lambda x: F.pixel_unshuffle(x, 2), (2, 3, 4, 6)),
    "channel_shuffle": (lambda x: F.channel_shuffle(x, 3), (2, 6, 4, 5)),
    "unfold": (lambda x: F.unfold(x, (2, 3), (2, 1), (1, 0), (1, 2)), (2, 3, 6, 7)),
    "unfold_unbatched": (lambda x: F.unfold(x, 2), (3, 6, 7)),
    "fold": (lambda x: F.fold(x, (5, 6), (2, 3), (2, 1), 1, (1, 2)), (2, 18, 15)),
}


@pytest.mark.parametrize("case", REARRANGED)
def test_rearranged(case: str) -> None:
    function, shape = REARRANGED[case]
    check_op(function, torch.randn(shape, requires_grad=True))


@pytest.mark.parametrize("align", [True, False])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize(("mode", "dims"), [("bilinear", 2), ("nearest", 2), ("bicubic", 2), ("bilinear", 3), ("nearest", 3)])
def test_grid_sample(mode: str, dims: int, padding: str, align: bool) -> None:
    torch.manual_seed(0)
    x = torch.randn(SHAPES[dims], requires_grad=True)
    places = torch.rand(SHAPES[dims][0], *(4, 3, 2)[:dims], dims) * 3 - 1.5
    check_op(lambda x, g: F.grid_sample(x, g, mode, padding, align), x, places.requires_grad_(), atol=1e-5)


@pytest.mark.parametrize("align", [True, False])
@pytest.mark.parametrize("dims", [2, 3])
def test_affine_grid(dims: int, align: bool) -> None:
    size = (2, 3, 4, 5, 2)[: dims + 2]
    theta = torch.randn(2, dims, dims + 1, requires_grad=True)
    check_op(lambda t: F.affine_grid(t, size, align_corners=align), theta, atol=1e-5)
