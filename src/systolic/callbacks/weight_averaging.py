"""Averages of the weights, which validation and the trained module have: SWA and EMA after every step."""

from copy import deepcopy
from typing import Any

import torch
from torch import Tensor
from torch.optim.swa_utils import AveragedModel, get_ema_avg_fn

from ..core import LightningModule
from ..exceptions import MisconfigurationException
from ..utilities._overrides import overrides
from ..utilities.rank_zero import rank_zero_info, rank_zero_warn
from ._averaging import Average
from ._protocol import ProgramTrainerLike, TrainerLike
from .callback import Callback

_PREFIX = "module."


class WeightAveraging(Callback):
    """Keeps an average of the weights beside those that are trained.

    Validation during `fit` uses the average, `state_dict` of a checkpoint is the average, and when training ends the module
    has it. The average lives on the devices and moves on in a compiled program of its own, after each step for which
    `should_update` says so; nothing is fetched. It takes as much memory as the weights.

    Args:
        device: None: on the devices. "cpu" keeps the average in the host's memory; the weights are then fetched for each
            update.
        use_buffers: whether buffers are averaged, too; else they are those of the newest update.
        **kwargs: arguments of `torch.optim.swa_utils.AveragedModel`: `avg_fn` for single tensors, or `multi_avg_fn` for lists
            of them. Without one all updates have equal weights (SWA). Either gets how many updates there were as a tensor.

    Raises:
        MisconfigurationException: another device.

    Example:
        >>> from torch.optim.swa_utils import get_ema_avg_fn
        >>> from systolic.callbacks import WeightAveraging
        >>> class LateEMA(WeightAveraging):
        ...     def __init__(self):
        ...         super().__init__(avg_fn=get_ema_avg_fn(0.999))
        ...     def should_update(self, step_idx=None, epoch_idx=None):
        ...         return step_idx is not None and step_idx >= 100
        >>> LateEMA().should_update(step_idx=99), LateEMA().should_update(step_idx=100)
        (False, True)
    """

    def __init__(self, device: torch.device | str | int | None = None, use_buffers: bool = True, **kwargs: Any) -> None:
        self._on_host = device is not None
        if device is not None and torch.device(device).type != "cpu":
            raise MisconfigurationException(
                f"{type(self).__name__}(device={device!r}): expected None, to keep the average on the devices that train, or "
                "'cpu', to keep it in the host's memory."
            )
        self._use_buffers = use_buffers
        self._kwargs = kwargs
        self._average_model: AveragedModel | None = None
        self._average: Average | None = None
        self._swapped = False
        self._latest_update_step = 0
        self._latest_update_epoch = -1

    def should_update(self, step_idx: int | None = None, epoch_idx: int | None = None) -> bool:
        """Whether to update the average; override it.

        Args:
            step_idx: the optimizer step that has just been made, from 0; None at the end of an epoch.
            epoch_idx: the epoch that has just ended, from 0; None after a step.
        """
        return step_idx is not None

    def setup(self, trainer: ProgramTrainerLike, pl_module: LightningModule, stage: str) -> None:
        """Make the average: a copy of the module as it is now."""
        if stage == "fit":
            if overrides(pl_module, "configure_model", LightningModule):
                pl_module.configure_model()
            self._average_model = AveragedModel(pl_module, use_buffers=self._use_buffers, **self._kwargs)
        if self._average_model is not None:
            self._swapped = False
            self._average = Average.of_model(self._average_model, pl_module, None if self._on_host else trainer.jit)

    def on_train_batch_end(
        self, trainer: TrainerLike, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Update after an optimizer step."""
        step = trainer.global_step
        if step > self._latest_update_step and self.should_update(step_idx=step - 1):
            self._made().update()
            self._latest_update_step = step

    def on_train_epoch_end(self, trainer: TrainerLike, pl_module: LightningModule) -> None:
        """Update after an epoch."""
        epoch = trainer.current_epoch
        if epoch > self._latest_update_epoch and self.should_update(epoch_idx=epoch):
            self._made().update()
            self._latest_update_epoch = epoch

    def on_train_end(self, trainer: TrainerLike, pl_module: LightningModule) -> None:
        """Let the module have the average."""
        self._copy_average_to_current(pl_module)

    def on_validation_epoch_start(self, trainer: TrainerLike, pl_module: LightningModule) -> None:
        """Let the module have the average, and keep the weights that are trained."""
        if self._average is not None:
            self._swap_models(pl_module)

    def on_validation_epoch_end(self, trainer: TrainerLike, pl_module: LightningModule) -> None:
        """Let the module have the weights that are trained again."""
        if self._average is not None:
            self._swap_models(pl_module)

    # under Lightning's names, because subclasses override them
    def _swap_models(self, pl_module: LightningModule) -> None:
        self._made().swap()
        self._swapped = not self._swapped

    def _copy_average_to_current(self, pl_module: LightningModule) -> None:
        self._made().copy_to_module()

    def _made(self) -> Average:
        assert self._average is not None, "setup comes first"
        return self._average

    def state_dict(self) -> dict[str, Any]:
        """After how many steps the average was updated last."""
        return {"latest_update_step": self._latest_update_step}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take that up."""
        self._latest_update_step = state_dict["latest_update_step"]

    def on_save_checkpoint(self, trainer: TrainerLike, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        """Make the average the checkpoint's `state_dict`; the weights that are trained are `current_model_state`."""
        if self._average_model is None:
            rank_zero_info(
                "WeightAveraging: this checkpoint is saved outside of fit and holds nothing of the average's state. After "
                "training the module's weights are the average."
            )
            return
        state = self._average_model.state_dict()
        kept = {name.removeprefix(_PREFIX): value for name, value in state.items() if name.startswith(_PREFIX)}
        # in the middle of validation each has the other's values
        averaged, current = (checkpoint["state_dict"], kept) if self._swapped else (kept, checkpoint["state_dict"])
        checkpoint["current_model_state"], checkpoint["state_dict"] = current, averaged
        checkpoint["averaging_state"] = {name: value for name, value in state.items() if not name.startswith(_PREFIX)}

    def on_load_checkpoint(self, trainer: TrainerLike, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        """Take up the average, and the weights that are trained."""
        if self._average_model is None:
            rank_zero_warn(
                "WeightAveraging: the checkpoint is loaded outside of fit, so the average's state is not restored. For "
                "prediction and tests, which use the average anyway, this is fine; remove the callback to hear nothing of it."
            )
        elif "current_model_state" in checkpoint and "averaging_state" in checkpoint:
            self._average_model.load_state_dict(_prefixed(checkpoint["state_dict"]) | checkpoint["averaging_state"])
            pl_module.load_state_dict(checkpoint["current_model_state"])
        else:
            rank_zero_warn(
                "WeightAveraging: the checkpoint was saved without it. The average begins with the weights of the checkpoint."
            )
            self._average_model.module.load_state_dict(deepcopy(checkpoint["state_dict"]), strict=False)


def _prefixed(state: dict[str, Tensor]) -> dict[str, Tensor]:
    return {_PREFIX + name: value for name, value in state.items()}


class EMAWeightAveraging(WeightAveraging):
    """Keeps an exponential moving average of the weights; otherwise as `WeightAveraging`.

    Args:
        device: as there.
        use_buffers: as there.
        decay: the weight of what the average was before, from 0 to 1.
        update_every_n_steps: how many optimizer steps an update is for; 0 or below updates after no step.
        update_starting_at_step: the first step, from 0, that is averaged; None for the first of all.
        update_starting_at_epoch: the first epoch, from 0, after which there is an update besides; None for none.
        **kwargs: further arguments of `torch.optim.swa_utils.AveragedModel`.

    Example:
        >>> from systolic.callbacks import EMAWeightAveraging
        >>> average = EMAWeightAveraging(decay=0.99, update_every_n_steps=2, update_starting_at_step=3)
        >>> [step for step in range(8) if average.should_update(step_idx=step)]
        [4, 6]
    """

    def __init__(
        self,
        device: torch.device | str | int | None = None,
        use_buffers: bool = True,
        decay: float = 0.999,
        update_every_n_steps: int = 1,
        update_starting_at_step: int | None = None,
        update_starting_at_epoch: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(device, use_buffers, **kwargs, avg_fn=get_ema_avg_fn(decay))
        self.update_every_n_steps = update_every_n_steps
        self.update_starting_at_step = update_starting_at_step
        self.update_starting_at_epoch = update_starting_at_epoch

    def should_update(self, step_idx: int | None = None, epoch_idx: int | None = None) -> bool:
        """Whether the step or the epoch is one of those that the arguments name."""
        if step_idx is not None and self.update_every_n_steps > 0:
            begins = self.update_starting_at_step
            if (begins is None or step_idx >= begins) and step_idx % self.update_every_n_steps == 0:
                return True
        begins = self.update_starting_at_epoch
        return epoch_idx is not None and begins is not None and epoch_idx >= begins
