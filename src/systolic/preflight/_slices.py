"""TPU slices by name: Google Cloud's accelerator types, and topologies."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass

from ..hardware import CHIPS, Chip
from ..utilities._suggest import suggest

_CHIPS_PER_HOST = 4
_LARGEST_SINGLE_HOST = {"v5e": 8, "v6e": 8}
"""v5e and v6e are also offered with eight chips in one virtual machine (Google's pages of the generations)."""

_SQUARES = ((2, 2), (4, 4), (4, 8), (8, 8), (8, 16), (16, 16))
_CUBES = ((2, 2, 1), (2, 2, 2), (2, 2, 4), (2, 4, 4), (4, 4, 4), (4, 4, 8), (4, 8, 8), (8, 8, 8), (8, 8, 16), (8, 16, 16))
_SHAPES: dict[str, tuple[tuple[int, ...], ...]] = {
    "v2": _SQUARES,
    "v3": (*_SQUARES, (16, 32), (32, 32)),
    "v4": (*_CUBES, (4, 4, 12), (8, 8, 12)),
    "v5e": ((1, 1), (2, 2), (2, 4), *_SQUARES[1:]),
    "v5p": (*_CUBES, (16, 16, 16), (16, 16, 24), (4, 4, 12), (4, 8, 12), (8, 8, 12)),
    "v6e": ((1, 1), (2, 2), (2, 4), *_SQUARES[1:]),
    "tpu7x": ((1, 1, 1), *_CUBES),
}
"""Shapes, in chips, that Google offers under the name of their size: its page of each generation; MaxText's
accelerator_to_spec_map.py agrees. In `tpu7x-8` the number counts TensorCores (xpk's system_characteristics.py)."""

_SPELLINGS = {"v5litepod": "v5e", "v5lite": "v5e", "v7x": "tpu7x"}


@dataclass(frozen=True)
class Slice:
    """Chips that are connected, or several such groups.

    Attributes:
        chip: the generation.
        shape: chips along each axis of the torus.
        count: how many slices of this shape, connected by the data centre's network.
    """

    chip: Chip
    shape: tuple[int, ...]
    count: int = 1

    @property
    def chips(self) -> int:
        """How many chips."""
        return math.prod(self.shape) * self.count

    @property
    def tensor_cores(self) -> int:
        """How many TensorCores."""
        return self.chips * self.chip.tensor_cores

    @property
    def devices(self) -> int:
        """How many devices JAX (and `Trainer(devices=...)`) sees: the cores that share a batch."""
        return self.chips * self.chip.devices

    @property
    def hosts(self) -> int:
        """How many virtual machines."""
        chips = math.prod(self.shape)
        alone = chips <= max(_CHIPS_PER_HOST, _LARGEST_SINGLE_HOST.get(self.chip.name, 0))
        return self.count * (1 if alone else math.ceil(chips / _CHIPS_PER_HOST))

    @property
    def topology(self) -> str:
        """As JAX's topologies spell one slice: `v5e:2x4`."""
        return f"{self.chip.name}:{'x'.join(map(str, self.shape))}"

    @property
    def name(self) -> str:
        """As Google Cloud spells it where it has a name: `v5litepod-8`, `2x v5litepod-256`."""
        chips = math.prod(self.shape)
        size = chips * self.chip.tensor_cores if self.chip.counts_cores else chips
        name = f"{self.chip.cloud_name}-{size}" if self.shape in _SHAPES[self.chip.name] else self.topology
        return f"{self.count}x {name}" if self.count > 1 else name

    @property
    def price(self) -> float | None:
        """USD per hour, where known."""
        return None if self.chip.price is None else self.chip.price * self.chips


def slice_names() -> Iterator[str]:
    """Every accelerator type that has a name."""
    for generation, shapes in _SHAPES.items():
        yield from (Slice(CHIPS[generation], shape).name for shape in sorted(shapes, key=math.prod))


def parse_slice(name: str) -> Slice:
    """The slice that a name stands for.

    Args:
        name: an accelerator type of Google Cloud (`v5litepod-8`, `v4-32`), a topology (`v5e:2x4`, in chips), or
            several of one kind (`2x v5litepod-256`). The number in an accelerator type counts TensorCores for v2, v3,
            v4, v5p and tpu7x, and chips for v5litepod and v6e.

    Raises:
        ValueError: no such slice; names near ones.

    Example:
        >>> parse_slice("v3-8").chips, parse_slice("v5litepod-8").chips, parse_slice("v4-8").devices
        (4, 8, 4)
    """
    text = name.strip().lower()
    several = re.fullmatch(r"(\d+)\s*x\s+?(\S+)|(\d+)x(v\d.*|tpu.*)", text)
    if several:
        count, one = int(several[1] or several[3]), several[2] or several[4]
        if count < 1:
            raise ValueError(f"Unknown slice {name!r}: at least one slice is needed.")
        single = parse_slice(one)
        return Slice(single.chip, single.shape, count)
    generation, separator, size = text.partition(":" if ":" in text else "-")
    chip = CHIPS.get(_SPELLINGS.get(generation, generation))
    if chip is None or not separator:
        raise ValueError(_unknown(name))
    found = _of_topology(chip, size) if separator == ":" else _of_size(chip, size)
    if found is None:
        raise ValueError(_unknown(name, chip))
    return found


def _of_size(chip: Chip, size: str) -> Slice | None:
    wanted = int(size) if size.isdigit() else 0
    chips = wanted // chip.tensor_cores if chip.counts_cores else wanted
    exact = not chip.counts_cores or wanted % chip.tensor_cores == 0
    shapes = [shape for shape in _SHAPES[chip.name] if math.prod(shape) == chips]
    return Slice(chip, shapes[0]) if shapes and exact else None


def _of_topology(chip: Chip, size: str) -> Slice | None:
    parts = size.split("x")
    if not all(part.isdigit() and int(part) for part in parts) or len(parts) not in (2, 3):
        return None
    shape = tuple(map(int, parts))
    if len(shape) < chip.dimensions:
        shape += (1,)
    return Slice(chip, shape) if len(shape) == chip.dimensions else None


def _unknown(name: str, chip: Chip | None = None) -> str:
    names = list(slice_names())
    own = [one for one in names if chip is not None and one.startswith(chip.cloud_name)]
    known = f"Slices of {chip.cloud_name}: {', '.join(own)}." if chip is not None else f"Generations: {_generations()}."
    return (
        f"Unknown slice {name!r}.{suggest(name.strip().lower(), own or names)} {known} A topology in chips, such as "
        "'v5e:2x4', and several slices, such as '2x v5litepod-16', are possible, too."
    )


def _generations() -> str:
    return ", ".join(f"{chip.cloud_name}-N" for chip in CHIPS.values())
