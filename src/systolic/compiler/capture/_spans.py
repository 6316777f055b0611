"""Spans of tensors in memory, and which of them overlap."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch


class Span(NamedTuple):
    """The bytes that a tensor reaches over: from `start` to before `stop`, of one `storage`."""

    storage: int
    start: int
    stop: int

    @staticmethod
    def of(tensor: torch.Tensor, storage: int, start: int) -> Span:
        """The span of a tensor whose first element lies at `start`."""
        if not tensor.numel():
            return Span(storage, start, start)
        reach = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
        return Span(storage, start, start + (reach + 1) * tensor.element_size())


def overlapping_spans(spans: Sequence[Span]) -> list[list[int]]:
    """Groups of spans, by index, that overlap; empty ones overlap with nothing."""
    groups: list[list[int]] = []
    end = (-1, -1)
    for span, index in sorted((span, index) for index, span in enumerate(spans) if span.stop > span.start):
        if (span.storage, span.start) < end:
            groups[-1].append(index)
        else:
            groups.append([index])
        end = max(end, (span.storage, span.stop))
    return [group for group in groups if len(group) > 1]
