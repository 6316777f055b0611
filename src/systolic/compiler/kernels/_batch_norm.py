"""Batch normalisation whose running statistics are the mean over all batches so far (`momentum=None`)."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch.nn import functional

from ...utilities._torch_internals import _BatchNorm

Forward = Callable[[_BatchNorm, torch.Tensor], torch.Tensor]


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
