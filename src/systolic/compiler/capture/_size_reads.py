"""Watch over Python code that computes with a size that values decide: `if len(x[mask]) > 3`, `x[mask].shape[0] // 2`.

What ops are given as a size can be seen in the graph. What Python makes of it cannot: the graph would look the same for other
batches, for which Python would have done something else. So sizes are handed out as numbers that note when somebody computes
with them; where nobody does, the graph may be written for all sizes (`passes/_bounded_sizes.py`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

_SHAPE = torch.Tensor.shape.__get__  # pyright: ignore[reportAttributeAccessIssue]
_NBYTES = torch.Tensor.nbytes.__get__  # pyright: ignore[reportAttributeAccessIssue]
_SIZES = (_SHAPE, torch.Tensor.size, torch.Tensor.numel, torch.Tensor.nelement, torch.numel)
# whose results cannot be numbers that note: Python makes them plain, or they are products of sizes
_PLAIN_SIZES = (
    torch.Tensor.__len__, torch.Tensor.stride, _NBYTES, torch.Tensor.storage, torch.Tensor.untyped_storage,
    torch.Tensor.tolist, torch.Tensor.__repr__, torch.Tensor.__format__,
)  # fmt: skip


class SizeReads:
    """The sizes of one trace that values decide, and whether Python code computed with one.

    Attributes:
        computed: whether it did.
    """

    def __init__(self) -> None:
        self.computed = False
        self._sizes: set[int] = set()

    def add(self, size: int) -> None:
        """Watch a size; others that happen to be equal are watched, too."""
        self._sizes.add(size)

    def seen(self, function: Callable[..., Any], args: Sequence[Any], result: Any) -> Any:
        """Result of a function of PyTorch's for user code: sizes are numbers that note what is done with them."""
        if not self._sizes:
            return result
        given = [n for tensor in _tensors(args) for n in tensor.shape]
        if self._sizes.isdisjoint(given):
            return result
        if function in _PLAIN_SIZES:
            self.computed = True
        elif function in _SIZES:
            if isinstance(result, int):
                return self._watched(result)
            return torch.Size([self._watched(n) if n in self._sizes else n for n in result])
        else:  # what is made of such sizes: one behind the other, flat
            self._sizes.update(n for tensor in _tensors([result]) for n in tensor.shape if n > 1 and n not in given)
        return result

    def _watched(self, size: int) -> int:
        watched = _WatchedSize(size)
        watched.reads = self
        return watched


def _tensors(values: Sequence[Any]) -> Iterator[torch.Tensor]:
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, list | tuple):
            yield from (one for one in value if isinstance(one, torch.Tensor))


class _WatchedSize(int):
    """A size that values decide."""

    reads: SizeReads

    def __eq__(self, other: object) -> bool:
        result = int.__eq__(self, other)  # type: ignore[arg-type]
        if not (result is True and isinstance(other, _WatchedSize)):  # equal shapes are asked for before many an op
            self.reads.computed = True
        return result

    def __ne__(self, other: object) -> bool:
        result = int.__ne__(self, other)  # type: ignore[arg-type]
        if not (result is False and isinstance(other, _WatchedSize)):
            self.reads.computed = True
        return result

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        """Functions of NumPy's, such as `np.log(size)`."""
        self.reads.computed = True
        return getattr(ufunc, method)(*map(plain, inputs), **options)


def _noting(name: str) -> Callable[..., Any]:
    original = getattr(int, name)

    def noted(self: _WatchedSize, *args: Any) -> Any:
        self.reads.computed = True
        return original(self, *args)

    return noted


_BOTH_WAYS = ("add", "sub", "mul", "floordiv", "truediv", "mod", "divmod", "pow", "and", "or", "xor", "lshift", "rshift")
_ALONE = ("bool", "hash", "int", "float", "index", "neg", "pos", "abs", "invert", "round", "trunc", "floor", "ceil")
_OTHERS = ("lt", "le", "gt", "ge", "str", "repr", "format")

for _name in (*_BOTH_WAYS, *(f"r{name}" for name in _BOTH_WAYS), *_ALONE, *_OTHERS):
    setattr(_WatchedSize, f"__{_name}__", _noting(f"__{_name}__"))
_WatchedSize.bit_length = _noting("bit_length")

_current: SizeReads | None = None
_asks = False


@contextlib.contextmanager
def watching(reads: SizeReads) -> Iterator[None]:
    """Inside the block, sizes that the trace asks values for are watched."""
    global _current
    before, _current = _current, reads
    try:
        yield
    finally:
        _current = before


def asked_size(symbolic: Any) -> int:
    """The size that a symbolic number is for this batch; one step is traced at a time."""
    global _asks
    _asks = True
    try:
        size = int(symbolic)
    finally:
        _asks = False
    if _current is not None:
        _current.add(size)
    return size


def asks_for_size() -> bool:
    """Whether a number is asked for by an op, as the size of its result, and not by the user's code."""
    return _asks


def plain(value: Any) -> Any:
    """A value that leaves the trace: a size that values decide is another one for every batch."""
    if not isinstance(value, _WatchedSize):
        return value
    value.reads.computed = True
    return int(value)
