"""Arguments and numbers of one call, as the engine compares and traces them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
import torch

from ...runtime import to_host_array, to_torch_tensor, torch_dtype
from ..capture import AnyDraw, Guards, Number, StepDraws
from ._recompilation import Signature

Rebuild = Callable[[list[Any]], tuple[Any, ...]]
"""Makes the positional arguments of a step from a list of tensors."""


def signature_of(leaves: Sequence[Any], structure: object) -> Signature:
    """Equal for calls whose arguments differ in the values of tensors only."""
    return structure, tuple([(leaf.shape, leaf.dtype) for leaf in leaves])


class Kind:
    """Shape and dtype of an array in PyTorch's terms."""

    def __init__(self, array: jax.Array | np.ndarray) -> None:
        self.shape = array.shape
        self.dtype = torch_dtype(array.dtype)


def values_of(leaves: Sequence[Any]) -> Callable[[], list[torch.Tensor]]:
    """A function that fetches the arguments' values; all processes call it, where parts of them lie with others."""
    # host sync: where a step asks for a value while it is traced
    on_host = lambda leaf: to_host_array(leaf) if isinstance(leaf, jax.Array) else leaf  # noqa: E731
    return lambda: [to_torch_tensor(np.array(on_host(leaf))) for leaf in leaves]


def values_or_none(guards: Guards) -> list[Number] | None:
    """The numbers that a graph takes as inputs; None where one of them is gone."""
    try:
        return guards.variable_values()
    except (KeyError, IndexError):  # the container lost the number: the graph is not valid any more
        return None


def fits(check: Callable[[list[Number]], bool], values: list[Number]) -> bool:
    """Whether guards hold for these numbers."""
    try:
        return check(values)
    except (KeyError, IndexError):  # an attribute was deleted
        return False


def decides_otherwise(guards: Guards, draws: Sequence[AnyDraw], numbers: Sequence[Number]) -> str:
    """The line of the user's code that goes another way in this step than in that of a program, as a reason to trace it.

    Args:
        guards: the program's.
        draws: the numbers that it draws and looks up.
        numbers: those that the step is given.
    """
    values, drawn = [*numbers, *(values_or_none(guards) or ())], StepDraws()
    try:
        line = guards.line_of_failure([*values, *drawn.of(draws, values)])
    except IndexError:  # a number is gone, or is to be looked up where there is none
        line = None
    drawn.take_back()
    return f"a number decides otherwise at {line}" if line else "a condition on a number changed"
