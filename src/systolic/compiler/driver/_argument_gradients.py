"""Gradients of a compiled function's arguments: further results of its program."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import torch

from ..capture import Slot

_HISTORY = (
    "A gradient reaches an argument of shape {} that eager PyTorch has computed of other tensors. Expected: a tensor without "
    "history, as gradients cannot go on from a compiled function to what is outside of it. Pass x.detach().requires_grad_() "
    "and read its .grad, or compute it inside of the function."
)
_TWICE = (
    "A tensor of shape {} that gets a gradient is an argument, and the function uses it from elsewhere, too: the two gradients "
    "would not be added up. Leave it out of the arguments."
)


class ArgumentGradients:
    """Gradients of those inputs of a call that require them.

    Args:
        inputs: tensors and arrays.

    Attributes:
        before: the gradients that are there already: further inputs.
        key: equal for calls of which the same inputs require gradients, and have them.
    """

    def __init__(self, inputs: Sequence[torch.Tensor | np.ndarray]) -> None:
        self._wanted = {number: one for number, one in enumerate(inputs) if isinstance(one, torch.Tensor) and one.requires_grad}
        there = {number: one.grad for number, one in self._wanted.items() if one.is_leaf and one.grad is not None}
        self._count, self._there, self.before = len(inputs), list(there), list(there.values())
        self.key = tuple((number, one.is_leaf, number in there) for number, one in self._wanted.items())
        # a trace takes tensors that it meets for parts of the state: what it asks of these is asked before
        self._computed = {number: tuple(one.shape) for number, one in self._wanted.items() if not one.is_leaf}

    def stand_ins(self, values: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """The inputs of the trace, of which some require gradients."""
        inputs, before = list(values[: self._count]), dict(zip(self._there, values[self._count :], strict=True))
        for number in self._wanted:
            inputs[number] = inputs[number].detach().requires_grad_()
            inputs[number].grad = before.get(number)
        return inputs

    def of(self, inputs: Sequence[torch.Tensor]) -> dict[int, torch.Tensor]:
        """The gradients that are there at the end of the trace.

        Raises:
            ValueError: one is of a tensor that was computed of others.
        """
        found: dict[int, torch.Tensor] = {}
        for number in self._wanted:
            if (grad := inputs[number].grad) is not None:
                if number in self._computed:
                    raise ValueError(_HISTORY.format(self._computed[number]))
                found[number] = grad
        return found

    def apply(self, found: dict[int, torch.Tensor], state: Iterable[Slot]) -> None:
        """Give the inputs their gradients.

        Raises:
            ValueError: an input is a part of the state, too, whose gradient is another one.
        """
        if not self._wanted:
            return
        parts = {id(slot.tensor) for slot in state}
        for number, one in self._wanted.items():
            if number in found and id(one) in parts:
                raise ValueError(_TWICE.format(tuple(one.shape)))
            if one.is_leaf:
                one.grad = found.get(number)
