"""Lightning's plugins for other things than checkpoints: precisions and environments of clusters."""

from __future__ import annotations

from typing import Any

from ..compat import is_lightnings_own, lightnings
from ..exceptions import MisconfigurationException
from .environments import SLURMEnvironment


def sort_plugins(plugins: object, precision: Any) -> tuple[list[Any], Any, SLURMEnvironment | None, object]:
    """Take out what is no plugin for checkpoints.

    Args:
        plugins: the Trainer's argument: None, one, or a list of them.
        precision: the Trainer's argument; None where it was not given.

    Returns:
        The other plugins; the precision: the one that was asked for by the argument or by a plugin of Lightning's;
        SLURM's environment, where the job is one of SLURM's that may be put back into the queue; and the environment of a
        cluster as it was given, or found.

    Raises:
        MisconfigurationException: a precision is given twice.
    """
    listed: list[Any] = list(plugins) if isinstance(plugins, list | tuple) else [] if plugins is None else [plugins]
    kept: list[Any] = []
    environment: object = SLURMEnvironment() if SLURMEnvironment.detect() else None
    slurm = environment if isinstance(environment, SLURMEnvironment) else None
    for plugin in listed:
        cls = type(plugin)
        if isinstance(plugin, SLURMEnvironment):
            environment = slurm = plugin
        elif lightnings(cls, "ClusterEnvironment") is not None:
            environment = plugin
            if lightnings(cls, "SLURMEnvironment") is not None:
                slurm = SLURMEnvironment(plugin.auto_requeue, plugin.requeue_signal)
        elif lightnings(cls, "Precision") is not None and is_lightnings_own(cls):
            if precision is not None:
                raise MisconfigurationException(
                    f"Trainer(precision={precision!r}) and plugins=[{cls.__name__}(...)] both say the precision. Leave one out."
                )
            precision = plugin.precision
        else:
            kept.append(plugin)
    return kept, precision, slurm if slurm is not None and slurm.auto_requeue else None, environment
