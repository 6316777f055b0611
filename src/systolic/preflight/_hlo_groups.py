"""Groups of cores, from any of the ways in which XLA writes them."""

from __future__ import annotations

import math
import re

import numpy as np

from ._groups import Cores


def groups_of(attributes: str) -> tuple[Cores, ...]:
    """Cores of each group of a collective; of a permutation source and target. Empty where the text does not say it.

    Args:
        attributes: of an instruction.

    Example:
        >>> groups_of("channel_id=1, replica_groups=[2,4]<=[4,2]T(1,0), dimensions={0}")
        ((0, 2, 4, 6), (1, 3, 5, 7))
    """
    found = re.search(r"(?:replica_groups|source_target_pairs)=", attributes)
    if not found:
        return ()
    text = attributes[found.end() :]
    for notation in (_along_axes, _counted, _listed):
        groups = notation(text)
        if groups:
            return groups
    return ()


def _along_axes(text: str) -> tuple[Cores, ...]:
    """`mesh['a'=2,'b'=4] {'b'}`: the axes of a mesh, and those along which the groups lie."""
    found = re.match(r"mesh\[([^\]]*)\](?:, device_ids=\(([\d,]*)\))? ?\{([^}]*)\}", text)
    if not found or ":" in found[3]:
        return ()
    sizes = {name: int(size) for name, size in re.findall(r"'([^']+)'=(\d+)", found[1])}
    along = [name for name in re.findall(r"'([^']+)'", found[3]) if name in sizes]
    names = [*(name for name in sizes if name not in along), *along]
    cores = np.array(found[2].split(","), int) if found[2] else np.arange(math.prod(sizes.values()))
    order = [list(sizes).index(name) for name in names]
    return _rows(cores.reshape(list(sizes.values())).transpose(order), math.prod(sizes[name] for name in along))


def _counted(text: str) -> tuple[Cores, ...]:
    """`[2,4]<=[4,2]T(1,0)`: two groups of four, of the numbers 0 to 7 in the order of a transposed table."""
    found = re.match(r"\[(\d+),(\d+)\]<=\[([\d,]+)\](?:T\(([\d,]+)\))?", text)
    if not found:
        return ()
    table = np.arange(int(found[1]) * int(found[2])).reshape(_numbers(found[3]))
    return _rows(table.transpose(_numbers(found[4])) if found[4] else table, int(found[2]))


def _listed(text: str) -> tuple[Cores, ...]:
    found = re.match(r"\{(?:\{[\d,]*\},?)*\}", text)
    return tuple(_numbers(group) for group in re.findall(r"\{(\d+(?:,\d+)*)\}", found.group())) if found else ()


def _numbers(text: str) -> Cores:
    return tuple(int(number) for number in text.split(","))


def _rows(cores: np.ndarray, size: int) -> tuple[Cores, ...]:
    return tuple(tuple(int(core) for core in row) for row in cores.reshape(-1, size))
