"""Refuse Python and NumPy random numbers inside a step: they would be drawn once and frozen.

Python's and NumPy's global generators belong to the whole process, and the user's dataset draws from them in another thread
while a step is captured. Comparing their states before and after would take its draws for the step's, so that each draw is
noted with the thread that makes it.
"""

from __future__ import annotations

import contextlib
import functools
import random
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ...utilities._entries import Entry, see
from .._capture_thread import is_capture_thread
from .._errors import HiddenRandomnessError, user_line_of
from .._module_variables import module_variables
from ._numpy_draws import noting_numpy_draws

# The functions of `random` that are methods written in C, or set the state. All others are written in Python and call
# these through the generator.
_WATCHED = ("random", "getrandbits", "seed", "setstate")
GENERATOR_OF_RANDOM: random.Random = random.getrandbits.__self__  # type: ignore[attr-defined]
"""The object whose methods the functions of `random` are."""


class UnattributedDrawError(Exception):
    """Python's generator has advanced, and nobody was seen: the capture has to be repeated under a profiler."""


def hidden_randomness(line: str) -> HiddenRandomnessError:
    """The error of a step that draws in a way in which the host cannot draw for it, at a line of the user's code."""
    return HiddenRandomnessError(
        "The step draws random numbers from Python's `random`, from `numpy.random`, or from a generator of its own, in a way "
        "that cannot be repeated before every step. The step is traced once, so what it drew would be frozen into the compiled "
        "program and be the same in every step.\n"
        f"  used at {line}\n"
        "Options: use torch.rand and friends, which draw new numbers in every step; draw the numbers in the dataset or collate "
        "function, or in a function under systolic.host, which is called once a step and gives it tensors; or run in eager "
        f"PyTorch with Trainer(compile=False).{see(Entry.HIDDEN_RANDOMNESS)}"
    )


@contextlib.contextmanager
def refusing_hidden_randomness(profiled: bool) -> Iterator[None]:
    """Raise when the block advances Python's or NumPy's global generator in the calling thread.

    Args:
        profiled: look at every call of a C function, too: slow, and exact where somebody holds a method of the generator.

    Raises:
        HiddenRandomnessError: it does; with the line.
        UnattributedDrawError: it may have, which only `profiled` can tell.
    """
    draws = _Draws()
    before = _states()
    with draws.noted(), draws.profiled() if profiled else contextlib.nullcontext():
        yield
    after = _states()
    if after == before:
        return  # nobody drew, or who drew put the state back
    if draws.lines:
        raise hidden_randomness(draws.lines[0])
    if after[0] != before[0] and not draws.of_others and not profiled:
        raise UnattributedDrawError


def _states() -> tuple[Any, Any]:
    name, keys, position, *gauss = np.random.get_state()
    return random.getstate(), (position, bytes(np.asarray(keys)), tuple(gauss))


class _Draws:
    """Who draws from the global generators.

    Attributes:
        lines: where the capturing thread drew first.
        of_others: how often other threads drew from Python's.
    """

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.of_others = 0

    def note(self) -> None:
        """A number is drawn."""
        if not is_capture_thread():
            self.of_others += 1
        elif not self.lines:
            self.lines.append(user_line_of())

    @contextlib.contextmanager
    def noted(self) -> Iterator[None]:
        """Inside the block, draws from the global generators are noted."""
        own = {name: self._noting(getattr(GENERATOR_OF_RANDOM, name)) for name in _WATCHED}
        # `random` itself, and all modules that import its functions by name
        variables = list(module_variables({name: getattr(random, name) for name in _WATCHED}))
        try:
            vars(GENERATOR_OF_RANDOM).update(own)  # an instance's own attribute comes before the method of its class
            for variable in variables:
                variable.hold(own[variable.watched])
            with noting_numpy_draws(self.note):
                yield
        finally:
            for name in _WATCHED:
                vars(GENERATOR_OF_RANDOM).pop(name, None)
            for variable in variables:
                variable.restore(own[variable.watched])

    def _noting(self, function: Callable[..., Any]) -> Any:
        @functools.wraps(function)
        def draw(*args: Any, **kwargs: Any) -> Any:
            self.note()
            return function(*args, **kwargs)

        return draw

    @contextlib.contextmanager
    def profiled(self) -> Iterator[None]:
        """Inside the block, draws of this thread by methods that somebody holds are noted, too."""
        outer = sys.getprofile()

        def look(frame: types.FrameType, event: str, called: Any) -> None:
            if event == "c_call" and getattr(called, "__self__", None) is GENERATOR_OF_RANDOM and called.__name__ in _WATCHED:
                self.note()

        sys.setprofile(look)
        try:
            yield
        finally:
            sys.setprofile(outer)
