"""Writes that replace a tensor's memory instead of what stands in it: `p.data = value`, `p.set_(value)`.

PyTorch's functionalization follows writes into memory. These it would lose: a tensor under the tracer is an object around
the traced one, and assigning memory to the outer object leaves the inner one as it was.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.utils
from torch.overrides import handle_torch_function

from ...runtime import in_function_mode, set_data
from ...utilities._torch_internals import FunctionalTensor

SET_DATA: Callable[..., None] = torch.Tensor.data.__set__  # pyright: ignore[reportAttributeAccessIssue]
"""What `tensor.data = value` calls."""


def sets_data(function: object) -> bool:
    """Whether a function is what `tensor.data = value` calls, as PyTorch has it or as `runtime` has changed it."""
    return function == SET_DATA or function == torch.Tensor.data.__set__ or function is set_data  # pyright: ignore[reportAttributeAccessIssue]


def assign_data(target: torch.Tensor, value: object) -> None:
    """Carry out `target.data = value` while the step is traced: from then on both look at the same memory."""
    if isinstance(target, FunctionalTensor) and isinstance(value, FunctionalTensor):
        share_memory(target, value)
    else:
        SET_DATA(target, value)  # PyTorch says what is wrong with it


def share_memory(target: torch.Tensor, source: torch.Tensor) -> None:
    """Let `target` be another object over the memory of `source`; both are traced tensors."""
    view = source.detach()
    assert isinstance(target, FunctionalTensor)
    assert isinstance(view, FunctionalTensor)
    SET_DATA(target, view)  # sizes, strides and dtype
    target.elem = view.elem


_swap = torch.utils.swap_tensors
_set = torch.Tensor.set_


def traced_swap(one: torch.Tensor, other: torch.Tensor) -> None:
    """`torch.utils.swap_tensors`, which PyTorch's function modes do not see: in a step it is for them to find stand-ins."""
    if in_function_mode():
        handle_torch_function(traced_swap, (one, other), one, other)
    else:
        _swap(one, other)


def traced_set(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
    """`Tensor.set_`, seen by PyTorch's function modes."""
    if in_function_mode():
        return handle_torch_function(traced_set, (tensor,), tensor, *args, **kwargs)
    return _set(tensor, *args, **kwargs)
