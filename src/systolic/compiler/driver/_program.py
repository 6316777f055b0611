"""A captured graph as a compiled XLA program, bound to the buffers that hold its state."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch
from jax.sharding import NamedSharding, PartitionSpec, Sharding
from jax.typing import ArrayLike
from torch import fx

from ...runtime import (
    Buffer,
    Cell,
    CompilerOptions,
    DeviceTensor,
    Placement,
    TensorKind,
    cells_of,
    flush,
    jax_dtype,
    plan_buffers,
    to_jax_array,
)
from ..capture import (
    Captured,
    Gradient,
    Number,
    OptimizerState,
    OutputTree,
    SlotInput,
    Speculation,
    TrainState,
    output_numbers,
    templates_of,
)
from ..lowering import SCOPE, Check, LoweringContext, ValuePlacement, interpret, is_fine
from ..passes import split_state, with_heads_in_place, with_masks_by_shape, with_rows_by_batch
from ._check_watch import CheckWatch
from ._layer_scan import order_with_loops
from ._number_words import number_of, number_record, words
from ._options_of import options_of
from ._ways import verdict_of


@dataclass(frozen=True)
class Piece:
    """Place of a value in a buffer: `offset` -1 means that it is the whole buffer."""

    buffer: int
    offset: int
    shape: tuple[int, ...]


@dataclass(frozen=True)
class Layout:
    """How a graph's values are packed into arrays; everything by number, so that it can be compared.

    Attributes:
        inputs: by placeholder: ("state", piece), ("leaf", i) or ("constant", i).
        donated: the state's buffers that are overwritten, which come first: how each lies on the devices, before and after.
        kept: how the others lie.
        updates: by donated buffer: its pieces in order, each with the output that replaces it (None: unchanged).
        results: groups of outputs that share an array each.
        returned: how many of these groups are what the caller gets; effects keep the others.
        draws: whether the program needs a random key.
        scans: whether repeated layers are one loop.
    """

    inputs: tuple[tuple[str, Any], ...]
    donated: tuple[Sharding, ...]
    kept: tuple[Sharding, ...]
    updates: tuple[tuple[tuple[Piece, int | None], ...], ...]
    results: tuple[tuple[int, ...], ...]
    returned: int
    draws: bool
    scans: bool

    @property
    def shardings(self) -> tuple[Sharding, ...]:
        """How every buffer of the state lies."""
        return *self.donated, *self.kept


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
    checks: list[Check]
    options: CompilerOptions | None


class Program:
    """One compiled step, with the buffers that hold its state."""

    def __init__(self, captured: Captured, placement: Placement, executables: dict[str, Executable], watch: CheckWatch) -> None:
        self.captured = captured
        self.watch = watch
        self.placement = placement
        self.buffers, self.layout = _lay_out(captured, _cells(captured, placement))
        self.places = _places(captured, self.layout)
        self._donated = self.buffers[: len(self.layout.donated)]
        self._kept = self.buffers[len(self.layout.donated) :]
        self._constants = [t.constant for t in captured.inputs if not isinstance(t, SlotInput) and t.constant is not None]
        self._constant_arrays: list[Any] = [None] * len(self._constants)
        self._constant_versions: list[Any] = [None] * len(self._constants)
        self._scalars: Any = None
        self._scalar_values: list[Any] = []
        self._scalar_record = number_record(captured.graph, len(captured.inputs))
        if not captured.digest:
            captured.digest = _digest(captured.graph)
        guessed = [(s.text, s.holds) for s in captured.speculations]
        self.fingerprint = f"{captured.digest} {self.layout} {guessed}"
        self.is_new = self.fingerprint not in executables
        if self.is_new:
            executables[self.fingerprint] = _executable(captured.graph, self.layout, placement, captured.speculations)
        self.function = executables[self.fingerprint].function
        self.checks = executables[self.fingerprint].checks
        self.options = executables[self.fingerprint].options

    def arguments(self, leaves: Sequence[Any], numbers: Sequence[Number]) -> tuple[Any, ...]:
        """Arguments of the compiled function for these inputs."""
        for buffer in self.buffers:
            if buffer.mirrored:
                flush(buffer)
        return (
            [buffer.array for buffer in self._donated],
            [buffer.array for buffer in self._kept],
            leaves,
            self._current_constants() if self._constants else (),
            self._scalar_array(numbers) if self.captured.scalars else None,
            self.watch.outcome,
            self.placement.key.array if self.layout.draws else None,
        )

    def keep(
        self, state: list[jax.Array], outcome: jax.Array, key: jax.Array | None, steps: Sequence[Mapping[str, Number]]
    ) -> None:
        """Put the new state where everybody finds it; `steps` holds the numbers that name each step of the call."""
        self.watch.add(outcome, self.checks, steps)
        self.take_back(state)
        if key is not None:
            self.placement.key.array = key

    def take_back(self, state: list[jax.Array]) -> None:
        """Put the state that a run returned where everybody finds it: the new one, or the old one where it kept that."""
        # the old arrays were donated and are deleted: tensors refer to cells, not to arrays, so that whoever holds a
        # tensor finds the new one
        for buffer, array in zip(self._donated, state, strict=True):
            buffer.array = array

    def _current_constants(self) -> list[Any]:
        versions = [_version(t) for t in self._constants]
        for place, (tensor, version) in enumerate(zip(self._constants, versions, strict=True)):
            if version != self._constant_versions[place]:  # one that is drawn is another one in every step
                self._constant_arrays[place] = self.placement.replicate(to_jax_array(_host(tensor)))
        self._constant_versions = versions
        return self._constant_arrays

    def scalar_words(self, numbers: Sequence[Number]) -> Any:
        """Words that the program gets for these symbolic numbers."""
        return words([expression(numbers) for expression in self.captured.scalars], self._scalar_record)

    def repeated(self, times: int) -> Any:
        """A function that runs this many steps: leaves, scalars and results have a first dimension for the step."""
        assert not self.captured.speculations, "steps that may have to run again run alone"
        return _repeated(self.captured.graph, self.layout, self.placement, self.checks, times, self.options)

    def _scalar_array(self, numbers: Sequence[Number]) -> Any:
        values = [expression(numbers) for expression in self.captured.scalars]
        if values != self._scalar_values:
            self._scalar_values = values
            self._scalars = self.placement.shard(words(values, self._scalar_record))
        return self._scalars

    def result_cells(self, arrays: list[jax.Array]) -> dict[int, Cell]:
        """Results that one run returned to its caller, by output number, as cells that own their arrays."""
        return self._cells_of(self.layout.results[: self.layout.returned], arrays[: self.layout.returned])

    def kept_cells(self, arrays: list[jax.Array]) -> dict[int, Cell]:
        """Values that one run computed for attributes and other places that keep them, by output number."""
        return self._cells_of(self.layout.results[self.layout.returned :], arrays[self.layout.returned :])

    def _cells_of(self, groups: Sequence[tuple[int, ...]], arrays: list[jax.Array]) -> dict[int, Cell]:
        cells: dict[int, Cell] = {}
        for group, array in zip(groups, arrays, strict=True):
            kinds = [_kind(self._output_value(i)) for i in group]
            cells.update(zip(group, cells_of(Buffer(array), kinds), strict=True))
        return cells

    def _output_value(self, index: int) -> Any:
        return _outputs(self.captured.graph)[index].meta["val"]


def _version(tensor: torch.Tensor) -> Any:
    """A value that differs when the tensor may have changed; one that another program updates always may."""
    return object() if isinstance(tensor, DeviceTensor) else tensor._version


def _host(tensor: torch.Tensor) -> torch.Tensor:
    return tensor._cell.host() if isinstance(tensor, DeviceTensor) else tensor


def fill(
    program: Program,
    cells: dict[int, Cell],
    tree: OutputTree,
    numbers: Sequence[Number],
    made: dict[int, DeviceTensor] | None = None,
) -> Any:
    """Build the Python value that an output tree stands for, tensors as DeviceTensors.

    Args:
        program: the program that ran.
        cells: its outputs.
        tree: the value.
        numbers: the symbolic numbers of this run.
        made: by output: the object made for another tree of this run; what was one object in the step stays one.
    """

    def tensor(index: int) -> Any:
        return DeviceTensor(cells[index]) if made is None else made.setdefault(index, DeviceTensor(cells[index]))

    def number(index: int) -> Any:
        return cells[index].host().item()  # host sync: user code keeps the number outside of the step

    return tree.fill(tensor, number, numbers)


def _cells(captured: Captured, placement: Placement) -> list[Cell]:
    state = TrainState.of_slots(captured.slots)
    return placement.cells(state.tensors, state.entries)


def _lay_out(captured: Captured, cells: list[Cell]) -> tuple[list[Buffer], Layout]:
    used = {i.slot for i in captured.inputs if isinstance(i, SlotInput)} | set(captured.slot_outputs)
    changed = list(dict.fromkeys(cells[s].buffer for s in captured.slot_outputs))
    kept = [b for b in dict.fromkeys(cells[s].buffer for s in sorted(used)) if b not in set(changed)]
    buffers = changed + kept
    number = {id(buffer): index for index, buffer in enumerate(buffers)}
    new_value = {id(cells[s]): o for s, o in captured.slot_outputs.items()}

    def piece(cell: Cell) -> Piece:
        return Piece(number[id(cell.buffer)], cell.offset, tuple(cell.shape))

    inputs: list[tuple[str, Any]] = []
    constants = 0
    for source in captured.inputs:
        if isinstance(source, SlotInput):
            inputs.append(("state", piece(cells[source.slot])))
        elif source.constant is not None:
            inputs.append(("constant", constants))
            constants += 1
        else:
            inputs.append(("leaf", source.leaf))
    # also of tensors that the step leaves alone: their buffer is donated as a whole, and what is not written again is lost
    updates = tuple(tuple((piece(c), new_value.get(id(c))) for c in buffer.cells) for buffer in changed)
    returned, kept_results = _result_groups(captured)
    results = tuple(returned + kept_results)
    donated, left = (tuple(buffer.array.sharding for buffer in some) for some in (changed, kept))
    return buffers, Layout(
        tuple(inputs), donated, left, updates, results, len(returned), _draws(captured.graph), captured.scan_layers
    )


def _result_groups(captured: Captured) -> tuple[list[tuple[int, ...]], list[tuple[int, ...]]]:
    """Groups of outputs that are returned to the caller, and of outputs that effects keep.

    They share no array, though an output may be in both: what effects keep becomes state, and later steps overwrite it.
    """
    moments, gradients, others = set[int](), set[int](), set[int]()
    for effect in captured.effects:
        owner = moments if isinstance(effect, OptimizerState) else gradients if isinstance(effect, Gradient) else others
        owner.update(index for tree in templates_of(effect) for index in _indices(tree))
    # apart as the state's kinds are when they come from a checkpoint (`plan_buffers`)
    kept = (gradients - moments, others - gradients - moments, moments)
    return _grouped(captured, _indices(captured.result)), [group for some in kept for group in _grouped(captured, some)]


def _grouped(captured: Captured, indices: Iterable[int]) -> list[tuple[int, ...]]:
    outputs = _outputs(captured.graph)
    chosen = sorted(set(indices))
    plan = plan_buffers([_kind(outputs[i].meta["val"]) for i in chosen])
    return [tuple(chosen[k] for k in group) for group in plan]


def _places(captured: Captured, layout: Layout) -> dict[int, tuple[int, int]]:
    """Beginning, in the arrays, of each output that is returned to the caller: array and element."""
    outputs = _outputs(captured.graph)
    found: dict[int, tuple[int, int]] = {}
    for number, group in enumerate(layout.results[: layout.returned]):
        offset = 0
        for index in group:
            found[index] = number, offset
            offset += _kind(outputs[index].meta["val"])[0].numel()
    return found


def _indices(tree: OutputTree) -> list[int]:
    return [index for leaf in tree.leaves for index in output_numbers(leaf)]


def _outputs(graph: fx.Graph) -> Sequence[Any]:
    return next(iter(reversed(graph.nodes))).args[0]


def _kind(value: object) -> TensorKind:
    if isinstance(value, torch.Tensor):
        return value.shape, value.dtype
    if isinstance(value, torch.SymInt):
        return torch.Size(()), torch.int64
    return torch.Size(()), torch.float32 if isinstance(value, torch.SymFloat) else torch.bool


def _draws(graph: fx.Graph) -> bool:
    ops = (n.target for n in graph.nodes if n.op == "call_function")
    return any(torch.Tag.nondeterministic_seeded in getattr(op, "tags", ()) for op in ops)


def _digest(graph: fx.Graph) -> str:
    """Equal for graphs that compute the same in the same order."""
    digest = hashlib.sha256()
    numbers = {node: index for index, node in enumerate(graph.nodes)}
    for node in graph.nodes:
        target = node.target if node.op == "call_function" else node.op
        arguments = fx.map_arg((node.args, node.kwargs), lambda n: f"%{numbers[n]}")
        value = node.meta.get("val")
        kind = (tuple(value.shape), value.dtype) if isinstance(value, torch.Tensor) else type(value)
        # an op's random number is none of its arguments: without it a program that repeats a mask would be taken for one that
        # draws another
        digest.update(f"{target}{arguments}{kind}{node.meta.get('draw', '')}\n".encode())
    return digest.hexdigest()


def _step_function(
    graph: fx.Graph, layout: Layout, placement: Placement, checks: list[Check], speculations: Sequence[Speculation] = ()
) -> Callable[..., Any]:
    outputs = _outputs(graph)
    record = number_record(graph, len(layout.inputs))
    if placement.platform == "tpu":
        # over split parameters not: the gradient of the output's projection, by heads, would be summed whole on every core
        graph = with_heads_in_place(graph, through_no_ops=len(placement.mesh.axis_names) == 1)
    if placement.mesh.size > 1:
        graph = with_rows_by_batch(graph)
    graph = with_masks_by_shape(graph) if layout.scans else graph
    split = _split_state(graph, layout, placement)
    order = order_with_loops(graph, [kind == "state" for kind, _ in layout.inputs], split) if layout.scans else None

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
        context = LoweringContext(key, placement.batch_shards, placement.platform, **places)
        sources = {"leaf": leaves, "constant": constants}
        values = [_unpacked(buffers, i) if kind == "state" else sources[kind][i] for kind, i in layout.inputs]
        values += [number_of(scalars, record, name) for name in record.names or ()]
        with jax.default_matmul_precision(placement.matmul_precision):
            computed = interpret(graph, values, context, order)
        before = outcome
        checks[:], outcome = context.checks.made, context.checks.outcome(before)
        new = [_packed([_update(buffers, p, o, computed) for p, o in pieces]) for pieces in layout.updates]
        results = [_packed([_as_array(computed[i], outputs[i]) for i in group]) for group in layout.results]
        fine = is_fine(outcome) if checks else None
        if speculations:
            verdict = verdict_of(speculations, computed, placement.platform)
            results.append(verdict)
            # on a wrong way values may be out of range that are not on the right one
            outcome = jnp.where(verdict[0] == 0, outcome, before)
            fine = (verdict[0] == 0) & is_fine(outcome)
        if fine is not None:
            new = _unless_refused(fine, new, donated, [_scope(outputs, pieces) for pieces in layout.updates])
        return new, results, outcome, next_key

    return step


def _split_state(graph: fx.Graph, layout: Layout, placement: Placement) -> ValuePlacement | None:
    if placement.mesh.size == 1:
        return None
    specs = [sharding.spec if isinstance(sharding, NamedSharding) else PartitionSpec() for sharding in layout.shardings]
    before = {node: specs[place.buffer] for node, place in _placeholders(graph, layout, "state").items()}
    new = [(number, buffer) for buffer, pieces in enumerate(layout.updates) for _, number in pieces if number is not None]
    outputs = _outputs(graph)
    return split_state(graph, before, {outputs[number]: specs[buffer] for number, buffer in new}, placement.mesh)


def _placeholders(graph: fx.Graph, layout: Layout, kind: str) -> dict[fx.Node, Any]:
    """A graph's inputs of a kind, with where each comes from."""
    nodes = [node for node in graph.nodes if node.op == "placeholder"]
    return {node: place for node, (found, place) in zip(nodes, layout.inputs, strict=False) if found == kind}


