"""Walk the Python objects that a step uses: which tensors they hold, and which plain values."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import functools
import types
from collections import OrderedDict, deque
from collections.abc import Collection, Iterable, Iterator, Mapping, MutableMapping
from enum import Enum
from operator import is_
from typing import Any

import numpy as np
import torch
from torch import nn

from ...utilities._leaves import is_sparse
from .._users import is_the_users
from ._array_contents import Contents
from ._failed_notes import note_appended
from ._hook_tables import RUN_IN_STEPS, Table, hook_tables
from ._optimizer_entries import OptimizerEntries
from ._plain_objects import CALLED, has_own_attributes, is_made, is_plain_object
from ._script_modules import INTERNALS, script_tables, submodules_of
from ._variables import BoundArguments, ClassAttributes, EnclosingVariables, SlotAttributes, own_attributes

Path = tuple[Any, ...]
Attribute = tuple[int, str]
"""The id of a module, and a name."""
Container = list[Any] | deque[Any] | MutableMapping[Any, Any]

_PLAIN = (bool, int, float, str, type(None))
_SMALL = 64
"""Up to how many elements a container counts as a setting; larger ones are data."""

_ELEMENTS = "__elements__"
"""Last part of the path at which the contents of a set are compared."""

_NONE: Mapping[int, frozenset[str] | None] = {}

# nn.Module's own bookkeeping: walked by kind (parameters, buffers, submodules) or not part of what a step computes
_MODULE_INTERNALS = frozenset(vars(nn.Module())) - {"training"}
# where recurrent modules keep their weights a second time; refreshed from the parameters in every forward
_RECURRENT_CACHE = frozenset({"_flat_weight_refs"})
_WALKED = (nn.Module, torch.optim.Optimizer, dict, list, deque, types.SimpleNamespace, argparse.Namespace, SlotAttributes)


@functools.cache
def _optimizer_internals() -> frozenset[str]:
    """Attributes that every optimizer has for itself."""
    # not when this module is imported: the first optimizer that is made imports Dynamo, which takes as long as JAX
    return frozenset(vars(torch.optim.SGD([torch.zeros(1)]))) - {"param_groups", "state"}


# switches between equivalent implementations of one optimizer; capture chooses them itself
IMPLEMENTATION_SWITCHES = frozenset({"foreach", "fused", "capturable", "differentiable"})


class ObjectGraph:
    """Objects that a walk over some roots found. Paths start with the name of the root.

    Attributes:
        tensors: every tensor by path; one that is reachable by several paths appears under each.
        values: everything else by path: plain values, and objects that are compared by identity.
        containers: the dicts and lists that hold them: where a path's last key is looked up or set.
        grads: the `.grad` of every tensor that has one, by the path of its owner.
        lists: the lists among the containers, those included that are only appended to.
        keys: which keys of a container matter.
        sets: every set with a copy of it, by path.
        hooks: the tables of hooks of every module, optimizer and tensor, by the owner's path and the attribute.
        plain: objects of the user's classes of which it has the numbers only.
        arrays: NumPy's arrays, by path.

    Args:
        roots: the objects that it begins with, by name.
        opaque_lists: ids of lists that are only appended to.
        left_out: attributes of modules that are not looked at.
        opened: by id: objects of the user's classes of which more counts than numbers: these attributes, or None for all.
        has_values: whether steps run. Tensors of the meta device are then no state: their modules are given others, as the
            skeleton of an ensemble is by `functional_call`.
    """

    def __init__(
        self,
        roots: MutableMapping[str, Any],
        opaque_lists: Iterable[int] = (),
        left_out: Collection[Attribute] = (),
        opened: Mapping[int, frozenset[str] | None] = _NONE,
        *,
        has_values: bool = False,
    ) -> None:
        self.tensors: dict[Path, torch.Tensor] = {}
        self.values: dict[Path, Any] = {}
        self.containers: dict[Path, Any] = {}
        self.grads: dict[Path, torch.Tensor] = {}
        self.lists: dict[Path, list[Any]] = {}
        self.keys: dict[Path, list[Any]] = {}
        self.hooks: dict[Path, Table] = {}
        self.sets: dict[Path, tuple[set[Any], frozenset[Any]]] = {}
        self._seen: dict[int, Path] = {}
        self._opaque = set(opaque_lists)
        self._left_out = left_out
        self._has_values = has_values
        self._opened = opened
        self.plain: list[object] = []
        self.arrays: list[tuple[Path, np.ndarray[Any, Any]]] = []
        self._objects: dict[Path, Any] = {}
        self._visit_dict(roots, (), roots.keys())

    def _visit(self, item: object, path: Path) -> None:
        if is_sparse(item):
            self.values[path] = item
        elif isinstance(item, torch.Tensor) and not (item.is_meta and self._has_values):
            self.tensors[path] = item
            self.hooks.update({(*path, kind): table for kind, table in hook_tables(item)})
            if item.is_leaf and item.grad is not None:
                self.grads[path] = item.grad
        elif isinstance(item, Attributes):
            own = own_attributes(item.owner)
            self._visit_dict(own, path, [name for name in own if name in item.names])
        elif isinstance(item, _WALKED) or is_record(item) or _is_omegaconf(item):
            self._visit_once(item, path)
        elif isinstance(item, tuple):
            elements = tuple(tuple.__iter__(item))  # a class of its own may forbid `len`, or count otherwise
            self.values[path] = (type(item), len(elements))
            for index, element in enumerate(elements):
                self._visit(element, (*path, index))
        elif isinstance(item, set):
            self._visit_set(item, path)
        else:
            self._visit_other(item, path)

    def _visit_other(self, item: object, path: Path) -> None:
        """Numbers and flags of an object like any other; what else it holds (data, files, tensors) is left alone, at first."""
        if isinstance(item, np.ndarray):
            self.values[path] = Contents.of(item)
            self.arrays.append((path, item))
            return
        self.values[path] = item
        if isinstance(item, types.FunctionType):
            self._visit_variables(item, path)
            return
        if isinstance(item, type):
            self._visit_class(item, path)
            return
        if isinstance(item, functools.partial | types.MethodType):
            self._visit_bound(item, path)
            return
        if not is_the_users(type(item).__module__) or not has_own_attributes(item):
            return
        if is_made(item) or (id(item) in self._opened and self._opened[id(item)] is None):
            self.values[path] = type(item)  # what it holds is compared instead of which object it is
            self._visit_once(item, path)
        elif id(item) in self._seen:
            self.values[path] = SameAs(self._seen[id(item)])
        else:
            self._seen[id(item)] = path
            self.plain.append(item)
            names, own = self._opened.get(id(item)) or (), own_attributes(item)
            self._visit_dict(own, path, [k for k, v in own.items() if type(v) in (bool, int, float) or k in names])
            self._visit_class(type(item), path)

    def _visit_bound(self, item: functools.partial[Any] | types.MethodType, path: Path) -> None:
        """Visit the arguments that a `functools.partial` holds, or the object of the user's that a method belongs to."""
        if isinstance(item, types.MethodType):
            if is_plain_object(item.__self__):
                self._visit(item.__self__, (*path, "owner"))
        elif id(item) not in self._seen:
            self._seen[id(item)] = path
            self._visit(item.func, (*path, "func"))
            for arguments, here in ((BoundArguments(item), path), (item.keywords, (*path, "keywords"))):
                self._visit_dict(arguments, here, [key for key, value in arguments.items() if self._is_setting(value)])

    def _visit_variables(self, function: types.FunctionType, path: Path) -> None:
        """Visit what a function of the user's keeps in variables of the function that made it, where these are settings."""
        if function.__closure__ is None or id(function) in self._seen or not is_the_users(function.__module__):
            return
        self._seen[id(function)] = path
        variables = EnclosingVariables(function)
        self._visit_dict(variables, path, [name for name, value in variables.items() if self._is_setting(value)])

    def _is_setting(self, value: object) -> bool:
        """Whether a variable or an argument that a function has for itself is looked into, or is data."""
        if isinstance(value, list | dict | tuple):  # a list that steps append to may have become large meanwhile
            return len(value) <= _SMALL or id(value) in self._opaque
        return type(value) in _PLAIN or isinstance(value, (torch.Tensor, *CALLED)) or is_plain_object(value)

    def _visit_class(self, cls: type, path: Path) -> None:
        """Visit the numbers, flags and text of a class of the user's that holds settings (`self.config = Config`)."""
        for base in cls.__mro__:
            if is_the_users(base.__module__) and id(base) not in self._seen and not issubclass(base, Enum):
                self._seen[id(base)] = path
                own = ClassAttributes(base)
                names = [k for k, v in own.items() if type(v) in _PLAIN and not k.startswith("__")]
                self._visit_dict(own, (*path, base.__name__), names)

    def _visit_once(self, item: object, path: Path) -> None:
        if id(item) in self._seen:
            self.values[path] = SameAs(self._seen[id(item)])
            return
        self._seen[id(item)] = path
        self._objects[path] = item
        if isinstance(item, nn.Module):
            self._visit_module(item, path)
        elif isinstance(item, torch.optim.Optimizer):
            self._visit_optimizer(item, path)
        elif isinstance(item, list | deque):
            self._visit_list(item, path)
        elif isinstance(item, dict):
            self._visit_dict(item, path, item.keys())
            own = getattr(item, "__dict__", item)  # which some classes of settings let be the dict itself
            if own is not item and is_the_users(type(item).__module__):
                self._visit_dict(own, (*path, "__dict__"), own.keys())
        elif _is_omegaconf(item):
            self._visit_dict(vars(item), path, [name for name in ("_content", "_val") if name in vars(item)])
        elif isinstance(item, SlotAttributes):
            self._visit_dict(item, path, item.keys())
        else:
            own = own_attributes(item)
            self._visit_dict(own, path, own.keys())
            self._visit_class(type(item), path)

    def _visit_module(self, module: nn.Module, path: Path) -> None:
        self.values[(*path, "class")] = type(module)
        own, hidden = vars(module), _MODULE_INTERNALS
        if isinstance(module, torch.jit.ScriptModule):
            hidden = hidden | INTERNALS | {name for name, value in own.items() if type(value) is torch.ScriptMethod}
            for kind, table in script_tables(module):
                self._visit_dict(table, (*path, kind), table)
        else:
            for kind in ("_parameters", "_buffers"):
                self._visit_dict(getattr(module, kind), (*path, kind), getattr(module, kind).keys())
        if isinstance(module, nn.RNNBase):
            hidden |= _RECURRENT_CACHE
        names = [name for name in own if name not in hidden and (id(module), name) not in self._left_out]
        self._visit_dict(own, path, names)
        self._note_hooks(module, path)
        submodules = submodules_of(module)
        self._visit_dict(submodules, (*path, "_modules"), submodules)

    def _note_hooks(self, owner: nn.Module | torch.optim.Optimizer | torch.Tensor, path: Path) -> None:
        for kind, table in hook_tables(owner):
            self.hooks[*path, kind] = table
            if table and kind in RUN_IN_STEPS:
                self.values[*path, kind] = tuple(table.items())
                for number, hook in table.items():
                    self._visit_hook(hook, (*path, kind, number))

    def _visit_hook(self, hook: object, path: Path) -> None:
        """Visit the places where a hook of the user's may keep what it is given: its object, and what its closure holds."""
        owner = getattr(hook, "__self__", None)
        if is_plain_object(owner):
            self._visit(owner, (*path, "owner"))
        function = getattr(hook, "__func__", hook)
        if isinstance(function, types.FunctionType) and is_the_users(function.__module__):
            variables = EnclosingVariables(function)
            kept = [name for name, value in variables.items() if type(value) in (list, dict) or self._is_setting(value)]
            self._visit_dict(variables, path, kept)

    def _visit_optimizer(self, optimizer: torch.optim.Optimizer, path: Path) -> None:
        self.values[(*path, "class")] = type(optimizer)
        self._note_hooks(optimizer, path)
        # which objects they are counts as well: a state dict that is loaded brings others
        self._objects.update({(*path, name): getattr(optimizer, name) for name in ("state", "param_groups")})
        # its length counts: `add_param_group` between steps
        self.containers[*path, "param_groups"], self.keys[*path, "param_groups"] = optimizer.param_groups, []
        for index, group in enumerate(optimizer.param_groups):
            names = [name for name in group if name not in IMPLEMENTATION_SWITCHES]
            self._visit_dict(group, (*path, "param_groups", index), names)
        for number, parameter in enumerate(p for group in optimizer.param_groups for p in group["params"]):
            if state := optimizer.state.get(parameter):
                self._visit_dict(state, (*path, "state", number), state.keys())
        shared = OptimizerEntries(optimizer)
        self._visit_dict(shared, (*path, "state", "shared"), shared)
        own = vars(optimizer)
        self._visit_dict(own, path, [name for name in own if name not in _optimizer_internals() | {"state", "param_groups"}])

    def _visit_list(self, item: list[Any] | deque[Any], path: Path) -> None:
        if isinstance(item, list):
            self.lists[path] = item
        # a list that the step appends to has another length before every step: watched, each step would be traced anew
        if id(item) in self._opaque:
            return
        self.containers[path] = item
        self.keys[path] = list(range(len(item)))
        self.values[(*path, "len")] = len(item)
        for index, element in enumerate(item):
            self._visit(element, (*path, index))

    def _visit_set(self, item: set[Any], path: Path) -> None:
        if id(item) in self._seen:
            self.values[path] = SameAs(self._seen[id(item)])
            return
        self._seen[id(item)] = path
        self._objects[path] = item
        self.sets[path] = item, frozenset(item)
        self.values[(*path, _ELEMENTS)] = self.sets[path][1]

    def _visit_dict(self, item: MutableMapping[Any, Any], path: Path, keys: Iterable[Any]) -> None:
        self.containers[path] = item
        self.keys[path] = list(keys)
        for key in self.keys[path]:
            self._visit(dict.__getitem__(item, key) if isinstance(item, dict) else item[key], (*path, key))

    def walked(self) -> Collection[int]:
        """The ids of the objects and containers that it has looked into."""
        return self._seen.keys()

    def every_container(self) -> Iterator[tuple[Path, Any]]:
        """The containers, and the lists that are only appended to."""
        yield from self.containers.items()
        yield from ((path, item) for path, item in self.lists.items() if path not in self.containers)

    def changeable(self) -> dict[Path, Any]:
        """The same, and the sets."""
        return {**dict(self.every_container()), **{path: item for path, (item, _) in self.sets.items()}}

    def places(self) -> dict[int, Path]:
        """The paths of all these, by id."""
        return {id(container): path for path, container in self.changeable().items()}

    def objects(self) -> Iterator[tuple[Path, Any]]:
        """Every module, optimizer and container that was walked, by the path at which it was first met."""
        yield from self._objects.items()

    def attributes_of(self, path: Path) -> Iterator[tuple[int, Attribute]]:
        """Attributes of modules under which a path lies, inner ones first: each with its depth, as module id and name."""
        for depth in range(len(path) - 1, -1, -1):
            owner, name = self._objects.get(path[:depth]), path[depth]
            if isinstance(owner, nn.Module) and name != "class" and name not in _MODULE_INTERNALS:
                yield depth + 1, (id(owner), name)

    def optimizers(self) -> dict[Path, torch.optim.Optimizer]:
        """Every optimizer that was walked, by the path at which it was first met."""
        return {p: item for p, item in self._objects.items() if isinstance(item, torch.optim.Optimizer)}

    def trainable_tensors(self) -> list[torch.Tensor]:
        """Tensors whose `requires_grad` and `.grad` matter: all but the state of optimizers."""
        found = {id(t): t for path, t in self.tensors.items() if "state" not in path and t.is_floating_point()}
        return list(found.values())

    def slots(self) -> Iterator[tuple[torch.Tensor, list[Path]]]:
        """Every distinct tensor with all its paths, in the order of discovery."""
        paths: dict[int, list[Path]] = {}
        for path, tensor in self.tensors.items():
            paths.setdefault(id(tensor), []).append(path)
        yield from ((self.tensors[found[0]], found) for found in paths.values())


