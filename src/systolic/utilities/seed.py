"""Seeding."""

from __future__ import annotations

import os
import random

import numpy as np
import torch


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
