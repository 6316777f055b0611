"""A call that is to be captured, and what its capture gives."""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx

from ._asked_numbers import Asker
from ._attribute_reads import AttributeReads
from ._effects import Effect, SetItem
from ._given_results import GivenResults
from ._given_texts import GivenText
from ._graph import SlotInput, TensorInput
from ._host_parts import HostPart
from ._library_calls import LibraryCall
from ._lookup_tables import TableChoice
from ._object_graph import Attribute, ObjectGraph, Path
from ._output_tree import OutputTree
from ._size_reads import SizeReads
from ._slots import Slot
from ._speculation import KnownAnswer, Speculation
from ._step_draws import AnyDraw
from ._symbols import HostExpression, Number


@dataclass
class Captured:
    """A step as a graph.

    Attributes:
        graph: functional aten ops. Placeholders: `inputs`, in order, then `scalars`.
        inputs: what each tensor placeholder stands for.
        scalars: host functions of the symbolic numbers: one per number that the graph needs.
        slots: the state that the step was traced with.
        slot_outputs: by slot: the number of the output that is its new value.
        result: what the step returned.
        effects: what else it left in Python objects.
        settings: what it sets once, at its first run: with that in place it does the same without.
        symbol_paths: where the values of the symbolic numbers are found, behind the explicitly given ones.
        guards: conditions on the symbolic numbers under which the graph is valid.
        digest: identifies the graph; computed when it is first needed.
        objects: the objects as they were; the plain values in it are frozen into the graph.
        reads: which attributes of modules the step reads.
        appended: ids of lists that the step appends to.
        speculations: conditions on values of the devices under which the graph is valid.
        scan_layers: whether repeated layers are lowered as one loop.
        draws: calls of `random` and `numpy.random`, whose numbers come behind those of `symbol_paths`.
        replaced: slots whose place gets another object, to whose own one the step does not write.
        drawn: constants that take the arrays among what they give, before every step.
        parts: functions of the host that are called before the program.
        sizes: what Python code did with sizes, from the first one on that values decide.
        texts: those of its arguments that the step keeps or hands on.
        as_traced: what was traced, where the graph is one for all sizes.
    """

    graph: fx.Graph
    inputs: list[SlotInput | TensorInput]
    scalars: list[HostExpression]
    slots: list[Slot]
    slot_outputs: dict[int, int]
    output_count: int
    result: OutputTree
    effects: list[Effect]
    settings: list[SetItem]
    symbol_paths: list[Path]
    guards: list[tuple[HostExpression, str]]
    objects: ObjectGraph
    reads: AttributeReads
    appended: set[int] = field(default_factory=set)
    speculations: list[Speculation] = field(default_factory=list)
    scan_layers: bool = False
    draws: Sequence[AnyDraw] = ()
    drawn: Sequence[torch.Tensor] = ()
    parts: Sequence[HostPart] = ()
    replaced: set[int] = field(default_factory=set)
    digest: str = ""
    sizes: SizeReads = field(default_factory=SizeReads)
    texts: Sequence[GivenText] = ()
    as_traced: Captured | None = None

    def set_up(self) -> None:
        """Carry out what the step sets once: the graph is that of a step that finds it so."""
        for setting in self.settings:
            (value,) = setting.value.leaves
            setting.container[setting.path[-1]] = self.objects.values[setting.path] = value


@dataclass(frozen=True)
class Call:
    """One call to capture.

    Attributes:
        function: the step; called with `rebuild(leaves)` and the symbolic numbers.
        leaves: the tensors among its arguments; only shape and dtype matter here.
        rebuild: from leaves to the positional arguments.
        numbers: Python numbers that stay variable, handed to the function by name.
        roots: the objects that the step uses, by name.
        plain_numbers: names of those that are plain in this trace.
        variable: paths below the roots whose numbers stay variable, too.
        appended: ids of lists that earlier captures saw growing.
        unread: attributes of modules that earlier captures left alone, and that change.
        values: the values of `leaves` on the host; None where they are not known. Then a value cannot decide the way of a
            trace, except between going on and raising.
        forced: the answers to the first questions about values.
        decides_text: whether text that is formatted of a whole number is that of this batch's.
        askers: modules in which `float` or `int` takes values of the trace.
        plain_ints: whether `int` of a value of the trace is a plain number, that of this batch.
        decides_conditions: whether comparisons of values of the devices are plain booleans of this batch's.
        put_off: functions of libraries that are called after the step.
        before: functions of the host that are called before the program, which computes with what they give.
        given: what such functions gave for this batch already.
        opened: by id: attributes of objects of the user's classes that are watched besides numbers; None for all.
        only_shows: whether a step is refused that may work on text of values.
        batch_parts: in how many parts batch normalisation sees the batch.
        is_shared: whether several processes run the step.
        tables: attributes of modules in which the step looks up numbers, and those that are none.
        asked: gets the line where user code had asked for a value before an error came.
    """

    function: Callable[..., Any]
    leaves: Sequence[Any]
    rebuild: Callable[[list[Any]], tuple[Any, ...]]
    numbers: dict[str, Number]
    roots: MutableMapping[str, Any]
    variable: frozenset[Path] = frozenset()
    appended: frozenset[int] = frozenset()
    unread: frozenset[Attribute] = frozenset()
    values: Callable[[], list[torch.Tensor]] | None = None
    forced: tuple[KnownAnswer, ...] = ()
    decides_text: bool = False
    askers: tuple[Asker, ...] = ()
    plain_ints: bool = False
    decides_conditions: bool = False
    put_off: tuple[LibraryCall, ...] = ()
    before: tuple[Callable[..., Any], ...] = ()
    given: GivenResults = field(default_factory=GivenResults)
    opened: Mapping[int, frozenset[str] | None] = field(default_factory=dict)
    only_shows: bool = False
    batch_parts: int = 1
    is_shared: bool = False
    plain_numbers: frozenset[str] = frozenset()
    tables: TableChoice = field(default_factory=TableChoice)
    asked: set[str] = field(default_factory=set)

    def walk(self) -> ObjectGraph:
        """The objects that the step uses, as they are now."""
        return ObjectGraph(self.roots, self.appended, self.unread, self.opened, has_values=self.values is not None)
