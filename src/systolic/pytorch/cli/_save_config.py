"""SaveConfigCallback: keeps the configuration of a run beside its logs."""

from __future__ import annotations

import os

import fsspec
from jsonargparse import Namespace

from ...callbacks import Callback
from ...core import LightningModule
from ...exceptions import MisconfigurationException
from ...trainer import Trainer
from ...utilities._overrides import overrides
from ._parser import LightningArgumentParser


class SaveConfigCallback(Callback):
    """Writes the configuration of a command line into the run's `log_dir` when the run begins.

    Args:
        parser: the parser that read the configuration.
        config: the configuration.
        config_filename: the file's name.
        overwrite: whether a file that is there is written over.
        multifile: a configuration that came in several files is kept in several files.
        save_to_log_dir: whether the file is written; a subclass that overrides `save_config` may do without.

    Raises:
        ValueError: nothing would be saved at all.
        RuntimeError: in `setup`, when the file is there already.
    """

    def __init__(
        self,
        parser: LightningArgumentParser,
        config: Namespace,
        config_filename: str = "config.yaml",
        overwrite: bool = False,
        multifile: bool = False,
        save_to_log_dir: bool = True,
    ) -> None:
        self.parser = parser
        self.config = config
        self.config_filename = config_filename
        self.overwrite = overwrite
        self.multifile = multifile
        self.save_to_log_dir = save_to_log_dir
        self.already_saved = False
        if not save_to_log_dir and not overrides(self, "save_config", SaveConfigCallback):
            raise ValueError(
                "`save_to_log_dir=False` only makes sense in a subclass that overrides `save_config`: this one would save "
                "nothing. Leave it out, or use LightningCLI(save_config_callback=None)."
            )

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Save, once."""
        if self.already_saved:
            return
        if self.save_to_log_dir:
            self._save_to_log_dir(trainer)
        if trainer.is_global_zero:
            self.save_config(trainer, pl_module, stage)
        self.already_saved = True

    def _save_to_log_dir(self, trainer: Trainer) -> None:
        directory = trainer.log_dir
        if directory is None:
            raise MisconfigurationException(
                f"{type(self).__name__} has no directory to save in: the run's logger has none. Save the configuration in "
                "`save_config` of a subclass with save_to_log_dir=False, or use LightningCLI(save_config_callback=None)."
            )
        path = os.path.join(directory, self.config_filename)
        files, place = fsspec.core.url_to_fs(path)
        # asked by the first process for all: it is the one that writes
        if not self.overwrite and trainer.strategy.broadcast(trainer.is_global_zero and files.isfile(place)):
            raise RuntimeError(
                f"{type(self).__name__} expected {path} to NOT exist. Aborting to avoid overwriting the results of an "
                "earlier run. Delete the file, or use LightningCLI(save_config_callback=None) to save no configuration, or "
                'LightningCLI(save_config_kwargs={"overwrite": True}) to write over it.'
            )
        if trainer.is_global_zero:
            files.makedirs(files._parent(place), exist_ok=True)
            self.parser.save(self.config, path, skip_unset=False, overwrite=self.overwrite, multifile=self.multifile)

    def save_config(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Save the configuration somewhere else, too: override this. It is called in the first process only.

        Args:
            trainer: the trainer.
            pl_module: the module.
            stage: "fit", "validate", "test" or "predict".

        Example:
            >>> class LogConfig(SaveConfigCallback):
            ...     def save_config(self, trainer, pl_module, stage):
            ...         trainer.logger.log_hyperparams({"config": self.parser.dump(self.config, skip_unset=False)})
        """
