"""NumPy arrays in a step: `x.numpy()`, and arrays that NumPy draws, are tensors of the trace behind NumPy's names.

PyTorch has an implementation of NumPy over tensors. While a step is traced, its arrays stand for those of NumPy: functions of
NumPy that are given one become ops of the program. What PyTorch does not know, or a library that wants real memory, is refused.
"""

from __future__ import annotations

import contextlib
import functools
import operator
from collections.abc import Callable, Iterator
from typing import Any, NoReturn, Protocol, TypeGuard

import numpy as np
import torch

from ...utilities._torch_internals import FunctionalTensor, is_functorch_tensor, torch_numpy
from .._capture_thread import replaced
from .._errors import DataDependentError, user_line_of
from ._explain import host_needed
from ._library_calls import require_no_library

_OPERATORS = (
    "add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and_", "or_", "xor", "lt", "le", "gt", "ge",
    "eq", "ne",
)  # fmt: skip

_WITH_ARRAYS = ("add", "sub", "mul", "truediv", "matmul")


@functools.cache
def numpy_of_torch() -> Any:
    """PyTorch's NumPy, whose arrays NumPy's own functions take from here on."""
    numpy = torch_numpy()
    array: Any = numpy.ndarray
    array.__array_function__ = _function
    array.__array_ufunc__ = _ufunc
    array.__array__ = refuse_array
    array.__str__ = array.__repr__ = refuse_array
    array.__format__ = lambda self, spec: format(self.tensor, spec) if self.ndim == 0 else refuse_array()
    array.astype = _converting(array.astype)
    for name in (name for name in dir(np.ndarray) if not name.startswith("_") and callable(getattr(np.ndarray, name))):
        setattr(array, name, _method(name, getattr(array, name, None)))
    for name in _OPERATORS:
        for reflected in (False, True):
            own = f"__{'r' if reflected else ''}{name.strip('_')}__"
            if own in vars(array):
                setattr(array, own, _with_tensors(vars(array)[own], getattr(operator, name), reflected))
    return numpy


def _method(name: str, known: Callable[..., Any] | None) -> Callable[..., Any]:
    """A method of arrays: PyTorch's, or NumPy's on the host where PyTorch does not know it, or not these arguments."""

    def on_host(array: Any, *args: Any, **kwargs: Any) -> Any:
        return getattr(array, name)(*args, **kwargs)

    on_host.__name__ = on_host.__qualname__ = name

    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        if known is not None:
            with contextlib.suppress(NotImplementedError):
                return known(self, *args, **kwargs)
        return _called_on_host(on_host, (self, *args), kwargs)

    return method


class TracedArray(Protocol):
    """An array of PyTorch's NumPy.

    Attributes:
        tensor: what it stands for.
        ndim: its number of dimensions.
    """

    tensor: torch.Tensor
    ndim: int


_made = 0


def arrays_made() -> int:
    """How many arrays were given out so far."""
    return _made


def traced_array(tensor: torch.Tensor) -> Any:
    """An array that stands for a tensor of the trace."""
    global _made
    _made += 1
    return numpy_of_torch().ndarray(tensor)


def copied_array(array: TracedArray) -> Any:
    """An array that stands for the same kind of thing, of memory that nobody else writes to."""
    copied = traced_array(array.tensor.clone())
    vars(copied).update({name: flag for name, flag in vars(array).items() if name != "tensor"})
    return copied


def traced_numbers(tensor: torch.Tensor) -> list[Any]:
    """A list that stands for Python's numbers, one for each element of a tensor."""
    found = list(map(traced_array, tensor.unbind()))
    for one in found:
        one.is_pythons = True
    return found


def is_traced_array(value: object) -> TypeGuard[TracedArray]:
    """Whether a value is such an array."""
    return type(value).__module__ == "torch._numpy._ndarray" and hasattr(value, "tensor")


def tensor_behind(value: Any) -> Any:
    """The tensor that an array of the trace stands for; other values as they are."""
    return value.tensor if is_traced_array(value) else value


