"""Products under the TPU compiler, by the vector memory that their tiles may have, for RESULTS.md.

Usage: python benchmarks/vector_memory.py [--slices v6e-4 ...]

Nothing runs on a TPU. It takes some minutes.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax.sharding import SingleDeviceSharding
from results import table

from systolic.preflight import Slice, parse_slice, slice_devices
from systolic.preflight._compiled import compile_and_dump
from systolic.preflight._hlo import analyse

SLICES = ("v5litepod-4", "v5p-8", "v6e-4", "tpu7x-8")
# rows, what is summed over, columns: GPT-2's head, layers of three widths, Llama 3 8B's with 8,192 and 16,384 tokens a core
SHAPES = ((8192, 768, 50304), (8192, 1024, 4096), (8192, 2048, 8192), (8192, 4096, 14336), (16384, 4096, 14336))


def of_result(x: jax.Array, w: jax.Array, y: jax.Array) -> jax.Array:
    """Forward, with an activation."""
    return jax.nn.silu(x @ w)


def of_rows(x: jax.Array, w: jax.Array, y: jax.Array) -> jax.Array:
    """The gradient of the rows."""
    return y @ w.T


def of_weight(x: jax.Array, w: jax.Array, y: jax.Array) -> jax.Array:
    """The gradient of the weight."""
    return x.T @ y


PRODUCTS: tuple[Callable[..., jax.Array], ...] = (of_result, of_rows, of_weight)


def cycles(slice: Slice, shape: tuple[int, int, int], kib: int | None) -> tuple[int, float]:
    """The compiler's estimate for the three products together, and the seconds that it took."""
    rows, inner, columns = shape
    sharding = SingleDeviceSharding(slice_devices(slice)[0])
    kinds = [
        jax.ShapeDtypeStruct(sizes, jnp.bfloat16, sharding=sharding)
        for sizes in ((rows, inner), (inner, columns), (rows, columns))
    ]
    options = None if kib is None else {"xla_tpu_scoped_vmem_limit_kib": str(kib)}
    started, total = time.perf_counter(), 0
    for product in PRODUCTS:
        _, text = compile_and_dump(jax.jit(product, compiler_options=options).lower(*kinds))
        total += analyse(text).estimated_cycles
    return total, time.perf_counter() - started


def main() -> None:
    """Compile, and print the rows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--slices", nargs="*", default=SLICES, help="one of each generation")
    rows = [["chip", "product", "M cycles", "of the peak", "with 3/4 of vector memory", "of the peak", "compiled in s"]]
    for slice in map(parse_slice, parser.parse_args().slices):
        chip = slice.chip
        for shape in SHAPES:
            least = 6 * shape[0] * shape[1] * shape[2] / chip.flops_per_device * chip.clock_hz
            (before, slow), (after, slower) = (cycles(slice, shape, kib) for kib in (None, chip.vector_memory * 3 // 4096))
            sizes = f"{shape[0]:,} x {shape[1]:,} by {shape[2]:,}"
            figures = [f"{before / 1e6:.2f}", f"{least / before:.0%}", f"{after / 1e6:.2f}", f"{least / after:.0%}"]
            rows.append([chip.name, sizes, *figures, f"{slow:.1f}, {slower:.1f}"])
            print(" | ".join(rows[-1]), flush=True)
    print(table(rows))


if __name__ == "__main__":
    main()
