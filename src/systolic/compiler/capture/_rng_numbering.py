"""Number the random ops of a graph, so that an op that is computed again draws the same numbers again.

`torch.utils.checkpoint` saves the generator's state before a forward and sets it again before the recomputation.
While a step is captured the generator's state is the number of the next random op.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch
from torch import fx

from ...utilities._torch_internals import get_proxy_mode
from .._capture_thread import replaced
from .._errors import CaptureError, user_line_of


class GeneratorState:
    """State of the generator, as `torch.get_rng_state()` returns it inside a step."""

    def __init__(self, number: int) -> None:
        self.number = number


class DrawNumbers:
    """Gives every random op of the graph under construction its number, in `node.meta["draw"]`."""

    def __init__(self) -> None:
        self._next = 0
        self._last: fx.Node | None = None

    def state(self) -> GeneratorState:
        """Stands in for `torch.get_rng_state`."""
        self._advance()
        return GeneratorState(self._next)

    def set_state(self, state: object) -> None:
        """Stands in for `torch.set_rng_state`."""
        if not isinstance(state, GeneratorState):
            raise CaptureError(
                "The step sets the state of the random generator to one from outside of the step, which the compiled "
                f"program cannot follow.\n  used at {user_line_of()}\nOptions: seed before training with "
                "systolic.seed_everything; or run in eager PyTorch with Trainer(compile=False)."
            )
        # first what was drawn until now: numbered later it would take the numbers, and so the masks, of the repeated ops
        self._advance()
        self._next = state.number

    def _advance(self) -> None:
        mode = get_proxy_mode()
        assert mode is not None, "the generator's state was asked for outside of a trace"
        self.number(mode.tracer.graph)

    def number(self, graph: fx.Graph) -> None:
        """Number the ops that were recorded since the last time."""
        node = self._last.next if self._last is not None else next(iter(graph.nodes), None)
        while node is not None and node.op != "root":
            if torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ()):
                node.meta["draw"] = self._next
                self._next += 1
            self._last = node
            node = node.next


_CURRENT: list[DrawNumbers] = []


def number_draws(graph: fx.Graph) -> None:
    """Number what is left when the trace has ended; inside `capturing`."""
    _CURRENT[-1].number(graph)


@contextlib.contextmanager
def numbering_draws() -> Iterator[None]:
    """Inside the block, the state of PyTorch's generator is the number of the next random op, for the capturing thread."""
    numbers = DrawNumbers()
    _CURRENT.append(numbers)
    try:
        with replaced(torch, "get_rng_state", numbers.state), replaced(torch, "set_rng_state", numbers.set_state):
            yield
    finally:
        _CURRENT.pop()
