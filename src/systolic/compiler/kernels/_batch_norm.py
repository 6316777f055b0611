"""Batch normalisation as steps call it: over parts of the batch, and with running means over all batches (`momentum=None`)."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator
from contextvars import ContextVar

import torch
from torch.nn import functional

from ...utilities._torch_internals import _BatchNorm

Forward = Callable[[_BatchNorm, torch.Tensor], torch.Tensor]
_parts: ContextVar[int] = ContextVar("systolic_batch_norm_parts", default=1)
_batch_norm = functional.batch_norm


@contextlib.contextmanager
def normalising_parts(parts: int) -> Iterator[None]:
    """Inside the block batches are normalised in parts.

    Args:
        parts: how many a batch has, one for each core; 1 where it is normalised as a whole.
    """
    before = _parts.set(parts)
    try:
        yield
    finally:
        _parts.reset(before)


def batch_norm(
    input: torch.Tensor,
    running_mean: torch.Tensor | None,
    running_var: torch.Tensor | None,
    weight: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> torch.Tensor:
    """`torch.nn.functional.batch_norm`, which refuses one value per channel on each core.

    PyTorch's own sees the batch of all cores, where there are more.

    Raises:
        ValueError: a core has one value per channel.
    """
    parts, batch = _parts.get(), input.shape[0]
    if training and batch == parts > 1 and math.prod(input.shape[2:]) == 1:
        raise ValueError(
            "Batch normalisation expected more than 1 value per channel on each core when training. Received: an input of "
            f"shape {tuple(input.shape)}, of which each of {parts} cores has 1 row. Use two rows a core or more "
            "(`drop_last=True` where only the last batch is as short), or Trainer(sync_batchnorm=True), which normalises over "
            "the whole batch."
        )
    return _batch_norm(input, running_mean, running_var, weight, bias, training, momentum, eps)


def averaging_all_batches(original: Forward) -> Forward:
    """A module's forward, which keeps the number of batches on the devices where the original asks for it on the host.

    Args:
        original: PyTorch's forward, which does all else.
    """

    def forward(self: _BatchNorm, input: torch.Tensor) -> torch.Tensor:
        if self.momentum is not None or not self.training or self.running_mean is None or self.num_batches_tracked is None:
            return original(self, input)
        assert self.running_var is not None, "mean and variance are kept together"
        self._check_input_dim(input)
        running = (self.running_mean, self.running_var)
        fresh = [torch.zeros_like(statistic) for statistic in running]
        output = functional.batch_norm(input, fresh[0], fresh[1], self.weight, self.bias, True, 1.0, self.eps)
        with torch.no_grad():
            self.num_batches_tracked.add_(1)
            share = 1.0 / self.num_batches_tracked
            for statistic, new in zip(running, fresh, strict=True):
                statistic.copy_(statistic * (1 - share) + new * share)
        return output

    return forward
