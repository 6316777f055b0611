"""Lookups with `sparse=True` in a step: their gradients are dense here, and which rows they have is noted.

Optimizers that add up gradients cannot tell the difference. `SparseAdam` can: it leaves alone the moments of rows that were not
looked up, and moves those that were looked up even where their gradient is zero.
"""

from __future__ import annotations

import contextlib
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from inspect import signature

import torch
from torch.nn import functional

from ...utilities._torch_internals import (
    FunctionalTensor,
    backward_number,
    is_functorch_tensor,
    sparse_adam,
    sparse_adam_functions,
)
from .._capture_thread import replaced
from .._errors import CaptureError, user_line_of

_signature = cache(signature)


@dataclass
class _Reached:
    """The rows of a table that are in its gradient: indices, and which of them stands for nothing.

    Attributes:
        table: the parameter; kept, because it is known by its identity.
        backward: PyTorch's number of the last backward pass that added to the gradient.
        earlier: whether the gradient was there before the step.
        rows: of each lookup, in any order.
    """

    table: torch.Tensor
    backward: int
    earlier: bool
    rows: list[tuple[torch.Tensor, int | None]] = field(default_factory=list)


class _Lookups:
    """The rows that a step looks up in tables with `sparse=True`, by table."""

    def __init__(self) -> None:
        self._reached: dict[int, _Reached] = {}

    def called(self, original: Callable[..., torch.Tensor], *args: object, **kwargs: object) -> torch.Tensor:
        """Stands in for `F.embedding` and `F.embedding_bag`."""
        given = _signature(original).bind(*args, **kwargs)
        if not given.arguments.pop("sparse", False):
            return original(*args, **kwargs)
        result = original(**given.arguments)
        index, table, padding = (given.arguments.get(name) for name in ("input", "weight", "padding_idx"))
        assert isinstance(index, torch.Tensor)
        assert isinstance(table, torch.Tensor)
        if result.requires_grad and not is_functorch_tensor(result):
            place = padding if isinstance(padding, int) else None
            result.register_hook(partial(self._note, table, index, None if place is None else place % len(table)))
        return result

    def _note(self, table: torch.Tensor, index: torch.Tensor, padding: int | None, gradient: torch.Tensor) -> None:
        """A backward pass has come to a lookup: one that finds no gradient in the table begins a new one."""
        known, backward = self._reached.get(id(table)), backward_number()
        if known is None or (table.grad is None and known.backward != backward):
            known = self._reached[id(table)] = _Reached(table, backward, table.grad is not None)
        known.backward = backward
        known.rows.append((index, padding))

    def rows(self, table: torch.Tensor) -> torch.Tensor:
        """The rows of a table that its gradient has: a bool for each, with dimensions of one behind."""
        known = self._reached.get(id(table))
        if known is None:
            raise RuntimeError(
                "SparseAdam does not support dense gradients, please consider Adam instead: a parameter of shape "
                f"{tuple(table.shape)} was not looked up by an embedding with sparse=True."
            )
        if known.earlier:
            raise CaptureError(
                "SparseAdam updates the rows that were looked up since the gradient was None, and this step adds to a gradient "
                f"of earlier steps, of which the compiled program does not know the rows.\n  used at {user_line_of()}\n"
                "Options: accumulate_grad_batches=1, and optimizer.zero_grad() before each backward pass; torch.optim.Adam; "
                "or run in eager PyTorch with Trainer(compile=False)."
            )
        found = torch.zeros(len(table), dtype=torch.bool)
        for index, padding in known.rows:
            one = torch.zeros(len(table), dtype=torch.bool)
            one[index.reshape(-1)] = True
            if padding is not None:
                one[padding] = False
            found = found | one
        return found.view(-1, *[1] * (table.dim() - 1))

    def update(
        self,
        params: Sequence[torch.Tensor],
        grads: Sequence[torch.Tensor],
        exp_avgs: Sequence[torch.Tensor],
        exp_avg_sqs: Sequence[torch.Tensor],
        state_steps: Sequence[int],
        *,
        eps: float,
        beta1: float,
        beta2: float,
        lr: float,
        maximize: bool,
    ) -> None:
        """Stands in for the computation of `torch.optim.SparseAdam`, and rounds as it does (torch/optim/_functional.py)."""
        for param, grad, first, second, step in zip(params, grads, exp_avgs, exp_avg_sqs, state_steps, strict=True):
            rows = self.rows(param)
            values = -grad if maximize else grad
            change, change_of_squares = (values - first) * (1 - beta1), (values.pow(2) - second) * (1 - beta2)
            step_size = lr * math.sqrt(1 - beta2**step) / (1 - beta1**step)
            moved = -step_size * ((change + first) / ((change_of_squares + second).sqrt() + eps))
            for tensor, added in ((first, change), (second, change_of_squares), (param, moved)):
                tensor.add_(torch.where(rows, added, 0.0))


def _is_sparse(gradient: torch.Tensor) -> bool:
    """Whether to call a traced gradient sparse: to `SparseAdam`, which asks before it computes."""
    return sys._getframe(1).f_code.co_filename == sparse_adam.__file__


@contextlib.contextmanager
def _asked_by_sparse_adam() -> Iterator[None]:
    before = vars(FunctionalTensor).get("is_sparse")  # of a trace around this one
    FunctionalTensor.is_sparse = property(_is_sparse)  # type: ignore[misc]
    try:
        yield
    finally:
        if before is None:
            del FunctionalTensor.is_sparse
        else:
            FunctionalTensor.is_sparse = before


@contextlib.contextmanager
def noting_looked_up_rows() -> Iterator[None]:
    """Inside the block, tables with `sparse=True` have dense gradients, and `SparseAdam` knows their rows."""
    lookups = _Lookups()
    with contextlib.ExitStack() as stack:
        for name in ("embedding", "embedding_bag"):
            stack.enter_context(replaced(functional, name, partial(lookups.called, getattr(functional, name))))
        stack.enter_context(replaced(sparse_adam_functions, "sparse_adam", lookups.update))
        stack.enter_context(_asked_by_sparse_adam())
        yield
