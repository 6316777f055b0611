"""Numbers that programs take as inputs, because they change between steps: learning rates, and what schedulers move besides."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from ..capture import NUMPY_NUMBERS, Number, Path, plain_value

_CALLS_OF_METRIC = "_update_count"


class VaryingNumbers:
    """The plain numbers of a step that its programs take as inputs; all others are constants of a program.

    A number becomes an input once it was seen to change. A constant is rounded in other places than an input, so that a run
    that goes on from a checkpoint has to know which ones had changed before it: `state_dict` goes into checkpoints.

    Attributes:
        paths: where the numbers stand.

    Example:
        >>> from systolic.compiler import VaryingNumbers
        >>> numbers = VaryingNumbers()
        >>> numbers.notice({("optimizer0", "param_groups", 0, "lr"): 0.1})
        >>> numbers.paths
        {('optimizer0', 'param_groups', 0, 'lr')}
    """

    def __init__(self) -> None:
        self.paths: set[Path] = set()
        self._frozen: set[Path] = set()
        self._proven: set[Path] = set()
        self._first: dict[Path, Number] = {}

    def notice(self, values: Mapping[Path, Any], lists: Collection[Path] = ()) -> None:
        """Look at the values of a step that is about to be traced, for what its optimizers' numbers were at the first trace.

        Args:
            values: by path.
            lists: paths of lists that steps append to and read: their real numbers are computed.
        """
        # torchmetrics counts the calls of a metric, so that its first value would be a program of its own
        self.paths |= {path for path in values if path[-1] == _CALLS_OF_METRIC} - self._frozen
        if lists:
            self.paths |= {path for path, value in values.items() if path[:-1] in lists and type(value) is float} - self._frozen
        own = {path: plain_value(value) for path, value in values.items() if "param_groups" in path and _is_number(value)}
        if not self._first:
            self._first = own
        changed = {path for path, value in own.items() if _is_moved(path, own) or self._first.get(path, value) != value}
        self.paths |= changed - self._frozen

    def add(self, path: Path, before: object, now: object) -> None:
        """Take a number as an input that was a constant and has changed."""
        if type(before) is type(now) and _is_number(now) and path[-1] != "len" and path not in self._frozen:
            self.paths.add(path)

    def choices(self) -> Iterator[frozenset[Path]]:
        """Sets of numbers to try as inputs, the best first.

        All, then those that an earlier trace has proved, then learning rates: a new number that a trace cannot take (a size)
        must not freeze the learning rate with it, which would then be compiled per value.
        """
        rates = frozenset(path for path in self.paths if path[-1] == "lr")
        yield from dict.fromkeys(filter(None, (frozenset(self.paths), frozenset(self.paths & self._proven), rates)))

    def proved(self, paths: frozenset[Path]) -> None:
        """Remember that a trace took these as inputs, and that the others have to be constants."""
        self._frozen |= self.paths - paths
        self.paths = set(paths)
        self._proven |= paths

    def state_dict(self) -> dict[str, list[Any]]:
        """Plain lists, for a checkpoint."""
        return {
            "varying": sorted(([*path] for path in self.paths if _is_plain(path)), key=str),
            "first": [[[*path], value] for path, value in self._first.items() if _is_plain(path)],
        }

    def load_state_dict(self, state: Mapping[str, Iterable[Any]]) -> None:
        """Take up what `state_dict` gave; what is an input already stays one."""
        self.paths |= {tuple(path) for path in state["varying"]} - self._frozen
        self._first = {tuple(path): value for path, value in state["first"]}


def _is_moved(path: Path, numbers: Mapping[Path, Any]) -> bool:
    """Whether schedulers move a number: a rate; momenta of groups in which `OneCycleLR` or `CyclicLR` has left their bounds."""
    group, name = (path[:-2], path[-2]) if path[-2] == "betas" else (path[:-1], path[-1])
    return name == "lr" or ((*group, "max_momentum") in numbers and (name == "momentum" or path[-2:] == ("betas", 0)))


def _is_number(value: object) -> bool:
    return type(value) in (int, float, *NUMPY_NUMBERS)


def _is_plain(path: Path) -> bool:
    return all(isinstance(part, str | int) for part in path)
