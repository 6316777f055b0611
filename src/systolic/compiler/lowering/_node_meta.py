"""Keys of a graph node's `meta`: capture writes them, lowering and reports read them.

In a file of its own because capture, the interpreter and the checks need them, each below the other.
"""

SCOPE = "scope"
"""The key in a graph node's `meta` under which the path of its module stands."""

OPTIMIZER = "optimizer"
"""The scope of what an optimizer computes."""

LINE = "line"
"""The key under which the line of the user's code stands that an op (or the op that it is the gradient of) comes from."""
