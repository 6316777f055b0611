"""PyTorch dtypes and their JAX twins."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import torch
from jax.typing import DTypeLike

_TO_JAX: dict[torch.dtype, Any] = {
    torch.bool: jnp.bool_,
    torch.uint8: jnp.uint8,
    torch.uint16: jnp.uint16,
    torch.uint32: jnp.uint32,
    torch.uint64: jnp.uint64,
    torch.int8: jnp.int8,
    torch.int16: jnp.int16,
    torch.int32: jnp.int32,
    torch.int64: jnp.int64,
    torch.bfloat16: jnp.bfloat16,
    torch.float16: jnp.float16,
    torch.float32: jnp.float32,
    torch.float64: jnp.float64,
    torch.complex64: jnp.complex64,
    torch.complex128: jnp.complex128,
    torch.float8_e4m3fn: jnp.float8_e4m3fn,
    torch.float8_e5m2: jnp.float8_e5m2,
}
_TO_TORCH = {jnp.dtype(theirs): ours for ours, theirs in _TO_JAX.items()}


def jax_dtype(dtype: torch.dtype) -> Any:
    """The JAX dtype with the same name and width as a PyTorch dtype.

    Raises:
        TypeError: for dtypes that JAX has no twin of (quantised types, for instance).
    """
    try:
        return jnp.dtype(_TO_JAX[dtype])
    except KeyError:
        raise TypeError(f"{dtype} has no equivalent in JAX. Cast the tensor before the step uses it.") from None


def torch_dtype(dtype: DTypeLike) -> torch.dtype:
    """The PyTorch dtype with the same name and width as a JAX dtype."""
    return _TO_TORCH[jnp.dtype(dtype)]
