"""Programs compiled by the real TPU compiler, and hand-written text for what it does not produce here."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import pallas as pl
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from systolic.preflight import parse_slice, slice_devices
from systolic.preflight._hlo import analyse
from systolic.preflight._hlo_analysis import HloAnalysis, module_of
from systolic.preflight._hlo_text import Array, arrays

pytest.importorskip("libtpu")

STEPS = 5
WIDTH = 512


def double(source: jax.Array, target: jax.Array) -> None:
    target[...] = source[...] * 2


def step(weights: jax.Array, x: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Five times the same layer, and a step of gradient descent."""

    def loss(weights: jax.Array) -> jax.Array:
        h, _ = jax.lax.scan(lambda h, _: (jnp.tanh(h @ weights), None), x, None, length=STEPS)
        return jnp.square(h.astype(jnp.float32)).mean()

    value, grad = jax.value_and_grad(loss)(weights)
    return (weights - 0.1 * grad).astype(weights.dtype), value


@pytest.fixture(scope="module")
def mesh() -> Mesh:
    return Mesh(np.array(slice_devices(parse_slice("v5e:2x4"))), ("data",))


@pytest.fixture(scope="module")
def trained(mesh: Mesh) -> HloAnalysis:
    whole, split = NamedSharding(mesh, PartitionSpec()), NamedSharding(mesh, PartitionSpec("data"))
    weights = jax.ShapeDtypeStruct((WIDTH, WIDTH), jnp.bfloat16, sharding=whole)
    x = jax.ShapeDtypeStruct((1024, WIDTH), jnp.bfloat16, sharding=split)
    compiled = jax.jit(step, donate_argnums=0, out_shardings=(whole, whole)).lower(weights, x).compile()
    return analyse(compiled.as_text())


def test_a_loop_counts_as_often_as_it_runs(trained: HloAnalysis) -> None:
    products = [o for o in trained.operations if "convolution" in o.inner_opcodes]
    # forward, and backward to the input and to the weights
    assert sum(o.times for o in products) >= 2 * STEPS
    assert {o.times for o in products} == {STEPS}
    assert trained.unknown_loops == ()


def test_estimates_are_the_compilers_own(trained: HloAnalysis) -> None:
    estimated = [o for o in trained.operations if o.cycles is not None]
    assert {"fusion"} <= {o.opcode for o in estimated}
    assert trained.estimated_cycles == sum(o.cycles * o.times for o in estimated if o.cycles is not None)
    assert trained.estimated_cycles > 10_000


def test_an_operation_knows_what_it_was_made_from(trained: HloAnalysis) -> None:
    product = next(o for o in trained.operations if "convolution" in o.inner_opcodes)
    assert product.op_name.endswith("dot_general")


def test_an_operation_of_a_layer_that_is_lowered_once_has_the_layers_name(trained: HloAnalysis) -> None:
    call = "jit(step)/backward/model.net.0/jit(layer)"
    for inside, module in (("/.up/[a.py:3]/dot_general", ".up"), ("/.up.0/mul", ".up.0"), ("/[a.py:3]/add", ""), ("/add", "")):
        operation = dataclasses.replace(trained.operations[0], op_name=call + inside)
        assert module_of(operation) == f"backward/model.net.0{module}"


def test_gradients_are_reduced_over_all_cores(trained: HloAnalysis) -> None:
    reductions = {c.bytes: c for c in trained.collectives}
    gradient = reductions[WIDTH * WIDTH * 2]
    assert (gradient.kind, gradient.times, gradient.groups) == ("all-reduce", 1, (tuple(range(8)),))
    assert 4 in reductions, "the loss, a float32"
    assert len(trained.collectives) == 2


def test_dtypes_are_those_of_the_program(trained: HloAnalysis) -> None:
    assert trained.dtypes["bf16"] > trained.dtypes["f32"] > 0
    assert "f64" not in trained.dtypes


def test_bytes_in_vector_memory_are_free(trained: HloAnalysis) -> None:
    # the product's operands fit into VMEM, where the compiler keeps them throughout the loop
    product = next(o for o in trained.operations if "convolution" in o.inner_opcodes)
    assert product.hbm_bytes < sum(a.bytes for a in (*product.operands, *product.results))


