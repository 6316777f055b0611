"""Random numbers that a step draws from Python's `random`, from `numpy.random`, or from generators of its own.

The host draws them before every step. A first trace notes the calls and gives them numbers of copies of the generators. A
second one gets a symbolic number for each, as for `batch_idx`: the program takes it as an input, and a branch on it
(`if random.random() < 0.5`) is a condition of the graph that the host looks at after it has drawn.
"""

from __future__ import annotations

import contextlib
import functools
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

import numpy as np
import sympy
import torch

from ...utilities._torch_internals import OpOverload, _disable_current_modes
from .._capture_thread import replaced
from .._errors import user_line_of
from ._generators import MadeInStep, generators_made_in_step, known_generator
from ._randomness import hidden_randomness
from ._speculation import known_number
from ._step_draws import (
    LIBRARIES,
    AnyDraw,
    CopiesOfGenerators,
    Draw,
    HeldArray,
    Like,
    Lookup,
    OfNumbers,
    Seeded,
    TorchDraw,
    are_numbers,
    is_drawn_number,
    plain_number,
)
from ._symbols import Number
from ._traced_arrays import traced_array, traced_numbers

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
_BY_SHAPE = frozenset(
    {
        torch.ops.aten.normal_functional.default, torch.ops.aten.uniform.default, torch.ops.aten.exponential.default,
        torch.ops.aten.bernoulli.p, torch.ops.aten.random.default, torch.ops.aten.random.to,
        getattr(torch.ops.aten.random, "from"), torch.ops.aten.log_normal.default, torch.ops.aten.cauchy.default,
        torch.ops.aten.geometric.default,
    }
)  # fmt: skip
"""Ops that draw as many numbers as a tensor has elements, whose values count for nothing."""
_READING = frozenset({"getstate", "get_state"})
_NO_NUMBERS = frozenset({"bytes", "randbytes", "spawn", "seed", "setstate", "set_state", "permuted"})
"""Methods of generators that give no numbers, or change the generator."""


