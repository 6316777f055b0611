"""Elements that a mask of the first ones selects are slices in the program, not gathers."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch.nn.functional import cross_entropy

import systolic
from systolic.compiler.passes import with_prefixes_as_slices

aten = torch.ops.aten
T = torch.Tensor

PREFIXES: dict[str, Callable[[T, T], T]] = {
    "a slice": lambda x, n: x[:, : n.max()].square().mean(),
    "of the first dimension": lambda x, n: x[: n[0]].mean(),
    "of each": lambda x, n: torch.stack([x[i, :k].mean() for i, k in enumerate(n.tolist())]).sum(),
    "from the end": lambda x, n: x[:, : -n[1]].sum(),
    "a mask": lambda x, n: x[:, torch.arange(6) < n[2]].mean(),
    "twice": lambda x, n: cross_entropy(x[:, : n.max()].flatten(0, 1), x[:, : n.max()].flatten(0, 1).argmax(1)),
}
OTHERS: dict[str, Callable[[T, T], T]] = {
    "from a value": lambda x, n: x[:, n[0] :].mean(),
    "between values": lambda x, n: x[:, n[0] - 1 : n[0] + n[1]].mean(),
    "of several dimensions": lambda x, n: x[torch.arange(6)[:, None] < n].mean(),
    "a mask of the last ones": lambda x, n: x[:, torch.arange(6) >= n[2]].mean(),
}
_BY_POSITIONS = (aten.nonzero_static.default, aten.index.Tensor, aten.index_put.default, aten.masked_scatter.default)


def targets(body: Callable[[T, T], T]) -> list[set[object]]:
    """The ops of each program's graph, after gradients and a few lengths that are equal to eager PyTorch."""

    def loss(weight: T, x: T, n: T) -> tuple[T, T]:
        weight = weight.detach().requires_grad_()
        value = body(x * weight, n)
        return value.detach(), torch.autograd.grad(value, weight)[0]

    step = systolic.jit(loss)
    for lengths in ((2, 3, 4, 1, 2, 3), (3, 2, 5, 2, 2, 2), (1, 2, 3, 4, 4, 2), (4, 1, 2, 3, 1, 1)):
        given = torch.ones((), dtype=torch.float64), torch.randn(6, 6, 5, dtype=torch.float64), torch.tensor(lengths)
        for mine, theirs in zip(step(*given), loss(*given), strict=True):
            torch.testing.assert_close(mine, theirs)
    graphs = [entry.program.captured.graph for entry in step._engine._entries]
    return [{node.target for node in with_prefixes_as_slices(graph).nodes} for graph in graphs]


@pytest.mark.parametrize("name", PREFIXES)
def test_prefixes_are_slices(name: str) -> None:
    for ops in targets(PREFIXES[name]):
        assert not ops & set(_BY_POSITIONS)
        assert aten.slice.Tensor in ops


@pytest.mark.parametrize("name", OTHERS)
def test_what_is_no_prefix_stays(name: str) -> None:
    assert any(aten.nonzero_static.default in ops for ops in targets(OTHERS[name]))


def test_a_graph_without_them_is_left_alone() -> None:
    step = systolic.jit(lambda x: x[:, :3].sum())
    step(torch.randn(4, 5))
    (entry,) = step._engine._entries
    assert with_prefixes_as_slices(entry.program.captured.graph) is entry.program.captured.graph
