"""Every test runs with 8 simulated cores."""

from __future__ import annotations

import os

# before JAX starts: see systolic.runtime._platform on the size of the thread pool
os.environ.setdefault("NPROC", "16")

import jax
import pytest
import torch

jax.config.update("jax_num_cpu_devices", 8)


@pytest.fixture(autouse=True)
def seeded(tmp_path: object, monkeypatch: pytest.MonkeyPatch) -> None:
    """Start every test from the same random state, in a directory of its own."""
    torch.manual_seed(0)
    monkeypatch.chdir(str(tmp_path))
