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

from .._capture_thread import replaced
from ._symbols import Number

_LIBRARIES: dict[str, Any] = {"random": random, "numpy.random": np.random}
_FUNCTIONS = {
    "random": (
        "random", "uniform", "randint", "randrange", "gauss", "normalvariate", "betavariate", "expovariate", "triangular",
        "gammavariate", "lognormvariate", "vonmisesvariate", "paretovariate", "weibullvariate",
    ),
    "numpy.random": (
        "rand", "random", "random_sample", "ranf", "sample", "uniform", "normal", "randn", "standard_normal", "beta", "randint",
        "binomial", "poisson", "exponential", "gamma", "choice", "triangular", "laplace", "lognormal", "geometric",
    ),
}  # fmt: skip
"""The functions that give one number. The others, and arrays, are refused: they would be frozen into the program."""


@dataclass(frozen=True)
class Draw:
    """A call that draws one number.

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
        """Number that the call gives with these generators."""
        return getattr(generators[self.library], self.name)(*self.args, **dict(self.kwargs))


class StepDraws:
    """Numbers that the host draws for one step, from the global generators.

    They are drawn once: put back and drawn again, they would take with them what another thread draws meanwhile.

    Attributes:
        happened: whether numbers were drawn.
    """

    def __init__(self) -> None:
        self.happened = False
        self._draws: Sequence[Draw] = ()
        self._numbers: list[Number] = []
        self._before: tuple[Any, Any] | None = None

    def of(self, draws: Sequence[Draw]) -> list[Number]:
        """The step's numbers under a program that draws these."""
        if draws != self._draws:
            self.take_back()
            if draws:
                self._before = random.getstate(), np.random.get_state()
                self._draws, self._numbers = draws, [_plain(draw.of(_LIBRARIES)) for draw in draws]
                self.happened = True
        return self._numbers

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
        symbols: what the expected draws give.
    """

    def __init__(self, expected: Sequence[Draw] = ()) -> None:
        self.made: list[Draw] = []
        self.symbols: Sequence[Any] = ()
        self._expected = expected

    def hints(self) -> list[Number]:
        """The numbers that the expected draws will give in the step that is traced."""
        copies = _copies_of_generators() if self._expected else {}
        return [_plain(draw.of(copies)) for draw in self._expected]

    @functools.cached_property
    def _copies(self) -> dict[str, Any]:
        return _copies_of_generators()  # at the first draw: few steps draw

    @contextlib.contextmanager
    def noted(self) -> Iterator[None]:
        """Inside the block, the functions that give one number note their calls."""
        with contextlib.ExitStack() as stack:
            for library, names in _FUNCTIONS.items():
                for name in names:
                    stack.enter_context(replaced(_LIBRARIES[library], name, self._noting(library, name)))
            stack.enter_context(replaced(random, "choice", self._choice))
            yield

    def _noting(self, library: str, name: str) -> Callable[..., Any]:
        original = getattr(_LIBRARIES[library], name)

        @functools.wraps(original)
        def draw(*args: Any, **kwargs: Any) -> Any:
            plain = Draw(library, name, tuple(map(_argument, args)), tuple((k, _argument(v)) for k, v in kwargs.items()))
            value = plain.of(self._copies)
            if not _is_number(value):
                return original(*args, **kwargs)  # an array: the original draws it, which is noticed and refused
            self.made.append(plain)
            number = len(self.made) - 1
            if number >= len(self._expected):
                return _plain(value)
            assert self._expected[number] == plain, "two traces with the same numbers draw the same"
            return self.symbols[number]

        return draw

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


def _argument(value: object) -> Any:
    """An argument of a draw; a symbolic number becomes a condition of the graph."""
    if isinstance(value, torch.SymInt):
        return int(value)
    return float(value) if isinstance(value, torch.SymFloat) else value