def stands_for_number(array: TracedArray) -> bool:
    """Whether an array stands for one of Python's numbers."""
    return hasattr(array, "is_pythons")


def stands_for_scalar(array: TracedArray) -> bool:
    """Whether an array stands for one of NumPy's scalars: its reductions give them, `x.numpy()` arrays without dimensions."""
    return array.ndim == 0 and not hasattr(array, "is_tensors")


def refuse_array(*_: object, **__: object) -> NoReturn:
    """Raise: somebody wants the memory of an array, and there is none before the program runs."""
    require_no_library()
    raise DataDependentError(host_needed(user_line_of()))


def _with_tensors(original: Callable[..., Any], operation: Callable[..., Any], reflected: bool) -> Callable[..., Any]:
    """An operator of an array, which also meets tensors: with the result that NumPy and PyTorch have between them."""

    def method(self: Any, other: Any) -> Any:
        if not isinstance(other, torch.Tensor):
            return original(self, other)
        if self.ndim == 0:  # as a number, which leaves the tensor its dtype
            number = self.tensor.item()
            return operation(other, number) if reflected else operation(number, other)
        if not reflected:
            raise TypeError(f"unsupported operand type(s) for {operation.__name__}: 'numpy.ndarray' and 'Tensor'")
        return original(self, other.numpy()).tensor

    return method


def _converting(astype: Callable[..., Any]) -> Callable[..., Any]:
    """PyTorch's `astype`, which knows NumPy's types by their names only."""

    def convert(self: Any, dtype: Any, *args: Any, **kwargs: Any) -> Any:
        return astype(self, _named(dtype), *args, **kwargs)

    return convert


def _named(value: Any) -> Any:
    is_numpys = isinstance(value, np.dtype) or (isinstance(value, type) and issubclass(value, np.generic))
    return np.dtype(value).name if is_numpys else value


class ArrayIsWrittenError(DataDependentError):
    """A function of NumPy writes to an array of the trace: called on the host it would write to another one."""


_on_host: Callable[[Callable[..., Any]], Callable[..., Any]] | None = None
_WRITING = frozenset(
    {
        "put",
        "place",
        "putmask",
        "put_along_axis",
        "copyto",
        "fill_diagonal",
        "at",
        "partition",
        "setfield",
        "setflags",
        "byteswap",
    }
)
"""Functions and methods of NumPy that write to an array which they are given: on the host that is another one."""


