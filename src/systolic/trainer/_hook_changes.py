"""Hooks before a step may change the batch: what they changed goes to the devices, instead of what was there ahead of time."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from ..data import flatten_batch
from ..runtime import Placement, to_jax_array
from ._hooks import HookTable
from .loops._feed import FedBatch, device_leaves


def call_on_batch(hooks: HookTable, name: str, batch: FedBatch, placement: Placement | None, *indices: int) -> Any:
    """Call a hook with `batch.host`; entries that it replaced, and tensors that it wrote to, are sent anew.

    Writing through `tensor.data` or `tensor.numpy()` is not seen: PyTorch does not count it.

    Args:
        hooks: callbacks and module.
        name: the hook.
        batch: is brought up to date.
        placement: the devices; None in eager mode.
        indices: the hook's arguments after the batch.

    Returns:
        What the module's hook returned.
    """
    if not hooks.anybody(name):
        return None
    leaves, spec = flatten_batch(batch.whole)
    states = [_state(leaf) for leaf in leaves]
    answer = hooks.both(name, batch.host, *indices)
    now, spec_now = flatten_batch(batch.whole)
    if spec_now != spec or len(now) != len(leaves):
        batch.spec, batch.leaves = spec_now, device_leaves(now, placement, batch.sharing)
        batch.statics = spec_now.statics if placement is not None else []
        return answer
    for index, (leaf, was, state) in enumerate(zip(now, leaves, states, strict=True)):
        if leaf is not was or _state(leaf) != state:
            [batch.leaves[index]] = device_leaves([leaf], placement, batch.sharing)
    return answer


def _state(leaf: torch.Tensor | np.ndarray[Any, Any]) -> Any:
    """A value that differs after the tensor was written to; PyTorch counts that, except for tensors of inference mode."""
    if isinstance(leaf, np.ndarray):
        return leaf.tobytes()
    return to_jax_array(leaf).tobytes() if leaf.is_inference() else leaf._version
