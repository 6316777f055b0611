"""Keys of a graph node's `meta`: capture writes them, lowering and reports read them.

In a file of its own because capture, the interpreter and the checks need them, each below the other.
"""

from torch import fx

SCOPE = "scope"
"""The key in a graph node's `meta` under which the path of its module stands."""

OPTIMIZER = "optimizer"
"""The scope of what an optimizer computes."""

LINE = "line"
"""The key under which the line of the user's code stands that an op (or the op that it is the gradient of) comes from."""

BACKWARD = "backward"
"""The key under which it stands whether autograd was running: gradients, and what activation checkpointing computes again."""

UPDATE = "update"
"""The key under which a number stands that all ops of one parameter's update share, where it is a copy of another's."""

RECOMPUTED = "recomputed"
"""The key under which the number of the region stands that an op computes once more for the backward pass."""


def is_backward(node: fx.Node) -> bool:
    """Whether a node belongs to a backward pass; those that a rewrite made are told by their inputs."""
    known = node.meta.get(BACKWARD)
    return any(is_backward(source) for source in node.all_input_nodes) if known is None else known
