"""Parts of a Trainer that libraries written for Lightning reach for by its private names, as far as there are any."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from ..callbacks import Callback
from . import _checkpoint_choice, _checkpoints, _guests
from ._defaults import ordered
from ._hooks import HookTable
from ._requeue import newest_checkpoint, next_checkpoint
from ._stage import Stage, TrainerFn

if TYPE_CHECKING:
    from ..core import LightningDataModule, LightningModule
    from ._run import Run
    from ._trainer import Trainer


def connect(trainer: Trainer, model: LightningModule) -> Run:
    """The run that shows a module and its loaders before the module is trained; the one under way, if it is that module's.

    Args:
        trainer: gets the module.
        model: the module.
    """
    from ._run import Call, Run  # a run shows these faces

    run, model = trainer.run, _guests.module(model)
    if run.call is None or run.module is not model:
        run = Run(trainer, trainer.config, Call(Stage.FIT, model, None, {}), run)
        run.hooks = HookTable(trainer, run.config.callbacks, model)
        model.trainer = trainer
        trainer.show(run)
    return run


class DataConnector:
    """`trainer._data_connector`: gives a Trainer loaders before it runs.

    Args:
        trainer: the trainer.
    """

    def __init__(self, trainer: Trainer) -> None:
        self._trainer = trainer

    def attach_dataloaders(
        self,
        model: LightningModule,
        train_dataloaders: Any = None,
        val_dataloaders: Any = None,
        test_dataloaders: Any = None,
        predict_dataloaders: Any = None,
    ) -> None:
        """Take loaders, or where there are none the module's own.

        Args:
            model: the module.
            train_dataloaders: for training.
            val_dataloaders: for validation.
            test_dataloaders: for tests.
            predict_dataloaders: to predict for.
        """
        run = connect(self._trainer, model)
        given = zip(
            (Stage.FIT, Stage.VALIDATE, Stage.TEST, Stage.PREDICT),
            (train_dataloaders, val_dataloaders, test_dataloaders, predict_dataloaders),
            strict=True,
        )
        run.train_loader = None
        for stage, loaders in given:
            run.loaders.pop(stage, None)
            run.given[stage] = loaders

    def attach_datamodule(self, model: LightningModule, datamodule: LightningDataModule | None = None) -> None:
        """Take a datamodule.

        Args:
            model: the module.
            datamodule: where loaders come from; None leaves the module's.
        """
        run, (_, datamodule) = connect(self._trainer, model), _guests.data(None, datamodule)
        if datamodule is not None:
            assert run.call is not None, "a connected run has a call"
            datamodule.trainer = self._trainer
            run.call = dataclasses.replace(run.call, datamodule=datamodule)


class CheckpointConnector:
    """`trainer._checkpoint_connector`: what a checkpoint would hold, and which one a run would take.

    Args:
        trainer: the trainer.
    """

    def __init__(self, trainer: Trainer) -> None:
        self._trainer = trainer

    def dump_checkpoint(self, weights_only: bool | None = None) -> dict[str, Any]:
        """The contents of a checkpoint of this moment, with tensors that go on changing.

        Args:
            weights_only: leave out optimizers, schedulers and callbacks.
        """
        return _checkpoints.contents_of(self._trainer.run, bool(weights_only))

    def hpc_save_path(self, folderpath: Any) -> str:
        """The path of the next checkpoint that a job of SLURM's would write into a directory.

        Args:
            folderpath: the directory, or its URL.
        """
        return next_checkpoint(self._trainer.checkpoint_io, str(folderpath))

    @property
    def _hpc_resume_path(self) -> str | None:
        """The newest checkpoint of a job of SLURM's in `default_root_dir`; None for none."""
        return newest_checkpoint(self._trainer.checkpoint_io, self._trainer.default_root_dir)

    def _parse_ckpt_path(self, state_fn: str, ckpt_path: Any, model_provided: bool, model_connected: bool) -> Any:
        """The checkpoint that a call would load from.

        Args:
            state_fn: "fit", "validate", "test" or "predict".
            ckpt_path: the call's argument.
            model_provided: whether the call would be given a module.
            model_connected: whether the Trainer has one.
        """
        nothing_to_load = model_provided or not model_connected
        return _checkpoint_choice.choose(self._trainer, TrainerFn(state_fn).value, ckpt_path, nothing_to_load)


class CallbackConnector:
    """`trainer._callback_connector`: the order of callbacks, and what they get.

    Args:
        trainer: the trainer.
    """

    def __init__(self, trainer: Trainer) -> None:
        self.trainer = trainer

    def _attach_model_logging_functions(self) -> None:
        """Make `self.log` of callbacks that were put into `trainer.callbacks` the module's, before their next hook."""
        if hasattr(self.trainer.run, "hooks"):
            self.trainer.run.hooks.look()

    @staticmethod
    def _reorder_callbacks(callbacks: list[Callback]) -> list[Callback]:
        """The callbacks, with those that tune first, and those that save checkpoints last.

        Args:
            callbacks: in any order.
        """
        return ordered(callbacks)


class AcceleratorConnector:
    """`trainer._accelerator_connector`: where a run computes.

    Args:
        trainer: the trainer.
    """

    def __init__(self, trainer: Trainer) -> None:
        self._trainer = trainer

    @property
    def cluster_environment(self) -> object:
        """The environment that was given among the plugins, or SLURM's where the process is one of a job; None for none."""
        return self._trainer.config.environment

    @property
    def strategy(self) -> object:
        """The same as `trainer.strategy`."""
        return self._trainer.strategy

    @property
    def use_distributed_sampler(self) -> bool:
        """The Trainer's argument."""
        return self._trainer.config.use_distributed_sampler

    @property
    def is_distributed(self) -> bool:
        """Whether several processes run."""
        return self._trainer.strategy.num_processes > 1
