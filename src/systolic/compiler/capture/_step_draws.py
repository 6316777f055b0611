"""Numbers that the host has for a step, before every step anew: random ones, and those that are looked up by another one."""

from __future__ import annotations

import copy
import functools
import random
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import sympy
import torch

from ...utilities._torch_internals import OpOverload, _disable_current_modes
from ._generators import GENERATOR
from ._host_expressions import HostExpression, compiled_expression
from ._symbols import Number

LIBRARIES: dict[str, Any] = {"random": random, "numpy.random": np.random}


@dataclass(frozen=True)
class OfNumbers:
    """An argument that is computed of the step's numbers, of those that it drew before, too: `random.randint(0, width - size)`.

    Attributes:
        expression: a formula of `v0`, `v1` and so on.
        places: which of the numbers these are.
    """

    expression: sympy.Basic
    places: tuple[int, ...]

    def value(self, numbers: Sequence[Number]) -> Number:
        """The argument, of the step's numbers and those that it has drawn so far."""
        return self._compiled([numbers[place] for place in self.places])

    @functools.cached_property
    def _compiled(self) -> HostExpression:
        return compiled_expression(self.expression, [sympy.Symbol(f"v{k}") for k in range(len(self.places))])


def _now(argument: Any, numbers: Sequence[Number]) -> Any:
    return argument.value(numbers) if isinstance(argument, OfNumbers) else argument