class HostDraws:
    """The draws of one trace.

    Args:
        expected: what an earlier trace noted.

    Attributes:
        made: what this trace noted, in order.
        others: the step's numbers that are not drawn, as they are in this step and as symbols.
        symbols: the numbers that the expected draws give.
        are_expected: whether those so far are the ones that were expected.
        tensors: what stands for the arrays and lists that were drawn, in order.
    """

    def __init__(self, expected: Sequence[AnyDraw] = ()) -> None:
        self.made: list[AnyDraw] = []
        self.others: tuple[Sequence[Number], Sequence[Any]] = ((), ())
        self.symbols: Sequence[Any] = ()
        self.are_expected = True
        self._generators: list[tuple[torch.Generator, torch.Tensor]] = []
        self.tensors: list[torch.Tensor] = []
        self._expected = expected
        self._numbers: list[Number] = []
        self._copies = CopiesOfGenerators()

    def hints(self, others: Sequence[Number]) -> list[tuple[Number, bool]]:
        """The numbers that the expected draws will give in the step that is traced, and whether each is random."""
        copies = CopiesOfGenerators()
        numbers, found = list(others), []
        for draw in self._expected:
            one = draw.after(numbers).of(copies)
            if is_drawn_number(one):
                numbers.append(plain_number(one))
                found.append((numbers[-1], not isinstance(draw, Lookup)))
        return found

    @contextlib.contextmanager
    def noted(self) -> Iterator[None]:
        """Inside the block, the functions that give numbers note their calls."""
        with contextlib.ExitStack() as stack:
            for library, names in _FUNCTIONS.items():
                for name in names:
                    stack.enter_context(replaced(LIBRARIES[library], name, self._noting(library, name)))
            stack.enter_context(replaced(random, "choice", self._choice))
            stack.enter_context(generators_made_in_step())
            for library in (random, np.random):
                stack.enter_context(replaced(library, "shuffle", self._shuffling(library)))
            yield

    def _noting(self, library: str, name: str) -> Callable[..., Any]:
        original = getattr(LIBRARIES[library], name)

        @functools.wraps(original)
        def draw(*args: Any, **kwargs: Any) -> Any:
            given = tuple(map(self._argument, args)), tuple((k, self._argument(v)) for k, v in kwargs.items())
            if not _is_plain(given) or not _has_numbers(name, *args, **kwargs):
                return original(*args, **kwargs)  # the original draws, which is noticed and refused
            return self._drawn(Draw(library, name, *given), [*args, *kwargs.values()])

        return draw

    def of_own(self, generator: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The stand-in for what a method of a generator of the user's own gives.

        Raises:
            HiddenRandomnessError: it gives no numbers, or is given what cannot be given to it again.
        """
        if name in _READING:
            return getattr(generator, name)(*args, **kwargs)
        if name == "shuffle" and len(args) == 1 and not kwargs and _are_movable(args[0]):
            self._shuffled(Draw(id(generator), name, (len(args[0]),), generator=generator), args[0])
            return None
        if name == "choice" and isinstance(generator, random.Random) and len(args) == 1:
            return self._chosen(args[0], self.of_own(generator, "randrange", (len(args[0]),), {}))
        given = tuple(map(self._argument, args)), tuple((k, self._argument(v)) for k, v in kwargs.items())
        if name in _NO_NUMBERS or name == "shuffle" or not _is_plain(given) or not _has_numbers(name, *args, **kwargs):
            raise hidden_randomness(user_line_of())
        return self._drawn(Draw(id(generator), name, *given, generator=generator), [*args, *kwargs.values()])

    def found(self, generators: Sequence[torch.Generator]) -> None:
        """Generators of PyTorch's are among the step's objects."""
        with _disable_current_modes():
            self._generators = [(generator, generator.get_state()) for generator in generators]

    def require_unseeded(self) -> None:
        """Raise where a step that draws from a generator of PyTorch's has changed it: draws of a trace are those of a copy.

        Raises:
            HiddenRandomnessError: it has, by seeding it.
        """
        drawn_from = {id(draw.generator) for draw in self.made if isinstance(draw, TorchDraw)}
        for generator, state in self._generators:
            if id(generator) in drawn_from and not torch.equal(generator.get_state(), state):
                generator.set_state(state)
                raise hidden_randomness("(a generator of PyTorch's that the step seeds)")

    def of_torch(self, op: OpOverload, generator: torch.Generator, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """The result of an op that draws from an own generator; NotImplemented where it takes values of the step."""
        takes = [Like(tuple(one.shape), one.dtype) if isinstance(one, torch.Tensor) else one for one in args]
        if any(isinstance(one, Like) for one in takes) and op not in _BY_SHAPE:
            return NotImplemented
        given = tuple(tuple(one) if isinstance(one, list | tuple) else one for one in takes), tuple(kwargs.items())
        own = known_generator(generator, [one for one, _ in self._generators])
        if isinstance(own, MadeInStep):
            seed = self._argument(own.given_seed)
            draw = TorchDraw(own.name, op, *given, Seeded(seed))
            if not isinstance(seed, OfNumbers):  # as it would be in every step
                return draw.of(self._copies).clone()
            return self._drawn(draw)
        if own is None:
            return NotImplemented
        return self._drawn(TorchDraw(id(own), op, *given, own))

    def look_up(self, table: Any, place: torch.SymInt) -> Any:
        """The stand-in for a number that is looked up in a table."""
        return self._drawn(Lookup(self._argument(place), table, id(table)))

    def _drawn(self, draw: AnyDraw, given: Sequence[Any] = ()) -> Any:
        """The stand-in for the result of a draw, which is noted.

        Args:
            draw: the call.
            given: what its arguments are in the trace, in their order.
        """
        numbers = [*self.others[0], *self._numbers]
        place, plain = len(self.made), draw.after(numbers)
        # a number that an earlier trace drew may be what this one looks up another by
        self.are_expected &= place < len(self._expected) and self._expected[place].after(numbers) == plain
        value = plain.of(self._copies)
        if isinstance(draw, Draw) and not is_drawn_number(value):
            draw = draw.with_sizes({place: int(one) for place, one in enumerate(given) if isinstance(one, torch.SymInt)})
        self.made.append(draw)
        if not is_drawn_number(value):
            with _disable_current_modes():  # an ordinary tensor, which the host writes to before every step
                tensor = value if isinstance(value, torch.Tensor) else torch.from_numpy(np.array(value))
            self.tensors.append(tensor)
            own = tensor.clone()  # the step may write to it
            if isinstance(value, torch.Tensor):
                return own
            return traced_numbers(own) if isinstance(value, list) else traced_array(own)
        self._numbers.append(plain_number(value))
        return self.symbols[len(self._numbers) - 1] if self.are_expected else plain_number(value)

    def _argument(self, value: object) -> Any:
        """An argument of a draw: a symbolic number is a formula of the step's others, or becomes a condition of the graph."""
        if isinstance(value, torch.SymInt | torch.SymFloat):
            plain = known_number(value)
            if plain is not None:
                return plain
            known = [*self.others[1], *self.symbols[: len(self._numbers)]]
            places = {one.node.expr: place for place, one in enumerate(known)}
            used = sorted(value.node.expr.free_symbols, key=lambda symbol: places.get(symbol, -1))
            if used and all(symbol in places for symbol in used):
                names = {symbol: sympy.Symbol(f"v{k}") for k, symbol in enumerate(used)}
                return OfNumbers(value.node.expr.xreplace(names), tuple(places[symbol] for symbol in used))
        if type(value) is np.ndarray and value.dtype.kind in "biuf":
            return HeldArray.of(value)
        return _with_conditions(value)

    def _shuffling(self, library: Any) -> Callable[..., None]:
        original = library.shuffle

        @functools.wraps(original)
        def shuffle(x: Any, *rest: Any) -> None:
            if rest or not _are_movable(x):
                original(x, *rest)  # which is noticed and refused: which object is where would be frozen
                return
            self._shuffled(Draw("random" if library is random else "numpy.random", "shuffle", (len(x),)), x)

        return shuffle

    def _shuffled(self, draw: Draw, x: list[Any]) -> None:
        order = torch.stack([place.tensor for place in self._drawn(draw)])
        if isinstance(x[0], torch.Tensor):
            x[:] = torch.stack(x)[order].unbind(0)
            return
        values = torch.tensor(x, dtype=torch.int64 if all(type(one) is int for one in x) else torch.float64)
        x[:] = traced_numbers(values[order])

    def _choice(self, seq: Any) -> Any:
        return self._chosen(seq, random.randrange(len(seq)))

    def _chosen(self, seq: Any, place: Any) -> Any:
        # by an index, which is a number
        if isinstance(place, torch.SymInt) and type(seq) in (list, tuple) and are_numbers(seq):
            numbers = tuple(seq)
            return self._drawn(Lookup(self._argument(place), numbers, hash(numbers)))
        return seq[place]


def _has_numbers(name: str, *args: Any, **kwargs: Any) -> bool:
    """Whether what a function takes some of, where it does, are numbers: others cannot be an array of the program."""
    if name not in ("sample", "choices", "choice") or (not args and not kwargs.keys() & {"population", "a"}):
        return True
    population = args[0] if args else kwargs.get("population", kwargs.get("a"))
    return isinstance(population, int | range | torch.SymInt) or np.asarray(population).dtype.kind in "iufb"


def _are_movable(x: object) -> bool:
    """Whether the elements of a list can change places in the program: numbers, or tensors of one shape."""
    if type(x) is not list or not x:
        return False
    elements = cast(list[Any], x)
    if are_numbers(elements):
        return True
    return all(isinstance(one, torch.Tensor) for one in elements) and len({(one.shape, one.dtype) for one in elements}) == 1


def _is_plain(value: object) -> bool:
    """Whether a value is made of numbers and the like, so that it can be kept and compared."""
    if isinstance(value, list | tuple):
        return all(map(_is_plain, value))
    return isinstance(value, int | float | str | range | type(None) | np.generic | type | OfNumbers | HeldArray)


def _with_conditions(value: object) -> Any:
    """An element of an argument, whose symbolic numbers become conditions of the graph."""
    if isinstance(value, torch.SymInt):
        return int(value)
    if isinstance(value, list | tuple):
        return (type(value) if type(value) in (list, tuple) else tuple)(map(_with_conditions, value))
    return float(value) if isinstance(value, torch.SymFloat) else value
