"""Lightning's plugins for other things than checkpoints: precisions and environments of clusters."""

from __future__ import annotations

from typing import Any

from ..compat import is_lightnings_own, lightnings
from ..exceptions import MisconfigurationException
from ..utilities.rank_zero import rank_zero_warn


def sort_plugins(plugins: object, precision: Any) -> tuple[list[Any], Any]:
    """Take out what is no plugin for checkpoints.

    Args:
        plugins: the Trainer's argument: None, one, or a list of them.
        precision: the Trainer's argument; None where it was not given.

    Returns:
        The other plugins, and the precision: the one that was asked for by the argument or by a plugin of Lightning's.

    Raises:
        MisconfigurationException: a precision is given twice.
    """
    listed: list[Any] = list(plugins) if isinstance(plugins, list | tuple) else [] if plugins is None else [plugins]
    kept: list[Any] = []
    for plugin in listed:
        cls = type(plugin)
        if lightnings(cls, "ClusterEnvironment") is not None:
            _tell_of_environment(plugin)
        elif lightnings(cls, "Precision") is not None and is_lightnings_own(cls):
            if precision is not None:
                raise MisconfigurationException(
                    f"Trainer(precision={precision!r}) and plugins=[{cls.__name__}(...)] both say the precision. Leave one out."
                )
            precision = plugin.precision
        else:
            kept.append(plugin)
    return kept, precision


def _tell_of_environment(plugin: Any) -> None:
    """The cluster's environment is found by JAX; of what Lightning's does besides, warn."""
    if getattr(plugin, "auto_requeue", False):
        rank_zero_warn(
            f"{type(plugin).__name__}(auto_requeue=True): jobs are not put back into SLURM's queue here. At SIGTERM fit saves "
            'what `ckpt_path="last"` goes on from and ends; let the job script call `scontrol requeue`. '
            "auto_requeue=False says that this is known."
        )
