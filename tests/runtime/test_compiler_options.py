"""XLA's options for a platform: what goes wrong on a CPU without them."""

from __future__ import annotations

import subprocess
import sys

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


def test_only_programs_for_a_cpu_have_options() -> None:
    assert compiler_options("tpu") is None
    assert compiler_options("gpu") is None
    assert compiler_options("cpu")
