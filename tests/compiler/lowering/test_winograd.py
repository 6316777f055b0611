"""3 x 3 convolutions by sums of tiles, against eager PyTorch; that they are computed so is seen in the program."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from program_text import optimized_programs

import systolic as L

Size = int | tuple[int, int]

PLACES = 16
OF_EACH = {
    # batch, in, out, height and width, padding; whether image and weight have their gradients by sums, too
    "one tile after the other": ((32, 128, 128, (16, 16), 1), 3),
    "few channels, whose weight's gradient is an ordinary one": ((32, 64, 64, (16, 16), 1), 2),
    "odd sizes": ((16, 128, 256, (9, 11), 0), 3),
    "more zeros than the kernel reaches": ((16, 64, 192, (7, 12), 2), 2),
    "one padding a dimension": ((32, 128, 128, (8, 7), (1, 0)), 3),
    "more channels than tiles": ((32, 256, 512, (4, 4), 1), 3),
}
ORDINARY = {
    "a stride": ((32, 128, 128, (16, 16), 1), {"stride": 2}),
    "a dilation": ((32, 128, 128, (16, 16), 1), {"dilation": 2}),
    "groups": ((32, 128, 256, (16, 16), 1), {"groups": 2}),
    "sizes of which tiles cover much for nothing": ((64, 256, 256, (3, 3), 1), {}),
    "too little to multiply": ((4, 64, 64, (16, 16), 1), {}),
    "more padding than a kernel": ((32, 128, 128, (8, 8), 3), {}),
}


def operands(batch: int, channels: int, out: int, size: tuple[int, int], groups: int = 1) -> list[torch.Tensor]:
    return [torch.randn(batch, channels, *size), torch.randn(out, channels // groups, 3, 3) / 30, torch.randn(out)]


def results(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, **options: Size) -> tuple[torch.Tensor, ...]:
    given = [each.detach().requires_grad_() for each in (x, weight, bias)]
    out = F.conv2d(*given, **options)
    return out, *torch.autograd.grad((out * out.detach().cos()).sum(), given)


@pytest.mark.parametrize("case", OF_EACH)
def test_results_and_gradients_equal_eager_ones(case: str) -> None:
    """Within the error of the sums: relative to the largest element, as float32's own convolutions differ by 2e-6, too."""
    (*sizes, padding), by_sums = OF_EACH[case]
    given = operands(*sizes)
    exact = results(*(each.double() for each in given), padding=padding)
    with optimized_programs() as texts:
        got = L.jit(results)(*given, padding=padding)
    assert max(text.count(" dot(") for text in texts) // PLACES == by_sums  # the bias has one or two of its own
    for ours, wanted in zip((each.detach() for each in got), (each.detach() for each in exact), strict=True):
        assert ours.shape == wanted.shape
        assert float((ours.double() - wanted).abs().max() / wanted.abs().max()) < 4e-6


@pytest.mark.parametrize("case", ORDINARY)
def test_others_stay_as_they_are(case: str) -> None:
    (*sizes, padding), options = ORDINARY[case]
    given = operands(*sizes, groups=options.get("groups", 1))
    expected = F.conv2d(*given, padding=padding, **options)
    with optimized_programs() as texts:
        got = L.jit(F.conv2d)(*given, padding=padding, **options)
    assert max(text.count(" dot(") for text in texts) < PLACES
    torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-4)


def test_float64_and_bfloat16_stay_as_they_are() -> None:
    for dtype in (torch.float64, torch.bfloat16):
        given = [each.to(dtype) for each in operands(32, 128, 128, (8, 8))]
        with optimized_programs() as texts:
            L.jit(F.conv2d)(*given, padding=1)
        assert max(text.count(" dot(") for text in texts) < PLACES, dtype
