"""Predicted time of Pallas kernels, whose cycles the compiler does not tell."""

from __future__ import annotations

import pytest

from systolic.hardware import Chip
from systolic.preflight import parse_slice
from systolic.preflight._hlo_analysis import Array, CustomCall, Operation
from systolic.preflight._kernel_time import ATTENTION_CYCLES, kernel_seconds

CHIP = parse_slice("v5litepod-8").chip
SCORES = 48 * 1024 * 768
"""What 4 x 12 causal heads of 1,024 queries look at, in tiles of 512 x 512."""


def call(kernel: str, flops: int = 4 * 64 * SCORES, size: int | None = 1000, cycles: int | None = None) -> CustomCall:
    array = Array("f32", (1000,), 0)
    operation = Operation(kernel, "custom-call", cycles, 1, (array,), (array,), "", frozenset())
    return CustomCall("tpu_custom_call", kernel, flops, SCORES, size, operation)


def registers(kernel: str, chip: Chip = CHIP, **options: int | None) -> float:
    """Cycles that a kernel is predicted to take for 1,024 scores."""
    return kernel_seconds(call(kernel, **options), chip) * chip.clock_hz / (SCORES / 1024)


@pytest.mark.parametrize(
    ("kernel", "products", "bundles"),
    [
        ("jvp_attention_forward_", 2, 6.61),
        ("attention_forward_dropout", 2, 9.63),
        ("transpose_jvp_attention_backward__", 5, 12.20),
        ("transpose_jvp_attention_backward_dropout__", 5, 14.92),
        ("splash_mha_fwd_residuals", 2, 6.35),
        ("splash_mha_dkv_no_residuals", 5, 10.0),
    ],
)
def test_attention_takes_the_bundles_that_the_compiler_scheduled(kernel: str, products: int, bundles: float) -> None:
    assert registers(kernel, flops=products * 2 * 64 * SCORES) == pytest.approx(bundles, rel=0.05)


def test_masks_cost_next_to_nothing_and_dropout_a_hash() -> None:
    assert registers("attention_forward_mask") == registers("attention_forward")
    assert registers("attention_forward_mask_dropout") > 1.3 * registers("attention_forward_mask")


def test_two_cores_that_act_as_one_share_the_scores() -> None:
    chip = parse_slice("v5p-8").chip
    assert (chip.tensor_cores, chip.devices) == (2, 1)
    assert registers("attention_forward", chip, flops=0) == pytest.approx(ATTENTION_CYCLES["v5p"].forward / 2)


def test_other_kernels_have_a_roofline_and_estimated_ones_nothing() -> None:
    assert kernel_seconds(call("doubled", flops=0, size=None), CHIP) == pytest.approx(8000 / CHIP.bandwidth_per_device)
    assert kernel_seconds(call("doubled", flops=10**12), CHIP) == pytest.approx(10**12 / CHIP.flops_per_device)
    assert kernel_seconds(call("attention_forward", cycles=5), CHIP) == 0.0


def test_every_generation_with_kernels_has_its_cycles() -> None:
    chips = {parse_slice(name).chip.name for name in ("v4-8", "v5litepod-8", "v5p-8", "v6e-8", "tpu7x-8")}
    assert chips == set(ATTENTION_CYCLES)