class Snapshot:
    """Contents of every container, set and table of hooks of some objects, as they are now.

    Args:
        objects: the walk that has found them.

    Attributes:
        copies: each with a copy of what it holds.
    """

    def __init__(self, objects: ObjectGraph) -> None:
        self.copies: list[tuple[Any, Any]] = [(container, copied(container)) for _, container in objects.every_container()]
        self.copies += [(table, dict(table)) for table in objects.hooks.values()]
        self.copies += [(found, set(found)) for found, _ in objects.sets.values()]

    def put_back(self) -> None:
        """Let them hold it again: the same objects."""
        for container, contents in self.copies:
            put_back(container, contents)

    def note_appended(self) -> None:
        """Note texts that a failed trace has appended."""
        note_appended(self.copies)


@contextlib.contextmanager
def restoring(objects: ObjectGraph) -> Iterator[Snapshot]:
    """Put every container, set and table of hooks that was found back as it was, which the block is given."""
    contents = Snapshot(objects)
    try:
        yield contents
    except Exception:
        contents.note_appended()
        raise
    finally:
        contents.put_back()


def copied(container: Container) -> Any:
    """A list or dict of its own with what a container holds."""
    return list(container) if isinstance(container, list | deque) else dict(items_of(container))


def holds_the_same(container: Any, before: list[Any] | dict[Any, Any]) -> bool:
    """Whether a container holds the very objects that it held."""
    now = copied(container)
    if isinstance(now, dict) and isinstance(before, dict):
        return now.keys() == before.keys() and all(value is before[key] for key, value in now.items())
    return len(now) == len(before) and all(map(is_, now, before))


