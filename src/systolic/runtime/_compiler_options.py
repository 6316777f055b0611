"""Options that XLA is given with every program of a platform."""

from __future__ import annotations

import functools
import os
from typing import TYPE_CHECKING

import jax
from jax.errors import JaxRuntimeError

from ..hardware import chip_of

if TYPE_CHECKING:
    from ..utilities._jax_internals import Device

CompilerOptions = dict[str, bool | str]
"""Names and values as `jax.jit` takes them."""

# XLA hands products, convolutions and sums of CPU programs to YNNPACK by default. Its fusions end the process with a
# segmentation fault on some shapes of seven dimensions and more (jax-ml/jax#39257, #40412; jaxlib 0.10.2 and 0.11.0), and make
# ResNet-18's step about half as long again (benchmarks/RESULTS.md). An empty list of kinds switches them off.
_WITHOUT_YNNPACK: CompilerOptions = {"xla_cpu_experimental_ynn_fusion_type": ""}

# How much vector memory libtpu lets the tiles of one operation have: by default 16 MiB, on v6e and tpu7x 32. Others' training
# programs raise it for the whole process, in LIBTPU_INIT_ARGS; what stands there is kept.
_TILE_MEMORY = "xla_tpu_scoped_vmem_limit_kib"

# Up to which share of a core's memory libtpu's scheduler begins to fetch what later products need. By its own choice it fetches
# parameters of Llama 3 8B under fsdp until they do not fit a v5e's 15.75 GiB (16.18 on 256 cores, 15.77 on 64; libtpu
# 0.0.42.1). With this share the step on 256 cores takes 13.8 GiB, and is predicted to take as long.
_FETCH_LIMIT = "xla_tpu_scheduler_percent_shared_memory_limit"
_FETCH_PERCENT = "60"


def compiler_options(device: Device, *, large_products: bool = False, fetches_much: bool = False) -> CompilerOptions | None:
    """Options for `jax.jit(compiler_options=...)`; None for XLA's own choice.

    Args:
        device: one of those that the program is compiled for, which may be of a topology that is not here.
        large_products: whether it spends its time on matrix products whose operands are larger than vector memory. Larger
            tiles read them less often: a layer's products for 16,384 tokens, 4,096 by 14,336, are estimated at 70% of a v6e's
            peak by default and at 92% so. They take three to seven times as long to compile (benchmarks/RESULTS.md); on chips
            that gain next to nothing the default stays.
        fetches_much: whether a core's memory could not hold all the parameters that it fetches, and its state is no large part
            of that memory.

    Example:
        >>> import jax
        >>> from systolic.runtime import compiler_options
        >>> sorted(compiler_options(jax.devices("cpu")[0]))
        ['xla_cpu_experimental_ynn_fusion_type']
    """
    if device.platform == "cpu":
        return _WITHOUT_YNNPACK if _knows_ynnpack() else None
    chip = chip_of(device.device_kind)
    if chip is None:
        return None
    found: CompilerOptions = {}
    if large_products and chip.tile_memory is not None:
        found[_TILE_MEMORY] = str(chip.tile_memory // 1024)
    if fetches_much:
        found[_FETCH_LIMIT] = _FETCH_PERCENT
    given = os.environ.get("LIBTPU_INIT_ARGS", "")
    return {name: value for name, value in found.items() if name not in given} or None


@functools.cache
def _knows_ynnpack() -> bool:
    """Whether this jaxlib knows the option: an unknown one is an error, and only a compilation tells."""
    try:
        with jax.default_device(jax.devices("cpu")[0]):
            jax.jit(lambda: 0, compiler_options=_WITHOUT_YNNPACK).lower().compile()
    except JaxRuntimeError as error:
        if "No such compile option" not in str(error):
            raise
        return False
    return True