def _unless_refused(
    fine: jax.Array, new: Sequence[jax.Array], old: Sequence[jax.Array], scopes: Sequence[str]
) -> list[jax.Array]:
    """The new state, or the old one after a failed check or on a way that is not this batch's.

    XLA puts the choice into the loop that writes the state.
    """
    chosen = []
    for after, before, scope in zip(new, old, scopes, strict=True):
        with jax.named_scope(scope) if scope else contextlib.nullcontext():  # that loop has its last op's name
            chosen.append(jnp.where(fine, after, before))
    return chosen


def _scope(outputs: Sequence[Any], pieces: Sequence[tuple[Piece, int | None]]) -> str:
    """The scope of the op that computes a buffer's new value."""
    numbers = [number for _, number in pieces if number is not None]
    return outputs[numbers[0]].meta.get(SCOPE, "") if numbers else ""


def _executable(graph: fx.Graph, layout: Layout, placement: Placement, speculations: Sequence[Speculation]) -> Executable:
    checks: list[Check] = []
    step = _step_function(graph, layout, placement, checks, speculations)
    options = options_of(graph, _placeholders(graph, layout, "leaf"), placement)
    return Executable(_jitted(step, layout, placement, options, bool(speculations)), checks, options)


def _repeated(
    graph: fx.Graph, layout: Layout, placement: Placement, checks: list[Check], times: int, options: CompilerOptions | None
) -> Any:
    step = _step_function(graph, layout, placement, checks)

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


def _jitted(
    step: Callable[..., Any], layout: Layout, placement: Placement, options: CompilerOptions | None, judged: bool = False
) -> Any:
    whole = placement.whole
    result_shardings = [whole if len(group) > 1 else None for group in layout.results]
    result_shardings += [whole] if judged else []
    shardings = (list(layout.donated), result_shardings, whole, whole if layout.draws else None)
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
    return jnp.asarray(value, jax_dtype(_kind(node.meta["val"])[1]))


def _packed(arrays: list[jax.Array]) -> jax.Array:
    return arrays[0] if len(arrays) == 1 else jnp.concatenate([a.reshape(-1) for a in arrays])
