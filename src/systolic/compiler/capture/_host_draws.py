"""Random numbers that a step draws from Python's `random` or from `numpy.random`: drawn by the host before every step.

A first trace notes the calls and gives them numbers of copies of the generators. A second one gets a symbolic number for each,
as for `batch_idx`: the program takes it as an input, and a branch on it (`if random.random() < 0.5`) is a condition of the
graph that the host looks at after it has drawn.
"""

from __future__ import annotations

import contextlib
import functools
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from ...utilities._torch_internals import _disable_current_modes
from .._capture_thread import replaced
from ._symbols import Number
from ._traced_arrays import traced_array, traced_numbers

_LIBRARIES: dict[str, Any] = {"random": random, "numpy.random": np.random}
_FUNCTIONS = {
    "random": (
        "random", "uniform", "randint", "randrange", "gauss", "normalvariate", "betavariate", "expovariate", "triangular",
        "gammavariate", "lognormvariate", "vonmisesvariate", "paretovariate", "weibullvariate", "sample", "choices",
    ),
    "numpy.random": (
        "rand", "random", "random_sample", "ranf", "sample", "uniform", "normal", "randn", "standard_normal", "beta", "randint",
        "binomial", "poisson", "exponential", "gamma", "choice", "triangular", "laplace", "lognormal", "geometric",
        "permutation", "dirichlet", "multivariate_normal", "chisquare", "gumbel", "rayleigh", "standard_exponential",
    ),
}  # fmt: skip
"""The functions that give a number, an array or a list of numbers. The others are refused: what they give would be frozen into
the program."""


@dataclass(frozen=True)
class Draw:
    """A call that draws a number, or several.

    Attributes:
        library: "random" or "numpy.random".
        name: the function's.
        args: its arguments.
        kwargs: its keyword arguments.
    """

    library: str
    name: str
    args: tuple[Any, ...]
    kwargs: tuple[tuple[str, Any], ...]

    def of(self, generators: dict[str, Any]) -> Any:
        """Number, array or list of numbers that the call gives with these generators."""
        if self.name == "shuffle":  # the order that it gives to so many elements
            order = list(range(self.args[0]))
            generators[self.library].shuffle(order)
            return order
        return getattr(generators[self.library], self.name)(*self.args, **dict(self.kwargs))


class StepDraws:
    """Numbers that the host draws for one step, from the global generators.

    They are drawn once: put back and drawn again, they would take with them what another thread draws meanwhile.

    Attributes:
        happened: whether numbers were drawn.
        arrays: the arrays among what was drawn, which are no inputs of the program by themselves.
    """

    def __init__(self) -> None:
        self.happened = False
        self.arrays: list[Any] = []
        self._draws: Sequence[Draw] = ()
        self._numbers: list[Number] = []
        self._before: tuple[Any, Any] | None = None

    def of(self, draws: Sequence[Draw]) -> list[Number]:
        """The step's numbers under a program that draws these."""
        if draws != self._draws:
            self.take_back()
            if draws:
                self._before = random.getstate(), np.random.get_state()
                drawn = [draw.of(_LIBRARIES) for draw in draws]
                self._draws, self._numbers = draws, [_plain(one) for one in drawn if _is_number(one)]
                self.arrays = [one for one in drawn if not _is_number(one)]
                self.happened = True
        return self._numbers

    def write(self, tensors: Sequence[torch.Tensor]) -> None:
        """Put the step's arrays into the tensors that its program takes them from."""
        for tensor, array in zip(tensors, self.arrays, strict=True):
            tensor.copy_(torch.as_tensor(array))

    def take_back(self) -> None:
        """Leave the generators as if nothing had been drawn."""
        if self._before is not None:
            random.setstate(self._before[0])
            np.random.set_state(self._before[1])
            self.happened, self._draws, self._numbers, self._before = False, (), [], None


