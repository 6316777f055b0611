"""Is a captured graph still valid? Fast when nothing changed; exact about what changed when something did (C5)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from operator import attrgetter, getitem, is_
from typing import Any, NamedTuple

import torch
from torch.utils.hooks import RemovableHandle

from ...utilities._torch_internals import plain_attributes
from ._array_contents import Contents
from ._hook_tables import RUN_IN_STEPS
from ._numpy_numbers import NUMPY_NUMBERS, plain_value
from ._object_graph import ObjectGraph, Path, SameAs, describe
from ._optimizer_entries import OptimizerEntries, of_parameters
from ._plain_objects import COMPARED, same_plain
from ._symbols import HostExpression, Number

# objects of other classes are known by identity: their equality may be anything, of an array it is an array
_COMPARED = (*COMPARED, tuple, frozenset, SameAs, Contents)
_requires_grad = attrgetter("requires_grad")
_grad = attrgetter("grad")


class Guards:
    """The conditions under which one graph holds.

    The fast check compares the identity of every value that the object graph found; Python keeps the identity of an
    attribute that nobody assigned. Where an identity differs, equality of type and value decides.

    What is compared lies in lists side by side, and `map` goes through them in C: it runs before every step, and thousands of
    lines of Python that name each value are read from memory that the step's program has used meanwhile.
    """

    def __init__(self, objects: ObjectGraph, variable: Sequence[Path], conditions: list[tuple[HostExpression, str]]) -> None:
        self._conditions = [condition for condition, _ in conditions]
        self._lines = [line for _, line in conditions]
        self._items = list(_items(objects, set(variable)))
        self._sets = list(objects.sets.values())
        self._optimizers = [_Optimizer.of(o) for o in objects.optimizers().values()]
        self._sizes = [(o.state, len(o.state)) for o in self._optimizers]
        self._tensors = objects.trainable_tensors()
        self._requires_grad = list(map(_requires_grad, self._tensors))
        self._leaves = [t for t in self._tensors if t.requires_grad and t.is_leaf]
        self._grads = list(map(_grad, self._leaves))
        self._hooks = [(hooks, list(hooks.items())) for path, hooks in objects.hooks.items() if path[-1] in RUN_IN_STEPS]
        # `next_id`, which PyTorch counts up with every registration, says nothing of a hook that was removed; the length does
        self._sizes += [(hooks, len(known)) for hooks, known in self._hooks if known]
        self._tensor_hooks = list(map(_hooks_of, self._tensors))
        self._sizes += [(hooks, len(known)) for tables in self._tensor_hooks for hooks, known in tables]
        self._registered = RemovableHandle.next_id
        self._variables = [(*_located(objects, p), type(objects.values[p])) for p in variable]
        self._types = [kind for *_, kind in self._variables]
        self._has_numpys = not set(NUMPY_NUMBERS).isdisjoint(self._types)
        self._tuples = [(c, key, c[key], _inner(self._variables, c, key)) for c, key, inner, _ in self._variables if inner]
        self._arrays = [(*_located(objects, p), v) for p, v in objects.values.items() if isinstance(v, Contents)]
        self._holders = [container for container, *_ in (*self._items, *self._sizes)]
        self._lengths = [size for _, size, *_ in (*self._items, *self._sizes)]
        self._note_values()

    def unchanged(self, numbers: Sequence[Number]) -> bool:
        """Whether nothing at all was assigned: the fast half of `hold` and `same_gradients`.

        Args:
            numbers: the values of the symbolic numbers.
        """
        return (
            list(map(len, self._holders)) == self._lengths
            and all(map(is_, map(getitem, self._containers, self._keys), self._values))
            and self._same_flags_and_gradients()
            and all(map(_Optimizer.is_same, self._optimizers))
            and RemovableHandle.next_id == self._registered
            and (not self._sets or all(current == copy for current, copy in self._sets))
            and (not self._tuples or all(c[key] is known for c, key, known, _ in self._tuples))
            and (not self._arrays or self._same_arrays())
            and (not self._conditions or all(condition(numbers) for condition in self._conditions))
        )

    def hold(self, numbers: Sequence[Number]) -> bool:
        """Whether the graph is valid for the objects as they are now.

        Args:
            numbers: the values of the symbolic numbers.
        """
        return (
            self._equal()
            and self.same_settings()
            and all(len(container) == size for container, size in self._sizes)
            and all(current == copy for current, copy in self._sets)
            and self._same_arrays()
            and all(_same_but_for(inner, c[key], known) for c, key, known, inner in self._tuples)
            and all(condition(numbers) for condition in self._conditions)
        )

    def same_settings(self) -> bool:
        """Whether all is as it was that objects hold themselves, so that two walks over them cannot differ in it."""
        return (
            list(map(_requires_grad, self._tensors)) == self._requires_grad
            # that there is a gradient decides the graph, which one it is only the buffers: a new object asks for no new trace
            and [g is None for g in map(_grad, self._leaves)] == [g is None for g in self._grads]
            and all(map(_Optimizer.is_same, self._optimizers))
            and self._same_hooks()
        )

    def changed_settings(self, objects: ObjectGraph) -> list[str]:
        """Texts: tensors that take gradients since the guards were made, or do so no more, and those with other hooks."""
        names = {id(tensor): describe(path) for path, tensor in reversed(objects.tensors.items())}
        found: list[str] = []
        for tensor, flag, hooks in zip(self._tensors, self._requires_grad, self._tensor_hooks, strict=True):
            name = names.get(id(tensor), "a tensor")
            if tensor.requires_grad is not flag:
                found.append(f"{name}.requires_grad: {flag} -> {not flag}")
            if _hooks_of(tensor) != hooks:
                found.append(f"{name}: other hooks on its gradient")
        return found

    def line_of_failure(self, numbers: Sequence[Number]) -> str | None:
        """The line of the user's code that decides otherwise with other numbers; None where all conditions hold."""
        lines = zip(self._conditions, self._lines, strict=True)
        return next((line for condition, line in lines if not condition(numbers)), None)

    def same_gradients(self) -> bool:
        """Whether every `.grad` is the tensor object that it was."""
        return all(map(is_, map(_grad, self._leaves), self._grads))

    def accept_gradients(self) -> None:
        """Take the gradients that are there now for the known ones."""
        self._grads = list(map(_grad, self._leaves))

    def variable_values(self) -> list[Number] | None:
        """The current values of the numbers that the graph takes as inputs; None when one changed its type."""
        values = [_reached(c[key], inner) if inner else c[key] for c, key, inner, _ in self._variables]
        if list(map(type, values)) != self._types:
            return None
        return [plain_value(value) for value in values] if self._has_numpys else values

    def _same_arrays(self) -> bool:
        """Whether NumPy's arrays hold what they held; those that are others by now are told by identity."""
        return all(Contents.of(_reached(c[key], inner)) == known for c, key, inner, known in self._arrays)

    def _equal(self) -> bool:
        """The exact check of values; when it passes, the fast check is made anew for the objects that are there now."""
        renewed = False
        for container, size, entries in self._items:
            if len(container) != size:
                return False
            for position, (key, known) in enumerate(entries):
                current = container[key]
                if current is known:
                    continue
                if not same_plain(current, known):
                    return False
                entries[position] = (key, current)
                renewed = True
        if renewed:
            self._note_values()
        return True

    def _same_flags_and_gradients(self) -> bool:
        with plain_attributes():
            flags = list(map(_requires_grad, self._tensors))
            return flags == self._requires_grad and self.same_gradients()

    def _note_values(self) -> None:
        """Lay the values that must stay side by side with where they are found."""
        self._containers = [container for container, _, entries in self._items for _ in entries]
        self._keys = [key for _, _, entries in self._items for key, _ in entries]
        self._values = [value for _, _, entries in self._items for _, value in entries]

    def _same_hooks(self) -> bool:
        """Whether the hooks of our modules and tensors are those that they were."""
        if any(list(hooks.items()) != known for hooks, known in self._hooks):
            return False
        if list(map(_hooks_of, self._tensors)) != self._tensor_hooks:
            return False
        self._registered = RemovableHandle.next_id
        return True


