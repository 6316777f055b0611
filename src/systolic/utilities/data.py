"""Batches and the workers that load them."""

from __future__ import annotations

import os
from typing import Any

import torch

from ._torch_internals import tree_map


def move_data_to_device(batch: Any, device: torch.device | str | int) -> Any:
    """The batch with everything that has a method `to` moved to a device; the rest stays.

    Args:
        batch: tensors and other objects, in any nesting of dicts, lists and tuples.
        device: where to. Steps take their batches from the host and bring them to the cores themselves.

    Example:
        >>> import torch
        >>> move_data_to_device([torch.ones(1), "text"], "cpu")
        [tensor([1.]), 'text']
    """
    return tree_map(lambda leaf: leaf.to(device) if hasattr(leaf, "to") else leaf, batch)


def suggested_max_num_workers(local_world_size: int) -> int:
    """The number of loader workers that a process can have while every process of the machine has a core for each.

    Args:
        local_world_size: how many processes there are on this machine.

    Raises:
        ValueError: fewer than one.

    Example:
        >>> suggested_max_num_workers(1) >= 1
        True
    """
    if local_world_size < 1:
        raise ValueError(f"`local_world_size` should be >= 1. Received: {local_world_size}.")
    return max(1, _num_cpus_available() // local_world_size - 1)


def _num_cpus_available() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
