"""Keep the programs of one step function, and know which of them is valid now."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, MutableMapping, Sequence
from functools import partial
from typing import Any

import jax
import numpy as np
import torch

from ...distributed import counted_step
from ...runtime import DeviceTensor, Placement, tensors_returned
from ..capture import (
    Attribute,
    Call,
    Captured,
    GivenResults,
    Guards,
    KnownAnswer,
    Number,
    ObjectGraph,
    ObjectIsReadError,
    ObjectsHoldValuesError,
    Path,
    StepDraws,
    TableChoice,
    UnwatchedIsReadError,
    capture,
    changes,
    effect_texts,
    fill_first_state,
    forget_unused,
    may_come_from_symbols,
    notes_stay,
    require_own_memory,
    steady,
    take_gradients,
)
from ..passes import Remat, model_flops
from ._all_sizes import for_all_sizes
from ._arguments import Kind, Rebuild, decides_otherwise, fits, signature_of, values_of, values_or_none
from ._binding import bind, release
from ._capture_lock import CAPTURE_LOCK
from ._check_watch import CheckWatch
from ._compilations import Compile, CompileListener, NoListener, compile_ahead
from ._entry import Entry
from ._left_alone import what_counts, without_a_trace
from ._more_watched import MoreWatched
from ._other_objects import let_take_their_places, watches_lists_of
from ._program import Program
from ._recompilation import NameOf, Signature, argument, require_programs, signature_change
from ._remat import apply_remat
from ._result import StepResult
from ._run_again import RunAgain
from ._step_function import Executable
from ._varying_numbers import VaryingNumbers
from ._ways import NO_MISSES, Misses, Ways


class Engine:
    """A step function with its compiled programs.

    Args:
        function: the step, in plain PyTorch.
        roots: returns the objects that it uses, by name.
        placement: the devices.
        listener: is told of compilations.

    Attributes:
        compiles: every compilation so far.
        program_limit: how many programs the step may have; None for any number.
        varying: which plain numbers its programs take as inputs.
        name_of: names the tensors of the arguments in reasons for compiling.
        remat: what backward passes compute once more in place of keeping it; None leaves the program as it is.
        scan_layers: whether repeated layers become one loop.
        check: is called with each new capture, and may refuse it.
        memory_limit: a program that needs more bytes on one device is refused after it was compiled; None asks nothing.
        temporary_bytes: what the largest program needs on each device besides its arguments and results.
        watch: the outcome of the checks inside the steps.
        settles: whether each step waits for its checks, and leaves nothing in Python objects where one fails.
        only_shows: whether a step is refused that may work on text of values; else only one that did.
        asked: lines where user code had asked for values before the last capture ended in an error.
        is_capturing: whether a capture goes on, or ended in an error.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        roots: Callable[[], MutableMapping[str, Any]],
        placement: Placement,
        listener: CompileListener | None = None,
    ) -> None:
        self.listener = listener or NoListener()
        self.function = function
        self.roots = roots
        self.placement = placement
        self.compiles: list[Compile] = []
        self.temporary_bytes = 0
        self.memory_limit: int | None = None
        self.program_limit: int | None = None
        self.check: Callable[[Captured], None] | None = None
        self.remat: Remat | None = None
        self.scan_layers = False
        self.name_of: NameOf = argument
        self._flops: dict[str, int] = {}
        self._entries: list[Entry] = []
        self._executables: dict[str, Executable] = {}
        self.varying = VaryingNumbers()
        self._appended, self._read, self._unread = set[int](), set[int](), set[Attribute]()
        self._more = MoreWatched()
        self._tables = TableChoice()
        self._runs, self._returned, self._made_at = 0, tensors_returned(), list[int]()
        self.last_numbers: list[Number] = []
        self.watch = CheckWatch(placement)
        self.settles = self.only_shows = self.is_capturing = False
        self.asked: set[str] = set()
        self.ways = Ways()

    def run(
        self,
        leaves: Sequence[Any],
        structure: object,
        rebuild: Rebuild,
        numbers: dict[str, Number],
    ) -> StepResult:
        """Run one step.

        Args:
            leaves: the tensors of the arguments, as `jax.Array`s on the devices.
            structure: a value that is equal for calls whose arguments differ in tensor values only.
            rebuild: makes the positional arguments from a list of tensors.
            numbers: Python numbers that may differ in every call.

        Raises:
            OutOfRangeError: an earlier step met an index that eager PyTorch refuses; this one was not run.
            Exception: an earlier step met a condition for which its own code raises.
        """
        self.watch.look()
        signature = signature_of(leaves, structure)
        misses, drawn = Misses(), StepDraws()
        while True:
            found = self._find(signature, numbers, drawn, misses)
            if found is None:
                found = self._spared(signature, numbers, drawn, misses)
            if found is None:
                found = self._captured_entry(leaves, signature, rebuild, numbers, drawn, misses)
            entry, values = found
            if entry.pending:
                self._compile(entry, leaves, values)
            self.last_numbers = values
            program = entry.program
            if program.captured.draws:
                drawn.write(program.captured.drawn)
            if program.before:
                took = partial(self._took_the_way, misses=misses)
                named = lambda first: (numbers, self.again(first, leaves, rebuild, numbers, misses.given))  # noqa: E731
                if not program.feed(leaves, values, misses, took, named):
                    continue
            if self.placement.is_shared:
                counted_step(program.fingerprint, [*values, *drawn.sums(), *program.sums()])
            # for our programs only: int64 means 64 bits as in PyTorch, while JAX code of the user's own keeps JAX's types
            with jax.enable_x64(True):
                state, arrays, outcome, key = program.function(*program.arguments(leaves, values))
            if not program.waits or self._took_the_way(program, arrays.pop(), misses):
                break
            program.take_back(state)
        self._runs += 1
        program.keep(state, outcome, key, [(numbers, self.again(program, leaves, rebuild, numbers, misses.given))])
        if self.settles:
            self.watch.settle()
        result = StepResult(program, arrays, values)
        if program.captured.effects:
            result.apply_effects()
        return result

    def _took_the_way(self, program: Program, verdict: jax.Array, misses: Misses) -> bool:
        """Whether the batch went the way that the program was traced for; notes where not."""
        failed, *numbers = np.asarray(verdict).tolist()  # host sync: the batch may have to run under another program
        self.ways.note(program.captured.speculations, failed)
        if failed:
            misses.add(program.captured.speculations, failed - 1, numbers)
        return not failed

    def again(
        self, program: Program, leaves: Sequence[Any], rebuild: Rebuild, numbers: dict[str, Number], given: GivenResults
    ) -> RunAgain | None:
        """A step that was given to the devices, to let it raise an error of its own; None where its code has none."""
        if not program.raises:
            return None

        def trace(forced: tuple[KnownAnswer, ...]) -> Captured:
            with CAPTURE_LOCK:
                return self._captured(leaves, rebuild, numbers, self._roots(), values_of(leaves), forced, given)

        return RunAgain(trace, program.captured.speculations, numbers)

    def ready(
        self, leaves: Sequence[Any], structure: object, numbers: dict[str, Number]
    ) -> tuple[Program | None, list[Number]]:
        """The program that a step would run now, with its numbers, when it is compiled and changes no Python objects."""
        if any(entry.program.captured.draws for entry in self._entries):  # to look for one would draw its numbers
            return None, []
        found = self._find(signature_of(leaves, structure), numbers, StepDraws())
        program = None if found is None or found[0].pending else found[0].program
        if found is None or program is None or not program.leaves_nothing:
            return None, []
        return program, found[1]

    def _spared(self, signature: Signature, *call: Any) -> tuple[Entry, list[Number]] | None:
        """A program that is spared another trace; one after the other, because the first may be of another way."""
        found = None
        for _ in range(len(self._entries)):
            if found is not None or not self._spares(signature):
                break
            found = self._find(signature, *call)
        return found

    def _find(
        self, signature: Signature, numbers: dict[str, Number], drawn: StepDraws, misses: Misses = NO_MISSES
    ) -> tuple[Entry, list[Number]] | None:
        if self._returned != tensors_returned():  # another run of these objects may have ended meanwhile
            self._returned, self._entries = tensors_returned(), [e for e in self._entries if e.program.has_its_state()]
        for position, entry in enumerate(self._entries):
            captured = entry.program.captured
            decides = captured.speculations or captured.parts
            if entry.signature != signature or (decides and misses.exclude(captured)):
                continue
            variable = values_or_none(entry.guards)
            if variable is None:
                continue
            values = [*numbers.values(), *variable]
            if captured.draws or drawn.happened:
                try:
                    values += drawn.of(captured.draws, values)
                except IndexError:  # where the step is not to look up a number
                    continue
            if fits(entry.guards.unchanged, values):
                pass
            elif not fits(entry.guards.hold, values):
                continue
            elif not entry.guards.same_gradients():
                bind(self._objects(), self.placement)
                self._rebind(entry)
            if position:
                self._entries.insert(0, self._entries.pop(position))
            return entry, values
        drawn.take_back()
        return None

    def _rebind(self, entry: Entry) -> None:
        """Tensors stand where others stood (gradients that were removed and came back): the same graph, other buffers."""
        captured = entry.program.captured
        take_gradients(captured.slots)
        entry.program = Program(captured, self.placement, self._executables, self.watch)
        entry.guards.accept_gradients()
        if entry.program.is_new:
            entry.pending = True
            self.compiles.append(Compile("tensors lie in other buffers", 0.0, 0.0, True))

    def _captured_entry(self, *call: Any) -> tuple[Entry, list[Number]]:
        """Capture a call; once more where it turned out to read what was not watched."""
        with CAPTURE_LOCK, notes_stay():
            try:
                return self._opening(*call)
            except UnwatchedIsReadError as error:
                self._read |= error.lists
                self._more.note_read(self._objects(), error.lists)
                self._appended -= error.lists
                self._unread -= error.attributes
                if error.lists:
                    self._entries.clear()  # they take these lists for ones that need no look
                return self._opening(*call)

    def _opening(self, *call: Any) -> tuple[Entry, list[Number]]:
        """Capture a call; again with more objects watched where it left values in some."""
        while True:
            try:
                return self._capture(*call)
            except (ObjectsHoldValuesError, ObjectIsReadError) as error:
                self._more.note(error)
                self._entries.clear()  # their guards know less

    def _roots(self) -> MutableMapping[str, Any]:
        """The objects that the step uses, those included that it turned out to read."""
        return self._more.added_to(self.roots())

    def _spares(self, signature: Signature) -> bool:
        """Whether a program is spared another trace: its step leaves alone what changed, or gets it as other buffers."""
        objects = self._objects()
        for entry in (one for one in self._entries if one.signature == signature and one.guards.same_settings()):
            captured = entry.program.captured
            if self._more.follow(captured, objects, self._appended, self._read):
                objects = self._objects()
            attributes, others = without_a_trace(captured, objects)
            if not attributes and not others:
                continue
            self._unread |= attributes
            objects = self._objects()
            if not let_take_their_places(captured, objects, self.placement):
                continue
            before, entry.guards = entry.guards, Guards(objects, captured.symbol_paths, captured.guards)
            if others or not before.same_gradients():
                self._rebind(entry)
            return True
        return False

    def _objects(self) -> ObjectGraph:
        """A walk over what the step uses, but for what need not be watched."""
        return ObjectGraph(self._roots(), self._appended, self._unread, self._more.opened, has_values=True)

    def _capture(
        self,
        leaves: Sequence[Any],
        signature: Signature,
        rebuild: Rebuild,
        numbers: dict[str, Number],
        drawn: StepDraws,
        misses: Misses,
    ) -> tuple[Entry, list[Number]]:
        self.is_capturing = True
        self.asked.clear()
        roots = self._roots()
        guessed = [(o, fill_first_state(o)) for o in self._objects().optimizers().values()]
        bind(self._objects(), self.placement)
        told = misses.forced(), misses.given
        reason = misses.reason() or self._explain(signature, self._objects(), [*numbers.values()])
        self.listener.tracing(reason)
        started = time.perf_counter()
        captured = self._captured(leaves, rebuild, numbers, roots, values_of(leaves), *told)
        # eager PyTorch has no state for parameters without gradient, and checkpoints shall hold none; the first capture has it,
        # in slots that would keep its arrays on the devices, and in guards
        if forget_unused(guessed, captured):
            captured = self._captured(leaves, rebuild, numbers, roots, values_of(leaves), *told)
        if not all(isinstance(slot.tensor, DeviceTensor) for slot in captured.slots):
            bind(captured.objects, self.placement)  # a thread of the user's has given the objects tensors meanwhile
        if self.remat is None and not self.scan_layers and not captured.parts:
            same = (entry.program.captured for entry in self._entries if entry.signature == signature)
            captured = for_all_sizes(captured, same)
        if self.check is not None:
            self.check(captured)
        require_own_memory(captured, self.placement.shared_memory)
        traced = time.perf_counter() - started
        captured.set_up()
        self._appended |= self._more.only_appended(captured) - self._read
        program = Program(captured, self.placement, self._executables, self.watch)
        guards = Guards(captured.objects, captured.symbol_paths, captured.guards)
        entry = Entry(program, guards, signature, tuple(numbers))
        known = [e for e in self._entries if e.signature != signature or not watches_lists_of(e.program.captured, captured)]
        self._entries = [entry, *known]
        self.compiles.append(Compile(reason, traced, 0.0, program.is_new, effects=effect_texts(captured.effects)))
        if not program.is_new:
            self.listener.finished(traced, 0.0, 0.0)
        variable = guards.variable_values()
        assert variable is not None
        self.is_capturing = False
        values = [*numbers.values(), *variable]
        return entry, [*values, *drawn.of(captured.draws, values)]

    def capture_steady(self, leaves: Sequence[Any], rebuild: Rebuild, numbers: dict[str, Number]) -> Captured:
        """Capture the step that repeats, moving nothing; arguments as for `run`, of which only shapes matter.

        The objects are afterwards as they were before.
        """
        self._explain(None, ObjectGraph(self._roots()))
        while True:
            try:
                return steady(self._roots(), numbers, lambda: self._captured(leaves, rebuild, numbers, self._roots()))
            except (ObjectsHoldValuesError, ObjectIsReadError) as error:
                self._more.note(error)

    def _captured(
        self,
        leaves: Sequence[Any],
        rebuild: Rebuild,
        numbers: dict[str, Number],
        roots: MutableMapping[str, Any],
        of_leaves: Callable[[], list[torch.Tensor]] | None = None,
        forced: tuple[KnownAnswer, ...] = (),
        given: GivenResults | None = None,
    ) -> Captured:
        fakes = [Kind(leaf) for leaf in leaves]
        unwatched = frozenset(self._appended), frozenset(self._unread)
        make = lambda variable: Call(  # noqa: E731
            self.function, fakes, rebuild, numbers, roots, frozenset(variable), *unwatched, of_leaves, forced,
            opened=self._more.opened, only_shows=self.only_shows, batch_parts=self.placement.batch_shards, asked=self.asked,
            is_shared=self.placement.is_shared, tables=self._tables, given=given or GivenResults(),
        )  # fmt: skip
        for variable in self.varying.choices():
            try:
                captured = capture(make(variable))
            except Exception as error:
                # a symbolic number was used in a way that only a plain number allows: freeze it, and compile per value
                if not may_come_from_symbols(error, variable):
                    raise
                continue
            return self._proved(captured, variable)
        return self._proved(capture(make(())), frozenset())

    def _proved(self, captured: Captured, variable: frozenset[Path]) -> Captured:
        """Remember which numbers can be variable, and freeze the others."""
        if self.remat is not None:
            apply_remat(captured, self.remat)
        captured.scan_layers = self.scan_layers
        self.varying.proved(variable)
        return captured

    def _explain(self, signature: Any, objects: ObjectGraph, numbers: Sequence[Number] = ()) -> str:
        self.varying.notice(objects.values, self._more.read_places)
        if not self._entries:
            return "first call"
        same = [entry for entry in self._entries if entry.signature == signature]
        if not same:
            return signature_change([entry.signature for entry in self._entries], signature, self.name_of)
        last, guards = same[0].program.captured, same[0].guards
        found = changes(last.objects, objects)
        for path, _ in found:
            self.varying.add(path, last.objects.values.get(path), objects.values.get(path))
        texts = guards.changed_settings(objects) + what_counts(last, objects, found) or [text for _, text in found]
        return "; ".join(texts[:5]) or decides_otherwise(guards, last.draws, numbers)

    def _compile(self, entry: Entry, leaves: Sequence[Any], values: list[Number]) -> None:
        entry.pending = False
        for first, _ in entry.program.before:
            if first.is_new:
                self.compiled(first.function, first.arguments(leaves, values), self.compiles[-1].reason, first.fingerprint)
        if entry.program.is_new:
            last = self.compiles[-1]
            if self.program_limit is not None:
                self._make_room(self.program_limit)
            arguments = entry.program.arguments(leaves, values)
            program = entry.program
            compiled = self.compiled(program.function, arguments, last.reason, program.fingerprint, last.trace_seconds)
            self.compiles[-1] = dataclasses.replace(compiled, effects=last.effects)

    def _make_room(self, limit: int) -> None:
        """Have room for one more program, where the step is not one that asks for them again and again."""
        new = [c.reason for c in self.compiles if c.is_new_executable]
        self._made_at.append(self._runs)
        require_programs(len(new) - 1, limit, new, self._runs - self._made_at[-limit - 1 :][0])
        if len(new) > limit:
            del self._entries[limit:]  # those that ran longest ago
            self._executables = {name: self._executables[name] for name in (e.program.fingerprint for e in self._entries)}

    def compiled(
        self,
        function: jax.stages.Wrapped,
        arguments: Sequence[Any],
        reason: str,
        fingerprint: str,
        trace_seconds: float = 0.0,
    ) -> Compile:
        """Have XLA compile a jitted function for these arguments, through the cache on disk.

        Raises:
            OutOfMemoryError: the program needs more than `memory_limit`.
        """
        self.listener.compiling(reason, fingerprint)
        made = compile_ahead(function, arguments, reason, self.placement.is_shared, self.memory_limit)
        self.temporary_bytes = max(self.temporary_bytes, made.memory.temporaries if made.memory is not None else 0)
        self.listener.finished(trace_seconds, made.compile_seconds, made.saved_seconds)
        return dataclasses.replace(made, trace_seconds=trace_seconds)

    @property
    def deciding_programs(self) -> int:
        """How many programs hold for batches only whose values decide as one batch's did."""
        return sum(entry.program.waits for entry in self._entries)

    @property
    def steps_behind(self) -> int:
        """How many steps the host took for done, from one on for which an error was raised later."""
        return 0 if self.settles else self.watch.behind

    def flush(self) -> None:
        """Nothing waits: every step runs when it is asked for."""

    def verify(self) -> None:
        """Wait for the checks of every step so far.

        Raises:
            OutOfRangeError: a step met an index that eager PyTorch refuses.
        """
        self.watch.settle()

    def model_flops(self) -> int | None:
        """FLOPs of the program that ran last, over all devices; None before the first run."""
        if not self._entries:
            return None
        program = self._entries[0].program
        if program.fingerprint not in self._flops:
            self._flops[program.fingerprint] = model_flops(program.captured.graph)
        return self._flops[program.fingerprint]

    def release(self) -> None:
        """Give the objects ordinary CPU tensors again, with the current values, and forget the programs."""
        release(self._roots(), self._more.opened)
        self._entries.clear()