HookTable = tuple[dict[int, Any], list[tuple[int, Any]]]


def _hooks_of(tensor: torch.Tensor) -> list[HookTable]:
    """The hooks on a tensor's gradient: each table that there is, with what stands in it."""
    tables = (tensor._backward_hooks, tensor._post_accumulate_grad_hooks)
    return [(table, list(table.items())) for table in tables if table is not None]


Variable = tuple[Any, Any, Path, type]


def _located(objects: ObjectGraph, path: Path) -> tuple[Any, Any, Path]:
    """The container that holds a value, the key in it, and the way on from there through tuples."""
    depth = max(d for d in range(len(path)) if path[:d] in objects.containers)
    return objects.containers[path[:depth]], path[depth], path[depth + 1 :]


def _reached(value: Any, inner: Path) -> Any:
    for index in inner:
        value = value[index]
    return value


def _inner(variables: list[Variable], container: object, key: object) -> frozenset[Path]:
    return frozenset(inner for c, k, inner, _ in variables if c is container and k == key)


def _same_but_for(variable: Collection[Path], a: Any, b: Any) -> bool:
    """Whether two values are equal, where the elements of tuples at `variable` do not count."""
    if () in variable:
        return True
    if not variable:
        return a is b or same_plain(a, b)
    if type(a) is not type(b) or len(a) != len(b):
        return False
    ways = [[path[1:] for path in variable if path[0] == index] for index in range(len(a))]
    return all(_same_but_for(way, x, y) for way, x, y in zip(ways, a, b, strict=True))


