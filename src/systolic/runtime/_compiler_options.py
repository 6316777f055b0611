"""Options that XLA is given with every program of a platform."""

from __future__ import annotations

import functools

import jax
from jax.errors import JaxRuntimeError

# XLA hands products, convolutions and sums of CPU programs to YNNPACK by default. Its fusions end the process with a
# segmentation fault on some shapes of seven dimensions and more (jax-ml/jax#39257, #40412; jaxlib 0.10.2 and 0.11.0), and make
# ResNet-18's step about half as long again (benchmarks/RESULTS.md). An empty list of kinds switches them off.
_WITHOUT_YNNPACK: dict[str, bool | str] = {"xla_cpu_experimental_ynn_fusion_type": ""}


def compiler_options(platform: str) -> dict[str, bool | str] | None:
    """Options for `jax.jit(compiler_options=...)`; None for XLA's own choice.

    Args:
        platform: "cpu", "gpu" or "tpu": what the program is compiled for.

    Example:
        >>> from systolic.runtime import compiler_options
        >>> compiler_options("tpu") is None
        True
    """
    return _WITHOUT_YNNPACK if platform == "cpu" and _knows_ynnpack() else None


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
