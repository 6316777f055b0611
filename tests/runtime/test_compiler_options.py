"""XLA's options for a platform: what goes wrong on a CPU without them."""

from __future__ import annotations

import subprocess
import sys

import jax
import pytest

from systolic.preflight import parse_slice, slice_devices
from systolic.runtime import compiler_options

# shapes of jax-ml/jax#40412 and #39257: the process ends with a segmentation fault, or hangs, under XLA's own choice
SCRIPT = """
import torch, systolic
a, b = torch.randn(3, 1, 2, 2, 8, 8, 8), torch.randn(3, 1, 2, 2, 8, 8, 8)
torch.testing.assert_close(systolic.jit(lambda a, b: (a * b).sum(3))(a, b).cpu(), (a * b).sum(3))
a, b = torch.randn(10, 4, 6), torch.randn(10, 4, 6, 9, 9, 9, 9, 9)
seen = systolic.jit(lambda a, b: (a[..., None, None, None, None, None] * b).sum(2))(a, b)
torch.testing.assert_close(seen.cpu(), (a[..., None, None, None, None, None] * b).sum(2))
print("equal")
"""


def test_sums_of_products_of_seven_dimensions_equal_eager() -> None:
    ended = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=300, check=False)
    assert (ended.returncode, ended.stdout.strip()) == (0, "equal"), ended.stderr[-2000:]


@pytest.mark.parametrize(("slice", "kib"), [("v5p-8", 49152), ("v6e-8", 98304), ("tpu7x-8", 49152)])
def test_large_products_get_vector_memory_for_their_tiles(slice: str, kib: int, monkeypatch: pytest.MonkeyPatch) -> None:
    device = slice_devices(parse_slice(slice))[0]
    assert compiler_options(device) is None
    assert compiler_options(device, large_products=True) == {"xla_tpu_scoped_vmem_limit_kib": str(kib)}
    monkeypatch.setenv("LIBTPU_INIT_ARGS", "--xla_tpu_scoped_vmem_limit_kib=65536")
    assert compiler_options(device, large_products=True) is None  # what the user chose stays


@pytest.mark.parametrize("slice", ["v2-8", "v3-8", "v4-8", "v5litepod-8"])
def test_chips_that_gain_nothing_keep_their_limit(slice: str) -> None:
    assert compiler_options(slice_devices(parse_slice(slice))[0], large_products=True) is None


def test_a_cpu_is_kept_from_ynnpack() -> None:
    assert compiler_options(jax.devices("cpu")[0], large_products=True) == {"xla_cpu_experimental_ynn_fusion_type": ""}
