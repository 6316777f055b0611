"""Watch over Python code that computes with a size that values decide: `if len(x[mask]) > 3`, `x[mask].shape[0] // 2`.

What ops are given as a size can be seen in the graph. What Python makes of it cannot: the graph would look the same for other
batches, for which Python would have done something else. So sizes are handed out as numbers that note when somebody computes
with them, from the first one on that values decide. Sums of sizes and multiples are followed, and comparisons become conditions
of the graph that is written for all sizes (`passes/_bounded_sizes.py`); where anything else is done with what differs from
batch to batch, there is none.
"""

from __future__ import annotations

import builtins
import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from .._capture_thread import is_capture_thread

_SHAPE = torch.Tensor.shape.__get__  # pyright: ignore[reportAttributeAccessIssue]
_NBYTES = torch.Tensor.nbytes.__get__  # pyright: ignore[reportAttributeAccessIssue]
_SIZES = (_SHAPE, torch.Tensor.size)
_PRODUCTS = (torch.Tensor.numel, torch.Tensor.nelement, torch.numel)
# whose results cannot be numbers that note: Python makes them plain, or they are products of sizes
_PLAIN_SIZES = (
    torch.Tensor.__len__, torch.Tensor.stride, _NBYTES, torch.Tensor.storage, torch.Tensor.untyped_storage,
    torch.Tensor.tolist, torch.Tensor.__repr__, torch.Tensor.__format__,
)  # fmt: skip


@dataclass(frozen=True)
class SizeSum:
    """A number that Python adds up of sizes, and of numbers of elements.

    Attributes:
        parts: shapes, of which the number of elements is taken, and how often each is.
        offset: what is added to them.
    """

    parts: tuple[tuple[tuple[int, ...], int], ...]
    offset: int = 0

    def plus(self, other: SizeSum, times: int = 1) -> SizeSum:
        """This number and a multiple of another one."""
        return SizeSum((*self.parts, *other.times(times).parts), self.offset + times * other.offset)

    def times(self, factor: int) -> SizeSum:
        return SizeSum(tuple((shape, times * factor) for shape, times in self.parts), self.offset * factor)


@dataclass(frozen=True)
class SizeTest:
    """A comparison of sizes, such as `max(1, len(x[mask]))` makes one.

    Attributes:
        difference: of its two sides; compared with zero.
        comparison: the name of Python's function for it, such as "lt".
        holds: whether it holds for this batch.
    """

    difference: SizeSum
    comparison: str
    holds: bool


class SizeReads:
    """Notes on what Python code did with sizes in one trace, from the first one on that values decide.

    Which of them values decide is seen when two traces are compared: these differ.

    Attributes:
        seen: what it computed with in ways that are not followed: shapes, and sums of sizes.
        tests: what it compared.
        sums: by number: how it was added up; None for one that was made in two ways.
    """

    def __init__(self) -> None:
        self.seen: list[object] = []
        self.tests: list[SizeTest] = []
        self.sums: dict[int, SizeSum | None] = {}
        self._watches = False

    def watch(self) -> None:
        """Watch sizes from now on."""
        self._watches = True

    def seen_by(self, function: Callable[..., Any], args: Sequence[Any], result: Any) -> Any:
        """Result of a function of PyTorch's for user code: sizes are numbers that note what is done with them."""
        if not self._watches:
            return result
        if function in _PLAIN_SIZES:
            self.seen.append([tuple(tensor.shape) for tensor in _tensors(args)])
        elif function in _PRODUCTS:
            return self.number(result, SizeSum(((tuple(args[0].shape), 1),)))
        elif function in _SIZES:
            if isinstance(result, int):
                return self.number(result, SizeSum((((result,), 1),)))
            return torch.Size([self.number(n, SizeSum((((n,), 1),))) for n in result])
        return result

    def number(self, value: int, made_of: SizeSum) -> int:
        """A number that notes what is done with it."""
        watched = _WatchedSize(value)
        watched.reads, watched.made_of = self, made_of
        self.sums[value] = made_of if self.sums.get(value, made_of) == made_of else None
        return watched


def _tensors(values: Sequence[Any]) -> Iterator[torch.Tensor]:
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, list | tuple):
            yield from (one for one in value if isinstance(one, torch.Tensor))


