"""PyTorch's control flow functions (`torch.cond`, `while_loop`, `scan`, `map`), as plain Python: their own want Dynamo."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch

from ...utilities._torch_internals import control_flow, tree_flatten, tree_leaves, tree_map, tree_unflatten
from .._capture_thread import replaced_everywhere
from ._associative_scan import associative_scan


def cond(pred: Any, true_fn: Callable[..., Any], false_fn: Callable[..., Any], operands: Any = ()) -> Any:
    """PyTorch's function of this name. A condition that is a value decides the way of the step, as with an `if`.

    Args:
        pred: a bool, or a tensor with one element.
        true_fn: what is called if it holds.
        false_fn: what is called if not.
        operands: their arguments.
    """
    return true_fn(*operands) if pred else false_fn(*operands)


def while_loop(cond_fn: Callable[..., Any], body_fn: Callable[..., Any], carried_inputs: Any) -> Any:
    """PyTorch's function of this name. How often the loop runs decides the way of the step, as with a `while`.

    Args:
        cond_fn: takes what is carried; says whether there is another round.
        body_fn: takes what is carried, and gives it for the next round.
        carried_inputs: a tuple of tensors and numbers, in any pytree.
    """
    carried = carried_inputs
    while cond_fn(*carried):
        carried = body_fn(*carried)
    return carried


def scan(combine_fn: Callable[..., Any], init: Any, xs: Any, *, dim: int = 0, reverse: bool = False) -> tuple[Any, Any]:
    """PyTorch's function of this name.

    Args:
        combine_fn: takes what is carried and a slice of `xs`; gives what is carried on, and a result.
        init: what is carried into the first slice, in any pytree.
        xs: tensors, in any pytree.
        dim: the dimension to scan over.
        reverse: whether to begin at the end.

    Returns:
        What is carried out of the last slice, and the results along dimension `dim`.
    """
    leaves, spec = tree_flatten(xs)
    if not leaves:
        return init, []
    slices = list(zip(*[leaf.unbind(dim) for leaf in leaves], strict=True))
    carry, results = init, []
    for one in reversed(slices) if reverse else slices:
        carry, result = combine_fn(carry, tree_unflatten(list(one), spec))
        results.append(result)
    return carry, _stacked(results[::-1] if reverse else results, dim % leaves[0].ndim)


def map_rows(f: Callable[..., Any], xs: Any, *args: Any) -> Any:
    """PyTorch's `map`.

    Args:
        f: takes a row of `xs`, and `args`.
        xs: tensors, in any pytree, with rows along their first dimension.
        args: what each call gets besides.
    """
    leaves, spec = tree_flatten(xs)
    rows = zip(*[leaf.unbind(0) for leaf in leaves], strict=True)
    return _stacked([f(tree_unflatten(list(row), spec), *args) for row in rows], 0)


def _stacked(results: list[Any], dim: int) -> Any:
    """Tensors of each round, along a dimension; the first where they have too few."""
    spec = tree_flatten(results[0])[1]
    columns = zip(*[tree_leaves(result) for result in results], strict=True)
    whole = tree_unflatten([torch.stack(column) for column in columns], spec)
    return tree_map(lambda leaf: leaf.movedim(0, dim) if dim < leaf.ndim else leaf, whole)


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "associative_scan": associative_scan,
    "cond": cond,
    "map": map_rows,
    "scan": scan,
    "while_loop": while_loop,
}


@contextlib.contextmanager
def control_flow_in_python() -> Iterator[None]:
    """Inside the block, whoever calls PyTorch's functions gets these."""
    with replaced_everywhere(*[(control_flow[name], name, function) for name, function in _FUNCTIONS.items()]):
        yield
