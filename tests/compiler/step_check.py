"""Compare one PyTorch function, eager, with the same function as a compiled step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
import torch
from torch import nn
from torch.utils._pytree import tree_leaves

import systolic
from systolic.runtime._dtypes import jax_dtype


def gradients_of(function: Callable[..., Any], module: nn.Module | None = None) -> Callable[..., list[torch.Tensor]]:
    """A step: the function's results, then the gradients of its inputs and of the module's parameters."""

    def step(requires_grad: Sequence[bool], *inputs: torch.Tensor) -> list[torch.Tensor]:
        leaves = [x.detach().requires_grad_(flag) for x, flag in zip(inputs, requires_grad, strict=True)]
        outputs = [o for o in tree_leaves(function(*leaves)) if isinstance(o, torch.Tensor)]
        wanted = [leaf for leaf in leaves if leaf.requires_grad]
        wanted += [p for p in module.parameters() if p.requires_grad] if module is not None else []
        weights = [torch.cos(torch.arange(o.numel(), dtype=torch.float64)).reshape(o.shape) for o in outputs]
        total = sum((o * w.to(o.dtype)).sum() for o, w in zip(outputs, weights, strict=True) if o.requires_grad)
        return [o.detach() for o in outputs] + list(torch.autograd.grad(total, wanted))

    return step


def some(draw: np.random.Generator, like: torch.Tensor) -> Any:
    """Random numbers of a shape and dtype; small ones: with large scores a softmax blows the rounding of its products up."""
    return jnp.asarray(0.3 * draw.normal(size=tuple(like.shape)), jax_dtype(like.dtype))


def check_step(
    function: Callable[..., Any],
    *inputs: torch.Tensor,
    module: nn.Module | None = None,
    oracle: Callable[..., Any] | None = None,
    rtol: float = 1e-5,
    atol: float = 1e-6,
) -> systolic.compiler.JitFunction[..., list[torch.Tensor]]:
    """Results and all gradients of the compiled function must equal eager PyTorch, dtype and shape included.

    Args:
        function: what is compiled.
        inputs: its arguments.
        module: whose parameters' gradients are compared too.
        oracle: the same mathematics for eager PyTorch, where it cannot run the function itself on every processor.
        rtol: relative tolerance.
        atol: absolute tolerance.
    """
    step = gradients_of(function, module)
    flags = [x.requires_grad for x in inputs]
    values = [x.detach() for x in inputs]
    eager = step if oracle is None else gradients_of(oracle, module)
    expected = [t.detach().clone() for t in eager(flags, *values)]
    compiled = systolic.jit(step)
    received = compiled(flags, *values)
    assert len(expected) == len(received)
    for want, got in zip(expected, received, strict=True):
        torch.testing.assert_close(got.cpu(), want, rtol=rtol, atol=atol)
    return compiled


def count(compiled: systolic.compiler.JitFunction[..., Any], op: Any) -> int:
    """How often an op occurs in the program that ran last."""
    return sum(node.target is op for node in compiled.graph().nodes)


JAX_CALL = torch.ops.systolic.jax_call.default
