"""Memory of the host and of the devices, as scripts of Lightning's ask for it."""

from __future__ import annotations

import gc
from typing import Any

import torch

from ._out_of_memory import is_out_of_memory
from ._torch_internals import tree_map_only


def recursive_detach(in_dict: Any, to_cpu: bool = False) -> Any:
    """The same structure with tensors that remember no gradient history.

    Args:
        in_dict: tensors in any nesting of dicts, lists and tuples.
        to_cpu: copy them to host memory, too.

    Example:
        >>> import torch
        >>> recursive_detach({"loss": torch.ones(1, requires_grad=True)})
        {'loss': tensor([1.])}
    """
    return tree_map_only(torch.Tensor, lambda tensor: tensor.detach().cpu() if to_cpu else tensor.detach(), in_dict)


def is_oom_error(exception: BaseException) -> bool:
    """Whether an error says that memory is exhausted, of the devices or of the host."""
    return is_out_of_memory(exception)


def garbage_collection_cuda() -> None:
    """Collect garbage now. What programs use on the devices belongs to JAX, which frees it with the last reference."""
    gc.collect()
