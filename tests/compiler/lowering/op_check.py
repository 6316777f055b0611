"""Compare one PyTorch function, eager, with the same function traced to aten and lowered to JAX."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import torch
from torch._subclasses.functional_tensor import dispatch_functionalize
from torch.fx.experimental.proxy_tensor import make_fx

from systolic.compiler.capture._rng_numbering import DrawNumbers
from systolic.compiler.lowering import LoweringContext, interpret
from systolic.runtime._dtypes import jax_dtype


def to_jax(tensor: torch.Tensor) -> jax.Array:
    tensor = tensor.detach()
    if tensor.dtype == torch.bfloat16:
        return jax.numpy.asarray(tensor.float().numpy()).astype(jax_dtype(tensor.dtype))
    return jax.numpy.asarray(tensor.numpy(), jax_dtype(tensor.dtype))


def lower_and_run(function: Callable[..., Any], *tensors: torch.Tensor, decompositions: Any = None) -> list[np.ndarray]:
    """Trace `function` (tensors in, tensor or tuple of tensors out) and run it through the op table."""
    graph = make_fx(dispatch_functionalize(function), decomposition_table=decompositions, tracing_mode="fake")(*tensors).graph
    DrawNumbers().number(graph)
    with jax.enable_x64(True):
        context = LoweringContext(key=jax.random.key(0), platform=jax.default_backend())
        result = jax.jit(lambda *xs: interpret(graph, xs, context))(*[to_jax(t) for t in tensors])
        return [np.asarray(leaf) for leaf in jax.tree.leaves(result)]


def check_op(function: Callable[..., Any], *tensors: torch.Tensor, rtol: float = 1e-5, atol: float = 1e-6) -> None:
    """Forward and, where inputs require grad, backward of `function` must equal eager PyTorch, dtype and shape included."""

    def forward_backward(*inputs: torch.Tensor) -> list[torch.Tensor]:
        leaves = [x.detach().requires_grad_(t.requires_grad) for x, t in zip(inputs, tensors, strict=True)]
        out = function(*leaves)
        outputs = [o for o in (out if isinstance(out, (tuple, list)) else [out]) if isinstance(o, torch.Tensor)]
        wanted = [leaf for leaf in leaves if leaf.requires_grad]
        sources = [o for o in outputs if o.requires_grad]
        grads: list[torch.Tensor] = []
        if wanted and sources:
            total = sum(
                (o * torch.cos(torch.arange(o.numel(), dtype=torch.float64).reshape(o.shape)).to(o.dtype)).sum()
                for o in sources
            )
            grads = [g for g in torch.autograd.grad(total, wanted, allow_unused=True) if g is not None]
        return [o.detach() for o in outputs] + grads

    expected = [t.detach() for t in forward_backward(*tensors)]
    received = lower_and_run(forward_backward, *tensors)
    assert len(expected) == len(received)
    for want, got in zip(expected, received, strict=True):
        assert jax_dtype(want.dtype) == got.dtype
        wanted = want.float().numpy() if want.dtype == torch.bfloat16 else want.resolve_conj().resolve_neg().numpy()
        np.testing.assert_allclose(got.astype(wanted.dtype), wanted, rtol=rtol, atol=atol)
