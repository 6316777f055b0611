"""Names, paths and any other objects of the samples of a global batch, from the parts that several processes read.

The tensors of all parts are one array on the devices. A step that sees them all has to see the names of them all.
"""

from __future__ import annotations

from itertools import chain
from typing import Any, cast

from ..distributed import gather
from ..exceptions import MisconfigurationException
from ._batch import LEAF, BatchSpec, Node, Static, Tree


def whole_spec(spec: BatchSpec, rows: int) -> BatchSpec:
    """The spec of the global batch. All processes ask, where one of them does.

    Args:
        spec: of this process's part.
        rows: how many samples that has.

    Raises:
        MisconfigurationException: values that are no tensors, and not one for each sample, differ between the processes.
    """
    if not rows or not _has_samples(spec.tree, rows):
        return spec
    parts = gather("put the names and objects of a batch together", spec.statics)
    statics = iter(zip(*parts, strict=True))
    return BatchSpec(_joined(spec.tree, statics, rows), spec.num_leaves)


def _is_of_samples(tree: Tree, rows: int) -> bool:
    """Whether a list or tuple has one value for each sample."""
    if not isinstance(tree, Node) or tree.kind not in (list, tuple) or len(tree.children) != rows:
        return False
    return all(isinstance(child, Static) for child in tree.children)


def _has_samples(tree: Tree, rows: int) -> bool:
    if _is_of_samples(tree, rows):
        return True
    return isinstance(tree, Node) and any(_has_samples(child, rows) for child in tree.children)


def _joined(tree: Tree, statics: Any, rows: int) -> Tree:
    """The tree with the values of all processes; `statics` gives those of each place, in the order of the tree."""
    if tree is LEAF:
        return tree
    if isinstance(tree, Static):
        return Static(_common(next(statics)))
    node = cast(Node, tree)
    if not _is_of_samples(node, rows):
        return node._replace(children=tuple(_joined(child, statics, rows) for child in node.children))
    by_process = zip(*(next(statics) for _ in node.children), strict=True)
    samples = tuple(Static(value) for value in chain.from_iterable(by_process))
    return Node(node.kind, len(samples) if isinstance(node.context, int) else node.context, samples, node.rebuild)


def _common(values: tuple[Any, ...]) -> Any:
    if all(value is values[0] or value == values[0] for value in values[1:]):
        return values[0]
    raise MisconfigurationException(
        "A value of the batch differs between the processes. Expected: a tensor, one value for each sample, or the same value "
        f"in all. Received: {values[0]!r:.80} and {next(v for v in values if v != values[0])!r:.80}. Give each sample its own."
    )
