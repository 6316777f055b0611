"""LightningModule: the model, its steps and its optimizers."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Self, TypeVar

import torch
from torch import nn
from torch.optim import Optimizer

from ..checkpoint._location import MapLocation, PathLike
from ..exceptions import MisconfigurationException
from ..metrics import LogOptions, reduction_name
from ..optim import LightningOptimizer
from ..utilities._containers import map_leaves
from . import _loading
from ._export import Exported, is_exporting
from ._hooks import DataHooks, HostHooks, ModeHooks, TracedHooks
from ._hparams import HyperparametersMixin
from ._numbers import as_tensor

T = TypeVar("T")


class LightningModule(HyperparametersMixin, HostHooks, TracedHooks, DataHooks, _loading.Checkpointed, Exported, ModeHooks):
    """A torch module with its training step, evaluation steps and optimizers.

    Example:
        >>> import torch, systolic as L
        >>> class Classifier(L.LightningModule):
        ...     def __init__(self):
        ...         super().__init__()
        ...         self.layer = torch.nn.Linear(64, 10)
        ...     def training_step(self, batch, batch_idx):
        ...         x, y = batch
        ...         loss = torch.nn.functional.cross_entropy(self.layer(x), y)
        ...         self.log("train_loss", loss)
        ...         return loss
        ...     def configure_optimizers(self):
        ...         return torch.optim.Adam(self.parameters())
    """

    __jit_unused_properties__ = (
        "_device", "_dtype", "automatic_optimization", "current_epoch", "device", "device_mesh", "dtype",
        "example_input_array", "fabric", "global_rank", "global_step", "hparams", "hparams_initial", "local_rank", "logger",
        "loggers", "on_gpu", "strict_loading", "trainer",
    )  # fmt: skip
    CHECKPOINT_HYPER_PARAMS_KEY = "hyper_parameters"
    CHECKPOINT_HYPER_PARAMS_NAME = "hparams_name"
    CHECKPOINT_HYPER_PARAMS_TYPE = "hparams_type"

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._automatic_optimization = True
        self._trainer: Any = None
        self._example_input_array: Any = None
        self._strict_loading: bool | None = None

    def training_step(self, *args: Any, **kwargs: Any) -> Any:
        """Compute the loss of a batch; override it. Returns a scalar, a dict with "loss", or None to skip the step."""
        raise MisconfigurationException("`training_step` is not implemented.")

    def validation_step(self, *args: Any, **kwargs: Any) -> Any:
        """Evaluate a batch of validation data; override it."""
        raise MisconfigurationException("`validation_step` is not implemented.")

    def test_step(self, *args: Any, **kwargs: Any) -> Any:
        """Evaluate a batch of test data; override it."""
        raise MisconfigurationException("`test_step` is not implemented.")

    def predict_step(self, *args: Any, **kwargs: Any) -> Any:
        """Predict for a batch; by default `self(batch)`."""
        return self(args[0])

    def configure_optimizers(self) -> Any:
        """Return optimizers and schedulers, in any of Lightning's forms."""
        return None

    def configure_gradient_clipping(
        self,
        optimizer: torch.optim.Optimizer,
        gradient_clip_val: float | None = None,
        gradient_clip_algorithm: str | None = None,
    ) -> None:
        """Clip the gradients; override to do it in another way (and call `clip_gradients`)."""
        self.clip_gradients(optimizer, gradient_clip_val, gradient_clip_algorithm)

    def clip_gradients(
        self,
        optimizer: torch.optim.Optimizer,
        gradient_clip_val: float | None = None,
        gradient_clip_algorithm: str | None = None,
    ) -> None:
        """Clip the gradients of an optimizer's parameters by norm ("norm") or by value; default: as the Trainer says."""
        gradient_clip_val = self._agreed("gradient_clip_val", gradient_clip_val)
        gradient_clip_algorithm = self._agreed("gradient_clip_algorithm", gradient_clip_algorithm)
        if not gradient_clip_val:
            return
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        if gradient_clip_algorithm == "value":
            nn.utils.clip_grad_value_(parameters, gradient_clip_val, foreach=False)
        else:
            nn.utils.clip_grad_norm_(parameters, gradient_clip_val, foreach=False)

    def _agreed(self, name: str, given: T | None) -> T | None:
        """An argument of `clip_gradients`: the one that is given, or the Trainer's; refused where these differ."""
        of_trainer: T | None = getattr(self.trainer, name)
        if given is not None and of_trainer is not None and given != of_trainer:
            raise MisconfigurationException(
                f"You set `Trainer({name}={of_trainer!r})` and have passed `clip_gradients({name}={given!r})`, which "
                "contradict. Leave one of them out."
            )
        return of_trainer if given is None else given

    def lr_scheduler_step(self, scheduler: Any, metric: Any) -> None:
        """Advance a learning-rate scheduler; runs on the host."""
        if metric is None:
            scheduler.step()
        else:
            scheduler.step(metric)

    @property
    def trainer(self) -> Any:
        """The Trainer that runs this module.

        Raises:
            RuntimeError: no Trainer has run it.
        """
        if self._trainer is None and not is_exporting():
            raise RuntimeError(f"{type(self).__qualname__} is not attached to a `Trainer`.")
        return self._trainer

    @trainer.setter
    def trainer(self, trainer: Any) -> None:
        for child in self.children():
            if isinstance(child, LightningModule):
                child.trainer = trainer
        self._trainer = trainer

    def __getstate__(self) -> dict[str, Any]:
        """State that is copied and pickled: everything but the Trainer."""
        return {**vars(self), "_trainer": None}

    @property
    def automatic_optimization(self) -> bool:
        """Whether the Trainer calls backward and the optimizers; False is said in the class body or in `__init__`."""
        return self._automatic_optimization

    @automatic_optimization.setter
    def automatic_optimization(self, automatic: bool) -> None:
        self._automatic_optimization = automatic

    @property
    def current_epoch(self) -> int:
        """The epoch, from 0. Inside a step a number that stays variable in the compiled program."""
        return self._trainer.current_epoch if self._trainer is not None else 0

    @property
    def global_step(self) -> int:
        """How many optimizer steps were made."""
        return self._trainer.global_step if self._trainer is not None else 0

    @property
    def global_rank(self) -> int:
        """0: one controller process drives all local cores."""
        return self._trainer.global_rank if self._trainer is not None else 0

    @property
    def local_rank(self) -> int:
        """0: one controller process drives all local cores."""
        return self._trainer.local_rank if self._trainer is not None else 0

    @property
    def logger(self) -> Any:
        """The first logger, or None."""
        return self._trainer.logger if self._trainer is not None else None

    @property
    def loggers(self) -> list[Any]:
        """All loggers."""
        return list(self._trainer.loggers) if self._trainer is not None else []

    @property
    def device(self) -> torch.device:
        """The device on which PyTorch code sees the parameters: always "cpu"; XLA decides where they really are."""
        return torch.device("cpu")

    @property
    def on_gpu(self) -> bool:
        """Whether PyTorch code sees the parameters on a GPU: never."""
        return False

    @property
    def device_mesh(self) -> None:
        """None: there is no strategy that splits the module."""
        return None

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the first floating-point parameter."""
        return next((p.dtype for p in self.parameters() if p.is_floating_point()), torch.get_default_dtype())

    @property
    def _device(self) -> Any:
        """The name by which models that were written for Lightning read the device, and set it."""
        return vars(self).get("_own_device", self.device)

    @_device.setter
    def _device(self, device: object) -> None:
        self._own_device = device

    @property
    def _dtype(self) -> Any:
        """The name by which models that were written for Lightning read the dtype, and set it."""
        return vars(self).get("_own_dtype", self.dtype)

    @_dtype.setter
    def _dtype(self, dtype: object) -> None:
        self._own_dtype = dtype

    @property
    def fabric(self) -> None:
        """There is no Fabric here."""
        return None

    def log(
        self,
        name: str,
        value: object,
        prog_bar: bool = False,
        logger: bool | None = None,
        on_step: bool | None = None,
        on_epoch: bool | None = None,
        reduce_fx: str | Callable[..., Any] = "mean",
        enable_graph: bool = False,
        sync_dist: bool = False,
        sync_dist_group: object = None,
        add_dataloader_idx: bool = True,
        batch_size: int | None = None,
        metric_attribute: str | None = None,
        rank_zero_only: bool = False,
    ) -> None:
        """Log a number, a scalar tensor or a torchmetrics metric. Inside a step this costs no device sync.

        Args:
            name: the key; must be unique in a hook.
            value: the value; a batch is the global batch, so its mean needs no reduction over devices.
            prog_bar: show it in the progress bar.
            logger: send it to the loggers; default True.
            on_step: report the value of every step; default True in training_step, False in evaluation.
            on_epoch: report the value reduced over the epoch; default the other way round.
            reduce_fx: "mean", "sum", "min", "max" or the torch function of that name.
            enable_graph: has no effect: the logged value never keeps a gradient history.
            sync_dist: has no effect: one program computes the global value.
            sync_dist_group: has no effect.
            add_dataloader_idx: append "/dataloader_idx_N" when there are several evaluation loaders.
            batch_size: the weight of this batch in the epoch's mean; default the size of its first tensor.
            metric_attribute: where in the module a metric is, for one that is no attribute of it.
            rank_zero_only: has no effect in one process.

        Raises:
            MisconfigurationException: outside of a hook that may log, an unknown `reduce_fx`, or a metric that is no attribute
                of the module.
            ValueError: a value that is not one number.
            TypeError: a `batch_size` that is no number.
        """
        del enable_graph, sync_dist, sync_dist_group, rank_zero_only
        if self._trainer is None:
            warnings.warn(
                f"self.log({name!r}, ...) does nothing without a Trainer: the module has not been given to one.", stacklevel=2
            )
            return
        if self._trainer.barebones:
            warnings.warn(f"self.log({name!r}, ...) does nothing: `Trainer(barebones=True)` is configured.", stacklevel=2)
            return
        if logger and not self._trainer.loggers:
            warnings.warn(
                f"You called `self.log({name!r}, ..., logger=True)` but have no logger: the value is for callbacks and the "
                "progress bar only. Trainer(logger=...) adds one.",
                stacklevel=2,
            )
        if isinstance(batch_size, str | list | tuple | dict):
            raise TypeError(
                f"self.log({name!r}, ..., batch_size={batch_size!r}): expected the number of samples in the batch, an integer."
            )
        options = LogOptions(
            prog_bar=prog_bar,
            logger=True if logger is None else logger,
            on_step=on_step,
            on_epoch=on_epoch,
            reduction=reduction_name(reduce_fx),
            add_dataloader_idx=add_dataloader_idx,
            batch_size=batch_size,
            metric_attribute=metric_attribute,
        )
        self._trainer.run.log(name, value, options)

    def log_dict(self, dictionary: Mapping[str, Any], **kwargs: Any) -> None:
        """Log several values; keyword arguments as for `log`."""
        # a MetricCollection is none, and has what is needed
        if not isinstance(dictionary, Mapping | nn.ModuleDict):
            raise TypeError(
                f"self.log_dict(...) expects a dict of values by name. Received: {dictionary!r} of type "
                f"{type(dictionary).__name__}. Log one value with self.log(name, value)."
            )
        for name, value in dictionary.items():
            self.log(name, value, **kwargs)

    def optimizers(self, use_pl_optimizer: bool = True) -> Any:
        """The optimizer, or the list of them, for manual optimization."""
        run = self.trainer.run
        found = run.wrapped_optimizers() if use_pl_optimizer else list(run.optimizers)
        return found[0] if len(found) == 1 else found

    def lr_schedulers(self) -> Any:
        """The scheduler, the list of them, or None."""
        found = [config.scheduler for config in self.trainer.lr_scheduler_configs]
        return None if not found else found[0] if len(found) == 1 else found

    def manual_backward(self, loss: torch.Tensor, *args: Any, **kwargs: Any) -> None:
        """Call backward in manual optimization.

        Raises:
            MisconfigurationException: in automatic optimization, which calls backward itself.
        """
        if self.automatic_optimization:
            raise MisconfigurationException(
                f"self.manual_backward(...) belongs to manual optimization, and {type(self).__name__} uses automatic "
                "optimization, which calls backward itself. Return the loss, or set `self.automatic_optimization = False` in "
                "__init__ and step the optimizers of `self.optimizers()`."
            )
        loss.backward(*args, **kwargs)

    @contextlib.contextmanager
    def toggled_optimizer(self, optimizer: Optimizer | LightningOptimizer) -> Iterator[None]:
        """Inside, only this optimizer's parameters require gradients."""
        self.toggle_optimizer(optimizer)
        try:
            yield
        finally:
            self.untoggle_optimizer(optimizer)

    def toggle_optimizer(self, optimizer: Optimizer | LightningOptimizer) -> None:
        """Let only this optimizer's parameters require gradients until `untoggle_optimizer`."""
        own = {id(p) for group in optimizer.param_groups for p in group["params"]}
        state = {}
        for other in self.trainer.optimizers:
            for group in other.param_groups:
                for parameter in group["params"]:
                    state.setdefault(parameter, parameter.requires_grad)  # one that several optimizers share is met again
                    if id(parameter) not in own:
                        parameter.requires_grad_(False)
        self.trainer.run.module_state.toggled = state

    def untoggle_optimizer(self, optimizer: Optimizer | LightningOptimizer) -> None:
        """Undo `toggle_optimizer`."""
        for parameter, requires_grad in self.trainer.run.module_state.toggled.items():
            parameter.requires_grad_(requires_grad)
        self.trainer.run.module_state.toggled = {}

    def freeze(self) -> Self:
        """Let no parameter require gradients, and switch to eval mode; returns the module."""
        for parameter in self.parameters():
            parameter.requires_grad_(False)
        return self.eval()

    def unfreeze(self) -> Self:
        """Let all parameters require gradients, and switch to train mode; returns the module."""
        for parameter in self.parameters():
            parameter.requires_grad_(True)
        return self.train()

    def print(self, *args: Any, **kwargs: Any) -> None:
        """Print once, above the progress bar."""
        self.trainer.run.print(*args, **kwargs)

    def all_gather(self, data: object, group: object = None, sync_grads: bool = False) -> Any:
        """Tensors of the samples of all cores, with a first axis over processes, of which there is one.

        A step sees the global batch already, so nothing is communicated; docs/collectives.md tells more.

        Args:
            data: a tensor [batch, ...], a number or an array, or any nesting of dicts, lists, tuples and dataclasses of them.
            group: None; there are no groups of processes.
            sync_grads: let gradients through. As in Lightning this matters with several devices only.

        Returns:
            The same structure with tensors [1, batch, ...], or [batch, ...] with one device.

        Example:
            >>> import systolic as L
            >>> class Contrastive(L.LightningModule):
            ...     def training_step(self, batch, batch_idx):
            ...         z = self.encoder(batch)
            ...         keys = self.all_gather(z, sync_grads=True).flatten(0, -2)
        """
        return self.trainer.strategy.all_gather(map_leaves(as_tensor, data), group=group, sync_grads=sync_grads)

    @property
    def strict_loading(self) -> bool:
        """Whether the weights of a checkpoint must fit the module's exactly."""
        return True if self._strict_loading is None else self._strict_loading

    @strict_loading.setter
    def strict_loading(self, strict: bool) -> None:
        self._strict_loading = strict

    @property
    def example_input_array(self) -> Any:
        """An example input, used by summaries and graph loggers."""
        return self._example_input_array

    @example_input_array.setter
    def example_input_array(self, example: object) -> None:
        self._example_input_array = example

    @classmethod
    def load_from_checkpoint(
        cls,
        checkpoint_path: PathLike,
        map_location: MapLocation = None,
        hparams_file: PathLike | None = None,
        strict: bool | None = None,
        weights_only: bool | None = None,
        **kwargs: Any,
    ) -> Self:
        """Build a module from a checkpoint: with its saved hyperparameters, overridden by `kwargs`; then load its weights.

        Args:
            checkpoint_path: the file or URL.
            map_location: where tensors go, as in `torch.load`; default: the CPU.
            hparams_file: a .yaml or .csv file whose values replace the saved hyperparameters.
            strict: whether the weights must fit the module's exactly; default: as `strict_loading` says.
            weights_only: False also reads objects that are no plain values, for files that you trust.
            **kwargs: arguments of `__init__` that come before the saved ones.

        Raises:
            ValueError: `strict` contradicts the `strict_loading` that the module sets.
        """
        checkpoint = _loading.read(checkpoint_path, map_location, weights_only)
        module = _loading.build(cls, checkpoint, hparams_file, kwargs)
        module.configure_model()
        module.on_load_checkpoint(checkpoint)
        if strict is not None and module._strict_loading not in (None, strict):
            raise ValueError(
                f"load_from_checkpoint(strict={strict}) is in conflict with {cls.__name__}.strict_loading = "
                f"{module.strict_loading}, which the module sets. Leave one of them out."
            )
        if not checkpoint["state_dict"]:
            warnings.warn(f"The state dict in {str(checkpoint_path)!r} contains no parameters.", stacklevel=2)
        fitting = module.load_state_dict(checkpoint["state_dict"], strict=module.strict_loading if strict is None else strict)
        for keys, lack in ((fitting.missing_keys, "the checkpoint lacks"), (fitting.unexpected_keys, "the module lacks")):
            if keys:
                warnings.warn(f"load_from_checkpoint({str(checkpoint_path)!r}): {lack} {keys}.", stacklevel=2)
        return module
