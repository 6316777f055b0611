"""Peaks of devices, compared with the library that knows them."""

from __future__ import annotations

from dataclasses import dataclass

import jax
import pytest
from jax.experimental.pallas import tpu as pltpu

from systolic.hardware._peaks import peak_flops


@dataclass
class Kind:
    device_kind: str


KINDS = {
    "TPU v2": pltpu.ChipVersion.TPU_V2,
    "TPU v3": pltpu.ChipVersion.TPU_V3,
    "TPU v4": pltpu.ChipVersion.TPU_V4,
    "TPU v5 lite": pltpu.ChipVersion.TPU_V5E,
    "TPU v5": pltpu.ChipVersion.TPU_V5P,
    "TPU v6 lite": pltpu.ChipVersion.TPU_V6E,
    "TPU7x": pltpu.ChipVersion.TPU_7X,
}
CORES_OF_A_DEVICE = {"TPU v4": 2, "TPU v5": 2}  # two cores act as one


# defect 7: chips that Lightning's table does not have
@pytest.mark.parametrize("kind", KINDS)
def test_every_tpu_generation_has_a_peak(kind: str) -> None:
    core = pltpu.get_tpu_info_for_chip(KINDS[kind], 1).bf16_ops_per_second
    # Google's sources differ: v3 is 140e12 in JAX, 123e12 in Cloud's docs
    assert peak_flops(Kind(kind)) == pytest.approx(core * CORES_OF_A_DEVICE.get(kind, 1), rel=0.15)  # type: ignore[arg-type]


def test_gpus_and_unknown_devices() -> None:
    assert peak_flops(Kind("NVIDIA H200")) == 989.5e12  # type: ignore[arg-type]
    assert peak_flops(Kind("TPU v9")) is None  # type: ignore[arg-type]
    assert peak_flops(jax.devices("cpu")[0]) is None
