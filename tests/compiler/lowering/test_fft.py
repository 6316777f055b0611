"""Fourier transforms against eager PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from compiler.lowering.op_check import check_op

REAL: dict[str, Callable[..., Any]] = {
    "fft": lambda x: torch.fft.fft(x),
    "fft_padded": lambda x: torch.fft.fft(x, n=9, norm="ortho"),
    "rfft": lambda x: torch.fft.rfft(x, dim=1, norm="forward"),
    "rfftn": lambda x: torch.fft.rfftn(x),
    "ihfft": lambda x: torch.fft.ihfft(x),
    "round_trip": lambda x: torch.fft.irfft2(torch.fft.rfft2(x), s=x.shape[-2:]),
}
COMPLEX: dict[str, Callable[..., Any]] = {
    "fft": lambda x: torch.fft.fft(x, dim=0),
    "ifft": lambda x: torch.fft.ifft(x, norm="ortho"),
    "fftn": lambda x: torch.fft.fftn(x),
    "ifft2": lambda x: torch.fft.ifft2(x),
    "irfft": lambda x: torch.fft.irfft(x),
    "irfft_odd": lambda x: torch.fft.irfft(x, n=7, norm="forward"),
    "irfftn": lambda x: torch.fft.irfftn(x),
}


def parts(out: torch.Tensor) -> Any:
    return torch.view_as_real(out.resolve_conj()) if out.is_complex() else out


@pytest.mark.parametrize("case", REAL)
def test_real(case: str) -> None:
    torch.manual_seed(0)
    check_op(lambda x: parts(REAL[case](x)), torch.randn(3, 4, 6, requires_grad=True), atol=1e-5)


@pytest.mark.parametrize("case", COMPLEX)
def test_complex(case: str) -> None:
    torch.manual_seed(0)
    x = torch.randn(3, 4, 6, 2, requires_grad=True)
    check_op(lambda x: parts(COMPLEX[case](torch.view_as_complex(x))), x, atol=1e-5)
