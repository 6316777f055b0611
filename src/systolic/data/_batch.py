"""Batches as trees: tensors and arrays are leaves, everything else travels in the spec untouched."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import torch

from ..exceptions import MisconfigurationException
from ..utilities._containers import Opened, Rebuild, open_container
from ..utilities._leaves import Same, is_array_of_numbers, is_sparse
from ._batch_objects import open_object

BatchLeaf: TypeAlias = torch.Tensor | np.ndarray


class _Leaf:
    """The place of a leaf in a tree."""

    def __repr__(self) -> str:
        return "*"


LEAF: Final = _Leaf()


class Static(NamedTuple):
    """A value that stays on the host: number, string, None, any object that is not a container."""

    value: Any


class Node(NamedTuple):
    """A container: its type, what else identifies it, its children, and how to make it again."""

    kind: type
    context: Hashable
    children: tuple[Any, ...]
    rebuild: Rebuild


Tree: TypeAlias = _Leaf | Static | Node


class BatchSpec:
    """The structure of a batch and its static values: with the leaves it gives the batch back."""

    __slots__ = ("_build", "_key", "_statics", "_structure", "num_leaves", "tree")

    def __init__(self, tree: Tree, num_leaves: int) -> None:
        self.tree = tree
        self.num_leaves = num_leaves
        self._build: Callable[[Sequence[Any]], Any] | None = None
        self._key: Hashable = None
        self._structure: Hashable = None
        self._statics: list[Any] | None = None

    def key(self) -> Hashable:
        """Equal for batches of one structure with equal static values; unhashable ones count by identity."""
        if self._key is None:
            self._key = _tree_key(self.tree, _static_key)
        return self._key

    def structure_key(self) -> Hashable:
        """Equal for batches of one structure whatever the static values are: only their types count."""
        if self._structure is None:
            self._structure = _tree_key(self.tree, type)
        return self._structure

    @property
    def statics(self) -> list[Any]:
        """The static values, in the order of the tree; not to be changed."""
        if self._statics is None:
            self._statics = list(_statics(self.tree))
        return self._statics

    def unflatten(self, leaves: Sequence[Any]) -> Any:
        """The batch with these leaves in place."""
        if len(leaves) != self.num_leaves:
            raise ValueError(f"This batch structure has {self.num_leaves} leaves, received {len(leaves)}.")
        if self._build is None:
            self._build = _compile(self.tree)
        return self._build(leaves)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, BatchSpec) and self.key() == other.key()

    def __hash__(self) -> int:
        return hash(self.key())

    def __repr__(self) -> str:
        return f"BatchSpec({self.unflatten([LEAF] * self.num_leaves)!r})"


def flatten_batch(batch: Any) -> tuple[list[BatchLeaf], BatchSpec]:
    """Split a batch into its tensors and numeric arrays, in order, and a spec that holds everything else."""
    spec = _flat_spec(batch)
    if spec is not None:
        return list(batch.values() if type(batch) is dict else batch), spec
    leaves: list[Any] = []
    tree = describe(batch, leaves, is_batch_leaf)
    return leaves, BatchSpec(tree, len(leaves))


def unflatten_batch(spec: BatchSpec, leaves: Sequence[Any]) -> Any:
    """Put leaves (of any type) into the structure that `flatten_batch` found."""
    return spec.unflatten(leaves)


def is_batch_leaf(value: object) -> bool:
    """Whether a value of a batch goes to the device: a tensor, or an array of numbers that torch has a type for."""
    return _is_numbers(value) and not is_sparse(value)


def _is_numbers(value: object) -> bool:
    return isinstance(value, torch.Tensor) or is_array_of_numbers(value)


def _open_sparse(tensor: torch.Tensor) -> Opened:
    """A sparse tensor taken apart into indices and values: those of another number of elements are other shapes."""
    own = tensor if tensor.layout is torch.sparse_coo else tensor.to_sparse_coo()
    shape, layout, in_order = tuple(tensor.shape), tensor.layout, own.is_coalesced()

    def rebuild(parts: list[Any]) -> Any:
        if not isinstance(parts[0], torch.Tensor):  # places, for a description
            return tuple(parts)
        made = torch.sparse_coo_tensor(parts[0], parts[1], shape, check_invariants=False, is_coalesced=in_order)
        return made if layout is torch.sparse_coo else made.to_sparse_csr()

    return Opened((shape, layout, in_order), [own._indices(), own._values()], rebuild)


def describe(value: object, leaves: list[Any], is_leaf: Callable[[Any], bool]) -> Tree:
    """The tree of `value`; its leaves are appended to `leaves`."""
    if is_leaf(value):
        leaves.append(value)
        return LEAF
    opened = _open_sparse(value) if is_sparse(value) else open_container(value) or open_object(value)
    if opened is None:
        return Static(value)
    children = tuple(describe(child, leaves, is_leaf) for child in opened.children)
    return Node(type(value), opened.context, children, opened.rebuild)


def batch_size_of(batch: object) -> int:
    """The number of samples: size(0) of the first tensor (of the first array when there is no tensor).

    Raises:
        MisconfigurationException: the batch holds neither.
    """
    leaves: list[Any] = []
    describe(batch, leaves, _is_numbers)
    tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)] or leaves or list(_tensors_in(batch))
    if not tensors:
        raise MisconfigurationException(
            f"The batch size cannot be told from a batch of type {type(batch).__name__}: expected a tensor or a numpy "
            "array in it, found none. Pass it yourself: `self.log(..., batch_size=...)`."
        )
    sizes = [tensor.shape[0] if tensor.ndim else 1 for tensor in tensors]
    if any(size != sizes[0] for size in sizes):
        warnings.warn(
            f"The batch size is ambiguous: the tensors of this batch have first dimensions {sizes}; {sizes[0]}, that "
            "of the first, is used. To be certain, pass it yourself: `self.log(..., batch_size=...)`.",
            stacklevel=2,
        )
    return sizes[0]


def _tensors_in(value: object) -> Iterator[torch.Tensor]:
    """Tensors of an object that is no container to us, and that can be iterated over: as batches of torch_geometric can."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, Iterable) and not isinstance(value, str):
        for part in value.values() if isinstance(value, Mapping) else value:
            yield from _tensors_in(part)


