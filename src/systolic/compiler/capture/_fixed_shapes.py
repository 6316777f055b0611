"""XLA's shapes do not vary: a number that decides a shape is no variable of the program (`x[:n]`, `torch.zeros(n)`)."""

from __future__ import annotations

import torch
from torch import fx

from ...utilities._torch_internals import FakeTensor
from ._symbols import SymbolTable


def fix_shapes(graph: fx.Graph, table: SymbolTable) -> None:
    """Make plain every symbolic number that some tensor's shape depends on.

    Each one becomes a condition of the graph (`n == 5`), so that another value leads to another trace.
    """
    shaped = [node for node in graph.nodes if _symbolic_sizes(node.meta.get("val"), table)]
    for node in shaped:
        for size in _symbolic_sizes(node.meta["val"], table):
            int(size)  # adds the condition
    if not shaped:
        return
    for node in shaped:
        node.meta["val"] = _with_plain_sizes(node.meta["val"])
    for node in list(graph.nodes):
        number = _plain(node.meta.get("val"))
        if number is not None:
            _replace(node, number)


def _replace(node: fx.Node, number: int | float) -> None:
    for user in list(node.users):
        if user.op != "output":
            user.args = fx.map_arg(user.args, lambda n: number if n is node else n)
            user.kwargs = fx.map_arg(user.kwargs, lambda n: number if n is node else n)


def _symbolic_sizes(value: object, table: SymbolTable) -> list[torch.SymInt]:
    if not isinstance(value, torch.Tensor):
        return []
    return [size for size in value.shape if isinstance(size, torch.SymInt) and table.is_host_known(size)]


def _with_plain_sizes(value: FakeTensor) -> torch.Tensor:
    with value.fake_mode:
        return torch.empty_strided([int(n) for n in value.shape], [int(n) for n in value.stride()], dtype=value.dtype)


def _plain(value: object) -> int | float | None:
    """The value of a symbolic number that a condition has fixed."""
    if not isinstance(value, torch.SymInt | torch.SymFloat) or not value.node.expr.is_number:
        return None
    return int(value) if isinstance(value, torch.SymInt) else float(value)
