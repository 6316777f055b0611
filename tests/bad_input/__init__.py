"""Bad inputs by group; docs/bad-input.md is made of these tables."""

from __future__ import annotations

from . import callbacks, checkpoints, commands, data, hooks, modules, trainer_arguments
from .cases import Case

TABLES: dict[str, tuple[Case, ...]] = {
    **trainer_arguments.CASES,
    **modules.CASES,
    **callbacks.CASES,
    **hooks.CASES,
    **data.CASES,
    **checkpoints.CASES,
    **commands.CASES,
}
