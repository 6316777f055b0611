"""Functions on the tensors of a run that run between its steps, each as one program on its devices."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import torch

from ..compiler import Compile, JitFunction

if TYPE_CHECKING:
    from ._run import Run


Like = tuple[Sequence[torch.Tensor], Sequence[torch.Tensor]]
"""Tensors, and for each another one; the lists are looked at whenever the program runs."""


class StateProgram:
    """A function that changes tensors between steps.

    Args:
        run: the run whose steps use the tensors.
        function: takes and returns nothing; in eager mode it is called as it is.
        like: tensors of the function, and for each the tensor of the module that it lies like; None for none.
    """

    def __init__(self, run: Run, function: Callable[[], None], like: Like | None = None) -> None:
        functools.update_wrapper(self, function)
        self._run, self._like = run, like
        self._placement = None if run.placement is None else run.placement.as_state_lies()
        self._compiled = None if self._placement is None else JitFunction(function, self._placement, gradients=False)
        self._call = torch.no_grad()(function) if self._compiled is None else self._compiled

    def __call__(self) -> None:
        """Run it, after the steps that wait."""
        for engine in self._run.engines.values():
            engine.flush()
        if self._placement is not None and self._like is not None:
            self._placement.place_like(*self._like)
        self._call()

    @property
    def compiles(self) -> list[Compile]:
        """Every compilation so far."""
        return [] if self._compiled is None else self._compiled.compiles

    def release(self) -> None:
        """Give the function's objects ordinary CPU tensors again."""
        if self._compiled is not None:
            self._compiled.release()