def test_a_pallas_kernel_is_a_custom_call_with_its_stated_cost(mesh: Mesh) -> None:
    shape = jax.ShapeDtypeStruct((256, 128), jnp.float32)
    sharding = jax.sharding.SingleDeviceSharding(mesh.devices.flat[0])
    cost = pl.CostEstimate(flops=1234, transcendentals=77, bytes_accessed=5678)
    call = pl.pallas_call(double, out_shape=shape, name="doubled", cost_estimate=cost)
    compiled = jax.jit(call).lower(jax.ShapeDtypeStruct(shape.shape, shape.dtype, sharding=sharding)).compile()
    found = analyse(compiled.as_text())
    (kernel,) = found.custom_calls
    assert (kernel.target, kernel.kernel) == ("tpu_custom_call", "doubled")
    assert (kernel.flops, kernel.exponentials, kernel.bytes) == (1234, 77, 5678)
    # so that they are not counted twice: XLA's count has them
    assert kernel.flops_known_to_xla == 1234 == compiled.cost_analysis()["flops"]
    assert [a.shape for a in (*kernel.operation.operands, *kernel.operation.results)] == [(256, 128)] * 2
    assert kernel.operation.cycles is None
    assert kernel.operation not in found.unestimated


def test_of_a_conditional_the_expensive_branch_counts(mesh: Mesh) -> None:
    sharding = jax.sharding.SingleDeviceSharding(mesh.devices.flat[0])

    def choose(flag: jax.Array, x: jax.Array) -> jax.Array:
        return jax.lax.cond(flag, lambda x: jnp.tanh(x @ x) @ x, lambda x: x * 2, x)

    arguments = [jax.ShapeDtypeStruct((), jnp.bool_), jax.ShapeDtypeStruct((2048, 2048), jnp.bfloat16)]
    placed = [jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=sharding) for a in arguments]
    found = analyse(jax.jit(choose).lower(*placed).compile().as_text())
    assert sum("convolution" in o.inner_opcodes for o in found.operations) == 2


LOOP = """HloModule loops

%body (p: (s32[], f32[8])) -> (s32[], f32[8]) {
  %p = (s32[], f32[8]) parameter(0)
  %i = s32[] get-tuple-element(%p), index=0
  %x = f32[8]{0:T(128)S(1)} get-tuple-element(%p), index=1
  %two = s32[] constant(2)
  %next = s32[] add(%i, %two)
  %work = f32[8]{0:T(128)} fusion(%x), kind=kLoop, calls=%inside, backend_config={"estimated_cycles":"100"}
  ROOT %out = (s32[], f32[8]) tuple(%next, %work)
}

%inside (q: f32[8]) -> f32[8] {
  %q = f32[8]{0} parameter(0)
  ROOT %twice = f32[8]{0} add(%q, %q)
}

%condition (p.1: (s32[], f32[8])) -> pred[] {
  %p.1 = (s32[], f32[8]) parameter(0)
  %i.1 = s32[] get-tuple-element(%p.1), index=0
  %limit = s32[] constant(LIMIT)
  ROOT %less = pred[] compare(%i.1, %limit), direction=LT
}

ENTRY %main (start: s32[], x.1: f32[8]) -> (s32[], f32[8]) {
  %start = s32[] parameter(0)
  %zero = s32[] constant(1)
  %x.1 = f32[8]{0} parameter(1)
  %state = (s32[], f32[8]) tuple(INITIAL, %x.1)
  %gathered = f32[8,8]{1,0} all-gather(%x.1), replica_groups=[2,4]<=[8], dimensions={0}
  %pairs = f32[8]{0} collective-permute(%x.1), source_target_pairs={{0,1},{1,0}}
  ROOT %loop = (s32[], f32[8]) while(%state), condition=%condition, body=%body
}
"""


@pytest.mark.parametrize(("limit", "times"), [(11, 5), (10, 5), (2, 1), (1, 0)])
def test_trips_are_counted_from_start_step_and_limit(limit: int, times: int) -> None:
    found = analyse(LOOP.replace("LIMIT", str(limit)).replace("INITIAL", "%zero"))
    assert found.estimated_cycles == 100 * times
    assert found.unknown_loops == ()


