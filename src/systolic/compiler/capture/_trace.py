"""Run a step once under PyTorch's tracer and keep what it did as one functional graph."""

from __future__ import annotations

import contextlib
import dataclasses
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import nn

from ..._collector import collector_paused
from ...runtime import DeviceTensor
from ...utilities._torch_internals import FakeTensorMode, decompose, dispatch_functionalize, fake_tensor, make_fx
from .._errors import DataDependentError, HiddenRandomnessError, user_line_of
from ..kernels import normalising_parts
from ._array_writes import ArrayWrites
from ._asked_numbers import NumberIsAskedError, traced_numbers
from ._attribute_reads import AttributeReads
from ._cached_functions import caches_left_alone
from ._call import Call, Captured
from ._clocks import clocks_told
from ._closed_over import ClosedOverTensors
from ._decided import deciding_conditions, wants_booleans
from ._effects import Append, Effect, Gradient, OptimizerState, RequiresGrad, SetItem, container_effects
from ._explain import explained, host_needed
from ._final_tensors import FinalTensors
from ._first_settings import FirstSettings
from ._fixed_shapes import fix_shapes
from ._given_texts import TextsAreReadError
from ._graph import SlotInput, clean_graph
from ._grown_lists import GrownLists
from ._hook_tables import hook_effects, share_hooks
from ._host_calls import HostCalls, TextIsKeyError
from ._host_draws import HostDraws
from ._host_functions import files_after_the_step, put_off, quasirandom_on_the_host
from ._host_parts import HostParts
from ._host_result import HostResultIsNeededError
from ._iterators import refusing_iterators
from ._known_packages import SetUpIsAskedError, set_ups_asked
from ._library_calls import LibraryIsAskedError, fails_in_library, function_that_failed
from ._lookup_tables import LookupTables, TableIsAskedError, TableIsWrittenError
from ._memory_writes import share_memory
from ._mock_calls import counting_mocks
from ._numpy_numbers import NUMPY_NUMBERS, of_kind, plain_value
from ._object_graph import Attribute, ObjectGraph, Path, Snapshot, copied, holds_the_same, restoring, set_at
from ._op_origins import tracking_modules
from ._op_policy import OpPolicy
from ._other_threads import telling_other_threads
from ._output_tree import OutputList, OutputTree
from ._own_generators import standing_in
from ._plain_contents import ObjectsHoldValuesError, PlainObjects
from ._randomness import UnattributedDrawError, refusing_hidden_randomness
from ._rng_numbering import number_draws
from ._schedulers import schedulers_on_the_host
from ._size_reads import watching
from ._slots import cells_of_slots, require_unexchanged, slots_of, with_same_memory
from ._speculation import Oracle
from ._step_draws import AnyDraw
from ._streams import streams_after_the_step
from ._symbol_errors import wants_plain_numbers
from ._symbols import SymbolTable
from ._torch_patches import capturing
from ._traced_arrays import ArrayIsWrittenError, arrays_made
from ._watched_objects import watching_objects

_MAX_PUT_OFF = 12
"""A step that calls more functions of libraries with values is refused: each of them costs a trace."""


def capture(call: Call) -> Captured:
    """Trace one call.

    Raises:
        CaptureError: when the step cannot be one program: an op without a lowering, control flow that depends on
            device values, hidden random numbers; with the line of user code.
    """
    while True:
        try:
            with collector_paused():  # until the graph is cleaned: else the collector walks through all of the trace before
                return _captured(call)
        except TextsAreReadError:
            pass  # the arguments are made with these themselves now
        except TextIsKeyError:
            call = dataclasses.replace(call, decides_text=True)
        except (TableIsAskedError, TableIsWrittenError) as error:
            call.tables.note(error)
        except NumberIsAskedError as error:
            call = dataclasses.replace(call, askers=(*call.askers, error.asker))
        except LibraryIsAskedError as error:
            if len(call.put_off) >= _MAX_PUT_OFF or any(one.function is error.call.function for one in call.put_off):
                raise DataDependentError(host_needed(user_line_of(error))) from None
            call = dataclasses.replace(call, put_off=(*call.put_off, error.call))
        except ArrayIsWrittenError:
            raise
        except SetUpIsAskedError as error:
            error.set_up()
        except HostResultIsNeededError as error:
            if call.only_shows:  # such a step can run on the host, where a result of other values asks for no new program
                raise DataDependentError(host_needed(user_line_of(error))) from None
            call = dataclasses.replace(call, before=(*call.before, error.function))
        except Exception as error:
            floats = tuple(asker for asker in call.askers if asker.name != "int")
            if not call.decides_conditions and wants_booleans(error):
                call = dataclasses.replace(call, decides_conditions=True)
            elif floats != call.askers:  # something may want an `int` of Python's, as `json.dumps` does
                call = dataclasses.replace(call, askers=floats, plain_ints=True)
            elif not call.variable and wants_plain_numbers(error) and (plain := _next_plain(call)):
                call = dataclasses.replace(call, plain_numbers=plain)
            else:
                failed = function_that_failed(error) if call.asked and len(call.put_off) < _MAX_PUT_OFF else None
                if failed is None or any(one.function is failed.function for one in call.put_off):
                    if call.asked and fails_in_library(error):
                        raise DataDependentError(host_needed(user_line_of(error, in_packages=False))) from error
                    raise
                # where plain numbers were all tried and cured nothing, they would only make each batch a program of its own
                plain = frozenset[str]() if wants_plain_numbers(error) else call.plain_numbers
                call = dataclasses.replace(call, put_off=(*call.put_off, failed), plain_numbers=plain)


