"""The table of chips agrees with the libraries that know them, and with itself."""

from __future__ import annotations

from dataclasses import dataclass

import jax
import pytest
from jax.experimental.pallas import tpu as pltpu

from systolic.runtime._chips import CHIPS, Chip, chip_named, chip_of

TPUS = [chip for chip in CHIPS if chip.tensor_cores]


@dataclass
class Kind:
    device_kind: str


# defect 7: chips that Lightning's table does not have
@pytest.mark.parametrize("name", ["v2", "v3", "v4", "v5e", "v5p", "v6e", "v7x"])
def test_every_tpu_generation_has_a_peak(name: str) -> None:
    chip = chip_named(name)
    assert chip.flops >= 45e12
    for kind in chip.kinds:
        assert chip_of(Kind(kind)) is chip  # type: ignore[arg-type]


@pytest.mark.parametrize("chip", TPUS, ids=lambda c: c.name)
def test_jax_has_similar_peaks(chip: Chip) -> None:
    version = pltpu.ChipVersion(chip.name.removeprefix("v") if chip.name == "v7x" else chip.name)
    info = pltpu.get_tpu_info_for_chip(version, 1)
    # JAX states one core; a chip is that times its cores. Google's sources differ: v3 is 140e12 in JAX, 123e12 in Cloud's docs
    cores = chip.tensor_cores
    assert info.bf16_ops_per_second * cores == pytest.approx(chip.flops, rel=0.15)
    assert info.mem_bw_bytes_per_second * cores == pytest.approx(chip.memory_bandwidth, rel=0.15)


def test_devices_share_the_chip() -> None:
    v7x = chip_named("ironwood")
    assert (v7x.device_flops, v7x.device_memory) == (1153.5e12, 96 * 1024**3)


def test_cpu_has_no_peak() -> None:
    assert chip_of(jax.devices("cpu")[0]) is None


def test_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"Unknown chip 'v9'\. Expected one of v2, v3, .*trillium"):
        chip_named("v9")
