"""The function that JAX traces: one step, from the buffers of the state to the new ones."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec
from jax.typing import ArrayLike
from torch import fx

from ..._collector import collector_off
from ...runtime import CompilerOptions, Placement, jax_dtype, place_of
from ...sharding import FSDP_AXIS, TENSOR_AXIS
from ..capture import Captured, Speculation
from ..lowering import SCOPE, LoweringContext, ReadWrites, ValuePlacement, interpret, is_fine
from ..passes import (
    split_state,
    with_activations_again,
    with_alike_parts,
    with_heads_in_place,
    with_images_in_place,
    with_masks_by_shape,
    with_prefixes_as_slices,
    with_rows_by_batch,
    with_scalars_in_vectors,
    with_shared_gradients,
)
from ._check_watch import StepChecks
from ._layer_scan import order_with_loops
from ._layout import Layout, Piece, kind_of, outputs_of, placeholders_of
from ._number_words import number_of, number_record
from ._options_of import options_of
from ._ways import add_step_checks, verdict_of, waits

# numbers of a tensor from which on a copy of it takes longer than the microseconds of a conditional
_LARGE = 2**16


@dataclass(frozen=True)
class Executable:
    """A jitted step.

    Attributes:
        function: takes what `Program.arguments` gives; returns the new state, the results, the outcome of the checks and
            the next random key.
        checks: the checks in it; filled when JAX traces the function.
        options: of XLA for it.
    """

    function: Any
    checks: StepChecks
    options: CompilerOptions | None


def executable_of(captured: Captured, layout: Layout, placement: Placement) -> Executable:
    """A captured step, jitted."""
    checks: StepChecks = []
    step = _step_function(captured.graph, layout, placement, checks, captured.speculations)
    options = options_of(captured, layout, placement)
    return Executable(_jitted(step, layout, placement, options, waits(captured.speculations)), checks, options)


def repeated(
    captured: Captured, layout: Layout, placement: Placement, checks: StepChecks, times: int, options: CompilerOptions | None
) -> Any:
    """A jitted function that runs this many steps: leaves, scalars and results have a first dimension for the step."""
    step = _step_function(captured.graph, layout, placement, checks, captured.speculations)

    def steps(
        donated: Sequence[jax.Array],
        kept: Sequence[jax.Array],
        leaves: Sequence[Any],
        constants: Sequence[jax.Array],
        scalars: Any,
        outcome: jax.Array,
        key: jax.Array | None,
    ) -> Any:
        def body(
            carry: tuple[Sequence[jax.Array], jax.Array, jax.Array | None], inputs: tuple[Sequence[Any], jax.Array | None]
        ) -> Any:
            state, outcome, key = carry
            new, results, outcome, next_key = step(state, kept, inputs[0], constants, inputs[1], outcome, key)
            return (new, outcome, next_key), results

        stacked = [jnp.stack(leaf) if isinstance(leaf, list) else leaf for leaf in leaves]
        carry, results = jax.lax.scan(body, (donated, outcome, key), (stacked, scalars), length=times)
        state, outcome, key = carry
        return state, results, outcome, key

    return _jitted(steps, layout, placement, options)


def _step_function(
    graph: fx.Graph, layout: Layout, placement: Placement, checks: StepChecks, speculations: Sequence[Speculation]
) -> Callable[..., Any]:
    record = number_record(graph, len(layout.inputs))
    graph = with_prefixes_as_slices(graph)
    if placement.platform == "tpu":
        # over split parameters not: the gradient of the output's projection, by heads, would be summed whole on every core
        axes, sizes = placement.mesh.axis_names, placement.mesh.shape
        parts = sizes.get(FSDP_AXIS, 1) * sizes.get(TENSOR_AXIS, 1)
        graph = with_heads_in_place(graph, through_no_ops=len(axes) == 1, weight_parts=parts)
        graph = with_images_in_place(graph)
        if not layout.scans:  # between two loops the function's value is stacked by layers all the same
            graph = with_activations_again(graph)
        graph = with_shared_gradients(graph)
    if placement.mesh.size > 1:
        graph = with_rows_by_batch(graph)
    if layout.scans:
        graph = with_masks_by_shape(graph)
    elif placement.platform == "cpu":
        graph = with_scalars_in_vectors(graph)
    outputs = outputs_of(graph)
    split = _split_state(graph, layout, placement)
    # not in a loop over layers, which evaluates one layer's nodes for all; nor where a batch may be run again on another
    # way, which its values decide
    early = placement.platform == "cpu" and not layout.scans and not waits(speculations)
    written = _written_and_read(outputs, layout) if early else {}
    order = order_with_loops(graph, [kind == "state" for kind, _ in layout.inputs], split) if layout.scans else None
    if order is None and split is None:
        order = with_alike_parts(graph, written.keys())

    @collector_off()
    def step(
        donated: Sequence[jax.Array],
        kept: Sequence[jax.Array],
        leaves: Sequence[Any],
        constants: Sequence[jax.Array],
        scalars: Any,
        outcome: jax.Array,
        key: jax.Array | None,
    ) -> Any:
        buffers = [*donated, *kept]
        next_key, key = jax.random.split(key) if key is not None else (None, None)
        places = {"mesh": placement.mesh, "names_lines": placement.names_lines, "placement": split}
        writes = ReadWrites({node: buffers[buffer] for node, buffer in written.items()}, outcome)
        context = LoweringContext(key, placement.batch_shards, placement.platform, writes=writes, **places)
        sources = {"leaf": leaves, "constant": constants}
        values = [_unpacked(buffers, i) if kind == "state" else sources[kind][i] for kind, i in layout.inputs]
        values += [number_of(scalars, record, name) for name in record.names or ()]
        with jax.default_matmul_precision(placement.matmul_precision):
            computed = interpret(graph, values, context, order)
        before = outcome
        add_step_checks(context.checks, speculations, computed, graph, placement)
        checks[:], outcome = context.checks.made, context.checks.outcome(before)
        new = [_packed([_update(buffers, p, o, computed) for p, o in pieces]) for pieces in layout.updates]
        results = [_packed([_as_array(computed[i], outputs[i]) for i in group]) for group in layout.results]
        fine = is_fine(outcome) if checks else None
        chosen = {written[node] for node in writes.chosen(context.checks)}
        if waits(speculations):
            verdict = verdict_of(speculations, computed, placement)
            results.append(verdict)
            # on a wrong way values may be out of range that are not on the right one
            outcome = jnp.where(verdict[0] == 0, outcome, before)
            fine = (verdict[0] == 0) & is_fine(outcome)
        if fine is not None:
            new = _unless_refused(fine, new, donated, [_scope(outputs, pieces) for pieces in layout.updates], chosen)
        return new, results, outcome, next_key

    return step


def _split_state(graph: fx.Graph, layout: Layout, placement: Placement) -> ValuePlacement | None:
    if placement.mesh.size == 1:
        return None
    specs = [sharding.spec if isinstance(sharding, NamedSharding) else PartitionSpec() for sharding in layout.shardings]
    before = {node: specs[place.buffer] for node, place in placeholders_of(graph, layout, "state").items()}
    new = [(number, buffer) for buffer, pieces in enumerate(layout.updates) for _, number in pieces if number is not None]
    outputs = outputs_of(graph)
    return split_state(graph, before, {outputs[number]: specs[buffer] for number, buffer in new}, placement.mesh)


def _written_and_read(outputs: Sequence[Any], layout: Layout) -> dict[fx.Node, int]:
    """Nodes that give all of a large buffer's new value and that other ops of the step read, with the buffer's number."""
    found: dict[fx.Node, int] = {}
    for buffer, pieces in enumerate(layout.updates):
        piece, number = pieces[0]
        node = None if number is None else outputs[number]
        is_whole = piece.offset < 0 and math.prod(piece.shape) >= _LARGE
        if is_whole and isinstance(node, fx.Node) and node.op == "call_function" and len(node.users) > 1:
            found[node] = buffer
    return found


def _unless_refused(
    fine: jax.Array, new: Sequence[jax.Array], old: Sequence[jax.Array], scopes: Sequence[str], chosen: Collection[int]
) -> list[jax.Array]:
    """The new state, or the old one after a failed check or on a way that is not this batch's.

    XLA puts the choice into the loop that writes the state.

    Args:
        fine: whether it is the new one.
        new: by buffer.
        old: by buffer.
        scopes: by buffer, that of the op which writes it.
        chosen: numbers of buffers that hold the right one already.
    """
    state = []
    for buffer, (after, before, scope) in enumerate(zip(new, old, scopes, strict=True)):
        with jax.named_scope(scope) if scope else contextlib.nullcontext():  # that loop has its last op's name
            state.append(after if buffer in chosen else jnp.where(fine, after, before))
    return state


def _scope(outputs: Sequence[Any], pieces: Sequence[tuple[Piece, int | None]]) -> str:
    """The scope of the op that computes a buffer's new value."""
    numbers = [number for _, number in pieces if number is not None]
    return outputs[numbers[0]].meta.get(SCOPE, "") if numbers else ""