def _called(original: Callable[..., Any], module: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    owner = numpy_of_torch()
    for part in module.split(".")[1:]:  # numpy.linalg, numpy.fft
        owner = getattr(owner, part, None)
    function = getattr(owner, original.__name__, None)
    if function is None:
        return _called_on_host(original, args, kwargs)
    if original.__name__ in ("cov", "corrcoef"):
        kwargs = {"dtype": np.float64, **kwargs}  # NumPy computes in it, whatever it is given
    try:
        result = function(*args, **{key: _named(value) for key, value in kwargs.items()})
        return _in_single(result, args[0]) if module == "numpy.fft" else result
    except NotImplementedError:  # an argument that PyTorch's NumPy does not know, such as `np.unique(..., return_index=True)`
        return _called_on_host(original, args, kwargs)


def _in_single(result: Any, given: Any) -> Any:
    """A Fourier transform of single precision as NumPy has it from its second version on; PyTorch's computes all in double."""
    is_single = getattr(tensor_behind(given), "dtype", None) in (torch.float32, torch.complex64)
    if not is_single or np.lib.NumpyVersion(np.__version__) < "2.0.0":
        return result
    return traced_array(result.tensor.to(torch.complex64 if result.tensor.is_complex() else torch.float32))


def _called_on_host(original: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if original.__name__ in _WRITING or kwargs.get("out") is not None:
        raise ArrayIsWrittenError(
            f"The step has numpy.{original.__name__} write to an array that stands for a tensor, whose memory exists only when "
            f"the program runs.\n  used at {user_line_of()}\n"
            "Options: write by an index, array[places] = values; use what the function returns, without out=; or compute with "
            "torch."
        )
    require_no_library()
    if _on_host is None:
        refuse_array()
    return _on_host(original)(*args, **kwargs)


def _function(_: object, function: Callable[..., Any], types: object, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    del types
    return _called(function, function.__module__, args, kwargs)


def _ufunc(_: object, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
    if any(type(array) is np.ndarray for array in kwargs.get("out", ())):
        raise ArrayIsWrittenError(
            f"The step has numpy.{ufunc.__name__} write values of the step, or numbers that it drew, into an array of NumPy's, "
            f"which would happen once, in the trace.\n  used at {user_line_of()}\n"
            "Options: make a new array, `array = array + values` and not `array += values`; or compute with torch."
        )
    if "out" in kwargs:  # for a function with several results it has several
        (kwargs["out"],) = kwargs["out"] if len(kwargs["out"]) == 1 else (kwargs["out"],)
    if method != "__call__":
        return _called_on_host(getattr(ufunc, method), inputs, kwargs)
    if kwargs.get("where", True) is not True:  # PyTorch's takes it for True
        return _called_on_host(ufunc, inputs, kwargs)
    return _called(ufunc, "numpy", inputs, kwargs)


def _is_traced(tensor: torch.Tensor) -> bool:
    return isinstance(tensor, FunctionalTensor) or is_functorch_tensor(tensor)


def _numpy(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def numpy(self: torch.Tensor, *, force: bool = False) -> Any:
        if not _is_traced(self):
            return original(self, force=force)
        if self.requires_grad and not force:
            raise RuntimeError("Can't call numpy() on Tensor that requires grad. Use tensor.detach().numpy() instead.")
        array = traced_array(self.detach())
        array.is_tensors = True
        return array

    return numpy


def _array(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def array(self: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        return refuse_array() if _is_traced(self) else original(self, *args, **kwargs)

    return array


def fits_a_tensor(dtype: np.dtype[Any]) -> bool:
    """Whether PyTorch has the dtype, in this byte order: long doubles, strings, dates and objects it has not."""
    return dtype.kind in "biufc" and dtype.isnative and dtype.char not in "gG"


def _meeting_arrays(original: Callable[..., Any], operation: Callable[..., Any]) -> Callable[..., Any]:
    """An operator of tensors whose right side may be an array of NumPy: the result is a tensor with NumPy's dtype."""

    @functools.wraps(original)
    def method(self: torch.Tensor, other: Any) -> Any:
        if type(other) is not np.ndarray or other.ndim == 0 or not fits_a_tensor(other.dtype) or not _is_traced(self):
            return original(self, other)
        # Tensors have no negative strides, and PyTorch warns of memory that it must not write.
        array = torch.from_numpy(other if min(other.strides) >= 0 and other.flags.writeable else other.copy())
        if operation is operator.truediv and not any(t.is_floating_point() or t.is_complex() for t in (self, array)):
            self = self.double()  # NumPy's quotients of whole numbers are float64, PyTorch's float32
        return operation(self, traced_array(array))

    return method


@contextlib.contextmanager
def arrays_of_tensors(on_host: Callable[[Callable[..., Any]], Callable[..., Any]]) -> Iterator[None]:
    """Inside the block, tensors of the trace have arrays.

    Args:
        on_host: from a function of NumPy that PyTorch does not know to one that the host calls.
    """
    global _on_host
    before, _on_host = _on_host, on_host
    with contextlib.ExitStack() as stack:
        stack.enter_context(replaced(torch.Tensor, "numpy", _numpy(torch.Tensor.numpy)))
        stack.enter_context(replaced(torch.Tensor, "__array__", _array(torch.Tensor.__array__)))
        for name in _WITH_ARRAYS:
            own = f"__{name}__"
            method = _meeting_arrays(getattr(torch.Tensor, own), getattr(operator, name))
            stack.enter_context(replaced(torch.Tensor, own, method))
        try:
            yield
        finally:
            _on_host = before
