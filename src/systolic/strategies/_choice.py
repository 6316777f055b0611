"""Names and objects that the Trainer's `strategy` takes."""

from __future__ import annotations

from collections.abc import Callable

from ..exceptions import MisconfigurationException
from ..utilities._suggest import suggest
from ._data_parallel import is_data_parallel
from ._model_parallel import ModelParallel

# functions, because the processes of a run have not met yet when this is imported
_NAMED: dict[str, Callable[[], ModelParallel | None]] = {
    "auto": lambda: None,
    "ddp": lambda: None,
    "fsdp": ModelParallel,
    "hsdp": lambda: ModelParallel(data="hosts"),
    "ddp_sharded": lambda: ModelParallel(split="optimizer"),
}

STRATEGIES = tuple(_NAMED)
"""Names of strategies."""


def name_of_strategy(strategy: ModelParallel | None, platform: str, devices: int) -> str:
    """Name of the class of Lightning's that does the same on as many devices, which profilers show.

    Args:
        strategy: what `choose_strategy` returned.
        platform: "cpu", "gpu" or "tpu".
        devices: how many there are.

    Example:
        >>> name_of_strategy(None, "cpu", 1)
        'SingleDeviceStrategy'
    """
    on_xla = "XLA" if platform == "tpu" else ""
    if devices == 1:
        return f"SingleDevice{on_xla}Strategy"
    if strategy is None:
        return f"{on_xla or 'DDP'}Strategy"
    return "ModelParallelStrategy" if strategy.tensor != 1 else f"{on_xla}FSDPStrategy"


def choose_strategy(strategy: object) -> ModelParallel | None:
    """The strategy for the Trainer's argument; None for data parallelism, with the whole state on every device.

    Args:
        strategy: "auto", "ddp", "fsdp", "hsdp", "ddp_sharded", or an object of `systolic.strategies`; Lightning's DDPStrategy
            and SingleDeviceStrategy mean "auto".

    Raises:
        MisconfigurationException: anything else.
    """
    if isinstance(strategy, ModelParallel):
        return strategy
    if is_data_parallel(strategy):
        return None
    make = _NAMED.get(strategy) if isinstance(strategy, str) else None
    if make is None:
        raise MisconfigurationException(
            f"Invalid value for argument `strategy`. Expected one of {', '.join(map(repr, _NAMED))}, or an object such as "
            f"systolic.strategies.ModelParallel(fsdp=4, tensor=2). Received: {strategy!r}.{suggest(str(strategy), _NAMED)}"
        )
    return make()