def _jitted(
    step: Callable[..., Any], layout: Layout, placement: Placement, options: CompilerOptions | None, judged: bool = False
) -> Any:
    whole = placement.whole
    result_shardings = [whole if len(group) > 1 else None for group in layout.results]
    result_shardings += [whole] if judged else []
    # the state comes out as it went in: memory is donated to an array in the same order only
    donated = [
        place_of(sharding, pieces[0][0].shape) if pieces[0][0].offset < 0 else sharding
        for sharding, pieces in zip(layout.donated, layout.updates, strict=True)
    ]
    shardings = (donated, result_shardings, whole, whole if layout.draws else None)
    return jax.jit(step, donate_argnums=(0,), out_shardings=shardings, compiler_options=options)


def _unpacked(buffers: list[jax.Array], piece: Piece) -> jax.Array:
    array = buffers[piece.buffer]
    if piece.offset < 0:
        return array
    size = int(np.prod(piece.shape, dtype=np.int64))
    return array[piece.offset : piece.offset + size].reshape(piece.shape)


def _update(buffers: list[jax.Array], piece: Piece, output: int | None, computed: Sequence[Any]) -> jax.Array:
    return _unpacked(buffers, piece) if output is None else computed[output]


def _as_array(value: ArrayLike, node: fx.Node) -> jax.Array:
    return jnp.asarray(value, jax_dtype(kind_of(node)[1]))


def _packed(arrays: list[jax.Array]) -> jax.Array:
    return arrays[0] if len(arrays) == 1 else jnp.concatenate([a.reshape(-1) for a in arrays])
