"""Predicted time of Pallas kernels, whose cycles the compiler does not tell."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from systolic.hardware import CHIPS, Chip
from systolic.preflight import parse_slice, slice_devices
from systolic.preflight._hlo import analyse
from systolic.preflight._hlo_analysis import Array, CustomCall, Operation
from systolic.preflight._kernel_time import ATTENTION_CYCLES, kernel_seconds

CHIP = CHIPS["v5e"]
SCORES = 48 * 1024 * 768
"""What 4 x 12 causal heads of 1,024 queries look at, in tiles of 512 x 512."""

# bundles for 1,024 scores on one TensorCore, as libtpu 0.0.42.1 schedules causal kernels (--xla_jf_dump_llo_text): by products and
# features
BUNDLES = [
    ("v6e", "attention_forward_512x512", 2, 64, 5.21),
    ("v6e", "attention_backward_512x512", 5, 64, 8.13),
    ("v6e", "attention_forward_1024x1024", 2, 128, 4.06),
    ("v6e", "attention_backward_1024x1024", 5, 128, 7.56),
    ("v6e", "attention_forward_1024x1024", 2, 256, 4.79),
    ("v6e", "attention_backward_1024x1024", 5, 256, 8.04),
    ("v5e", "attention_forward_512x512", 2, 64, 6.53),
    ("v5e", "attention_backward_512x512", 5, 64, 11.85),
    ("v5e", "attention_forward_1024x1024", 2, 128, 6.15),
    ("v5e", "attention_backward_1024x1024", 5, 128, 12.00),
    ("v5e", "attention_forward_1024x1024", 2, 256, 9.87),
    ("v5e", "attention_backward_1024x1024", 5, 256, 20.34),
    ("v5p", "attention_forward_512x512", 2, 64, 6.57),
    ("v5p", "attention_backward_512x512", 5, 64, 11.83),
    ("v5p", "attention_forward_1024x1024", 2, 128, 6.33),
    ("v5p", "attention_backward_1024x1024", 5, 128, 12.49),
    ("v5p", "attention_forward_1024x1024", 2, 256, 9.77),
    ("v5p", "attention_partial_backward_1024x1024", 4, 256, 15.38),
    ("v5p", "attention_partial_backward_1024x1024", 3, 256, 11.98),
    ("v4", "attention_forward_512x512", 2, 64, 8.72),
    ("v4", "attention_backward_512x512", 5, 64, 13.91),
    ("v4", "attention_forward_640x640", 2, 128, 10.78),
    ("v4", "attention_partial_backward_640x640", 3, 128, 9.99),
    ("v4", "attention_partial_backward_640x640", 4, 128, 11.90),
    ("v4", "attention_forward_512x512", 2, 256, 14.54),
    ("v4", "attention_partial_backward_512x512", 4, 256, 19.23),
    ("v4", "attention_partial_backward_512x512", 3, 256, 15.38),
    ("tpu7x", "attention_forward_512x512", 2, 64, 4.43),
    ("tpu7x", "attention_backward_512x512", 5, 64, 7.61),
    ("tpu7x", "attention_forward_1024x1024", 2, 128, 3.65),
    ("tpu7x", "attention_backward_1024x1024", 5, 128, 7.55),
    ("tpu7x", "attention_forward_1024x1024", 2, 256, 4.43),
    ("tpu7x", "attention_partial_backward_1024x1024", 4, 256, 5.12),
    ("tpu7x", "attention_partial_backward_1024x1024", 3, 256, 4.29),
    ("v6e", "attention_forward_1024x1024", 2, 64, 3.79),
    ("v6e", "attention_backward_1024x1024", 5, 64, 6.23),
    ("v5e", "attention_forward_1024x1024", 2, 64, 5.22),
    ("v5e", "attention_backward_1024x1024", 5, 64, 9.87),
    ("v5p", "attention_forward_1024x1024", 2, 64, 5.37),
    ("v5p", "attention_backward_1024x1024", 5, 64, 10.00),
    ("v4", "attention_forward_512x512", 2, 64, 8.87),
    ("tpu7x", "attention_forward_1024x1024", 2, 64, 3.72),
    ("tpu7x", "attention_backward_1024x1024", 5, 64, 6.50),
    ("v6e", "attention_backward_dropout_512x512", 5, 64, 10.34),
    ("v6e", "attention_forward_dropout_512x512", 2, 64, 6.33),
    ("v6e", "attention_backward_dropout_512x512", 5, 128, 10.41),
    ("v6e", "attention_forward_dropout_512x512", 2, 128, 6.49),
    ("v6e", "attention_backward_dropout_1024x1024", 5, 64, 8.51),
    ("v6e", "attention_forward_dropout_1024x1024", 2, 64, 5.01),
    ("v5e", "attention_backward_dropout_512x512", 5, 64, 13.35),
    ("v5e", "attention_forward_dropout_512x512", 2, 64, 8.06),
    ("v5e", "attention_backward_dropout_512x512", 5, 128, 14.12),
    ("v5e", "attention_forward_dropout_512x512", 2, 128, 8.32),
    ("v5e", "attention_backward_dropout_1024x1024", 5, 64, 11.49),
    ("v5e", "attention_forward_dropout_1024x1024", 2, 64, 6.13),
    ("v5p", "attention_backward_dropout_512x512", 5, 64, 13.08),
    ("v5p", "attention_forward_dropout_512x512", 2, 64, 7.94),
    ("v5p", "attention_backward_dropout_512x512", 5, 128, 14.36),
    ("v5p", "attention_forward_dropout_512x512", 2, 128, 8.34),
    ("v5p", "attention_backward_dropout_1024x1024", 5, 64, 11.79),
    ("v5p", "attention_forward_dropout_1024x1024", 2, 64, 6.22),
    ("v4", "attention_backward_dropout_512x512", 5, 64, 31.26),
    ("v4", "attention_forward_dropout_512x512", 2, 64, 24.68),
    ("v4", "attention_backward_dropout_512x512", 5, 128, 32.32),
    ("v4", "attention_forward_dropout_512x512", 2, 128, 25.53),
    ("v4", "attention_backward_dropout_512x512", 5, 64, 36.08),
    ("v4", "attention_forward_dropout_512x512", 2, 64, 25.81),
    ("tpu7x", "attention_backward_dropout_512x512", 5, 64, 9.95),
    ("tpu7x", "attention_forward_dropout_512x512", 2, 64, 6.14),
    ("tpu7x", "attention_backward_dropout_512x512", 5, 128, 10.22),
    ("tpu7x", "attention_forward_dropout_512x512", 2, 128, 6.26),
    ("tpu7x", "attention_backward_dropout_1024x1024", 5, 64, 8.72),
    ("tpu7x", "attention_forward_dropout_1024x1024", 2, 64, 4.93),
    ("v5e", "splash_mha_fwd_residuals", 2, 64, 6.35),
    ("v5e", "splash_mha_dkv_no_residuals", 5, 64, 10.0),
]


def call(kernel: str, flops: int = 4 * 64 * SCORES, size: int | None = 1000, cycles: int | None = None) -> CustomCall:
    array = Array("f32", (1000,), 0)
    operation = Operation(kernel, "custom-call", cycles, 1, (array,), (array,), "", frozenset())
    return CustomCall("tpu_custom_call", kernel, flops, SCORES, size, operation)


def registers(kernel: str, chip: Chip = CHIP, **options: int | None) -> float:
    """Cycles that a kernel is predicted to take for 1,024 scores, of all cores that act as one."""
    return kernel_seconds(call(kernel, **options), chip) * chip.clock_hz / (SCORES / 1024)


@pytest.mark.parametrize(("chip", "kernel", "products", "features", "bundles"), BUNDLES)
def test_attention_takes_the_bundles_that_the_compiler_scheduled(
    chip: str, kernel: str, products: int, features: int, bundles: float
) -> None:
    cores = CHIPS[chip].tensor_cores // CHIPS[chip].devices
    predicted = cores * registers(kernel, CHIPS[chip], flops=products * 2 * features * SCORES)
    assert predicted == pytest.approx(bundles, rel=1 / 6 if chip == "v4" else 1 / 8)


def test_masks_cost_next_to_nothing_and_dropout_a_hash() -> None:
    assert registers("attention_forward_mask_512x512") == registers("attention_forward_512x512")
    assert registers("attention_forward_mask_dropout_512x512") > 1.2 * registers("attention_forward_mask_512x512")


def test_two_cores_that_act_as_one_share_the_scores() -> None:
    chip = CHIPS["v5p"]
    assert (chip.tensor_cores, chip.devices) == (2, 1)
    assert registers("attention_forward_1024x1024", chip, flops=0) == pytest.approx(ATTENTION_CYCLES["v5p"].forward / 2)


def test_other_kernels_have_a_roofline_and_estimated_ones_nothing() -> None:
    assert kernel_seconds(call("doubled", flops=0, size=None), CHIP) == pytest.approx(8000 / CHIP.bandwidth_per_device)
    assert kernel_seconds(call("doubled", flops=10**12), CHIP) == pytest.approx(10**12 / CHIP.flops_per_device)
    assert kernel_seconds(call("attention_forward_512x512", cycles=5), CHIP) == 0.0


def test_every_generation_with_kernels_has_its_cycles() -> None:
    assert set(CHIPS) - {"v2", "v3"} == set(ATTENTION_CYCLES)


@pytest.mark.tables
@pytest.mark.parametrize("shared", [1, 4])
def test_jax_s_kernels_are_counted_with_heads_of_their_own_and_with_shared_ones(shared: int) -> None:
    """Eight heads of 256 queries and keys, 64 features; JAX's name is another one where heads share their keys."""
    pytest.importorskip("libtpu")
    from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_kernel as splash
    from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_mask as masks

    mask = masks.MultiHeadMask([masks.FullMask((256, 256))] * (shared if shared > 1 else 8))
    blocks = dict.fromkeys(("block_q", "block_kv", "block_kv_compute", "block_q_dkv", "block_kv_dkv"), 128)
    sizes = splash.BlockSizes(**blocks, block_kv_dkv_compute=128, use_fused_bwd_kernel=True)
    if shared > 1:
        kernel = jax.vmap(splash.make_splash_mqa_single_device(mask, block_sizes=sizes))
        query, keys = (8 // shared, shared, 256, 64), (8 // shared, 256, 64)
    else:
        kernel = splash.make_splash_mha_single_device(mask, block_sizes=sizes)
        query, keys = (8, 256, 64), (8, 256, 64)
    mesh = Mesh(np.array(slice_devices(parse_slice("v5litepod-4"))), ("data",))

    def step(*inputs: jax.Array) -> jax.Array:
        return jax.grad(lambda *x: jax.vmap(kernel)(*x).astype(jnp.float32).sum(), (0, 1, 2))(*inputs)

    split = NamedSharding(mesh, PartitionSpec("data"))
    inputs = [jax.ShapeDtypeStruct((4, *shape), jnp.bfloat16, sharding=split) for shape in (query, keys, keys)]
    apart = jax.shard_map(step, mesh=mesh, in_specs=PartitionSpec("data"), out_specs=PartitionSpec("data"), check_vma=False)
    compiled = jax.jit(apart).lower(*inputs).compile().as_text()
    assert compiled is not None
    found = {one.kernel[:14]: one for one in analyse(compiled).custom_calls if one.kernel.startswith("splash")}
    name = "splash_mqa" if shared > 1 else "splash_mha"
    assert set(found) == {f"{name}_fwd", f"{name}_dkv"}
    scores = 8 * 256 * 256
    assert found[f"{name}_fwd"].exponentials == found[f"{name}_dkv"].exponentials == scores
    assert found[f"{name}_fwd"].flops == 2 * 2 * 64 * scores
    assert found[f"{name}_dkv"].flops == 5 * 2 * 64 * scores
    assert all(kernel_seconds(one, CHIP) > scores / 1024 * 4 / CHIP.clock_hz for one in found.values())
