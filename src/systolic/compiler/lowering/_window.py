"""Window functions of signal processing: constants of the program, computed in double precision."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import torch

from ._dtype import announced_dtype
from ._table import lowers

aten = torch.ops.aten

Shape = Callable[..., np.ndarray]


def _window(shape: Shape) -> Callable[..., jax.Array]:
    def lowering(length: int, periodic: bool = True, *parameters: float, **_options: object) -> jax.Array:
        # a periodic window is a symmetric one that is longer by one, without its end
        values = shape(length + 1, *parameters)[:length] if periodic and length > 1 else shape(length, *parameters)
        return jnp.asarray(values.astype(announced_dtype()))

    return lowering


def _hamming(length: int, alpha: float = 0.54, beta: float = 0.46) -> np.ndarray:
    if length == 1:
        return np.ones(1)
    return alpha - beta * np.cos(2 * np.pi * np.arange(length) / (length - 1))


def _kaiser(length: int, beta: float = 12.0) -> np.ndarray:
    return np.kaiser(length, beta)


lowers(aten.hann_window.default, aten.hann_window.periodic)(_window(np.hanning))
lowers(aten.blackman_window.default, aten.blackman_window.periodic)(_window(np.blackman))
lowers(aten.bartlett_window.default, aten.bartlett_window.periodic)(_window(np.bartlett))
lowers(aten.kaiser_window.default, aten.kaiser_window.periodic, aten.kaiser_window.beta)(_window(_kaiser))
lowers(
    aten.hamming_window.default,
    aten.hamming_window.periodic,
    aten.hamming_window.periodic_alpha,
    aten.hamming_window.periodic_alpha_beta,
)(_window(_hamming))