def _next_plain(call: Call) -> frozenset[str]:
    """The next numbers to try as plain ones; one of them first: what reads an epoch alone need not be traced for each batch."""
    ways = [frozenset[str](), *(frozenset({name}) for name in call.numbers), frozenset(call.numbers)]
    place = ways.index(call.plain_numbers) + 1
    return ways[place] if place < len(ways) else frozenset()


def _captured(call: Call) -> Captured:
    try:
        captured = _Tracing(call, call.walk()).run()
    except UnattributedDrawError:
        return _Tracing(call, call.walk()).run(profiled=True)
    for _ in range(_MAX_DRAWING_TRACES):
        if not captured.draws:
            return captured
        tracing = _Tracing(call, call.walk(), captured.draws)
        captured = tracing.run()
        if tracing.draws.are_expected:
            return captured
    raise HiddenRandomnessError("The step draws numbers by which it decides what to draw next, in ever new ways.")


_MAX_DRAWING_TRACES = 8
"""One gives each number that was drawn a symbol; what is drawn, or looked up, by these is drawn anew in the next."""


class UnwatchedIsReadError(Exception):
    """Something that was not looked at is read by this step: it has to be captured with it.

    Attributes:
        lists: the ids of lists that were taken for ones which are only appended to.
        attributes: attributes of modules that earlier captures left alone.
    """

    def __init__(self, lists: set[int], attributes: set[Attribute]) -> None:
        super().__init__("the step reads what was not watched")
        self.lists = lists
        self.attributes = attributes