def test_a_loop_of_unknown_length_is_named_and_counted_once() -> None:
    found = analyse(LOOP.replace("LIMIT", "11").replace("INITIAL", "%start"))
    assert found.unknown_loops == ("loop",)
    assert found.estimated_cycles == 100


def test_groups_are_read_in_every_notation() -> None:
    found = analyse(LOOP.replace("LIMIT", "11").replace("INITIAL", "%zero"))
    gathered, permuted = found.collectives
    assert (gathered.kind, gathered.groups, gathered.bytes) == ("all-gather", ((0, 1, 2, 3), (4, 5, 6, 7)), 256)
    assert (permuted.kind, permuted.groups) == ("collective-permute", ((0, 1), (1, 0)))


FUSED = """HloModule step, is_scheduled=true

%begin (a: bf16[8]) -> (bf16[8], bf16[64]) {
  %a = bf16[8]{0} parameter(0)
  %all-gather.1 = bf16[64]{0} all-gather(%a), channel_id=3, replica_groups=[1,8]<=[8], dimensions={0}, frontend_attributes={chain_id="0"}
  ROOT %started = (bf16[8]{0}, bf16[64]{0}) custom-call(%all-gather.1), custom_call_target="AsyncCollectiveStart"
}

%async_collective_fusion.1 (b: bf16[8], w: f32[8]) -> (f32[8], bf16[64]) {
  %b = bf16[8]{0} parameter(0)
  %w = f32[8]{0} parameter(1)
  %work = f32[8]{0} add(%w, %w)
  %all-gather.2 = bf16[64]{0} all-gather(%b), channel_id=3, replica_groups=[1,8]<=[8], dimensions={0}, frontend_attributes={chain_id="0"}
  ROOT %both = (f32[8]{0}, bf16[64]{0}) tuple(%work, %all-gather.2)
}

%another (c: bf16[8]) -> bf16[64] {
  %c = bf16[8]{0} parameter(0)
  ROOT %all-gather.3 = bf16[64]{0} all-gather(%c), channel_id=3, replica_groups=[1,8]<=[8], dimensions={0}, frontend_attributes={chain_id="1"}
}

%all-reduce-scatter.1 (input: f32[64]) -> f32[8] {
  %input = f32[64]{0} parameter(0)
  %all-reduce.1 = f32[64]{0} all-reduce(%input), channel_id=1, replica_groups={{0,1,2,3,4,5,6,7}}, to_apply=%add
  %me = u32[] partition-id()
  ROOT %mine = f32[8]{0} dynamic-slice(%all-reduce.1, %me), dynamic_slice_sizes={8}
}

ENTRY %main (p: bf16[8], q: f32[8], g: f32[64]) -> f32[8] {
  %p = bf16[8]{0} parameter(0)
  %q = f32[8]{0} parameter(1)
  %g = f32[64]{0} parameter(2)
  %fusion.1 = (bf16[8]{0}, bf16[64]{0}) fusion(%p), kind=kCustom, calls=%begin
  %fusion.2 = (f32[8]{0}, bf16[64]{0}) fusion(%p, %q), kind=kOutput, calls=%async_collective_fusion.1
  %fusion.3 = bf16[64]{0} fusion(%p), kind=kCustom, calls=%another
  ROOT %fusion.4 = f32[8]{0} fusion(%g), kind=kCustom, calls=%all-reduce-scatter.1
}
"""


def test_a_collective_beside_several_fusions_counts_once() -> None:
    found = [(c.kind, c.bytes, c.overlaps) for c in analyse(FUSED).collectives]
    assert found == [("all-gather", 128, True), ("all-gather", 128, True), ("reduce-scatter", 256, True)]


def test_types_are_read_with_layouts_and_memory_spaces() -> None:
    text = "(bf16[8,12]{1,0:T(8,128)(2,1)S(1)}, /*index=1*/f8e4m3fn[4]{0}, s4[3]{0}, u32[]{:S(2)}, token[])"
    found = list(arrays(text))
    assert found[:4] == [Array("bf16", (8, 12), 1), Array("f8e4m3fn", (4,)), Array("s4", (3,)), Array("u32", (), 2)]
    assert [a.bytes for a in found] == [192, 4, 2, 4, 0]


def test_text_that_is_no_program_is_refused() -> None:
    with pytest.raises(ValueError, match="ENTRY computation"):
        analyse("nothing")