def items_of(container: MutableMapping[Any, Any]) -> Iterator[tuple[Any, Any]]:
    """The entries of a dict as they are: subclasses compute theirs, or forbid what changes them."""
    if not isinstance(container, dict):
        return iter(container.items())
    base: Any = OrderedDict if isinstance(container, OrderedDict) else dict
    return iter(base.items(container))  # no key is looked up: a failed trace leaves some that have no hash outside of it


def entries(container: Container) -> list[tuple[Any, Any]]:
    """Contents of a container as they are now, with the keys or the positions."""
    return list(enumerate(container) if isinstance(container, list | deque) else items_of(container))


def put_back(container: Container | set[Any], contents: Any) -> None:
    """Let a container hold what it held; the same object, and untouched where it holds that."""
    if isinstance(container, list | deque):
        if len(container) != len(contents) or any(a is not b for a, b in zip(container, contents, strict=True)):
            container.clear()
            container.extend(contents)
        return
    if not isinstance(container, dict):
        container.clear()
        container.update(contents)
        return
    now = list(items_of(container))
    if len(now) == len(contents) and all(a is c and b is d for (a, b), (c, d) in zip(now, contents.items(), strict=True)):
        return
    base: Any = OrderedDict if isinstance(container, OrderedDict) else dict
    base.clear(container)
    for key, value in contents.items():
        base.__setitem__(container, key, value)


