"""Reading `Trainer(plugins=...)`."""

from __future__ import annotations

from typing import Any

from ..checkpoint import CheckpointIO, ShardedCheckpointIO, TorchCheckpointIO
from ..compat import welcome
from ..exceptions import MisconfigurationException


def choose_checkpoint_io(plugins: object, *, sharded: bool = False) -> CheckpointIO:
    """Choose the plugin that writes checkpoints.

    Args:
        plugins: None, a `CheckpointIO`, or a list with one.
        sharded: whether the strategy asks for directories of shards.

    Raises:
        MisconfigurationException: something else is in it, or more than one.
    """
    listed: list[Any] = list(plugins) if isinstance(plugins, list | tuple) else [] if plugins is None else [plugins]
    for plugin in listed:
        if not isinstance(welcome(plugin, CheckpointIO, root="CheckpointIO"), CheckpointIO):
            raise MisconfigurationException(
                "Invalid value for argument `plugins`. Expected systolic.plugins.CheckpointIO objects, such as "
                f"AsyncCheckpointIO(). Received: {plugin!r}. Precision is Trainer(precision=...), and the cluster's "
                "environment is found by JAX."
            )
    if len(listed) > 1:
        raise MisconfigurationException(
            f"Invalid value for argument `plugins`. Expected one CheckpointIO. Received: {listed!r}. To write in the "
            "background with your own, wrap it: AsyncCheckpointIO(MyCheckpointIO())."
        )
    if sharded and listed and not listed[0].saves_from_devices:
        raise MisconfigurationException(
            f'The strategy has state_dict_type="sharded", and `plugins` has {listed[0]!r}, which writes whole files. Expected '
            'one of them: leave the plugin out, or take state_dict_type="full".'
        )
    return listed[0] if listed else ShardedCheckpointIO() if sharded else TorchCheckpointIO()