class HostDraws:
    """The draws of one trace.

    Args:
        expected: what an earlier trace noted.

    Attributes:
        made: what this trace noted, in order.
        symbols: the numbers that the expected draws give.
        tensors: what stands for the arrays and lists that were drawn, in order.
    """

    def __init__(self, expected: Sequence[Draw] = ()) -> None:
        self.made: list[Draw] = []
        self.symbols: Sequence[Any] = ()
        self.tensors: list[torch.Tensor] = []
        self._expected = expected
        self._numbers = 0

    def hints(self) -> list[Number]:
        """The numbers that the expected draws will give in the step that is traced."""
        copies = _copies_of_generators() if self._expected else {}
        drawn = [draw.of(copies) for draw in self._expected]
        return [_plain(one) for one in drawn if _is_number(one)]

    @functools.cached_property
    def _copies(self) -> dict[str, Any]:
        return _copies_of_generators()  # at the first draw: few steps draw

    @contextlib.contextmanager
    def noted(self) -> Iterator[None]:
        """Inside the block, the functions that give numbers note their calls."""
        with contextlib.ExitStack() as stack:
            for library, names in _FUNCTIONS.items():
                for name in names:
                    stack.enter_context(replaced(_LIBRARIES[library], name, self._noting(library, name)))
            stack.enter_context(replaced(random, "choice", self._choice))
            for library in (random, np.random):
                stack.enter_context(replaced(library, "shuffle", self._shuffling(library)))
            yield

    def _noting(self, library: str, name: str) -> Callable[..., Any]:
        original = getattr(_LIBRARIES[library], name)

        @functools.wraps(original)
        def draw(*args: Any, **kwargs: Any) -> Any:
            given = tuple(map(_argument, args)), tuple((k, _argument(v)) for k, v in kwargs.items())
            if not _is_plain(given) or not _has_numbers(name, *args, **kwargs):
                return original(*args, **kwargs)  # the original draws, which is noticed and refused
            return self._drawn(Draw(library, name, *given))

        return draw

    def _drawn(self, draw: Draw) -> Any:
        """The stand-in for the result of a draw, which is noted."""
        place = len(self.made)
        self.made.append(draw)
        assert place >= len(self._expected) or self._expected[place] == draw, "two traces with the same numbers draw the same"
        value = draw.of(self._copies)
        if not _is_number(value):
            with _disable_current_modes():  # an ordinary tensor, which the host writes to before every step
                tensor = torch.from_numpy(np.array(value))
            self.tensors.append(tensor)
            own = tensor.clone()  # the step may write to it
            return traced_numbers(own) if isinstance(value, list) else traced_array(own)
        self._numbers += 1
        return self.symbols[self._numbers - 1] if place < len(self._expected) else _plain(value)

    def _shuffling(self, library: Any) -> Callable[..., None]:
        original = library.shuffle

        @functools.wraps(original)
        def shuffle(x: Any, *rest: Any) -> None:
            if rest or type(x) is not list or not all(type(one) is int or type(one) is float for one in x):
                original(x, *rest)  # which is noticed and refused: which object is where would be frozen
                return
            order = self._drawn(Draw("random" if library is random else "numpy.random", "shuffle", (len(x),), ()))
            values = torch.tensor(x, dtype=torch.int64 if all(type(one) is int for one in x) else torch.float64)
            x[:] = traced_numbers(values[torch.stack([place.tensor for place in order])])

        return shuffle

    def _choice(self, seq: Sequence[Any]) -> Any:
        # by an index, which is a number
        return seq[random.randrange(len(seq))]


def _copies_of_generators() -> dict[str, Any]:
    own, legacy = random.Random(), np.random.RandomState()
    own.setstate(random.getstate())
    legacy.set_state(np.random.get_state())
    return {"random": own, "numpy.random": legacy}


def _is_number(value: object) -> bool:
    return isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool | np.bool_)


def _plain(value: int | float | np.integer | np.floating) -> Number:
    return float(value) if isinstance(value, float | np.floating) else int(value)


def _has_numbers(name: str, *args: Any, **kwargs: Any) -> bool:
    """Whether what a function takes some of, where it does, are numbers: others cannot be an array of the program."""
    if name not in ("sample", "choices", "choice") or (not args and not kwargs.keys() & {"population", "a"}):
        return True
    population = args[0] if args else kwargs.get("population", kwargs.get("a"))
    return isinstance(population, int | range) or np.asarray(population).dtype.kind in "iufb"


def _is_plain(value: object) -> bool:
    """Whether a value is made of numbers and the like, so that it can be kept and compared."""
    if isinstance(value, list | tuple):
        return all(map(_is_plain, value))
    return isinstance(value, int | float | str | range | type(None) | np.generic | type)


def _argument(value: object) -> Any:
    """An argument of a draw; a symbolic number becomes a condition of the graph."""
    if isinstance(value, torch.SymInt):
        return int(value)
    if isinstance(value, list | tuple):
        return type(value)(map(_argument, value)) if type(value) in (list, tuple) else tuple(map(_argument, value))
    return float(value) if isinstance(value, torch.SymFloat) else value
