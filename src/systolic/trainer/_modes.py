"""Train and eval mode of a module and all that is in it."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING

from torch import nn

from ..exceptions import PossibleUserWarning
from ..utilities._modes import keeping_modes
from ._stage import Stage

if TYPE_CHECKING:
    from ._run import Run


@contextlib.contextmanager
def evaluation_mode(run: Run, stage: Stage) -> Iterator[None]:
    """Eval mode inside; afterwards every submodule is in the mode in which it was, unless the module's hooks say otherwise.

    Args:
        run: the run; its module's mode is changed.
        stage: VALIDATE, TEST or PREDICT.
    """
    hooks = run.hooks
    decides = hooks.module_hook(stage.model_train) is not None  # what it leaves stands, even if that is eval mode
    with contextlib.nullcontext() if decides else keeping_modes(run.module):
        hooks.module_or_default(stage.model_eval)
        yield
    hooks.module(stage.model_train)


def warn_of_eval_mode(module: nn.Module) -> None:
    """As in Lightning, fit leaves every submodule in the mode in which it was given; one may be in eval mode by mistake."""
    names = [name or type(module).__name__ for name, submodule in module.named_modules() if not submodule.training]
    if names:
        listing = ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
        warnings.warn(
            f"{len(names)} module(s) are in eval mode at the start of training, and stay in it: {listing}. Dropout in them is "
            "off and statistics of batch norms do not move. If they are to be trained as usual, call .train() on them before "
            "fit.",
            PossibleUserWarning,
            stacklevel=2,
        )
