"""Seeding."""

from __future__ import annotations

import contextlib
import os
import random
from collections.abc import Iterator

import numpy as np
import torch

from .random_state import isolated_random_state


@contextlib.contextmanager
def isolate_rng(include_cuda: bool = True) -> Iterator[None]:
    """Inside the block, random numbers may be drawn from the host's generators; afterwards these are as they were.

    Args:
        include_cuda: has no effect: random numbers of steps come from keys, not from a generator.

    Example:
        >>> import torch
        >>> torch.manual_seed(1) and None
        >>> with isolate_rng():
        ...     first = torch.rand(1)
        >>> bool(torch.rand(1) == first)
        True
    """
    del include_cuda
    with isolated_random_state():
        yield


def seed_everything(seed: int | None = None, workers: bool = False, verbose: bool = True) -> int:
    """Seed Python, NumPy and PyTorch; the random key of compiled steps derives from PyTorch's seed.

    Args:
        seed: the seed; default: the environment variable PL_GLOBAL_SEED, or 0.
        workers: also seed the workers of data loaders (they derive their seed from PyTorch's already).
        verbose: has no effect; kept for compatibility.

    Returns:
        The seed.
    """
    del verbose
    chosen = int(os.environ.get("PL_GLOBAL_SEED", "0")) if seed is None else int(seed)
    os.environ["PL_GLOBAL_SEED"] = str(chosen)
    os.environ["PL_SEED_WORKERS"] = str(int(workers))
    random.seed(chosen)
    np.random.seed(chosen % 2**32)
    torch.manual_seed(chosen)
    return chosen
