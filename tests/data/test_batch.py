"""Batches that hold anything: taken apart and put together again."""

from collections import OrderedDict, UserDict, defaultdict
from collections.abc import Iterator, Mapping, MutableMapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch.nn.utils.rnn import pack_sequence
from torch.utils._pytree import register_pytree_node

from systolic.data import batch_size_of, flatten_batch, unflatten_batch
from systolic.exceptions import MisconfigurationException

X, Y = torch.arange(6.0).reshape(3, 2), torch.arange(3)


class Pair(NamedTuple):
    x: Any
    y: Any


@dataclass
class Record:
    x: Any
    name: str = "r"
    derived: Any = field(init=False, default=None)

    def __post_init__(self) -> None:
        self.derived = [self.name]


@dataclass(frozen=True, slots=True)
class Frozen:
    x: Any
    y: Any


class Attributed(dict[str, Any]):
    def __init__(self, items: Any, source: str) -> None:
        super().__init__(items)
        self.source = source


class Wrapped(MutableMapping[str, Any]):
    """A mapping whose shallow copy shares its storage."""

    def __init__(self, items: Mapping[str, Any]) -> None:
        self.items_ = dict(items)

    def __getitem__(self, key: str) -> Any:
        return self.items_[key]

    def __setitem__(self, key: str, value: Any) -> None:
        self.items_[key] = value

    def __delitem__(self, key: str) -> None:
        del self.items_[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self.items_)

    def __len__(self) -> int:
        return len(self.items_)


class Rows(Wrapped):
    """Like a TensorDict: a mapping that iterates over rows, has a size, and that PyTorch's registry knows how to open."""

    def __init__(self, items: Mapping[str, Any], rows: int) -> None:
        super().__init__(items)
        self.rows = rows

    def __iter__(self) -> Iterator[Any]:
        return iter(range(self.rows))


register_pytree_node(
    Rows, lambda r: ([*r.items_.values()], (tuple(r.items_), r.rows)), lambda v, c: Rows(dict(zip(c[0], v, strict=True)), c[1])
)


class Numbered(list[Any]):
    number = 0


class Graph:
    """Like a PyG batch: an object with tensors inside and a `to` method."""

    name = ""

    def __init__(self) -> None:
        self.x = X

    def to(self, device: Any) -> "Graph":
        return self


def replaced(batch: Any) -> tuple[Any, list[Any]]:
    """The batch with its leaves replaced by new objects, which are returned too."""
    leaves, spec = flatten_batch(batch)
    new = [leaf + 1 for leaf in leaves]
    return unflatten_batch(spec, new), new


@pytest.mark.parametrize(
    ("batch", "read"),
    [
        (X, lambda b: [b]),
        ([X, Y], list),
        ((X, Y), list),
        ([X, [Y, (X,)]], lambda b: [b[0], b[1][0], b[1][1][0]]),
        (Pair(X, Y), lambda b: [b.x, b.y]),
        ({"x": X, "y": Y}, lambda b: [b["x"], b["y"]]),
        ({1: X, "n": {"y": Y}}, lambda b: [b[1], b["n"]["y"]]),
        (OrderedDict(x=X, y=Y), lambda b: [b["x"], b["y"]]),
        (UserDict(x=X, y=Y), lambda b: [b["x"], b["y"]]),
        (MappingProxyType({"x": X, "y": Y}), lambda b: [b["x"], b["y"]]),
        (Wrapped({"x": X, "y": Y}), lambda b: [b["x"], b["y"]]),
        (Rows({"x": X, "y": Y}, 2), lambda b: [b["x"], b["y"]][: b.rows]),
        (Frozen(X, {"y": Y}), lambda b: [b.x, b.y["y"]]),
        (Record(X), lambda b: [b.x]),
        (Numbered([X, Y]), list),
        (torch.max(X, dim=1), list),
        (pack_sequence([X[:, 0]]), lambda b: [b.data, b.batch_sizes]),
        ([np.arange(3.0), np.float32(2)], lambda b: [b[0]]),
    ],
    ids=lambda value: type(value).__name__,
)
def test_round_trip(batch: Any, read: Any) -> None:
    again, leaves = replaced(batch)
    assert type(again) is type(batch)
    got = read(again)
    assert len(got) == len(leaves)
    assert all(part is leaf for part, leaf in zip(got, leaves, strict=True))


def test_sizes_of_registered_mappings_tell_batches_apart() -> None:
    specs = [flatten_batch(Rows({"x": X}, rows))[1] for rows in (2, 2, 3)]
    assert specs[0] == specs[1] != specs[2]


def test_what_is_no_tensor_travels_untouched() -> None:
    opaque = object()
    words, dates = np.array(["a", "b"]), np.array(["2020-01-01"], dtype="datetime64[D]")
    batch = [1, 2.5, True, "name", b"bytes", None, {1, 2}, opaque, words, dates, torch.float32, X]
    leaves, spec = flatten_batch(batch)
    assert leaves == [X]
    assert spec.num_leaves == 1
    again = unflatten_batch(spec, leaves)
    assert all(part is original for part, original in zip(again, batch, strict=True))
    assert spec.statics == batch[:-1]


def test_an_object_with_tensors_is_made_again() -> None:
    graph = Graph()
    graph.name = "a"
    again, new = replaced([graph, X])
    assert type(again[0]) is Graph
    assert again[0] is not graph
    assert again[0].x is new[0]
    assert again[0].name == "a"
    assert graph.x is X


