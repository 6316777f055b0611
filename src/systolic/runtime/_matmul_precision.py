"""How exact products of float32 are where nobody says."""

from __future__ import annotations

import torch


def default_matmul_precision(platform: str) -> str:
    """The word for JAX: on a GPU what PyTorch computes in, "default" elsewhere.

    A GPU's "default" rounds the operands to TensorFloat-32, which eager PyTorch does only where it was told to, by
    `torch.set_float32_matmul_precision`.

    Args:
        platform: "tpu", "gpu" or "cpu".

    Example:
        >>> default_matmul_precision("cpu"), default_matmul_precision("gpu")
        ('default', 'highest')
    """
    if platform != "gpu":
        return "default"
    said = torch.get_float32_matmul_precision()
    return {"medium": "default"}.get(said, said)