_ONLY_TENSORS: Final = frozenset({torch.Tensor})
_ONLY_STRINGS: Final = frozenset({str})


def _flat_spec(batch: Any) -> BatchSpec | None:
    """The shared spec of the commonest batches: one list, tuple or dict of nothing but tensors."""
    kind = type(batch)
    if kind is list or kind is tuple:
        return _flat_sequence_spec(kind, len(batch)) if _are_plain(batch) else None
    if kind is dict and set(map(type, batch)) == _ONLY_STRINGS and _are_plain(batch.values()):
        return _flat_dict_spec(tuple(batch))
    return None


def _are_plain(values: Collection[Any]) -> bool:
    return set(map(type, values)) == _ONLY_TENSORS and not any(map(is_sparse, values))


@lru_cache(maxsize=256)
def _flat_sequence_spec(kind: type, size: int) -> BatchSpec:
    return BatchSpec(describe(kind([LEAF] * size), [], _is_place), size)


@lru_cache(maxsize=256)
def _flat_dict_spec(keys: tuple[str, ...]) -> BatchSpec:
    return BatchSpec(describe(dict.fromkeys(keys, LEAF), [], _is_place), len(keys))


def _is_place(value: object) -> bool:
    return value is LEAF


def _compile(tree: Tree) -> Callable[[Sequence[Any]], Any]:
    """A function from leaves to the value; the flat case makes no iterator."""
    if isinstance(tree, Node) and all(child is LEAF for child in tree.children):
        return tree.rebuild  # type: ignore[return-value]  # every rebuild reads its argument once, in order
    build = _builder(tree)
    return lambda leaves: build(iter(leaves))


def _builder(tree: Tree) -> Callable[[Iterator[Any]], Any]:
    if isinstance(tree, Static):
        value = tree.value
        return lambda leaves: value
    if isinstance(tree, Node):
        rebuild = tree.rebuild
        children = [_builder(child) for child in tree.children]
        return lambda leaves: rebuild([child(leaves) for child in children])
    return next


def _tree_key(tree: Tree, static_key: Callable[[Any], Hashable]) -> Hashable:
    if isinstance(tree, Static):
        return ("static", static_key(tree.value))
    if isinstance(tree, Node):
        return (tree.kind, tree.context, tuple(_tree_key(child, static_key) for child in tree.children))
    return "*"


def _static_key(value: object) -> Hashable:
    # The type belongs to the key because 1 == 1.0 == True; repr tells 0.0 from -0.0 and makes nan equal to itself.
    if isinstance(value, float | complex):
        return (type(value), repr(value))
    try:
        hash(value)
    except TypeError:
        return (type(value), Same(value))
    return (type(value), value)


def _statics(tree: Tree) -> Iterator[Any]:
    if isinstance(tree, Static):
        yield tree.value
    elif isinstance(tree, Node):
        for child in tree.children:
            yield from _statics(child)
