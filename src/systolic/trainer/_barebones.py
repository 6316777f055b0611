"""`Trainer(barebones=True)`: everything off that may cost time, to see what the Trainer itself costs."""

from __future__ import annotations

from typing import Any

from ..utilities.rank_zero import rank_zero_info

_OFF: dict[str, Any] = {
    "enable_checkpointing": False,
    "logger": False,
    "enable_progress_bar": False,
    "log_every_n_steps": 0,
    "enable_model_summary": False,
    "num_sanity_val_steps": 0,
    "fast_dev_run": False,
    "detect_anomaly": False,
    "profiler": None,
    "advice": False,
}


def barebones_arguments(arguments: dict[str, Any]) -> dict[str, Any]:
    """The Trainer's arguments; with `barebones=True` everything off that may cost time.

    Raises:
        ValueError: an argument asks for what is off.
    """
    if not arguments["barebones"]:
        return arguments
    for name in _OFF:
        if arguments[name] and name != "advice":
            raise ValueError(
                f"`Trainer(barebones=True, {name}={arguments[name]!r})` was passed: barebones switches everything off that may "
                f"cost time, and `{name}` does. Leave one of the two out."
            )
    rank_zero_info(
        f"Now running in `Trainer(barebones=True)` mode. What may cost time is off: {', '.join(_OFF)}, and self.log."
    )
    return {**arguments, **_OFF}
