"""Tensors that are different objects over the same memory.

PyTorch's eager mode lets one see what is written to the other (`b.data = a.data`). On the devices each has an array of its
own, so that a step which writes to one of them and uses the other would go wrong without a word.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ...runtime import Cell, DeviceTensor
from .._errors import CaptureError
from ._call import Captured
from ._graph import SlotInput
from ._object_graph import describe
from ._slots import is_recurrent_cache
from ._spans import Span, overlapping_spans


def overlapping(tensors: Sequence[torch.Tensor]) -> list[list[int]]:
    """Groups of tensors, by index, whose memory overlaps."""
    return overlapping_spans([Span.of(tensor, 0, tensor.data_ptr()) for tensor in tensors])


def require_own_memory(captured: Captured, groups: Sequence[Sequence[Cell]]) -> None:
    """Refuse a step that changes a tensor and uses another one over the same memory.

    Args:
        captured: the step.
        groups: cells whose tensors shared memory on the host.

    Raises:
        CaptureError: names the tensors, and says how to tie them.
    """
    slot_of = {id(s.tensor._cell): i for i, s in enumerate(captured.slots) if isinstance(s.tensor, DeviceTensor)}
    read = {source.slot for source in captured.inputs if isinstance(source, SlotInput)}
    # one that is replaced without a look at it (the `weight` of the old spectral_norm) has memory of its own afterwards
    used = read | (set(captured.slot_outputs) - captured.replaced)
    for group in groups:
        slots = [slot_of[id(cell)] for cell in group if id(cell) in slot_of and slot_of[id(cell)] in used]
        slots = [slot for slot in slots if not is_recurrent_cache(captured.slots[slot])]
        written = [slot for slot in slots if slot in captured.slot_outputs]
        if written and len(slots) > 1:
            first, second = written[0], next(slot for slot in slots if slot != written[0])
            one, other = (describe(captured.slots[slot].paths[0]) for slot in (first, second))
            raise CaptureError(
                f"{one} and {other} are two tensors over the same memory, and the step changes {one}. On the devices each "
                "tensor has memory of its own, so they would drift apart.\n"
                f"Options: tie the parameter itself, `b.weight = a.weight` instead of `b.weight.data = a.weight.data` or "
                "`nn.Parameter(a.weight.data)`; or give each its own values with `.clone()`."
            )
