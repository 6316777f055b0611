"""Optimizer wrapper that `self.optimizers()` gives in manual optimization."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from torch.optim import Optimizer


class LightningOptimizer:
    """A torch optimizer that tells the trainer of its steps; every other attribute is the optimizer's.

    `isinstance` takes it for one of the optimizer's class, too.

    Args:
        optimizer: the torch optimizer.
        on_step: called after each of its steps; None for nobody.
    """

    def __init__(self, optimizer: Optimizer, on_step: Callable[[], None] | None = None) -> None:
        self._optimizer = optimizer
        # Lightning's names: who gives one of several optimizers others within a step has its steps not counted
        self._on_before_step: Callable[[], object] = _nothing
        self._on_after_step: Callable[[], object] = _nothing if on_step is None else on_step

    @property
    def optimizer(self) -> Optimizer:
        """The torch optimizer."""
        return self._optimizer

    def step(self, closure: Callable[[], Any] | None = None, **kwargs: Any) -> Any:
        """Step the optimizer and count the step."""
        self._on_before_step()
        result = self._optimizer.step(closure=closure, **kwargs) if closure is not None else self._optimizer.step(**kwargs)
        self._on_after_step()
        return result

    @contextlib.contextmanager
    def toggle_model(self, sync_grad: bool = True) -> Iterator[None]:
        """There is nothing to synchronise: one program computes the global gradient."""
        del sync_grad
        yield

    def __getattribute__(self, name: str) -> Any:
        if name == "__class__":  # what isinstance asks, besides the type
            return type(object.__getattribute__(self, "_optimizer"))
        return object.__getattribute__(self, name)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._optimizer, name)

    def __repr__(self) -> str:
        return f"Lightning{self._optimizer!r}"


def _nothing() -> None:
    return None
