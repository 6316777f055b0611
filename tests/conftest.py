"""Every test runs with 8 simulated cores."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile

# programs that tests compile are kept apart from the user's
if "SYSTOLIC_CACHE_DIR" not in os.environ:
    os.environ["SYSTOLIC_CACHE_DIR"] = tempfile.mkdtemp(prefix="systolic-tests-")
    atexit.register(shutil.rmtree, os.environ["SYSTOLIC_CACHE_DIR"], ignore_errors=True)

# before JAX starts: see systolic.runtime._platform on the size of the thread pool
os.environ.setdefault("NPROC", "16")

import jax
import pytest
import torch

jax.config.update("jax_num_cpu_devices", 8)
# libtpu is installed for its compiler; started as a device without chips it may end the process
jax.config.update("jax_platforms", "cpu")


@pytest.fixture(autouse=True)
def seeded(tmp_path: object, monkeypatch: pytest.MonkeyPatch) -> None:
    """Start every test from the same random state, in a directory of its own."""
    torch.manual_seed(0)
    monkeypatch.chdir(str(tmp_path))
