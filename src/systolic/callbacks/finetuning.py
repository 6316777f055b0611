"""Callbacks that train a part of a module first, and the rest later."""

import warnings
from collections.abc import Callable, Generator, Iterable
from typing import Any

from torch import nn
from torch.optim.optimizer import Optimizer

from ..exceptions import MisconfigurationException
from ..utilities._torch_internals import _BatchNorm
from ..utilities.rank_zero import rank_zero_info
from ._protocol import TrainerLike
from .callback import Callback

Modules = nn.Module | Iterable[Any]
Groups = list[dict[str, Any]]


def multiplicative(epoch: int) -> float:
    """Twice the learning rate in every epoch."""
    return 2.0


class BaseFinetuning(Callback):
    """Freezes parts of a module before training, and gives them to an optimizer later.

    Override `freeze_before_training` and `finetune_function`. Parameters that begin to train are one more program.
    """

    def __init__(self) -> None:
        self._internal_optimizer_metadata: dict[int, Groups] = {}
        self._restarting = False

    def freeze_before_training(self, pl_module: nn.Module) -> None:
        """Freeze what is to be trained later; override it."""
        raise NotImplementedError

    def finetune_function(self, pl_module: nn.Module, epoch: int, optimizer: Optimizer) -> None:
        """Called at the beginning of every epoch for each optimizer; override it."""
        raise NotImplementedError

    @staticmethod
    def flatten_modules(modules: Modules) -> list[nn.Module]:
        """The modules with parameters of their own, and those without children, of any nesting."""
        if isinstance(modules, nn.ModuleDict):
            modules = modules.values()
        if isinstance(modules, Iterable) and not isinstance(modules, nn.Module):
            return [part for module in modules for part in BaseFinetuning.flatten_modules(module)]
        assert isinstance(modules, nn.Module)
        return [part for part in modules.modules() if not list(part.children()) or part._parameters]

    @staticmethod
    def filter_params(
        modules: Modules, train_bn: bool = True, requires_grad: bool = True
    ) -> Generator[nn.Parameter, None, None]:
        """The parameters that require gradients, or those that do not; without those of batch norms unless `train_bn`."""
        for module in BaseFinetuning.flatten_modules(modules):
            if isinstance(module, _BatchNorm) and not train_bn:
                continue
            for parameter in module.parameters(recurse=False):
                if parameter.requires_grad == requires_grad:
                    yield parameter

    @staticmethod
    def make_trainable(modules: Modules) -> None:
        """Let parameters require gradients, and statistics of batch norms move."""
        for module in BaseFinetuning.flatten_modules(modules):
            _set_trainable(module, True)

    @staticmethod
    def freeze_module(module: nn.Module) -> None:
        """Let a module's own parameters require no gradients; of a batch norm, use no statistics."""
        _set_trainable(module, False)

    @staticmethod
    def freeze(modules: Modules, train_bn: bool = True) -> None:
        """Freeze modules; batch norms stay trainable unless `train_bn` is False."""
        for module in BaseFinetuning.flatten_modules(modules):
            _set_trainable(module, isinstance(module, _BatchNorm) and train_bn)

    @staticmethod
    def filter_on_optimizer(optimizer: Optimizer, params: Iterable[nn.Parameter]) -> list[nn.Parameter]:
        """The parameters that an optimizer does not have yet."""
        known = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
        listed = list(params)
        found = [parameter for parameter in listed if id(parameter) not in known]
        if len(found) < len(listed):
            warnings.warn(
                f"The provided params to be frozen already exist in another group: {len(listed) - len(found)} of them are "
                f"parameters of the {type(optimizer).__name__}. Did you init your optimizer in `configure_optimizers` with all "
                "parameters? Give it only those that require gradients at the beginning: "
                "filter(lambda p: p.requires_grad, self.parameters()).",
                stacklevel=3,
            )
        return found

    @staticmethod
    def unfreeze_and_add_param_group(
        modules: Modules,
        optimizer: Optimizer,
        lr: float | None = None,
        initial_denom_lr: float = 10.0,
        train_bn: bool = True,
    ) -> None:
        """Let modules train, in a new parameter group.

        Args:
            modules: what to train.
            optimizer: gets the group.
            lr: the group's learning rate; default: that of the first group, divided by `initial_denom_lr`.
            initial_denom_lr: see `lr`.
            train_bn: whether batch norms are trained.
        """
        BaseFinetuning.make_trainable(modules)
        rate = optimizer.param_groups[0]["lr"] / initial_denom_lr if lr is None else float(lr)
        trained = BaseFinetuning.filter_params(modules, train_bn=train_bn, requires_grad=True)
        if added := BaseFinetuning.filter_on_optimizer(optimizer, trained):
            optimizer.add_param_group({"params": added, "lr": rate})

    def setup(self, trainer: Any, pl_module: nn.Module, stage: str) -> None:
        """Freeze."""
        self.freeze_before_training(pl_module)

    def on_fit_start(self, trainer: Any, pl_module: nn.Module) -> None:
        """After a restart: give the optimizers the groups that they had."""
        if self._restarting:
            named = dict(pl_module.named_parameters())
            for index, optimizer in enumerate(trainer.optimizers):
                for group in self._internal_optimizer_metadata.get(index, [])[len(optimizer.param_groups) :]:
                    optimizer.add_param_group({**group, "params": [named[name] for name in group["params"]]})
            self._restarting = False

    def on_train_epoch_start(self, trainer: Any, pl_module: nn.Module) -> None:
        """Call `finetune_function`, and remember the groups of each optimizer."""
        names = {id(parameter): name for name, parameter in pl_module.named_parameters()}
        for index, optimizer in enumerate(trainer.optimizers):
            self.finetune_function(pl_module, trainer.current_epoch, optimizer)
            self._internal_optimizer_metadata[index] = [
                {**group, "params": [names[id(parameter)] for parameter in group["params"]]} for group in optimizer.param_groups
            ]

    def state_dict(self) -> dict[str, Any]:
        """The groups, with their parameters by name."""
        return {"internal_optimizer_metadata": self._internal_optimizer_metadata}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take up the groups, which the optimizers get before their state."""
        self._restarting = True
        self._internal_optimizer_metadata = state_dict["internal_optimizer_metadata"]


class BackboneFinetuning(BaseFinetuning):
    """Trains the module's `backbone` from some epoch on, with a learning rate that grows up to that of the rest.

    Args:
        unfreeze_backbone_at_epoch: the first epoch, from 0, in which the backbone is trained.
        lambda_func: by what its learning rate is multiplied in an epoch.
        backbone_initial_ratio_lr: its first learning rate, as a part of that of the rest.
        backbone_initial_lr: its first learning rate itself.
        should_align: whether it stops at the learning rate of the rest.
        initial_denom_lr: has no effect, as the learning rate is given.
        train_bn: whether batch norms of the backbone are trained.
        verbose: whether to log the learning rates for information.
        rounding: how many digits of them.
    """

    def __init__(
        self,
        unfreeze_backbone_at_epoch: int = 10,
        lambda_func: Callable[[int], float] = multiplicative,
        backbone_initial_ratio_lr: float = 10e-2,
        backbone_initial_lr: float | None = None,
        should_align: bool = True,
        initial_denom_lr: float = 10.0,
        train_bn: bool = True,
        verbose: bool = False,
        rounding: int = 12,
    ) -> None:
        super().__init__()
        self.unfreeze_backbone_at_epoch = unfreeze_backbone_at_epoch
        self.lambda_func = lambda_func
        self.backbone_initial_ratio_lr = backbone_initial_ratio_lr
        self.backbone_initial_lr = backbone_initial_lr
        self.should_align = should_align
        self.initial_denom_lr = initial_denom_lr
        self.train_bn = train_bn
        self.verbose = verbose
        self.rounding = rounding
        self.previous_backbone_lr: float | None = None

    def on_fit_start(self, trainer: TrainerLike, pl_module: nn.Module) -> None:
        """Require a backbone."""
        if not isinstance(getattr(pl_module, "backbone", None), nn.Module):
            raise MisconfigurationException(
                f"BackboneFinetuning needs an nn.Module in the attribute `backbone` of {type(pl_module).__name__}."
            )
        super().on_fit_start(trainer, pl_module)

    def freeze_before_training(self, pl_module: nn.Module) -> None:
        """Freeze the backbone."""
        self.freeze(_backbone(pl_module))

    def finetune_function(self, pl_module: nn.Module, epoch: int, optimizer: Optimizer) -> None:
        """Begin to train the backbone, or raise its learning rate."""
        if epoch < self.unfreeze_backbone_at_epoch:
            return
        rest = optimizer.param_groups[0]["lr"]
        if epoch == self.unfreeze_backbone_at_epoch:
            given = self.backbone_initial_lr
            rate = rest * self.backbone_initial_ratio_lr if given is None else given
            self.unfreeze_and_add_param_group(
                _backbone(pl_module), optimizer, rate, train_bn=self.train_bn, initial_denom_lr=self.initial_denom_lr
            )
        else:
            assert self.previous_backbone_lr is not None, "the backbone's first epoch comes before"
            rate = self.lambda_func(epoch + 1) * self.previous_backbone_lr
            rate = rest if self.should_align and rate > rest else rate
            optimizer.param_groups[-1]["lr"] = rate
        self.previous_backbone_lr = rate
        if self.verbose:
            rank_zero_info(f"Current lr: {round(rest, self.rounding)}, Backbone lr: {round(rate, self.rounding)}")

    def state_dict(self) -> dict[str, Any]:
        """The groups, and the backbone's learning rate."""
        return {**super().state_dict(), "previous_backbone_lr": self.previous_backbone_lr}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take up both."""
        self.previous_backbone_lr = state_dict["previous_backbone_lr"]
        super().load_state_dict(state_dict)


def _backbone(module: nn.Module) -> nn.Module:
    backbone = module.backbone
    assert isinstance(backbone, nn.Module)
    return backbone


def _set_trainable(module: nn.Module, trainable: bool) -> None:
    if isinstance(module, _BatchNorm):
        module.track_running_stats = trainable
    for parameter in module.parameters(recurse=False):
        parameter.requires_grad = trainable