@dataclasses.dataclass(frozen=True)
class Attributes:
    """Some attributes of an object that is like any other.

    Attributes:
        owner: the object.
        names: the attributes that matter.
    """

    owner: object
    names: frozenset[str]


@dataclasses.dataclass(frozen=True)
class SameAs:
    """Stands for an object that was met before, at `path`."""

    path: Path


def is_record(item: object) -> bool:
    """Whether an object is an instance of a dataclass."""
    return dataclasses.is_dataclass(item) and not isinstance(item, type) and has_own_attributes(item)


def _is_omegaconf(item: object) -> bool:
    """Whether an object is a container of OmegaConf (which need not be installed), or a value in one."""
    return type(item).__module__.startswith("omegaconf.") and hasattr(item, "__dict__")


def set_at(objects: ObjectGraph, path: Path, value: object) -> None:
    """Put `value` where `path` points, rebuilding the tuples on the way (they cannot be changed in place)."""
    for depth in range(len(path) - 1, -1, -1):
        container = objects.containers.get(path[:depth])
        if container is not None:
            key, inner = path[depth], path[depth + 1 :]
            container[key] = _replaced(container[key], inner, value) if inner else value
            return
    raise AssertionError(f"no container for {path}")


def _replaced(item: Any, path: Path, value: object) -> Any:
    if not path:
        return value
    elements = list(item)
    elements[path[0]] = _replaced(elements[path[0]], path[1:], value)
    return type(item)(*elements) if hasattr(item, "_fields") else type(item)(elements)


def describe(path: Path) -> str:
    """A path as the user would write it: `model.layers.0.weight`."""
    hidden = {"_modules", "_parameters", "_buffers", "__dict__", _ELEMENTS}
    return ".".join(str(part) for part in path if part not in hidden)
