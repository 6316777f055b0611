"""Types of the arguments that the lowerings of ops take.

A tensor comes as a `jax.Array` (what has its channel last is a `_channels_last.Value`). A number that PyTorch's schema
calls `Scalar` comes as the Python number that the user wrote, or as an array without dimensions where it is known only
when the program runs: the learning rate, `batch_idx`, what `.item()` gave. The schema does not say which, so the type of
a parameter here does: a rule that looks at a number's value to choose what it computes takes a `Number`, a rule that only
computes with it takes the others.

In a file of its own because rules need them as well as `_dtype`, which the rules use.
"""

from __future__ import annotations

import jax

Number = bool | int | float | complex
"""A Python number, known when the program is traced."""

Operand = jax.Array | Number
"""An operand of a pointwise op: a tensor or a number. PyTorch's rules of promotion tell the two apart, so that a rule
gives it to `promoted` or `as_array` as it came."""

Real = jax.Array | float
"""A setting of an op that is no complex number: a slope, a bound, a scale. Rules give it to JAX as it is."""

Position = jax.Array | int
"""A position along a dimension, computed by the program or known; `_views.is_computed` tells which."""

Order = float | None
"""The p of a p-norm; None is PyTorch's way to say two."""
