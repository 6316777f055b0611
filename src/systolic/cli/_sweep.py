"""`--sweep batch_size=8..512` and `--sweep slice=v5litepod-8,v6e-8`: which values, of what."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..exceptions import MisconfigurationException

_USAGE = "Expected batch_size=8..512 (doubling), batch_size=8,24,96, or slice=v5litepod-8,v6e-8"


@dataclass(frozen=True)
class Sweep:
    """Configurations to compare; every slice with every batch size.

    Attributes:
        slices: names, empty where no sweep names any.
        batch_sizes: samples per core, empty where no sweep names any.
    """

    slices: tuple[str, ...] = ()
    batch_sizes: tuple[int, ...] = ()


def parse_sweep(words: list[str]) -> Sweep:
    """Read the options of a command line.

    Args:
        words: "name=values", each name at most once; of a range `a..b` the values a, 2a, 4a, ..., and b.

    Raises:
        MisconfigurationException: something else.

    Example:
        >>> parse_sweep(["batch_size=8..50"]).batch_sizes
        (8, 16, 32, 50)
    """
    sweep = Sweep()
    for word in words:
        name, _, values = word.partition("=")
        if name == "slice" and values and not sweep.slices:
            sweep = replace(sweep, slices=tuple(values.split(",")))
        elif name == "batch_size" and not sweep.batch_sizes:
            sweep = replace(sweep, batch_sizes=_sizes(values, word))
        else:
            raise MisconfigurationException(f"Invalid value for --sweep. {_USAGE}, each once. Received: {word!r}.")
    return sweep


def _sizes(values: str, word: str) -> tuple[int, ...]:
    first, dots, last = values.partition("..")
    listed = (first, last) if dots else values.split(",")
    if not all(part.isdigit() and int(part) > 0 for part in listed) or (dots and int(first) > int(last)):
        raise MisconfigurationException(f"Invalid value for --sweep. {_USAGE}. Received: {word!r}.")
    if not dots:
        return tuple(map(int, listed))
    sizes, size = [], int(first)
    while size < int(last):
        sizes.append(size)
        size *= 2
    return (*sizes, int(last))
