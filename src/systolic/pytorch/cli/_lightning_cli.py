"""LightningCLI: builds a Trainer, a module and its data from arguments and configuration files, and runs them."""

from __future__ import annotations

import importlib
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from jsonargparse import Namespace
from jsonargparse.typing import class_from_function
from torch.optim import Optimizer

from ... import __version__
from ...callbacks import Callback
from ...checkpoint import load
from ...core import CLASS_PATH_KEY, INSTANTIATOR_KEY, LightningDataModule, LightningModule
from ...trainer import Trainer
from ...utilities.seed import seed_everything
from . import _optimizers
from ._help import short_description
from ._instantiation import KeepingHyperparameters, instantiate_class, returned_type
from ._parser import LightningArgumentParser
from ._save_config import SaveConfigCallback
from ._types import ArgsType, LRSchedulerTypeTuple, LRSchedulerTypeUnion


class LightningCLI:
    """A command line for a module: `python main.py fit --config config.yaml --model.lr 0.1 --trainer.max_epochs 3`.

    Making one parses the arguments, builds the data module, the module and the Trainer, and runs the subcommand. Methods
    `before_fit`, `fit` and `after_fit` of a subclass (and those of other subcommands) run where their names say; `fit` in the
    place of the Trainer's.

    Args:
        model_class: the module's class, or a function annotated to return one; None takes `--model=NAME` of any class.
        datamodule_class: the same for the data module; None takes `--data=NAME`, or none.
        save_config_callback: the callback that saves the configuration; None saves nothing.
        save_config_kwargs: further arguments of that callback.
        trainer_class: a subclass of Trainer, or a function annotated to return one.
        trainer_defaults: defaults of the Trainer's arguments; callbacks among them are always there.
        seed_everything_default: the seed; True takes one from the environment, or 0, and False seeds nothing.
        parser_kwargs: arguments of the parsers; those of one subcommand under its name.
        parser_class: the parser's class.
        subclass_mode_model: take the name of any subclass of `model_class`.
        subclass_mode_data: take the name of any subclass of `datamodule_class`.
        args: words or values in the place of `sys.argv`.
        run: whether there are subcommands, and the one that is given runs; False only builds.
        auto_configure_optimizers: take `--optimizer` and `--lr_scheduler`, and make `configure_optimizers` of them.
        load_from_checkpoint_support: let `save_hyperparameters` keep the configuration, from which `load_from_checkpoint`
            builds arguments that are objects, too.

    Attributes:
        config: what was parsed.
        config_init: the same with the objects that were built.
        trainer: the Trainer.
        model: the module.
        datamodule: the data module, or None.
        subcommand: the subcommand that runs, or None.
        parser: the parser.

    Raises:
        SystemExit: `--help` or `--print_config` was given, or an argument is wrong; the message says which.

    Example:
        >>> from systolic.pytorch.cli import LightningCLI
        >>> cli = LightningCLI(MyModule, run=False, args=["--model.width", "3"])
        >>> cli.model.net
        Linear(in_features=4, out_features=3, bias=True)
    """

    def __init__(
        self,
        model_class: type[LightningModule] | Callable[..., LightningModule] | None = None,
        datamodule_class: type[LightningDataModule] | Callable[..., LightningDataModule] | None = None,
        save_config_callback: type[SaveConfigCallback] | None = SaveConfigCallback,
        save_config_kwargs: dict[str, Any] | None = None,
        trainer_class: type[Trainer] | Callable[..., Trainer] = Trainer,
        trainer_defaults: dict[str, Any] | None = None,
        seed_everything_default: bool | int = True,
        parser_kwargs: dict[str, Any] | None = None,
        parser_class: type[LightningArgumentParser] = LightningArgumentParser,
        subclass_mode_model: bool = False,
        subclass_mode_data: bool = False,
        args: ArgsType = None,
        run: bool = True,
        auto_configure_optimizers: bool = True,
        load_from_checkpoint_support: bool = True,
    ) -> None:
        self.save_config_callback = save_config_callback
        self.save_config_kwargs = save_config_kwargs or {}
        self.trainer_class = trainer_class
        self.trainer_defaults = trainer_defaults or {}
        self.seed_everything_default = seed_everything_default
        self.parser_kwargs = parser_kwargs or {}
        self.parser_class = parser_class
        self.auto_configure_optimizers = auto_configure_optimizers
        self.model_class = model_class
        self.subclass_mode_model = model_class is None or subclass_mode_model
        self.datamodule_class = datamodule_class
        self.subclass_mode_data = datamodule_class is None or subclass_mode_data
        self._plain: dict[str, Any] | None = None

        names = self.subcommands()
        of_all = {key: value for key, value in self.parser_kwargs.items() if key not in names}
        of_one = {key: value for key, value in self.parser_kwargs.items() if key in names}
        self.setup_parser(run, of_all, of_one)
        self.parse_arguments(self.parser, args)
        self._take_hyperparameters_of_checkpoint()
        self.subcommand: str | None = self.config["subcommand"] if run else None
        self._seed()
        self._instantiators = self._keeping_hyperparameters() if load_from_checkpoint_support else []
        self.before_instantiate_classes()
        self.instantiate_classes()
        self.after_instantiate_classes()
        if self.subcommand is not None:
            self._run_subcommand(self.subcommand)

    # ---- parsers

    def init_parser(self, **kwargs: Any) -> LightningArgumentParser:
        """Make a parser; it reads configuration files.

        Args:
            **kwargs: arguments of the parser's class.
        """
        kwargs.setdefault("dump_header", [f"systolic=={__version__}"])
        parser = self.parser_class(**kwargs)
        parser.add_argument("-c", "--config", action="config", help="A configuration file: YAML or JSON.")
        return parser

    def setup_parser(self, add_subcommands: bool, main_kwargs: dict[str, Any], subparser_kwargs: dict[str, Any]) -> None:
        """Make the parser, with all its arguments.

        Args:
            add_subcommands: whether the arguments belong to subcommands.
            main_kwargs: arguments of the parser's class.
            subparser_kwargs: the same for the parsers of subcommands, by name.
        """
        self.parser = self.init_parser(**main_kwargs)
        self._subcommand_parsers: dict[str, LightningArgumentParser] = {}
        self._subcommand_method_arguments: dict[str, list[str]] = {}
        if not add_subcommands:
            self._add_arguments(self.parser)
            return
        subparsers = self.parser.add_subcommands()
        trainer = self.trainer_class if isinstance(self.trainer_class, type) else class_from_function(self.trainer_class)
        for name, taken_care_of in self.subcommands().items():
            description = short_description(getattr(trainer, name))
            parser = self.init_parser(**{"description": description, **subparser_kwargs.get(name, {})})
            self._add_arguments(parser)
            self._subcommand_method_arguments[name] = parser.add_method_arguments(trainer, name, skip=set(taken_care_of))
            self._subcommand_parsers[name] = parser
            subparsers.add_subcommand(name, parser, help=description)

    @staticmethod
    def subcommands() -> dict[str, set[str]]:
        """The subcommands, which are methods of the Trainer, and those of their arguments that the command line sets itself."""
        evaluation = {"model", "dataloaders", "datamodule"}
        return {
            "fit": {"model", "train_dataloaders", "val_dataloaders", "datamodule"},
            "validate": evaluation,
            "test": set(evaluation),
            "predict": set(evaluation),
        }

    def add_default_arguments_to_parser(self, parser: LightningArgumentParser) -> None:
        """Add the arguments that do not belong to a class.

        Args:
            parser: the parser.
        """
        parser.add_argument(
            "--seed_everything",
            type=bool | int,
            default=self.seed_everything_default,
            help="A number to seed with before anything is built; True: a number from the environment, or 0.",
        )

    def add_core_arguments_to_parser(self, parser: LightningArgumentParser) -> None:
        """Add the arguments of the Trainer, the module and the data module.

        Args:
            parser: the parser.
        """
        parser.add_lightning_class_args(self.trainer_class, "trainer")
        parser.set_defaults({f"trainer.{key}": value for key, value in self.trainer_defaults.items() if key != "callbacks"})
        parser.add_lightning_class_args(self._model_base, "model", subclass_mode=self.subclass_mode_model)
        # a module may have loaders of its own, so a data module need not be given
        required = self.datamodule_class is not None
        parser.add_lightning_class_args(self._data_base, "data", subclass_mode=self.subclass_mode_data, required=required)

    def add_arguments_to_parser(self, parser: LightningArgumentParser) -> None:
        """Add arguments of your own, or link arguments: override this.

        Args:
            parser: the parser.

        Example:
            >>> class MyCLI(LightningCLI):
            ...     def add_arguments_to_parser(self, parser):
            ...         parser.add_lightning_class_args(EarlyStopping, "early_stopping")
            ...         parser.link_arguments("data.batch_size", "model.batch_size")
        """

    def _add_arguments(self, parser: LightningArgumentParser) -> None:
        self.add_default_arguments_to_parser(parser)
        self.add_core_arguments_to_parser(parser)
        self.add_arguments_to_parser(parser)
        if self.auto_configure_optimizers:
            if not parser.optimizer_groups:
                parser.add_optimizer_args((Optimizer,))
            if not parser.lr_scheduler_groups:
                parser.add_lr_scheduler_args(LRSchedulerTypeTuple)
        self.link_optimizers_and_lr_schedulers(parser)

    @staticmethod
    def link_optimizers_and_lr_schedulers(parser: LightningArgumentParser) -> None:
        """Link optimizers and schedulers to the arguments that their `link_to` names.

        Args:
            parser: the parser.
        """
        _optimizers.link(parser)

    @property
    def _model_base(self) -> type[LightningModule] | Callable[..., LightningModule]:
        return self.model_class or LightningModule

    @property
    def _data_base(self) -> type[LightningDataModule] | Callable[..., LightningDataModule]:
        return self.datamodule_class or LightningDataModule

    def _parser(self, subcommand: str | None) -> LightningArgumentParser:
        return self.parser if subcommand is None else self._subcommand_parsers[subcommand]

    # ---- what was given

    def parse_arguments(self, parser: LightningArgumentParser, args: ArgsType) -> None:
        """Parse into `config`.

        Args:
            parser: the parser.
            args: words or values; None for `sys.argv`.
        """
        if args is not None and len(sys.argv) > 1:
            warnings.warn(
                "LightningCLI's args parameter stands for the command line, and there is a command line, too, which is "
                f"not read: sys.argv[1:]={sys.argv[1:]}, args={args}.",
                stacklevel=3,
            )
        self.config = parser.parse_object(args) if isinstance(args, dict | Namespace) else parser.parse_args(args)

    def _take_hyperparameters_of_checkpoint(self) -> None:
        """Build the module with the hyperparameters of the checkpoint that `--ckpt_path` names."""
        subcommand = self.config.get("subcommand")
        path = self.config[subcommand].get("ckpt_path") if subcommand else None
        if not path or not Path(path).is_file():
            return
        saved: dict[str, Any] = dict(load(path, map_location="cpu").get(LightningModule.CHECKPOINT_HYPER_PARAMS_KEY, {}))
        saved.pop(INSTANTIATOR_KEY, None)
        if not saved:
            return
        if CLASS_PATH_KEY in saved:
            saved = {"class_path": saved.pop(CLASS_PATH_KEY), "dict_kwargs": saved}
        try:
            self.config = self.parser.parse_object({subcommand: {"model": saved}}, self.config)
        except SystemExit:
            sys.stderr.write(
                f"Parsing of ckpt_path hyperparameters failed! Those in {path} do not fit the arguments of the module, as the "
                "message above says.\n"
            )
            raise

    def plain_config(self) -> dict[str, Any]:
        """The configuration as plain data, that of the subcommand where there is one."""
        if self._plain is not None:
            return self._plain
        text = self.parser.dump(self.config, skip_link_targets=False, skip_unset=False, format="yaml")
        # PyYAML, which jsonargparse depends on; it has no types
        loaded: dict[str, Any] = importlib.import_module("yaml").safe_load(text)
        self._plain = found = loaded[self.subcommand] if self.subcommand else loaded
        return found

    def _get(self, config: Namespace, key: str, default: Any = None) -> Any:
        """A value of a configuration, which may belong to the subcommand."""
        return config.get(str(self.subcommand), config).get(key, default)

    def _seed(self) -> None:
        given: bool | int = self._get(self.config, "seed_everything")
        if given is False:
            return
        seed = seed_everything(None if given is True else given, workers=True)
        # saved with the configuration: a run from that file has the same seed
        (self.config[self.subcommand] if self.subcommand else self.config)["seed_everything"] = seed

    # ---- objects

    def _keeping_hyperparameters(self) -> list[tuple[KeepingHyperparameters, type, bool]]:
        """Builders of the module and the data module: each with its class, and whether it builds subclasses, too."""
        return [
            (KeepingHyperparameters(self, "model"), returned_type(self._model_base), self.subclass_mode_model),
            (KeepingHyperparameters(self, "data"), returned_type(self._data_base), self.subclass_mode_data),
        ]

    def before_instantiate_classes(self) -> None:
        """Run before anything is built: override this."""

    def instantiate_classes(self) -> None:
        """Build the data module, the module and the Trainer."""
        self.config_init = self.parser.instantiate(self.config, instantiators=self._instantiators)
        self.datamodule: LightningDataModule | None = self._get(self.config_init, "data")
        self.model: LightningModule = self._get(self.config_init, "model")
        self._add_configure_optimizers_method_to_model(self.subcommand)
        self.trainer = self.instantiate_trainer()

    def after_instantiate_classes(self) -> None:
        """Run when everything is built: override this."""

    def instantiate_trainer(self, **kwargs: Any) -> Trainer:
        """Build a Trainer.

        Args:
            **kwargs: arguments that come before those of the command line.

        Returns:
            The Trainer.
        """
        callbacks = [self._get(self.config_init, key) for key in self._parser(self.subcommand).callback_keys]
        return self._instantiate_trainer({**self._get(self.config_init, "trainer", {}), **kwargs}, callbacks)

    def _instantiate_trainer(self, config: dict[str, Any], callbacks: list[Callback]) -> Trainer:
        if "callbacks" in config:
            always = [_built(callback) for callback in _listed(self.trainer_defaults.get("callbacks"))]
            given = [*_listed(config["callbacks"]), *callbacks, *always]
            if self.save_config_callback and not config.get("fast_dev_run", False):
                parsed = self.config.get(str(self.subcommand), self.config)
                parser = self._parser(self.subcommand)
                given.append(self.save_config_callback(parser, parsed, **self.save_config_kwargs))
            config["callbacks"] = given
        else:
            warnings.warn(
                f"The `{self.trainer_class.__qualname__}` class does not expose the `callbacks` argument so they will not "
                "be included.",
                stacklevel=2,
            )
        return self.trainer_class(**config)

    @staticmethod
    def configure_optimizers(
        lightning_module: LightningModule, optimizer: Optimizer, lr_scheduler: LRSchedulerTypeUnion | None = None
    ) -> Any:
        """Make the value of the module's `configure_optimizers`; override this for another one.

        Args:
            lightning_module: the module.
            optimizer: the optimizer of the command line.
            lr_scheduler: its scheduler, or None.
        """
        return _optimizers.returned_value(optimizer, lr_scheduler)

    def _add_configure_optimizers_method_to_model(self, subcommand: str | None) -> None:
        if self.auto_configure_optimizers:
            config = self.config_init.get(str(self.subcommand), self.config_init)
            parser = self._parser(subcommand)
            _optimizers.configure_automatically(type(self), parser, config, self.model, self.configure_optimizers)

    # ---- running

    def _run_subcommand(self, subcommand: str) -> None:
        """Run the methods that are named after a subcommand, or the Trainer's where a subclass has none of its own."""
        self._run_if_there(f"before_{subcommand}")
        run = getattr(self, subcommand, None) or getattr(self.trainer, subcommand)
        run(**self._prepare_subcommand_kwargs(subcommand))
        self._run_if_there(f"after_{subcommand}")

    def _run_if_there(self, name: str) -> None:
        function = getattr(self, name, None)
        if callable(function):
            function()

    def _prepare_subcommand_kwargs(self, subcommand: str) -> dict[str, Any]:
        """The arguments of the method that runs."""
        names = self._subcommand_method_arguments[subcommand]
        arguments = {name: value for name, value in self.config_init[subcommand].items() if name in names}
        data = {} if self.datamodule is None else {"datamodule": self.datamodule}
        return {**arguments, "model": self.model, **data}


def _listed(given: Any) -> list[Any]:
    if given is None:
        return []
    return list(given) if isinstance(given, list | tuple) else [given]


def _built(callback: Callback | dict[str, Any]) -> Callback:
    """A callback, which may be given as its class path and arguments."""
    return instantiate_class((), callback) if isinstance(callback, dict) else callback
