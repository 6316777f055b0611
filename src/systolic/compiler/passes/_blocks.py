"""Repeated blocks of a model, found by the paths of the modules that its ops belong to."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping

Path = tuple[str, ...]


def blocks_of(scopes: Iterable[str]) -> dict[str, str]:
    """The block of every scope that lies in one.

    Blocks are members of a list (a component of the path that is a number) of which another member has the same modules
    inside. Of lists inside each other the outermost such list counts. Lists of single layers are divided into as many
    blocks as each then has layers.

    Args:
        scopes: paths of modules, "model.h.0.attn".

    Example:
        >>> blocks_of(["model", "model.h.0", "model.h.0.mlp", "model.h.1", "model.h.1.mlp"])["model.h.1.mlp"]
        'model.h.1'
    """
    paths = {scope: tuple(scope.split(".")) for scope in scopes}
    members = _members(paths.values())
    found: dict[str, str] = {}
    for scope, path in paths.items():
        block = next((members[path[:end]] for end in range(1, len(path) + 1) if path[:end] in members), None)
        if block is not None:
            found[scope] = block
    return found


def _members(paths: Iterable[Path], start: int = 0) -> dict[Path, str]:
    """Paths of members of lists that are blocks, with the name of the block: the member's, or that of several layers."""
    lists: dict[Path, dict[Path, set[Path]]] = defaultdict(lambda: defaultdict(set))
    for path in paths:
        at = next((place for place in range(start, len(path)) if path[place].isdigit()), None)
        if at is not None:
            lists[path[:at]][path[: at + 1]].add(path[at + 1 :])
    found: dict[Path, str] = {}
    for members in lists.values():
        found |= _of_list(members)
    return found


def _of_list(members: Mapping[Path, set[Path]]) -> dict[Path, str]:
    if len(members) > 1 and all(inside == {()} for inside in members.values()):
        return _of_layers(members)
    forms = Counter(frozenset(inside) for inside in members.values())
    found: dict[Path, str] = {}
    for path, inside in members.items():
        if forms[frozenset(inside)] > 1 and inside != {()}:
            found[path] = ".".join(path)
        else:
            found |= _members([path + rest for rest in inside], len(path))
    return found


def _of_layers(layers: Iterable[Path]) -> dict[Path, str]:
    ordered = sorted(layers, key=lambda path: int(path[-1]))
    size = math.ceil(math.sqrt(len(ordered)))
    return {path: ".".join(ordered[place - place % size]) for place, path in enumerate(ordered)}
