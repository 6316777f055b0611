"""Values that all processes of a run begin with: those of the first one."""

from __future__ import annotations

import torch
from torch import nn

from ..distributed import broadcast, broadcast_arrays, process_count
from ..runtime import DeviceTensor, to_jax_array, to_torch_tensor
from ..utilities._leaves import is_sparse
from ..utilities.random_state import HostRandomState
from ._fingerprints import require_same_weights


def share_generators() -> None:
    """Put the generators of PyTorch, NumPy and Python into the states that they have in the first process.

    An epoch's order is drawn from them. They differ where nobody set a seed, and where datasets draw: each process loads other
    samples, which may take other numbers of draws.
    """
    if process_count() > 1:
        HostRandomState(broadcast(HostRandomState.current().packed)).restore()


def share_weights(module: nn.Module) -> None:
    """Give a module the parameters and buffers that it has in the first process.

    Scripts need no seed for that all of them begin alike; Lightning's strategies of several processes promise the same.
    """
    if process_count() == 1:
        return
    require_same_weights(module)
    # what lies on the devices already was drawn there alike, by generators in the same states
    held = (*module.parameters(), *module.buffers())
    tensors = [part for t in held if not (isinstance(t, DeviceTensor) or nn.parameter.is_lazy(t)) for part in _parts_of(t)]
    arrays = broadcast_arrays([to_jax_array(t.detach().contiguous()) for t in tensors])
    with torch.no_grad():
        for tensor, array in zip(tensors, arrays, strict=True):
            tensor.copy_(to_torch_tensor(array.copy(), tensor.dtype))


def _parts_of(tensor: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """A tensor; of a sparse one the dense tensors that hold its memory."""
    if not is_sparse(tensor):
        return (tensor,)
    if tensor.layout is torch.sparse_csr:
        return tensor.crow_indices(), tensor.col_indices(), tensor.values()
    return tensor._indices(), tensor._values()
