"""Reading `Trainer(plugins=...)`."""

from __future__ import annotations

from typing import Any

from ..checkpoint import CheckpointIO, TorchCheckpointIO
from ..compat import welcome
from ..exceptions import MisconfigurationException


def choose_checkpoint_io(plugins: object) -> CheckpointIO:
    """Choose the plugin that writes checkpoints.

    Args:
        plugins: None, a `CheckpointIO`, or a list with one.

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
    return listed[0] if listed else TorchCheckpointIO()
