"""Functions and methods of NumPy in compiled steps: ops of the program where PyTorch knows them, else called on the host."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import systolic
from systolic.compiler import DataDependentError

Function = Callable[[Any], Any]


def _written(write: Callable[[Any, Any], object]) -> Function:
    """What an array holds after something was written to it."""

    def function(a: Any) -> Any:
        own, other = a * 2, a * 3
        write(own, other)
        return own

    return function


def _in_place_of(own: Any, other: Any) -> None:
    own[own > 1] = 7


FUNCTIONS: dict[str, Function] = {
    "a dtype of a sum": lambda a: np.sum(a, axis=0, dtype=np.float64),
    "a sum where": lambda a: np.sum(a, axis=0, where=a > 0),
    "a product where": lambda a: np.prod(a, axis=0, where=np.eye(3, dtype=bool)),
    "a first value": lambda a: np.max(a, axis=0, initial=0.5),
    "a stable order": lambda a: np.argsort(a.round(), axis=0, kind="stable"),
    "pairs": lambda a: np.subtract.outer(a[0], a[1]),
    "running maxima": lambda a: np.maximum.accumulate(a, axis=0),
    "sums of pieces": lambda a: np.add.reduceat(a, [0, 2], axis=0),
    "a histogram": lambda a: np.histogram(a, bins=4)[0],
    "counts": lambda a: np.bincount(np.abs(a).astype(int).ravel(), minlength=9),
    "digitize": lambda a: np.digitize(a, [-1.0, 0.0, 1.0]),
    "interp": lambda a: np.interp(a, [-1.0, 1.0], [0.0, 3.0]),
    "a percentile": lambda a: np.percentile(a, 30, axis=0),
    "searchsorted": lambda a: np.searchsorted(np.sort(a.ravel()), [0.0, 1.0]),
    "cov": lambda a: np.cov(a),
    "corrcoef": lambda a: np.corrcoef(a),
    "a norm by name": lambda a: a * np.linalg.norm(a, "nuc"),
    "reflected": lambda a: np.pad(a, 1, mode="reflect"),
    "gradient": lambda a: np.gradient(a, axis=0),
    "numbers of the unique": lambda a: np.unique(a.round(), return_inverse=True)[1].reshape(-1),
    "isin": lambda a: np.isin(a.round(), [0.0, 1.0]),
    "piecewise": lambda a: np.piecewise(a, [a < 0, a >= 0], [lambda v: -v, lambda v: v]),
    "along an axis": lambda a: np.apply_along_axis(lambda row: row - row.mean(), 1, a),
    "trapezoid": lambda a: np.trapezoid(a, axis=0),
    "an average": lambda a: np.average(a, axis=0, weights=[1.0, 2.0, 3.0]),
    "polyfit": lambda a: np.polyfit(a[0], a[1], 1),
    "a spectrum": lambda a: np.abs(np.fft.rfft(a)),
    "a transform": lambda a: np.fft.fft2(a).real,
    "columns first": lambda a: a.reshape((1, 9), order="F"),
    "flat columns": lambda a: a.flatten("F"),
    "argpartition": lambda a: np.sort(a.argpartition(1, axis=0)[:1], axis=0),
    "compress": lambda a: a.compress([True, False, True], axis=0),
    "a result into": _written(lambda own, other: np.add(own, 1, out=own)),
    "a result into, by place": _written(lambda own, other: np.add(own, other, own)),
    "two results into": _written(lambda own, other: np.divmod(other, 2.0, out=(own, other))),
    "a sum into": _written(lambda own, other: np.sum(other, axis=0, out=own[0])),
    "put": _written(lambda own, other: np.put(own, [0, 1], [5, 6])),
    "put along": _written(lambda own, other: np.put_along_axis(own, np.array([[0], [1], [2]]), 9.0, 1)),
    "a diagonal": _written(lambda own, other: np.fill_diagonal(own, 0.0)),
    "copyto": _written(lambda own, other: np.copyto(own, other)),
    "sort": _written(lambda own, other: own.sort(axis=0)),
    "fill": _written(lambda own, other: own.fill(3.0)),
    "an index": _written(_in_place_of),
}


@pytest.mark.thin(5, 2)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_give_what_numpy_gives(name: str) -> None:
    generator = torch.Generator().manual_seed(3)
    compiled: Any = systolic.jit(lambda x: torch.as_tensor(FUNCTIONS[name](x.numpy())))
    for _ in range(3):
        x = torch.randn(3, 3, generator=generator)
        wanted = torch.as_tensor(np.array(FUNCTIONS[name](x.numpy().copy())))
        torch.testing.assert_close(compiled(x).cpu(), wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("name", "write"),
    [
        ("place", lambda own, other: np.place(own, own > 1, [7])),
        ("at", lambda own, other: np.add.at(own, [0, 0], 1)),
        ("partition", lambda own, other: own.partition(1, axis=0)),
        ("reduce", lambda own, other: np.add.reduce(other, axis=0, out=own[0])),
        ("add", lambda own, other: np.add(own, other, where=own > 0, out=own)),
    ],
)
def test_what_writes_on_the_host_alone_is_refused(name: str, write: Any) -> None:
    with pytest.raises(DataDependentError, match=rf"The step has numpy\.{name} write to an array(.|\n)*in <lambda>"):
        systolic.jit(lambda x: torch.from_numpy(_written(write)(x.numpy())))(torch.randn(3, 3))
