"""Lightning's strategies of several devices by its names and arguments, as far as they mean something here."""

from __future__ import annotations

from typing import Any, Literal

from ..exceptions import MisconfigurationException
from ._model_parallel import ModelParallel

_SHARDING = ("FULL_SHARD", "SHARD_GRAD_OP", "HYBRID_SHARD", "NO_SHARD")


def FSDPStrategy(  # noqa: N802
    *,
    sharding_strategy: Literal["FULL_SHARD", "SHARD_GRAD_OP", "HYBRID_SHARD", "NO_SHARD"] = "FULL_SHARD",
    device_mesh: tuple[int, int] | None = None,
    state_dict_type: Literal["full", "sharded"] = "full",
    cpu_offload: Literal[False] | None = None,
    auto_wrap_policy: Any = None,
) -> ModelParallel:
    """Lightning's `FSDPStrategy`: parameters, gradients and optimizer state split over the devices.

    Args:
        sharding_strategy: "FULL_SHARD"; "SHARD_GRAD_OP", which keeps the parameters whole; "HYBRID_SHARD", groups that hold the
            whole state each; "NO_SHARD", which is data parallelism.
        device_mesh: for "HYBRID_SHARD": groups, and devices in each.
        state_dict_type: "full": a checkpoint is one file; "sharded": a directory, to which every process writes its part.
        cpu_offload: there is none.
        auto_wrap_policy: taken and not needed: no module is wrapped, every large tensor is split by itself.

    Raises:
        MisconfigurationException: an argument asks for what there is not.

    Example:
        >>> from systolic.strategies import FSDPStrategy
        >>> FSDPStrategy(sharding_strategy="HYBRID_SHARD", device_mesh=(2, 4)).fsdp
        4
    """
    del auto_wrap_policy
    if cpu_offload:
        raise MisconfigurationException(
            "Invalid value for argument `cpu_offload`. Expected False: the state stays on the devices. "
            f"Received: {cpu_offload!r}."
        )
    if device_mesh is not None and sharding_strategy != "HYBRID_SHARD":
        raise MisconfigurationException(
            f'`device_mesh` is for sharding_strategy="HYBRID_SHARD". Received: {device_mesh!r} with {sharding_strategy!r}.'
        )
    match sharding_strategy:
        case "FULL_SHARD":
            return ModelParallel(state_dict_type=state_dict_type)
        case "SHARD_GRAD_OP":
            return ModelParallel(split="optimizer", state_dict_type=state_dict_type)
        case "HYBRID_SHARD":
            if device_mesh is None:
                return ModelParallel(data="hosts", state_dict_type=state_dict_type)
            return ModelParallel(data=device_mesh[0], fsdp=device_mesh[1], state_dict_type=state_dict_type)
        case "NO_SHARD":
            return ModelParallel(data=-1, fsdp=1, state_dict_type=state_dict_type)
    raise MisconfigurationException(
        f"Invalid value for argument `sharding_strategy`. Expected one of {', '.join(map(repr, _SHARDING))}. "
        f"Received: {sharding_strategy!r}."
    )


def ModelParallelStrategy(  # noqa: N802
    data_parallel_size: int | Literal["auto"] = "auto",
    tensor_parallel_size: int | Literal["auto"] = "auto",
    save_distributed_checkpoint: bool = False,
) -> ModelParallel:
    """Lightning's `ModelParallelStrategy`: a mesh of two axes; the model's plan splits its layers, and not `configure_model`.

    Args:
        data_parallel_size: over how many devices batches and the state are split; "auto": over all that are left.
        tensor_parallel_size: over how many devices layers are split; "auto": over all devices of the process, where
            `data_parallel_size` is given, else 1.
        save_distributed_checkpoint: whether checkpoints are directories to which every process writes its part. Here they are
            files unless that is asked for.

    Example:
        >>> from systolic.strategies import ModelParallelStrategy
        >>> ModelParallelStrategy(data_parallel_size=4, tensor_parallel_size=2).tensor
        2
    """
    data = -1 if data_parallel_size == "auto" else data_parallel_size
    tensor = tensor_parallel_size if tensor_parallel_size != "auto" else 1 if data == -1 else -1
    state_dict_type = "sharded" if save_distributed_checkpoint else "full"
    return ModelParallel(fsdp=data, tensor=tensor, state_dict_type=state_dict_type)
