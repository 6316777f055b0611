"""The most FLOP/s that a JAX device can do, for model-FLOP utilisation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ._chip_table import chip_of

if TYPE_CHECKING:
    from ..utilities._jax_internals import Device

# NVIDIA's datasheets, dense bfloat16 of the SXM modules: half of their "with sparsity" figures
_GPU_FLOPS = {
    "NVIDIA H200": 989.5e12,
    "NVIDIA H100 80GB HBM3": 989.5e12,
    "NVIDIA A100-SXM4-80GB": 312e12,
    "NVIDIA A100-SXM4-40GB": 312e12,
}


def peak_flops(device: Device) -> float | None:
    """Dense bfloat16 FLOP/s of one JAX device; None for a CPU and for what no table has.

    Example:
        >>> import jax
        >>> peak_flops(jax.devices("cpu")[0]) is None
        True
    """
    chip = chip_of(device.device_kind)
    return chip.flops_per_device if chip is not None else _GPU_FLOPS.get(device.device_kind)