class _WatchedSize(int):
    """A size, or what is added up of sizes."""

    reads: SizeReads
    made_of: SizeSum

    def note(self) -> None:
        """Note that it is computed with in a way that is not followed."""
        self.reads.seen.append(self.made_of)

    def __eq__(self, other: object) -> bool:
        result = int.__eq__(self, other)  # type: ignore[arg-type]
        if not (result is True and isinstance(other, _WatchedSize)):  # equal shapes are asked for before many an op
            self._compared("eq", other, result)
        return result

    def __ne__(self, other: object) -> bool:
        result = int.__ne__(self, other)  # type: ignore[arg-type]
        if not (result is False and isinstance(other, _WatchedSize)):
            self._compared("ne", other, result)
        return result

    def __bool__(self) -> bool:
        self._compared("ne", 0, holds := int.__bool__(self))
        return holds

    def _compared(self, comparison: str, other: object, holds: bool) -> None:
        if holds is NotImplemented:  # the other one decides: a tensor
            return
        if (right := _sum_of(other)) is None:
            self.note()
        else:
            self.reads.tests.append(SizeTest(self.made_of.plus(right, -1), comparison, holds))

    def __add__(self, other: int) -> int:
        return self._combined(int.__add__(self, other), other, 1)

    def __radd__(self, other: int) -> int:
        return self._combined(int.__radd__(self, other), other, 1)

    def __sub__(self, other: int) -> int:
        return self._combined(int.__sub__(self, other), other, -1)

    def _combined(self, value: int, other: object, times: int) -> int:
        """The number that is this one and once, or minus once, another one."""
        if value is NotImplemented:
            return value
        if (further := _sum_of(other)) is None:
            self.note()
            return value
        return self.reads.number(value, self.made_of.plus(further, times))

    def __mul__(self, other: int) -> int:
        return self._multiplied(int.__mul__(self, other), other)

    def __rmul__(self, other: int) -> int:
        return self._multiplied(int.__rmul__(self, other), other)

    def _multiplied(self, value: int, factor: object) -> int:
        if value is NotImplemented:
            return value
        if type(factor) is int:
            return self.reads.number(value, self.made_of.times(factor))
        self.note()
        if isinstance(factor, _WatchedSize):
            factor.note()
        return value

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        """Functions of NumPy's, such as `np.log(size)`."""
        self.note()
        return getattr(ufunc, method)(*map(plain, inputs), **options)


def _sum_of(value: object) -> SizeSum | None:
    """How a whole number is added up; None for anything else."""
    if isinstance(value, _WatchedSize):
        return value.made_of
    return SizeSum((), value) if type(value) is int else None


def _noting(name: str) -> Callable[..., Any]:
    original = getattr(int, name)

    def noted(self: _WatchedSize, *args: Any) -> Any:
        result = original(self, *args)
        if result is not NotImplemented:
            for one in (self, *args):
                if isinstance(one, _WatchedSize):
                    one.note()
        return result

    return noted


def _comparing(comparison: str) -> Callable[..., Any]:
    original = getattr(int, f"__{comparison}__")

    def compared(self: _WatchedSize, other: object) -> Any:
        holds = original(self, other)
        self._compared(comparison, other, holds)
        return holds

    return compared


_BOTH_WAYS = ("floordiv", "truediv", "mod", "divmod", "pow", "and", "or", "xor", "lshift", "rshift")
_ALONE = ("hash", "int", "float", "index", "neg", "pos", "abs", "invert", "round", "trunc", "floor", "ceil")
_OTHERS = ("rsub", "str", "repr", "format")

for _name in (*_BOTH_WAYS, *(f"r{name}" for name in _BOTH_WAYS), *_ALONE, *_OTHERS):
    setattr(_WatchedSize, f"__{_name}__", _noting(f"__{_name}__"))
for _name in ("lt", "le", "gt", "ge"):
    setattr(_WatchedSize, f"__{_name}__", _comparing(_name))
_WatchedSize.bit_length = _noting("bit_length")

_len = builtins.len


def _length(value: Any, /) -> int:
    """`len`, of tensors that are traced a number that notes what is done with it."""
    if isinstance(value, torch.Tensor) and is_capture_thread() and value.dim():
        return value.size(0)
    return _len(value)


_current: SizeReads | None = None
_asks = False


@contextlib.contextmanager
def watching(reads: SizeReads) -> Iterator[None]:
    """Inside the block, sizes that the trace asks values for are watched."""
    global _current
    before, _current = _current, reads
    # Python makes a plain number of what `__len__` gives, so `len` itself has to be another function. Not by `replaced`, which
    # costs three times as much: a trace of seconds has half a million calls.
    original, builtins.len = builtins.len, _length
    try:
        yield
    finally:
        _current, builtins.len = before, original


def asked_size(value: Any) -> int:
    """The size that a value is for this batch; one step is traced at a time."""
    global _asks
    # of the user's own number PyTorch would know from then on what it is, and Python code that asks for it would not be noticed
    number = value if isinstance(value, torch.Tensor) else torch.scalar_tensor(value, dtype=torch.int64)
    _asks = True
    try:
        size = int(number)
    finally:
        _asks = False
    if _current is not None:
        _current.watch()
    return size


def asks_for_size() -> bool:
    """Whether a number is asked for by an op, as the size of its result, and not by the user's code."""
    return _asks


def plain(value: Any) -> Any:
    """A value that leaves the trace: a size that values decide is another one for every batch."""
    if not isinstance(value, _WatchedSize):
        return value
    value.note()
    return int.__int__(value)