class _Optimizer(NamedTuple):
    """The containers of an optimizer's state and groups: to load a state dict puts others in their place.

    `look` gives what a state holds of each parameter; entries of all together are compared by value, elsewhere.
    """

    optimizer: torch.optim.Optimizer
    state: Any
    look: Callable[[Any], Iterable[Any]]
    states: list[Any]
    groups: list[Any]
    each_group: list[Any]

    @classmethod
    def of(cls, optimizer: torch.optim.Optimizer) -> _Optimizer:
        """Those that it has now."""
        state, groups = optimizer.state, optimizer.param_groups
        look = of_parameters if len(OptimizerEntries(optimizer)) else type(state).values
        return cls(optimizer, state, look, list(look(state)), groups, list(groups))

    def is_same(self) -> bool:
        """Whether it has these, of which the lengths are compared elsewhere."""
        return (
            self.optimizer.state is self.state
            and self.optimizer.param_groups is self.groups
            and all(map(is_, self.look(self.state), self.states))
            and all(map(is_, self.groups, self.each_group))
        )


Item = tuple[Any, int, list[tuple[Any, Any]]]


def _items(objects: ObjectGraph, variable: set[Path]) -> Iterator[Item]:
    """Every container with its length and the values that must stay."""
    around = {path[:depth] for path in variable for depth in range(1, len(path))}

    def is_free(path: Path, value: object) -> bool:
        return path in variable or (path in around and isinstance(value, tuple))

    for path, container in objects.containers.items():
        if isinstance(container, OptimizerEntries) and not objects.keys[path]:
            continue  # how many `state` has is compared anyway
        keys = [key for key in objects.keys[path] if not is_free((*path, key), container[key])]
        yield container, len(container), [(key, container[key]) for key in keys]


def changes(old: ObjectGraph, new: ObjectGraph) -> list[tuple[Path, str]]:
    """Differences between two walks, each with a text for people: `model.scale: 0.5 -> 0.7`."""
    found: list[tuple[Path, str]] = []
    for path in {**old.values, **new.values}:
        was, now = old.values.get(path, _ABSENT), new.values.get(path, _ABSENT)
        if was is not now and not (type(was) is type(now) and isinstance(now, _COMPARED) and was == now):
            found.append((path, f"{describe(path)}: {_short(was)} -> {_short(now)}"))
    for path in {**old.tensors, **new.tensors}:
        text = _tensor_change(old.tensors.get(path), new.tensors.get(path))
        if text:
            found.append((path, f"{describe(path)}: {text}"))
    before, now_there = dict(old.objects()), dict(new.objects())
    # what a step does to an object it does to that one: another one that holds the same is not the same, and of lists that are
    # only appended to nothing else is seen
    for path in {**before, **now_there}:
        was, now = before.get(path, _ABSENT), now_there.get(path, _ABSENT)
        if was is not now:
            found.append((path, f"{describe(path)}: {_kind(was)} -> {'another' if type(was) is type(now) else _kind(now)}"))
    for path in {**old.grads, **new.grads}:  # a difference of key sets would come in another order in every process
        if (path in old.grads) != (path in new.grads):
            found.append(((*path, "grad"), f"{describe(path)}.grad: {'set' if path in new.grads else 'removed'}"))
    return found


_ABSENT = type("Absent", (), {"__repr__": lambda self: "(absent)"})()


def _kind(value: object) -> str:
    return repr(value) if value is _ABSENT else type(value).__name__


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _tensor_change(was: torch.Tensor | None, now: torch.Tensor | None) -> str:
    if was is now:
        return ""
    if was is None or now is None:
        return "new tensor" if was is None else "tensor removed"
    return "another tensor object"
