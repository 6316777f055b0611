"""Tensors to arrays and back, without a copy where both sides can share memory."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from typing import Any, Literal

import jax
import ml_dtypes
import numpy as np
import torch

from ..distributed import gather, gather_to_host, join_parts, make_global_array
from ._dimension_order import Place, sharding_of
from ._dtypes import torch_dtype
from ._fork import require_not_forked
from ._transfers import observers, tell_fetched, tell_sent

_VIEWED_AS: dict[torch.dtype, tuple[torch.dtype, Any]] = {
    torch.bfloat16: (torch.uint16, ml_dtypes.bfloat16),
    torch.float8_e4m3fn: (torch.uint8, ml_dtypes.float8_e4m3fn),
    torch.float8_e5m2: (torch.uint8, ml_dtypes.float8_e5m2),
}


def to_jax_array(tensor: torch.Tensor) -> np.ndarray[Any, Any]:
    """A CPU tensor as a NumPy array that JAX takes as it is (bfloat16 included); shares the tensor's memory."""
    if tensor.layout is not torch.strided or tensor.is_meta or tensor.is_quantized:
        raise _no_array(tensor)
    if tensor.requires_grad or tensor.is_conj() or tensor.is_neg():
        tensor = tensor.detach().resolve_conj().resolve_neg()
    if tensor.dtype in _VIEWED_AS:
        carrier, dtype = _VIEWED_AS[tensor.dtype]
        return tensor.contiguous().view(carrier).numpy().view(dtype)
    return tensor.numpy()


def _no_array(tensor: torch.Tensor) -> TypeError:
    kind, instead = (
        ("a meta tensor, which has no values", "make it on the CPU")
        if tensor.is_meta
        else ("quantized", "send tensor.dequantize(), or tensor.int_repr()")
        if tensor.is_quantized
        else (f"sparse ({tensor.layout})", "send tensor.to_dense(), or its indices() and values()")
    )
    return TypeError(
        f"A tensor of shape {tuple(tensor.shape)} cannot go to the devices. Expected a dense CPU tensor with values. Received: "
        f"one that is {kind}. In the dataset, the collate function or `on_before_batch_transfer`, {instead}."
    )


def to_torch_tensor(array: np.ndarray[Any, Any], dtype: torch.dtype | None = None) -> torch.Tensor:
    """A NumPy array as a CPU tensor that shares its memory."""
    dtype = dtype or torch_dtype(array.dtype)
    if dtype in _VIEWED_AS:
        carrier, _ = _VIEWED_AS[dtype]
        bits = np.ascontiguousarray(array).view(np.uint16 if carrier == torch.uint16 else np.uint8)
        return torch.from_numpy(bits.reshape(array.shape)).view(dtype)
    return torch.from_numpy(np.asarray(array))


def to_host_array(array: jax.Array) -> np.ndarray[Any, Any]:
    """Copy a device array to the host, the parts of one that is split put together; waits for the device.

    JAX keeps the values in the array, as long as that lives; `copy_to_host` leaves nothing behind.

    Raises:
        RuntimeError: parts of the array lie on devices of other processes; or this process was forked, and they are not here.
    """
    began = time.perf_counter()
    require_not_forked(array)
    # host sync: the value is wanted
    values = np.asarray(array) if array.is_fully_addressable else copy_to_host(array)
    if observers:
        tell_fetched(values.nbytes, began)
    return values


def copy_to_host(array: jax.Array) -> np.ndarray[Any, Any]:
    """The values of a device array, which the array itself does not keep; waits for the device.

    An array that is split over processes is read by all of them, which send each other their parts.

    Raises:
        RuntimeError: as for `to_host_array`.
        MisconfigurationException: another process does something else meanwhile.
    """
    require_not_forked(array)
    if array.is_fully_replicated:
        return np.asarray(array.addressable_data(0))  # host sync: the value is wanted
    parts = _own_parts(array)
    if not _is_whole(array, parts):
        _require_all_read(array)
        return gather_to_host(array)
    values = np.empty(array.shape, array.dtype)
    for shard in parts:
        values[shard.index] = np.asarray(shard.data)  # host sync: the value is wanted
    return values


_readers: list[Literal["all", "one"]] = []
"""Who reads, as the innermost block says: all processes, the same arrays in the same order; or one alone."""


@contextlib.contextmanager
def read_by(reader: Literal["all", "one"]) -> Iterator[None]:
    """Inside the block it is known who reads arrays that are split over processes.

    Args:
        reader: "all": all processes read the same ones, and do not ask each other before each. "one": the others may be
            anywhere, so that such an array cannot be read.
    """
    _readers.append(reader)
    try:
        yield
    finally:
        _readers.pop()


_deputies: set[int] = set()
"""Threads that read for the main one."""


@contextlib.contextmanager
def reading_for_main_thread() -> Iterator[None]:
    """Inside the block the main thread waits for what this one reads."""
    _deputies.add(threading.get_ident())
    try:
        yield
    finally:
        _deputies.discard(threading.get_ident())


def _require_all_read(array: jax.Array) -> None:
    reader = _readers[-1] if _readers else None
    # what other threads do is in no order that processes share
    in_order = threading.current_thread() is threading.main_thread() or threading.get_ident() in _deputies
    if reader == "one" or not in_order:
        raise RuntimeError(
            f"An array of shape {array.shape} is split over the devices of several processes ({array.sharding}), so that "
            "this process alone cannot read it."
        )
    if reader is None:
        gather(f"read a tensor of shape {array.shape}, of which each of them has a part", None)


def is_readable_alone(array: jax.Array) -> bool:
    """Whether this process has all parts of an array on its devices."""
    return array.is_fully_replicated or _is_whole(array, _own_parts(array))


def _own_parts(array: jax.Array) -> list[jax.Shard]:
    """The different parts of an array that lie on devices of this process."""
    return list({str(shard.index): shard for shard in array.addressable_shards}.values())


def _is_whole(array: jax.Array, parts: list[jax.Shard]) -> bool:
    return sum(np.size(shard.data) for shard in parts if shard.data is not None) == array.size


def put(array: Any, place: Place, parts: int = 1) -> jax.Array:
    """Copy a host array to the devices, 64-bit types included; where several processes hold a part each, join the parts."""
    began = time.perf_counter()
    with jax.enable_x64(True):
        sharding = sharding_of(place)
        if sharding.is_fully_addressable:
            placed = jax.device_put(array, place)
        else:  # `device_put` would compare the array of each process with the others', by a collective
            placed = make_global_array(array, place) if parts == 1 else join_parts(array, sharding, parts)
    if observers:
        tell_sent(placed.nbytes // parts, began)
    return placed