@dataclass(frozen=True)
class HeldArray:
    """An array of the host that a function is given: probabilities, means, what it chooses from."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    contents: bytes

    @classmethod
    def of(cls, array: np.ndarray[Any, Any]) -> HeldArray:
        """The array as it is now."""
        return cls(array.shape, array.dtype, array.tobytes())

    @functools.cached_property
    def array(self) -> np.ndarray[Any, Any]:
        """One that nobody writes to."""
        return np.frombuffer(self.contents, self.dtype).reshape(self.shape)


def _plain(argument: Any) -> Any:
    return argument.array if isinstance(argument, HeldArray) else argument


@dataclass(frozen=True)
class Draw:
    """A call that draws a number, or several.

    Attributes:
        library: "random", "numpy.random", or the `id` of a generator of the user's own.
        name: the function's.
        args: its arguments; those that an earlier draw decides as formulas, arrays as `HeldArray`s.
        kwargs: its keyword arguments, likewise.
        generator: the generator of the user's own.
    """

    library: str | int
    name: str
    args: tuple[Any, ...]
    kwargs: tuple[tuple[str, Any], ...] = ()
    generator: Any = field(default=None, compare=False)

    @functools.cached_property
    def is_computed(self) -> bool:
        """Whether an argument is a formula of other numbers."""
        return any(isinstance(one, OfNumbers) for one in (*self.args, *(value for _, value in self.kwargs)))

    def after(self, numbers: Sequence[Number]) -> Draw:
        """The call with its arguments as they are where the step has these numbers so far."""
        if not self.is_computed:
            return self
        args = tuple(_now(one, numbers) for one in self.args)
        return replace(self, args=args, kwargs=tuple((name, _now(one, numbers)) for name, one in self.kwargs))

    def with_sizes(self, numbers: Mapping[int, int]) -> Draw:
        """The call with some arguments as they are in this step: a whole number may decide how large an array is.

        Args:
            numbers: these, each by its place among the arguments, those by name last.
        """
        args = tuple(numbers.get(place, one) for place, one in enumerate(self.args))
        named = [(name, numbers.get(len(args) + place, one)) for place, (name, one) in enumerate(self.kwargs)]
        return replace(self, args=args, kwargs=tuple(named))

    def of(self, generator_of: GeneratorOf) -> Any:
        """Number, array or list of numbers that the call gives."""
        generator = generator_of(self)
        if self.name == "shuffle":  # the order that it gives to so many elements
            order = list(range(self.args[0]))
            generator.shuffle(order)
            return order
        return getattr(generator, self.name)(*map(_plain, self.args), **{name: _plain(one) for name, one in self.kwargs})


@dataclass(frozen=True)
class Like:
    """Stands for a tensor of which an op takes nothing but shape and dtype."""

    shape: tuple[int, ...]
    dtype: torch.dtype


@dataclass(frozen=True)
class Seeded:
    """Stands for a generator that a step makes itself, and seeds."""

    seed: Any

    def made(self) -> torch.Generator:
        """Such a generator, before its first draw."""
        return GENERATOR().manual_seed(self.seed)


@dataclass(frozen=True)
class TorchDraw:
    """An op of PyTorch that draws from a generator of the user's own.

    Attributes:
        library: the generator's `id`, or which of those it is that the step makes.
        op: the op.
        args: its arguments.
        kwargs: its keyword arguments.
        generator: the generator.
    """

    library: str | int
    op: OpOverload
    args: tuple[Any, ...]
    kwargs: tuple[tuple[str, Any], ...]
    generator: torch.Generator | Seeded

    @property
    def is_computed(self) -> bool:
        """Whether the seed is a formula of other numbers."""
        return isinstance(self.generator, Seeded)

    def after(self, numbers: Sequence[Number]) -> TorchDraw:
        """The same with the seed as it is where the step has these numbers so far."""
        if not isinstance(self.generator, Seeded):
            return self
        return replace(self, generator=Seeded(_now(self.generator.seed, numbers)))

    def of(self, generator_of: GeneratorOf) -> Any:
        """The tensor."""
        with _disable_current_modes():
            args = [torch.zeros(one.shape, dtype=one.dtype) if isinstance(one, Like) else one for one in self.args]
            return self.op(*args, generator=generator_of(self), **dict(self.kwargs))


@dataclass(frozen=True)
class Lookup:
    """A number that is looked up by one of the step's: `self.momentum[self.global_step]`.

    Attributes:
        place: in the table.
        table: a list, a tuple or an array; which one it is counts, and not what is in it.
        table_id: its `id`, or for one that the step makes itself a hash of its numbers.
    """

    place: Any
    table: Any = field(compare=False)
    table_id: int

    is_computed = True

    def after(self, numbers: Sequence[Number]) -> Lookup:
        """The same with the place as it is where the step has these numbers so far."""
        return replace(self, place=_now(self.place, numbers))

    def of(self, generator_of: GeneratorOf) -> Any:
        """The number."""
        del generator_of
        return self.table[self.place]


AnyDraw = Draw | TorchDraw | Lookup
GeneratorOf = Callable[[Draw | TorchDraw], Any]
"""From a draw to what it draws from: the generators themselves, or copies of them."""


class _Generators:
    """Gives the generators themselves, for one step."""

    def __init__(self) -> None:
        self._made: dict[str | int, Any] = {}

    def __call__(self, draw: Draw | TorchDraw) -> Any:
        if isinstance(draw.generator, Seeded):
            if draw.library not in self._made:
                self._made[draw.library] = draw.generator.made()
            return self._made[draw.library]
        return LIBRARIES[str(draw.library)] if draw.generator is None else draw.generator


class CopiesOfGenerators:
    """Gives copies of the generators, as they are when each is first asked for."""

    def __init__(self) -> None:
        self._copies: dict[str | int, Any] = {}

    def __call__(self, draw: Draw | TorchDraw) -> Any:
        if draw.library not in self._copies:
            self._copies[draw.library] = _copied(draw.generator, str(draw.library))
        return self._copies[draw.library]


def _copied(generator: Any, library: str) -> Any:
    if isinstance(generator, Seeded):
        return generator.made()
    if isinstance(generator, GENERATOR):
        return GENERATOR().set_state(generator.get_state())
    if generator is not None:
        return copy.deepcopy(generator)
    if library == "random":
        own = random.Random()
        own.setstate(random.getstate())
        return own
    legacy = np.random.RandomState()
    legacy.set_state(np.random.get_state())
    return legacy


def _putting_back(draws: Sequence[AnyDraw]) -> list[Callable[[], object]]:
    """Functions that put each generator back into the state that it has now."""
    own = {draw.library: draw.generator for draw in draws if not isinstance(draw, Lookup)}
    puts: list[Callable[[], object]] = []
    for generator in [random, np.random, *own.values()]:
        if isinstance(generator, np.random.Generator):
            bits = generator.bit_generator
            puts.append(functools.partial(setattr, bits, "state", bits.state))
        elif generator is random or isinstance(generator, random.Random):
            puts.append(functools.partial(generator.setstate, generator.getstate()))
        elif isinstance(generator, np.random.RandomState | GENERATOR) or generator is np.random:
            puts.append(functools.partial(generator.set_state, generator.get_state()))
    return puts


class StepDraws:
    """Numbers that the host draws for one step.

    They are drawn once: put back and drawn again, they would take with them what another thread draws meanwhile.

    Attributes:
        happened: whether numbers were drawn.
        arrays: the arrays among what was drawn, which are no inputs of the program by themselves.
    """

    def __init__(self) -> None:
        self.happened = False
        self.arrays: list[Any] = []
        self._draws: Sequence[AnyDraw] = ()
        self._others: list[Number] = []
        self._numbers: list[Number] = []
        self._putting_back: list[Callable[[], object]] = []

    def of(self, draws: Sequence[AnyDraw], others: list[Number]) -> list[Number]:
        """The step's numbers under a program that draws these.

        Args:
            draws: the calls.
            others: the program's numbers that are not drawn.

        Raises:
            IndexError: a number is looked up that is not there, so the program is not for this step.
        """
        if draws != self._draws or (others != self._others and any(draw.is_computed for draw in draws)):
            self.take_back()
            if draws:
                self._putting_back = _putting_back(draws)
                self.happened = True
                try:
                    self._draw(draws, others)
                except IndexError:
                    self.take_back()
                    raise
        return self._numbers

    def _draw(self, draws: Sequence[AnyDraw], others: list[Number]) -> None:
        numbers, arrays, generators = list(others), [], _Generators()
        for draw in draws:
            one = draw.after(numbers).of(generators)
            if is_drawn_number(one):
                numbers.append(plain_number(one))
            else:
                arrays.append(one)
        self._draws, self._others = draws, list(others)
        self._numbers, self.arrays = numbers[len(others) :], arrays

    def write(self, tensors: Sequence[torch.Tensor]) -> None:
        """Put the step's arrays into the tensors that its program takes them from."""
        for tensor, array in zip(tensors, self.arrays, strict=True):
            tensor.copy_(torch.as_tensor(array))

    def sums(self) -> list[int]:
        """Sums of the arrays, by which processes can tell that they have drawn others."""
        return [zlib.crc32(np.ascontiguousarray(array).tobytes()) for array in self.arrays]

    def take_back(self) -> None:
        """Leave the generators as if nothing had been drawn."""
        for put_back in self._putting_back:
            put_back()
        self.happened, self._draws, self._others, self._numbers, self._putting_back = False, (), [], [], []


def is_drawn_number(value: object) -> bool:
    return isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool | np.bool_)


def plain_number(value: int | float | np.integer | np.floating) -> Number:
    return float(value) if isinstance(value, float | np.floating) else int(value)


def are_numbers(elements: Iterable[object]) -> bool:
    """Whether all are numbers of Python's own."""
    return all(type(one) in (int, float) for one in elements)
