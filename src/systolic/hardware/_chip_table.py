"""Known facts of each generation of TPU chips; every constant with its source.

Sources, by letter:
    G: docs.cloud.google.com/tpu/docs, the page of the generation (v3, v4, v5e, v5p, v6e, tpu7x), read 2026-11.
    S: "How to Scale Your Model" (jax-ml.github.io/scaling-book), chapter on TPUs.
    J: N. Jouppi et al., "TPU v4", ISCA 2023, table 4 (clock of v2, v3, v4), and "A domain-specific supercomputer for
       training deep neural networks", CACM 63(7), 2020 (links of v2).
    L: libtpu 0.0.52: the figure that its compiler prints when a program does not fit ("exceeds available HBM").
    C: compiled: products by the memory of their tiles (benchmarks/RESULTS.md).
    P: JAX's table for Pallas (jax/_src/pallas/mosaic/tpu_info.py).
    D: derived: peak FLOP/s divided by FLOP per cycle, with MXU counts for which the compiler's own `estimated_cycles` of
       a 16384^3 bfloat16 product stay below that many FLOP per cycle (v5e 120,892 of 131,072; v5p 246,028 of 262,144;
       v6e 408,750 of 524,288; tpu7x 444,834 of 524,288 per core). The same division gives 0.70, 0.94 and 1.05 GHz for
       v2, v3 and v4, which are the published clocks (J).
Prices are on-demand, us-central or the cheapest US region, USD per chip and hour; they change, and differ by region.
"""

from __future__ import annotations

from dataclasses import dataclass

_GIB = 2**30
_MIB = 2**20


@dataclass(frozen=True)
class Chip:
    """One generation.

    Attributes:
        name: as JAX's topologies spell it.
        cloud_name: as Google Cloud's accelerator types begin.
        counts_cores: whether the number in an accelerator type counts TensorCores (else chips).
        tensor_cores: per chip.
        devices: JAX devices per chip: fewer than TensorCores where two cores act as one ("megacore").
        dimensions: of the torus that connects chips.
        peak_flops: bfloat16 FLOP/s per chip.
        hbm_bytes: per chip, as the compiler counts: what programs may use.
        hbm_bandwidth: bytes/s per chip.
        link_bandwidth: bytes/s of one link between chips, one way.
        clock_hz: cycles per second of a TensorCore, to turn the compiler's cycle counts into time.
        vector_memory: bytes of a TensorCore's vector memory (VMEM).
        tile_memory: those of them that the tiles of large products get; None where the compiler's own limit is as good.
        mxu: side of the matrix unit.
        price: USD per chip and hour, or None where no reliable figure was found.
        price_source: where the price comes from.
    """

    name: str
    cloud_name: str
    counts_cores: bool
    tensor_cores: int
    devices: int
    dimensions: int
    peak_flops: float
    hbm_bytes: int
    hbm_bandwidth: float
    link_bandwidth: float
    clock_hz: float
    vector_memory: int
    tile_memory: int | None = None
    mxu: int = 128
    price: float | None = None
    price_source: str = ""

    @property
    def flops_per_device(self) -> float:
        """Peak bfloat16 FLOP/s of one JAX device."""
        return self.peak_flops / self.devices

    @property
    def hbm_per_device(self) -> int:
        """Bytes that a program may use on one JAX device."""
        return self.hbm_bytes // self.devices

    @property
    def bandwidth_per_device(self) -> float:
        """Bytes/s between HBM and one JAX device."""
        return self.hbm_bandwidth / self.devices


CHIPS: dict[str, Chip] = {
    chip.name: chip
    for chip in (
        Chip(
            "v2", "v2", True, tensor_cores=2, devices=2, dimensions=2,
            peak_flops=45e12,  # J
            hbm_bytes=int(2 * 7.48 * _GIB),  # L
            hbm_bandwidth=600e9,  # Lightning's throughput table (arXiv 1907.10701); another source says 700e9
            link_bandwidth=62e9,  # J
            clock_hz=0.70e9,  # J
            vector_memory=16 * _MIB,  # P
        ),
        Chip(
            "v3", "v3", True, tensor_cores=2, devices=2, dimensions=2,
            peak_flops=123e12,  # G
            hbm_bytes=int(2 * 15.48 * _GIB),  # L
            hbm_bandwidth=900e9,  # G
            link_bandwidth=100e9,  # S
            clock_hz=0.94e9,  # J
            vector_memory=16 * _MIB,  # P
        ),
        Chip(
            "v4", "v4", True, tensor_cores=2, devices=1, dimensions=3,
            peak_flops=275e12,  # G
            hbm_bytes=int(30.75 * _GIB),  # L
            hbm_bandwidth=1200e9,  # G
            link_bandwidth=45e9,  # S
            clock_hz=1.05e9,  # J
            vector_memory=16 * _MIB,  # P
            price=3.22, price_source="Google's price page as quoted in August 2022",
        ),
        Chip(
            "v5e", "v5litepod", False, tensor_cores=1, devices=1, dimensions=2,
            peak_flops=197e12,  # G
            hbm_bytes=int(15.75 * _GIB),  # L
            hbm_bandwidth=819e9,  # G
            link_bandwidth=50e9,  # S; G: 400e9 both ways over four links
            clock_hz=1.503e9,  # D: 4 units of 128 x 128
            vector_memory=128 * _MIB,  # P
            price=1.20, price_source="Google's price page as quoted by the scaling book",
        ),
        Chip(
            "v5p", "v5p", True, tensor_cores=2, devices=1, dimensions=3,
            peak_flops=459e12,  # G
            hbm_bytes=int(95.73 * _GIB),  # L
            hbm_bandwidth=2765e9,  # G
            link_bandwidth=100e9,  # S; G: 1200e9 both ways over six links
            clock_hz=1.751e9,  # D: 2 x 4 units of 128 x 128
            vector_memory=64 * _MIB,  # P
            tile_memory=48 * _MIB,  # C
            price=4.20, price_source="Google's price page as quoted by the scaling book",
        ),
        Chip(
            "v6e", "v6e", False, tensor_cores=1, devices=1, dimensions=2,
            peak_flops=918e12,  # G
            hbm_bytes=int(31.24 * _GIB),  # L
            hbm_bandwidth=1600e9,  # G
            link_bandwidth=100e9,  # G: 800e9 both ways over four links
            clock_hz=1.751e9,  # D: as many as 4 units of 256 x 256
            vector_memory=128 * _MIB,  # P
            tile_memory=96 * _MIB,  # C
            mxu=256, price=2.70, price_source="Google's price at general availability, December 2024",
        ),
        Chip(
            "tpu7x", "tpu7x", True, tensor_cores=2, devices=2, dimensions=3,
            peak_flops=2307e12,  # G
            hbm_bytes=int(2 * 94.74 * _GIB),  # L
            hbm_bandwidth=7380e9,  # G
            link_bandwidth=100e9,  # G: 1200e9 both ways over six links
            clock_hz=2.2e9,  # D: 2 x 4 units of 256 x 256
            vector_memory=64 * _MIB,  # P
            tile_memory=48 * _MIB,  # C
            mxu=256,
        ),
    )
}  # fmt: skip

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


def chip_of(kind: str) -> Chip | None:
    """The generation that a JAX device's `device_kind` names; None for no TPU, or one that is not in the table.

    Example:
        >>> chip_of("TPU v6 lite").name
        'v6e'
    """
    name = _TPU_KINDS.get(kind)
    return None if name is None else CHIPS[name]
