"""Seeding."""

from __future__ import annotations

import contextlib
import os
import random
from collections.abc import Iterator

import numpy as np
import torch

from .random_state import isolated_random_state
from .rank_zero import rank_zero_only

_BITS = 2**64
# D. Knuth, "MMIX": of the generator x -> a x + 1 modulo 2^64
_MULTIPLIER = 6364136223846793005
# the two factors of MurmurHash3's last mixing of 64 bits
_MIXING = 0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53


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
        workers: also seed workers of data loaders that have no `worker_init_fn`, in each process differently. Without it
            PyTorch seeds them, alike in all processes that have the same seed.
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


def pl_worker_init_function(worker_id: int, rank: int | None = None) -> None:
    """Seed PyTorch, Python and NumPy in a worker of a DataLoader, to the numbers that Lightning's function of this name gives.

    Loaders that have no `worker_init_fn` get it after `seed_everything(..., workers=True)`.

    Args:
        worker_id: of the worker, from 0.
        rank: of its process; default: this one's.

    Example:
        >>> from functools import partial
        >>> loader = torch.utils.data.DataLoader(
        ...     range(8), num_workers=2, worker_init_fn=partial(pl_worker_init_function, rank=0)
        ... )
    """
    process = rank_zero_only.rank if rank is None else rank
    base = torch.initial_seed() - worker_id  # what PyTorch seeded all workers of this pass from
    first, second, third = _seeds((base << 32) | (worker_id << 16) | process)
    torch.manual_seed(first)
    random.seed((second << 32) | third)
    np.random.seed(np.random.SeedSequence([base, worker_id, process]).generate_state(4))


def _seeds(number: int) -> tuple[int, int, int]:
    """Three seeds of 64 bits from one number, whose low bits may be all that tells it from others."""
    for factor in _MIXING:
        number = ((number ^ (number >> 33)) * factor) % _BITS
    number ^= number >> 33
    first = (number * _MULTIPLIER + 1) % _BITS
    second = (first * _MULTIPLIER + 1) % _BITS
    return first, second, (second * _MULTIPLIER + 1) % _BITS
