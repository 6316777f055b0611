"""Ending training where the loss jumps, with a file of the batches that did it."""

import json
import os
from collections import deque
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from ..core import LightningModule
from ..distributed import is_main_process
from ..exceptions import TrainingSpikeException
from ..utilities._private import make_directories
from ._protocol import TrainerLike
from .callback import Callback

_FILE = "skip_batches.json"


class SpikeDetection(Callback):
    """Ends `fit` with `TrainingSpikeException` where the loss is suddenly worse than the mean of the batches before.

    The numbers of that batch and of the one before it, which may have spoilt the weights, go to a JSON file, for a sampler that
    leaves them out when training goes on. Every batch waits for its loss.

    Args:
        mode: "min" where smaller is better, or "max".
        window: of how many batches the mean is.
        warmup: the first batch of an epoch, from 0, that may be a spike.
        atol: differences from the mean below it are none; None: any.
        rtol: differences from the mean below this multiple of it are none; None: any.
        exclude_batches_path: the file, or the directory for `skip_batches.json`; default: the Trainer's `default_root_dir`.
        finite_only: whether a loss that is not finite is a spike, too; else it is left out of the mean.

    Attributes:
        bad_batches: the numbers in the file.

    Raises:
        ValueError: another mode.

    Example:
        >>> from systolic.callbacks import SpikeDetection
        >>> SpikeDetection(rtol=3.0, window=50).bad_batches
        []
    """

    def __init__(
        self,
        mode: Literal["min", "max"] = "min",
        window: int = 10,
        warmup: int = 1,
        atol: float | None = None,
        rtol: float | None = 2.0,
        exclude_batches_path: str | os.PathLike[str] | None = None,
        finite_only: bool = True,
    ) -> None:
        if mode not in ("min", "max"):
            raise ValueError(f"SpikeDetection(mode={mode!r}): expected 'min' or 'max'.")
        if isinstance(window, bool) or not isinstance(window, int) or window < 1:
            raise ValueError(f"SpikeDetection(window={window!r}): expected 1 or more, an integer.")
        self.mode: str = mode
        self.warmup = warmup
        self.atol = atol
        self.rtol = rtol
        self.exclude_batches_path = exclude_batches_path
        self.finite_only = finite_only
        self.bad_batches: list[int] = []
        self.last_val: Tensor | float = 0.0
        self._recent: deque[Tensor] = deque(maxlen=window)

    def on_train_batch_end(
        self, trainer: TrainerLike, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Look at the loss.

        Raises:
            TrainingSpikeException: it is a spike.
        """
        if not outputs:  # training_step skipped the batch
            return
        loss = _loss(outputs).detach().cpu()  # host sync: the next step must not run after a spike
        path = self._path(trainer)
        if batch_idx >= self.warmup and self._is_spike(loss):
            self.bad_batches += [batch_idx - 1, batch_idx]
            if is_main_process():
                make_directories(Path(path).absolute().parent)
                with open(path, "w") as file:
                    json.dump(self.bad_batches, file, indent=4)
            raise TrainingSpikeException(batch_idx)
        if self.finite_only or bool(torch.isfinite(loss).all()):
            self._recent.append(loss)
            self.last_val = loss

    def _path(self, trainer: TrainerLike) -> str:
        path = os.fspath(trainer.default_root_dir if self.exclude_batches_path is None else self.exclude_batches_path)
        self.exclude_batches_path = path if path.endswith(".json") else os.path.join(path, _FILE)
        return self.exclude_batches_path

    def _is_spike(self, loss: Tensor) -> bool:
        if self.finite_only and not bool(torch.isfinite(loss)):
            return True
        change = loss - self.last_val
        if bool(change <= 0 if self.mode == "min" else change >= 0):
            return False
        mean = self._mean()
        off = abs(loss - mean)
        beyond_atol = self.atol is None or bool(off >= abs(self.atol))
        return beyond_atol and (self.rtol is None or bool(off >= abs(self.rtol * mean)))

    def _mean(self) -> Tensor:
        known = [loss for loss in self._recent if not bool(loss.isnan())]
        return torch.stack(known).mean() if known else torch.tensor(torch.nan)

    def state_dict(self) -> dict[str, Any]:
        """The losses of the window, the settings, and the batches so far."""
        return {
            "last_val": float(self.last_val),
            "mode": self.mode,
            "warmup": self.warmup,
            "atol": self.atol,
            "rtol": self.rtol,
            "bad_batches": list(self.bad_batches),
            "bad_batches_path": self.exclude_batches_path,
            "running": [float(loss) for loss in self._recent],
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take that up; a checkpoint of Lightning's holds no losses."""
        self.last_val = state_dict["last_val"]
        self.mode = state_dict["mode"]
        self.warmup = state_dict["warmup"]
        self.atol = state_dict["atol"]
        self.rtol = state_dict["rtol"]
        self.bad_batches = list(state_dict["bad_batches"])
        self.exclude_batches_path = state_dict["bad_batches_path"]
        self._recent.clear()
        self._recent.extend(torch.tensor(loss) for loss in state_dict["running"] or [])


def _loss(outputs: Any) -> Tensor:
    found = outputs["loss"] if isinstance(outputs, dict) else outputs
    if not isinstance(found, Tensor):
        raise TypeError(
            "SpikeDetection needs training_step to return the loss, or a dict with it as 'loss'. Received: "
            f"{type(found).__name__}."
        )
    return found