@pytest.mark.parametrize("dtype", [np.bool_, np.uint8, np.int64, np.float16, np.float32, np.complex64])
def test_numeric_arrays_are_leaves(dtype: Any) -> None:
    array = np.zeros(3, dtype)
    assert flatten_batch({"a": array})[0][0] is array


@pytest.mark.parametrize("array", [np.ma.masked_array([1, 2]), np.array([None]), np.zeros(2, np.longdouble)])
def test_arrays_without_a_tensor_type_are_not(array: Any) -> None:
    assert flatten_batch([array])[0] == []


def test_attributes_and_factories_survive() -> None:
    again, _ = replaced(Attributed({"x": X}, "disk"))
    assert again.source == "disk"
    counted, _ = replaced(defaultdict(list, x=X))
    assert counted["missing"] == []
    numbered = Numbered([X])
    numbered.number = 3
    assert replaced(numbered)[0].number == 3
    record = Record(X, name="first")
    record.derived.append("changed")
    assert replaced(record)[0].derived == ["first", "changed"]


def test_the_batch_itself_is_not_changed() -> None:
    for batch in (Wrapped({"x": X}), UserDict(x=X), Attributed({"x": X}, "disk"), {"x": X}):
        replaced(batch)
        assert batch["x"] is X
    record = Record(X)
    replaced(record)
    assert record.x is X


def test_transformers_batches() -> None:
    transformers = pytest.importorskip("transformers")
    batch = transformers.BatchEncoding({"ids": Y, "mask": X})
    again, leaves = replaced(batch)
    assert type(again) is transformers.BatchEncoding
    assert again["ids"] is leaves[0]
    assert again.mask is leaves[1]
    assert flatten_batch(batch)[1] == flatten_batch(transformers.BatchEncoding({"ids": Y, "mask": X}))[1]


def test_a_spec_keeps_no_tensor_alive() -> None:
    import gc
    import weakref

    for make in (UserDict, dict, lambda **items: Record(items), lambda **items: Numbered(items.values())):
        tensor = torch.ones(2)
        alive = weakref.ref(tensor)
        spec = flatten_batch(make(x=tensor, n=1))[1]
        del tensor
        gc.collect()
        assert alive() is None
        assert spec.num_leaves == 1


EQUAL = [
    (lambda: [X, Y], lambda: [Y, X]),
    (lambda: {"x": X, "n": 1}, lambda: {"x": Y, "n": 1}),
    (lambda: Record(X), lambda: Record(Y)),
    (lambda: [X, float("nan")], lambda: [X, float("nan")]),
]
DIFFERENT = [
    ([X, Y], (X, Y)),
    ([X, Y], [X]),
    ([X, [Y]], [[X], Y]),
    ({"x": X, "y": Y}, {"y": Y, "x": X}),
    ([X, 1], [X, 2]),
    ([X, 1], [X, 1.0]),
    ([X, 1], [X, True]),
    ([X, 0.0], [X, -0.0]),
    ([X, {1}], [X, {1}]),
    (Pair(X, Y), (X, Y)),
    (Attributed({"x": X}, "a"), Attributed({"x": X}, "b")),
    ({"x": X}, OrderedDict(x=X)),
]


@pytest.mark.parametrize(("first", "second"), EQUAL)
def test_equal_structures_have_equal_keys(first: Any, second: Any) -> None:
    one, two = flatten_batch(first())[1], flatten_batch(second())[1]
    assert one == two
    assert hash(one) == hash(two)
    assert one.key() == two.key()


@pytest.mark.parametrize(("first", "second"), DIFFERENT)
def test_different_batches_have_different_keys(first: Any, second: Any) -> None:
    assert flatten_batch(first)[1] != flatten_batch(second)[1]


def test_unhashable_values_count_by_identity_and_structure_keys_ignore_values() -> None:
    shared = {1, 2}
    assert flatten_batch([X, shared])[1] == flatten_batch([X, shared])[1]
    files = [flatten_batch({"x": X, "file": name})[1] for name in ("a", "b")]
    assert files[0] != files[1]
    assert files[0].structure_key() == files[1].structure_key()
    assert flatten_batch({"x": X, "file": 1})[1].structure_key() != files[0].structure_key()


def test_wrong_number_of_leaves() -> None:
    for batch in ([X, Y], [X, [Y]], {"x": X, "y": Y}):
        with pytest.raises(ValueError, match="2 leaves, received 1"):
            unflatten_batch(flatten_batch(batch)[1], [X])


def test_leaves_come_as_a_new_list() -> None:
    batch = [X, Y]
    leaves, spec = flatten_batch(batch)
    again = unflatten_batch(spec, leaves)
    assert leaves is not batch
    assert again is not leaves
    assert "BatchSpec([*, *])" in repr(spec)


@pytest.mark.parametrize(
    ("batch", "size"),
    [(X, 3), ([X, Y], 3), ({"name": "a", "x": X}, 3), (torch.tensor(1.0), 1), ([np.ones(5)], 5), ([np.ones(5), X], 3)],
)
def test_batch_size(batch: Any, size: int) -> None:
    assert batch_size_of(batch) == size


def test_ambiguous_batch_size_is_said() -> None:
    with pytest.warns(UserWarning, match=r"ambiguous.*\[3, 5\]; 3"):
        assert batch_size_of([X, torch.ones(5)]) == 3


@pytest.mark.parametrize("batch", [None, "text", [1, 2], {}])
def test_no_batch_size(batch: Any) -> None:
    with pytest.raises(MisconfigurationException, match="batch_size=..."):
        batch_size_of(batch)
