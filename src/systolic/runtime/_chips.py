"""What each accelerator can do at most: the one table behind model-FLOP utilisation and preflight's predictions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jaxlib._jax import Device

GIB = 1024**3


@dataclass(frozen=True)
class Chip:
    """The limits of one chip, as its maker states them.

    Attributes:
        name: how people call it ("v5e").
        kinds: `device_kind` as JAX spells it for this chip.
        flops: dense bfloat16 matrix FLOP/s of the whole chip.
        memory: bytes of HBM of the whole chip.
        memory_bandwidth: HBM bytes/s of the whole chip.
        link_bandwidth: bytes/s of one inter-chip link, one way; None where no source states it.
        torus: dimensions of the inter-chip torus; 0 for a GPU.
        devices: JAX devices per chip.
        tensor_cores: TPU TensorCores per chip.
        per_host: chips of a full host VM.
        dollars_per_hour: on-demand price per chip; None where no source states it.
    """

    name: str
    kinds: tuple[str, ...]
    flops: float
    memory: int
    memory_bandwidth: float
    link_bandwidth: float | None
    torus: int
    devices: int
    tensor_cores: int
    per_host: int
    dollars_per_hour: float | None

    @property
    def device_flops(self) -> float:
        """Peak FLOP/s of one JAX device."""
        return self.flops / self.devices

    @property
    def device_memory(self) -> int:
        """Bytes of HBM of one JAX device."""
        return self.memory // self.devices

    @property
    def device_memory_bandwidth(self) -> float:
        """HBM bytes/s of one JAX device."""
        return self.memory_bandwidth / self.devices


# FLOP/s, memory, bandwidths: docs.cloud.google.com/tpu/docs pages v3, v4, v5e, v5p-training, v6e, tpu7x.
# Links one way: jax-ml.github.io/scaling-book, tpus.md; v7x is its page's 1200 GB/s both ways over 6 links.
# v2: FLOP/s from arXiv:1907.10701 (Lightning's table has the same), 8 GiB a core from Cloud's pricing page, 700 GB/s
# is the larger of two published values. Spelling of kinds: jax/_src/pallas/mosaic/tpu_info.py.
# Prices: v4 Google's page as quoted by infer-pub.com Q1114 (2022-08); v5e, v5p scaling-book applied-inference.md;
# v6e neowin.net's report of general availability (2024-12).
# NVIDIA: datasheets of H200 SXM, H100 SXM and A100 80GB SXM, dense bfloat16; half their "with sparsity" numbers.
CHIPS = (
    Chip("v2", ("TPU v2",), 45e12, 16 * GIB, 700e9, None, 2, 2, 2, 4, None),
    Chip("v3", ("TPU v3",), 123e12, 32 * GIB, 900e9, 100e9, 2, 2, 2, 4, None),
    Chip("v4", ("TPU v4",), 275e12, 32 * GIB, 1200e9, 45e9, 3, 1, 2, 4, 3.22),
    Chip("v5e", ("TPU v5 lite", "TPU v5e"), 197e12, 16 * 10**9, 819e9, 50e9, 2, 1, 1, 8, 1.20),
    Chip("v5p", ("TPU v5", "TPU v5p"), 459e12, 95 * GIB, 2765e9, 100e9, 3, 1, 2, 4, 4.20),
    Chip("v6e", ("TPU v6 lite", "TPU v6e"), 918e12, 32 * 10**9, 1600e9, 100e9, 2, 1, 1, 8, 2.70),
    Chip("v7x", ("TPU7x", "TPU v7x"), 2307e12, 192 * GIB, 7380e9, 100e9, 3, 2, 2, 4, None),
    Chip("h200", ("NVIDIA H200",), 989.5e12, 141 * 10**9, 4800e9, None, 0, 1, 0, 8, None),
    Chip("h100", ("NVIDIA H100 80GB HBM3",), 989.5e12, 80 * 10**9, 3350e9, None, 0, 1, 0, 8, None),
    Chip("a100", ("NVIDIA A100-SXM4-80GB",), 312e12, 80 * 10**9, 2039e9, None, 0, 1, 0, 8, None),
)
_BY_KIND = {kind: chip for chip in CHIPS for kind in chip.kinds}
_ALIASES = {"v5litepod": "v5e", "v5lite": "v5e", "v6lite": "v6e", "trillium": "v6e", "ironwood": "v7x", "tpu7x": "v7x"}
CHIP_NAMES = tuple(chip.name for chip in CHIPS)


def chip_of(device: Device) -> Chip | None:
    """The chip behind a JAX device; None for a CPU and for chips that the table does not have.

    Example:
        >>> import jax
        >>> chip_of(jax.devices("cpu")[0]) is None
        True
    """
    return _BY_KIND.get(device.device_kind)


def chip_named(name: str) -> Chip:
    """The chip of a short name, in any of its usual spellings ("v5e", "v5litepod", "trillium").

    Raises:
        ValueError: no such chip; lists those there are.

    Example:
        >>> chip_named("v6e").device_flops
        918000000000000.0
    """
    short = _ALIASES.get(name.lower(), name.lower())
    for chip in CHIPS:
        if chip.name == short:
            return chip
    raise ValueError(f"Unknown chip {name!r}. Expected one of {', '.join(CHIP_NAMES)}, or {', '.join(_ALIASES)}.")
