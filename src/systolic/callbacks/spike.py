"""Ending training where the loss jumps, or going back to before it, with a file of the batches that did it."""

import json
import os
import warnings
from collections import deque
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from ..core import LightningModule
from ..distributed import agree, broadcast, is_main_process
from ..exceptions import MisconfigurationException, TrainingSpikeException
from ..utilities._private import make_directories
from ._arguments import require_integer
from ._protocol import TrainerLike
from ._rewind import BatchPlace, Rewind, RewindingTrainerLike, keeps_whole_checkpoints, newest_checkpoint
from .callback import Callback

_FILE = "skip_batches.json"


class SpikeDetection(Callback):
    """Ends `fit` with `TrainingSpikeException` where the loss is suddenly worse than the mean of the batches before.

    The numbers of that batch and of the one before it, which may have spoilt the weights, go to a JSON file, for a sampler that
    leaves them out when training goes on. Every batch waits for its loss.

    With `action="rewind"` training goes on instead: from the newest file that a ModelCheckpoint wrote in this run, in the same
    programs, with the batch left out; a warning tells of it, and the file names the batches that were left out. Where the batch
    after a left-out one is a spike as well, the batch before it, whose step may have spoilt the weights, is left out with it.
    See "Rewind" in docs/checkpoints.md.

    Args:
        mode: "min" where smaller is better, or "max".
        window: of how many batches the mean is.
        warmup: the first batch of an epoch, from 0, that may be a spike.
        atol: differences from the mean below it are none; None: any.
        rtol: differences from the mean below this multiple of it are none; None: any.
        exclude_batches_path: the file, or the directory for `skip_batches.json`; default: the Trainer's `default_root_dir`.
        finite_only: whether a loss that is not finite is a spike, too; else it is left out of the mean.
        action: "raise" ends `fit`, "rewind" goes back.
        max_rewinds: how many times, those before a resume included, until a spike ends `fit` all the same.

    Attributes:
        bad_batches: the numbers in the file.
        rewinds: how many times training went back.

    Raises:
        ValueError: another mode or action.
        MisconfigurationException: in `fit`, there is no checkpoint to go back to.

    Example:
        >>> from systolic.callbacks import SpikeDetection
        >>> SpikeDetection(rtol=3.0, window=50).bad_batches
        []
        >>> SpikeDetection(action="rewind", max_rewinds=3).rewinds
        0
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
        action: Literal["raise", "rewind"] = "raise",
        max_rewinds: int = 10,
    ) -> None:
        if mode not in ("min", "max"):
            raise ValueError(f"SpikeDetection(mode={mode!r}): expected 'min' or 'max'.")
        if isinstance(window, bool) or not isinstance(window, int) or window < 1:
            raise ValueError(f"SpikeDetection(window={window!r}): expected 1 or more, an integer.")
        if action not in ("raise", "rewind"):
            raise ValueError(f"SpikeDetection(action={action!r}): expected 'raise' or 'rewind'.")
        require_integer("SpikeDetection", "max_rewinds", max_rewinds, 1)
        self.mode: str = mode
        self.warmup = warmup
        self.atol = atol
        self.rtol = rtol
        self.exclude_batches_path = exclude_batches_path
        self.finite_only = finite_only
        self.action: str = action
        self.max_rewinds = max_rewinds
        self.bad_batches: list[int] = []
        self.rewinds = 0
        self.last_val: Tensor | float = 0.0
        self._recent: deque[Tensor] = deque(maxlen=window)
        self._left_out: list[BatchPlace] = []
        self._before: BatchPlace | None = None
        self._goes_back = False

    def setup(self, trainer: RewindingTrainerLike, pl_module: LightningModule, stage: str) -> None:
        """Refuse a run that could not go back."""
        if stage == "fit" and self.action == "rewind" and not keeps_whole_checkpoints(trainer):
            raise MisconfigurationException(
                "SpikeDetection(action='rewind') goes back to a checkpoint, and no ModelCheckpoint of this Trainer writes one "
                "that training can go on from. Add ModelCheckpoint(every_n_train_steps=...) without save_weights_only=True to "
                "Trainer(callbacks=[...]), leave out enable_checkpointing=False, or take action='raise'."
            )

    def on_train_batch_end(
        self, trainer: RewindingTrainerLike, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Look at the loss.

        Raises:
            TrainingSpikeException: it is a spike, and training does not go back, or not once more.
            Rewind: it is a spike, and training goes back; the loop catches it.
        """
        if not outputs:  # training_step skipped the batch
            return
        loss = _loss(outputs).detach().cpu()  # host sync: the next step must not run after a spike
        self._path(trainer)
        spike = batch_idx >= self.warmup and self._is_spike(loss)
        if agree(spike) if self.action == "rewind" else spike:
            if self.action == "rewind":
                raise self._rewind(trainer, loss, (trainer.current_epoch, batch_idx))
            self._note(trainer, [batch_idx - 1, batch_idx])
            raise TrainingSpikeException(batch_idx)
        self._before = (trainer.current_epoch, batch_idx)
        if self.finite_only or bool(torch.isfinite(loss).all()):
            self._recent.append(loss)
            self.last_val = loss

    def _rewind(self, trainer: RewindingTrainerLike, loss: Tensor, place: BatchPlace) -> Exception:
        """An error that asks to go back, or one that says why that is not done."""
        spike = TrainingSpikeException(place[1])
        if self.rewinds >= self.max_rewinds:
            spike.add_note(
                f"SpikeDetection(action='rewind', max_rewinds={self.max_rewinds}): training went back {self.rewinds} times "
                f"and left out {self._left_out} (epoch, batch). Look at these batches and at the learning rate, or raise "
                "max_rewinds."
            )
            return spike
        path = broadcast(newest_checkpoint(trainer))  # of the process that writes
        if path is None:
            error = MisconfigurationException(
                f"SpikeDetection(action='rewind'): the loss of batch {place[1]} in epoch {place[0]} is {float(loss):g}, and "
                "ModelCheckpoint has not written a file yet that training could go back to. Let it write earlier, with "
                "ModelCheckpoint(every_n_train_steps=...), or begin to look later, with SpikeDetection(warmup=...)."
            )
            error.__cause__ = spike
            return error
        until = self._before if self._before is not None and self._follows_left_out(place) else place
        new = [until, place] if until != place else [place]
        self.rewinds, self._goes_back = self.rewinds + 1, True
        self._left_out += new
        self._note(trainer, [batch for _, batch in new])
        if is_main_process():
            warnings.warn(self._told(loss, place, new, path), stacklevel=2)
        return Rewind(path, new, until)

    def _follows_left_out(self, place: BatchPlace) -> bool:
        """Whether batches were left out just before this one."""
        return any(self._before is None or self._before < gone < place for gone in self._left_out)

    def _told(self, loss: Tensor, place: BatchPlace, new: list[BatchPlace], path: str) -> str:
        named = " and ".join(f"batch {batch} of epoch {epoch}" for epoch, batch in new)
        return (
            f"SpikeDetection: the loss of batch {place[1]} in epoch {place[0]} is {float(loss):g}, where {self._expected()} "
            f"was expected. Training goes back to {path} and leaves out {named} (rewind {self.rewinds} of at most "
            f"{self.max_rewinds}; {self.exclude_batches_path})."
        )

    def _expected(self) -> str:
        mean = float(self._mean())
        return f"about {mean:g}, the mean of the {len(self._recent)} before," if mean == mean else "a finite number"

    def _note(self, trainer: TrainerLike, batches: list[int]) -> None:
        """Add batches to the file."""
        path = self._path(trainer)
        self.bad_batches += batches
        if is_main_process():
            make_directories(Path(path).absolute().parent)
            with open(path, "w") as file:
                json.dump(self.bad_batches, file, indent=4)

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
        rewinds = {"rewinds": self.rewinds, "left_out": [[*place] for place in self._left_out], "before": self._before}
        return {
            "last_val": float(self.last_val),
            "mode": self.mode,
            "warmup": self.warmup,
            "atol": self.atol,
            "rtol": self.rtol,
            "bad_batches": list(self.bad_batches),
            "bad_batches_path": self.exclude_batches_path,
            "running": [float(loss) for loss in self._recent],
            **(rewinds if self.action == "rewind" else {}),
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take that up; a checkpoint of Lightning's holds no losses."""
        self.last_val = state_dict["last_val"]
        self.mode = state_dict["mode"]
        self.warmup = state_dict["warmup"]
        self.atol = state_dict["atol"]
        self.rtol = state_dict["rtol"]
        before = state_dict.get("before")
        self._before = None if before is None else (before[0], before[1])
        self._recent.clear()
        self._recent.extend(torch.tensor(loss) for loss in state_dict["running"] or [])
        if self._goes_back:  # the checkpoint does not know what training went back for
            self._goes_back = False
            return
        self.bad_batches = list(state_dict["bad_batches"])
        self.exclude_batches_path = state_dict["bad_batches_path"]
        self.rewinds = state_dict.get("rewinds", 0)
        self._left_out = [(epoch, batch) for epoch, batch in state_dict.get("left_out", [])]


def _loss(outputs: Any) -> Tensor:
    found = outputs["loss"] if isinstance(outputs, dict) else outputs
    if not isinstance(found, Tensor):
        raise TypeError(
            "SpikeDetection needs training_step to return the loss, or a dict with it as 'loss'. Received: "
            f"{type(found).__name__}."
        )
    return found
