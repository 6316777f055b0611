"""The most FLOP/s that a JAX device can do, for model-FLOP utilisation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ._chip_table import CHIPS

if TYPE_CHECKING:
    from ..utilities._jax_internals import Device

# `device_kind` of TPUs as JAX spells it (jax/_src/pallas/mosaic/tpu_info.py), with the name in the table
_TPU_KINDS = {
    "TPU v2": "v2",
    "TPU v3": "v3",
    "TPU v4": "v4",
    "TPU v5 lite": "v5e",
    "TPU v5e": "v5e",
    "TPU v5": "v5p",
    "TPU v5p": "v5p",
    "TPU v6 lite": "v6e",
    "TPU v6e": "v6e",
    "TPU7x": "tpu7x",
}
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
    name = _TPU_KINDS.get(device.device_kind)
    return CHIPS[name].flops_per_device if name is not None else _GPU_FLOPS.get(device.device_kind)