class _Tracing:
    """The state of one capture."""

    def __init__(self, call: Call, objects: ObjectGraph, draws: Sequence[AnyDraw] = ()) -> None:
        self.call = call
        self.draws = HostDraws(draws)
        self.objects = objects
        # with what is left out: the step may turn out to change it, and is then traced again
        self.every_object = objects
        if call.unread:
            self.every_object = ObjectGraph(call.roots, opened=call.opened, has_values=call.values is not None)
        self.plain_objects = PlainObjects(self.every_object.plain, self.every_object.walked(), call.opened)
        self.tables = LookupTables(call.tables, self.draws.look_up)
        modules = (item for _, item in self.every_object.objects() if isinstance(item, nn.Module))
        self.reads = AttributeReads(modules, self.tables)
        self.oracle = Oracle(None if call.values is None else self._values, call.forced)
        self.table = SymbolTable(self.oracle)
        self.mode = FakeTensorMode(shape_env=self.table.shape_env, static_shapes=True, allow_non_fake_inputs=True)
        self.slots = slots_of(objects)
        self.symbol_paths = [p for p in objects.values if p in call.variable and _is_number(objects.values[p])]
        self.outputs = OutputList(self.table)
        self.outputs.existed = self.plain_objects.knows
        self.slot_outputs: dict[int, int] = {}
        self.parts = HostParts(self.outputs, self.oracle, self.table, call.before, call.given, self._as_before)
        self.host_calls = HostCalls(self.outputs, self.parts, call.decides_text, call.only_shows, call.is_shared)
        self.effects: list[Effect] = []
        self.first_settings = FirstSettings(self.objects)
        self.settings: list[SetItem] = []
        self.result: OutputTree | None = None

    def run(self, profiled: bool = False) -> Captured:
        """The step, captured."""
        try:
            return self._captured(profiled)
        finally:
            # Also where an error ended it. Stand-ins hold their gradients where Python's collector does not look, and both hold
            # PyTorch's bookkeeping: if that held this trace, all that it ever traced and compiled would stay for good, each
            # program with some dozen mappings of memory, of which Linux gives a process 65,530.
            self.table.forget_oracle()

    def _captured(self, profiled: bool) -> Captured:
        call, fakes, cells = self.call, self._fakes(), cells_of_slots(self.slots)
        with self._restoring(), capturing(), tracking_modules(call.roots, sys._getframe()), explained(), torch.enable_grad():
            parts = normalising_parts(call.batch_parts)
            generators = standing_in(self.every_object, self.draws.of_own)
            with (
                parts,
                generators as of_torch,
                refusing_hidden_randomness(profiled),
                ClosedOverTensors() as self.closed_over,
                self.mode,
            ):
                self.draws.found(of_torch)
                own = [plain_value(self.objects.values[path]) for path in self.symbol_paths]
                values = [*call.numbers.values(), *own]
                symbols = [self.table.make(value) for value in values]
                self.draws.others = values, list(symbols)
                symbols += [self.table.make(value, is_random) for value, is_random in self.draws.hints(values)]
                # inside of make_fx: the other way round the tracer would meet writes before they are turned into values
                functional = dispatch_functionalize(lambda tensors, symbols: self._traced(tensors, symbols))
                policy = OpPolicy(sized=call.values is not None, draws=self.draws)
                try:
                    module = make_fx(_with_policy(functional, policy), tracing_mode="real")(fakes, symbols)
                except RuntimeError as error:
                    if policy.refusal is not None and "TorchScript interpreter" in str(error):
                        raise policy.refusal from None
                    raise
                except ObjectsHoldValuesError:
                    require_unexchanged(self.slots, cells)  # another trace would find them exchanged
                    raise
                number_draws(module.graph)
        assert self.result is not None
        self.draws.require_unseeded()
        speculations = self.oracle.finish(module.graph)
        self.table.forget_oracle()
        require_unexchanged(self.slots, cells)
        # before numbers become inputs of the program, of which no shape can be made: one that decides a shape has to be a guard
        fix_shapes(module.graph, self.table)
        cleaned = clean_graph(module, len(self.slots), len(call.leaves), self.table)
        # a trace gives back every tensor of the state: taken as written, frozen ones would be donated, and refused where they
        # share memory
        written = {s: o for s, o in self.slot_outputs.items() if cleaned.output_sources[o] != ("slot", s)}
        self.finals.require_fresh_views({i.slot for i in cleaned.inputs if isinstance(i, SlotInput)}, set(written))
        return Captured(
            graph=cleaned.graph,
            inputs=cleaned.inputs,
            scalars=cleaned.scalars,
            slots=self.slots,
            slot_outputs=written,
            output_count=len(self.outputs.values) + sum(len(s.outputs) for s in speculations),
            result=self.result,
            effects=self.effects,
            settings=self.settings,
            symbol_paths=self.symbol_paths,
            guards=self.table.guards(),
            objects=self.objects,
            appended={id(e.container) for e in self.effects if isinstance(e, Append)},
            speculations=speculations,
            draws=tuple(self.draws.made),
            drawn=tuple(self.draws.tensors),
            parts=tuple(self.parts.made),
            replaced=self.replaced,
            reads=self.reads,
            sizes=self.closed_over.sizes,
            texts=tuple(self.outputs.texts),
        )

    def _values(self) -> list[torch.Tensor]:
        """The values of the state and of the arguments, on the host."""
        assert self.call.values is not None, "else nobody asks"
        state = [slot.tensor for slot in self.slots]
        # host sync: a step asks for a value while it is traced
        return [t._cell.host() if isinstance(t, DeviceTensor) else t.detach() for t in state] + self.call.values()

    def _fakes(self) -> list[torch.Tensor]:
        tensors = [slot.tensor for slot in self.slots] + list(self.call.leaves)
        return [fake_tensor(self.mode, tuple(t.shape), t.dtype) for t in tensors]

    def _traced(self, flat: list[torch.Tensor], symbols: list[Any]) -> list[Any]:
        """The function that PyTorch's tracer runs: install stand-ins, call the step, collect what it left."""
        self.stand_ins = flat[: len(self.slots)]
        for index, first in with_same_memory(self.slots):
            share_memory(self.stand_ins[index], self.stand_ins[first])
        for slot, stand_in in zip(self.slots, self.stand_ins, strict=True):
            if slot.tensor.requires_grad and slot.tensor.is_leaf:
                stand_in.requires_grad_()
                share_hooks(slot.tensor, stand_in)
            if isinstance(slot.tensor, nn.Parameter):
                stand_in._is_param = True  # pyright: ignore[reportAttributeAccessIssue]
        self.closed_over.know({id(s.tensor): t for s, t in zip(self.slots, self.stand_ins, strict=True)})
        given = len(self.call.numbers)
        own = given + len(self.symbol_paths)
        self._install(symbols[given:own])
        self.draws.symbols = symbols[own:]
        before = {path: copied(item) for path, item in self.objects.every_container()}
        known = {id(item): before[path] for path, item in self.objects.every_container()}
        self.host_calls.holds_the_same = lambda item: holds_the_same(item, known[id(item)]) if id(item) in known else None
        self.hooks_before = [dict(table) for table in self.objects.hooks.values()]
        arguments = self.call.rebuild(flat[len(self.slots) :])
        numbers = dict(zip(self.call.numbers, symbols[:given], strict=True))
        numbers |= {name: int(numbers[name]) for name in self.call.plain_numbers}  # a condition of the graph each
        self.closed_over.active = True
        arrays = ArrayWrites(self.objects.arrays)
        given_arrays = arrays_made()
        grown = GrownLists(self.objects, self.call.appended)
        grown.install()
        with (
            self.host_calls,
            clocks_told(),
            self.draws.noted(),
            self.reads.noted(),
            self.tables.noted(),
            traced_numbers(self.call.askers, self.call.plain_ints),
            deciding_conditions(self.call.decides_conditions),
            put_off(self.call.put_off),
            schedulers_on_the_host(self.objects.optimizers().values()),
            watching_objects(self.call.roots.values()),
            self.plain_objects.reads_noted(),
            self.first_settings.noted(),
            set_ups_asked(),
            _minding_the_host(self._existed),
            streams_after_the_step(),
            files_after_the_step(),
            watching(self.closed_over.sizes),
        ):
            try:
                result = self.call.function(*arguments, **numbers)
            except Exception as error:
                grown.remove()
                if self.host_calls.was_asked or arrays_made() > given_arrays or self.oracle.has_given:
                    self.call.asked.add(user_line_of(error))
                self.host_calls.require_no_key(error)
                self.host_calls.require_no_number(error)
                self.host_calls.explained(error, self.oracle.number)
                raise
        self.closed_over.active = False
        grown.remove()
        self.plain_objects.require_known(self.closed_over.met())
        arrays.require_none()
        self.closed_over.require_unchanged()
        self._collect(result, before)
        # after what the step left was collected: a list that it returns is read, too
        lists = grown.read(list(self.closed_over.met()))
        attributes = {one for one in self.call.unread if not self.reads.left_alone(one)}
        if lists or attributes:
            raise UnwatchedIsReadError(lists, attributes)
        return self.outputs.values

    def _existed(self, item: object) -> bool:
        """Whether the walk has found an object, or an object of the user's holds it."""
        return self.plain_objects.knows(item) or any(item is value for value in self.objects.values.values())

    def _install(self, values: list[Any]) -> None:
        for slot, stand_in in zip(self.slots, self.stand_ins, strict=True):
            if slot.grad_of is not None:
                self.stand_ins[slot.grad_of].grad = stand_in
            for path in slot.paths:
                set_at(self.objects, path, stand_in)
        for path, value in zip(self.symbol_paths, values, strict=True):
            set_at(self.objects, path, of_kind(value, type(self.objects.values[path])))
        for optimizer in self.objects.optimizers().values():
            optimizer.state = self._rekeyed(optimizer.state)
            for group in optimizer.param_groups:
                switches = {"capturable": True, "foreach": False, "fused": None, "differentiable": False}
                group.update({name: value for name, value in switches.items() if name in group})

    def _rekeyed(self, state: Mapping[Any, Any]) -> Any:
        stand_in_of = {id(s.tensor): t for s, t in zip(self.slots, self.stand_ins, strict=True)}
        return defaultdict(dict, {stand_in_of.get(id(key), key): value for key, value in state.items()})

    def _collect(self, result: object, before: dict[Path, Any]) -> None:
        self.result = self.outputs.tree(result)
        self.finals = FinalTensors(self.objects, self.slots, self.stand_ins, before, self.outputs)
        self.finals.require_followable(self.closed_over.lines)
        self.replaced = self.finals.replaced()
        for index, slot in enumerate(self.slots):
            if slot.grad_of is None:
                self.slot_outputs[index] = self.outputs.add(self.finals.value(index))
        opaque = [path for path, item in self.objects.lists.items() if id(item) in self.call.appended]
        self.effects = container_effects(self.objects, before, opaque, self.finals)
        self.reads.know(self.effects)
        self.host_calls.require_no_name(effect.path[-1] for effect in self.effects if isinstance(effect, SetItem))
        self.settings = self.first_settings.among(self.effects)
        once = set(map(id, self.settings))
        self.effects = [one for one in self.effects if id(one) not in once]
        self.effects += [RequiresGrad(tensor, flag) for tensor, flag in self.finals.changed_flags()]
        tables = list(self.objects.hooks.values())
        self.effects += hook_effects(tables, self.hooks_before, (slot.tensor for slot in self.slots), self.stand_ins)
        self._collect_optimizer_state()
        self._collect_gradients()
        self.effects = [*self.host_calls.calls, *self.effects]
        self.host_calls.require_texts_kept()

    def _collect_optimizer_state(self) -> None:
        owner = {id(t): s.tensor for s, t in zip(self.slots, self.stand_ins, strict=True)}
        known = set(self.objects.containers)
        for path, optimizer in self.objects.optimizers().items():
            parameters = [p for group in optimizer.param_groups for p in group["params"]]
            for number, parameter in enumerate(parameters):
                state = optimizer.state.get(parameter)
                if state and (*path, "state", number) not in known:
                    tensor = owner[id(parameter)]
                    self.effects.append(OptimizerState(optimizer, tensor, self.finals.tree(dict(state))))

    def _collect_gradients(self) -> None:
        grad_slot = {s.grad_of: i for i, s in enumerate(self.slots) if s.grad_of is not None}
        for index, slot in enumerate(self.slots):
            if slot.grad_of is not None:
                continue
            now = self.finals.value(index)
            grad = now.grad if now.is_leaf else None
            if grad is not None and index in grad_slot:
                self.slot_outputs[grad_slot[index]] = self.outputs.add(grad)
            elif grad is not None:
                self.effects.append(Gradient(self.slots[index].tensor, self.finals.tree(grad)))
            elif index in grad_slot:
                self.effects.append(Gradient(self.slots[index].tensor, None))

    @contextlib.contextmanager
    def _restoring(self) -> Iterator[None]:
        """Put every container back as it was; the step's effects are carried out later, with real values."""
        states = [(optimizer, optimizer.state) for optimizer in self.objects.optimizers().values()]
        with restoring(self.every_object) as self.before:
            try:
                yield
            except BaseException:
                self.plain_objects.put_back()  # the next trace would take what this one left there for state
                raise
            finally:
                for optimizer, state in states:
                    optimizer.state = state

    @contextlib.contextmanager
    def _as_before(self) -> Iterator[ObjectGraph]:
        """Inside the block, containers hold what they held before the step; what is done to them there is undone."""
        now = Snapshot(self.every_object)
        self.before.put_back()
        try:
            yield self.every_object
        finally:
            now.put_back()


@contextlib.contextmanager
def _minding_the_host(existed: Callable[[object], bool]) -> Iterator[None]:
    """Inside the block, what user code does to iterators, other threads and caches is refused, put off, or done outside."""
    with (
        refusing_iterators(existed),
        telling_other_threads(),
        counting_mocks(),
        caches_left_alone(),
        quasirandom_on_the_host(),
    ):
        yield


def _with_policy(function: Callable[..., Any], policy: OpPolicy) -> Callable[..., Any]:
    """`function`, traced under our policy; given as an argument of make_fx, the policy would be copied into a dict."""

    def traced(tensors: Sequence[torch.Tensor], symbols: Sequence[Any]) -> Any:
        with decompose(policy):
            return function(tensors, symbols)

    return traced


def _is_number(value: object) -> bool:
    return (isinstance(value, int | float) and not isinstance(value, bool)) or type(value) in NUMPY_NUMBERS
