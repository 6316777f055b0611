"""`torch.linalg.lstsq` in a compiled step, against eager PyTorch."""

from __future__ import annotations

import pytest
import torch
from compiler.step_check import check_step

import systolic

SHAPES = {
    "more equations": ((5, 3), (5, 2)),
    "more unknowns": ((3, 5), (3, 2)),
    "several": ((2, 5, 3), (2, 5, 2)),
    "one side": ((5, 3), (5,)),
    "square": ((3, 3), (3, 2)),
}


def _problem(name: str) -> tuple[torch.Tensor, torch.Tensor]:
    draw = torch.Generator().manual_seed(1)
    a, b = (torch.randn(shape, generator=draw) for shape in SHAPES[name])
    return a.requires_grad_(), b.requires_grad_()


@pytest.mark.parametrize("driver", [None, "gelsy", "gels"])
@pytest.mark.parametrize("name", SHAPES)
def test_solutions_and_gradients(name: str, driver: str | None) -> None:
    check_step(lambda a, b: torch.linalg.lstsq(a, b, driver=driver), *_problem(name), rtol=1e-4, atol=1e-5)


def test_the_solution_of_least_norm() -> None:
    a, b = _problem("more equations")
    check_step(lambda a, b: torch.linalg.lstsq(a @ a.new_ones(3, 3), b), a.detach(), b, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("options", [{"driver": "gelsd"}, {"rcond": 0.5}], ids=str)
def test_what_depends_on_ranks_is_refused(options: dict[str, object]) -> None:
    with pytest.raises(systolic.UnsupportedOpError, match="lstsq"):
        systolic.jit(lambda a, b: list(torch.linalg.lstsq(a, b, **options)))(*(x.detach() for x in _problem("square")))  # pyright: ignore[reportArgumentType]
