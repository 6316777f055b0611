"""Lightning's strategies under which every device holds the whole state: what the Trainer does by itself."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from ..compat import is_lightnings_own, lightnings
from ..exceptions import MisconfigurationException

_NAMES = ("DDPStrategy", "SingleDeviceStrategy", "XLAStrategy", "SingleDeviceXLAStrategy")
_OTHER_MATHEMATICS = ("ddp_comm_hook", "ddp_comm_wrapper", "model_averaging_period")


class DDPStrategy:
    """Lightning's `DDPStrategy`: batches split over the devices, the whole state on each, as with `strategy="auto"`.

    Args:
        checkpoint_io: the plugin that writes checkpoints, as `Trainer(plugins=...)` takes it.
        precision_plugin: there is none; precision is `Trainer(precision=...)`.
        process_group_backend: kept, and nothing more; the same holds for the next four.
        timeout: of messages between processes.
        start_method: of processes.
        find_unused_parameters: whether some have no gradient.
        static_graph: whether the graph is the same in every step.
        **options: Lightning's further ones. They are about processes and their messages, of which there are none, and change
            nothing; those that would change what is computed are refused.

    Raises:
        MisconfigurationException: an option asks for what there is not.

    Example:
        >>> from systolic.strategies import DDPStrategy
        >>> DDPStrategy(find_unused_parameters=True).checkpoint_io is None
        True
    """

    def __init__(
        self,
        *,
        checkpoint_io: Any = None,
        precision_plugin: Any = None,
        process_group_backend: str | None = None,
        timeout: timedelta | None = None,
        start_method: str = "popen",
        find_unused_parameters: bool = False,
        static_graph: bool = False,
        **options: Any,
    ) -> None:
        self.checkpoint_io = checkpoint_io
        self.process_group_backend, self.timeout, self.start_method = process_group_backend, timeout, start_method
        self.find_unused_parameters, self.static_graph = find_unused_parameters, static_graph
        _require_plain(type(self).__name__, precision_plugin, options)


class SingleDeviceStrategy(DDPStrategy):
    """Lightning's `SingleDeviceStrategy`; how many devices there are is `Trainer(devices=...)`.

    Args:
        device: taken and not needed: `Trainer(accelerator=...)` says where.
        checkpoint_io: as in `DDPStrategy`.
        **options: as there.

    Example:
        >>> from systolic.strategies import SingleDeviceStrategy
        >>> SingleDeviceStrategy("cpu").checkpoint_io is None
        True
    """

    def __init__(self, device: Any = "cpu", *, checkpoint_io: Any = None, **options: Any) -> None:
        del device
        super().__init__(checkpoint_io=checkpoint_io, **options)


def is_data_parallel(strategy: object) -> bool:
    """Whether an object is one of these, or of Lightning's own that mean the same.

    Raises:
        MisconfigurationException: it asks for what there is not, or is of a class of the user's.
    """
    if type(strategy) in (DDPStrategy, SingleDeviceStrategy):
        return True
    base = next((base for base in (lightnings(type(strategy), name) for name in _NAMES) if base is not None), None)
    if base is None and not isinstance(strategy, DDPStrategy):
        return False
    if base is None or not is_lightnings_own(type(strategy)):
        raise MisconfigurationException(
            f"`strategy` is a {type(strategy).__name__}, whose own methods nothing here would call. Expected one of "
            "systolic.strategies. What reads and writes checkpoints is Trainer(plugins=[MyCheckpointIO()]); what else it does "
            "belongs into a Callback."
        )
    asked = {name: getattr(strategy, f"_{name}", None) for name in _OTHER_MATHEMATICS}
    _require_plain(type(strategy).__name__, getattr(strategy, "_precision_plugin", None), asked)
    return True


def checkpoint_io_of(strategy: object) -> Any:
    """The plugin for checkpoints that came with a strategy; None where there was none."""
    if not is_data_parallel(strategy):
        return None
    return strategy.checkpoint_io if isinstance(strategy, DDPStrategy) else getattr(strategy, "_checkpoint_io", None)


def _require_plain(name: str, precision_plugin: Any, options: dict[str, Any]) -> None:
    if precision_plugin is not None:
        raise MisconfigurationException(
            f"{name}(precision_plugin={precision_plugin!r}): precision is an argument of the Trainer. Write "
            f"Trainer(precision={getattr(precision_plugin, 'precision', 'bf16-mixed')!r})."
        )
    for option in _OTHER_MATHEMATICS:
        if options.get(option) is not None:
            raise MisconfigurationException(
                f"{name}({option}={options[option]!r}) changes how gradients are summed, and one program sums them exactly. "
                "Leave it out."
            )
