"""Ways through a step's Python code: which of them a batch did not go, and how often programs are taken for the wrong one."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import takewhile
from typing import Any

import jax
import jax.numpy as jnp
from torch import fx

from ...exceptions import MisconfigurationException
from ...runtime import Placement
from ..capture import Captured, GivenResult, GivenResults, HostPart, KnownAnswer, Speculation, copied_contents, on_host
from ..lowering import Checks, StepCheck
from ._layout import outputs_of

_MOST_MISSES = 64
"""A batch that goes no way that the programs found out about is an error of ours, or of random numbers in a condition."""

_STEPS_BEFORE_WARNING = 50
_RATE_OF_WARNING = 0.1


class Misses:
    """Programs that one batch was run under in vain, and what functions of the host gave for it.

    Attributes:
        given: what they gave.
    """

    def __init__(self) -> None:
        self._found: list[Sequence[Speculation]] = []
        self._answers: list[KnownAnswer] = []
        self._confirmed = -1
        self._formed: list[Captured] = []
        self.given = GivenResults()

    def add(self, speculations: Sequence[Speculation], failed: int, numbers: Iterable[int]) -> None:
        """Note a program.

        Args:
            speculations: its conditions.
            failed: which of them was the first that did not hold.
            numbers: the integers that the devices found, of those that tell them.
        """
        if len(self._found) == _MOST_MISSES:
            raise MisconfigurationException(
                f"A batch was run {_MOST_MISSES} times, and each time a condition came out otherwise than the program before "
                f"it had found.\n  used at {speculations[failed].line}\nDoes the condition depend on random numbers or on "
                "rounding? Use torch.where there, or move it to a callback hook."
            )
        self._found.append(speculations[: failed + 1])
        if failed > self._confirmed:
            self._confirmed = failed
            self._answers = _answers(speculations, failed, iter(numbers))

    def add_form(self, captured: Captured) -> None:
        """Note a program for which a function of the host gave a result of another form."""
        self._formed.append(captured)

    def result(self, place: int, part: HostPart, arguments: tuple[tuple[Any, ...], dict[str, Any]]) -> Any:
        """Result of a function of the host for the batch: it is called once, however many programs the batch is run under.

        Args:
            place: of the call among those of the step.
            part: the call.
            arguments: of the call.
        """
        on_the_host = on_host(arguments)
        known = self.given.known(place, part.function, on_the_host)
        if known is None:
            own = copied_contents(on_the_host) if part.written else on_the_host
            known = GivenResult(part.function, own, part.call(*on_the_host), part.written)
            self.given.note(place, known)
        self.given.done_in_step(place)
        return known.result

    def exclude(self, captured: Captured) -> bool:
        """Whether a program begins with a way that the batch did not go, or takes results of another form."""
        speculations = captured.speculations
        if any(captured is one for one in self._formed):
            return True
        return any(_way(speculations[: len(missed)]) == _way(missed) for missed in self._found)

    def reason(self) -> str:
        """Why the batch needs a program of its own; empty where it was run under none."""
        if self._formed and not self._found:
            return f"a function of the host gives a result of another form at {self._formed[-1].parts[0].line}"
        return f"a value decides otherwise at {self._found[-1][-1].line}" if self._found else ""

    def forced(self) -> tuple[KnownAnswer, ...]:
        """Answers to the first questions of the batch's trace, as far as they are known."""
        return tuple(self._answers)


NO_MISSES = Misses()


class Ways:
    """How often the programs of a step were taken for the wrong one."""

    def __init__(self) -> None:
        self._runs = 0
        self._lines: Counter[str] = Counter()
        self._warned = False

    def note(self, speculations: Sequence[Speculation], failed: int) -> None:
        """Note a run, and the number, from one, of the condition that did not hold; 0 where all did. Warns once."""
        self._runs += 1
        if failed:
            self._lines[speculations[failed - 1].line] += 1
        misses = sum(self._lines.values())
        if self._warned or self._runs < _STEPS_BEFORE_WARNING or misses < _RATE_OF_WARNING * self._runs:
            return
        self._warned = True
        line, often = self._lines.most_common(1)[0]
        warnings.warn(
            f"{misses} of {self._runs} runs of this step were in vain: the step was compiled for one way through its code, and "
            f"the batch went another, so it ran again.\n  decided at {line} ({often} times)\nWhere that is too slow, compute "
            "both ways and choose with torch.where.",
            stacklevel=2,
        )


def waits(speculations: Sequence[Speculation]) -> bool:
    """Whether the host has to know how a step went before it goes on."""
    return not all(one.only_raises or one.always_holds for one in speculations)


def add_step_checks(
    checks: Checks, speculations: Sequence[Speculation], computed: Sequence[Any], graph: fx.Graph, placement: Placement
) -> None:
    """Make checks of the conditions for which a step only raises."""
    nodes, outputs = list(graph.nodes), outputs_of(graph)
    places = {node: place for place, node in enumerate(nodes)}
    for place, one in enumerate(speculations):
        if one.only_raises:
            last = max(places[outputs[index]] for index in one.outputs)
            checks.of_step(_as_guessed(one, computed, placement), StepCheck(place, one.line), nodes[: last + 1], placement.mesh)


def verdict_of(speculations: Sequence[Speculation], computed: Sequence[Any], placement: Placement) -> jax.Array:
    """The number, from one, of the first condition that the trace took wrongly, or zero; then the integers that are told."""
    failed = jnp.zeros((), jnp.int64)
    numbers: list[jax.Array] = []
    for place, speculation in reversed(list(enumerate(speculations, 1))):
        if not speculation.only_raises:
            failed = jnp.where(_as_guessed(speculation, computed, placement), failed, jnp.int64(place))
        if speculation.number is not None:
            numbers.insert(0, jnp.asarray(speculation.number(_values(speculation, computed, placement)), jnp.int64))
    return jnp.stack([failed, *numbers])


def _as_guessed(speculation: Speculation, computed: Sequence[Any], placement: Placement) -> jax.Array:
    return jnp.asarray(speculation.condition(_values(speculation, computed, placement)), bool) == speculation.holds


def _values(speculation: Speculation, computed: Sequence[Any], placement: Placement) -> list[jax.Array]:
    values = [jnp.asarray(computed[index]) for index in speculation.outputs]
    # what Python compares in; a TPU has no float64
    wide = jnp.float32 if placement.platform == "tpu" else jnp.float64
    return [value.astype(wide if jnp.issubdtype(value.dtype, jnp.floating) else jnp.int64) for value in values]


def _answers(speculations: Sequence[Speculation], failed: int, numbers: Iterator[int]) -> list[KnownAnswer]:
    """The right answers up to the question that was answered wrongly, and to those of the same line right behind it.

    `sizes.tolist()` asks for several integers of one tensor; the devices have found all of them.
    """
    found = [KnownAnswer.to(one, next(numbers) if one.number is not None else one.holds) for one in speculations]
    missed = speculations[failed]
    if missed.number is None:
        return [*found[:failed], KnownAnswer.to(missed, not missed.holds)]
    behind = takewhile(lambda one: one.number is not None and one.line == missed.line, speculations[failed:])
    return found[: failed + len(list(behind))]


def _way(speculations: Sequence[Speculation]) -> list[tuple[str, bool]]:
    return [(s.text, s.holds) for s in speculations]
