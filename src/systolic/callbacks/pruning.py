"""ModelPruning: sets parameters to zero while training, by PyTorch's pruning."""

from __future__ import annotations

import copy
import functools
import inspect
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeGuard, cast

import torch
from torch import Tensor, nn
from torch.nn.utils import prune

from ..core import LightningModule
from ..distributed import is_main_process
from ..exceptions import MisconfigurationException
from ..utilities._suggest import suggest
from ._protocol import TrainerLike
from .callback import Callback

_log = logging.getLogger("systolic")

_FUNCTIONS: dict[str, Callable[..., nn.Module]] = {
    "ln_structured": prune.ln_structured,
    "l1_unstructured": prune.l1_unstructured,
    "random_structured": prune.random_structured,
    "random_unstructured": prune.random_unstructured,
}
_METHODS: dict[str, type[prune.BasePruningMethod]] = {
    "ln_structured": prune.LnStructured,
    "l1_unstructured": prune.L1Unstructured,
    "random_structured": prune.RandomStructured,
    "random_unstructured": prune.RandomUnstructured,
}
_CONTAINERS = (LightningModule, nn.Sequential, nn.ModuleList, nn.ModuleDict)

Parameters = Sequence[tuple[nn.Module, str]]
"""Modules, each with the name of one of its parameters."""

Amount = int | float
PruningFunction = Callable[..., nn.Module] | type[prune.BasePruningMethod]


@dataclass
class _Layer:
    """A module as it was before training.

    Attributes:
        original: a copy.
        pruned: places of its parameters among those to prune, and their names.
    """

    original: nn.Module
    pruned: list[tuple[int, str]] = field(default_factory=list)


class ModelPruning(Callback):
    """Prunes parameters at the end of epochs: a mask, a buffer beside each, multiplies it in every step.

    The module gets new buffers when it is pruned first, so its step is traced and compiled once more then. Later prunings
    change the hooks that apply masks: the step is traced again, and the same program runs. The host decides what is pruned,
    by PyTorch.

    Args:
        pruning_fn: a function's name in `torch.nn.utils.prune`: "l1_unstructured", "random_unstructured", "ln_structured" or
            "random_structured"; or a subclass of its `BasePruningMethod`.
        parameters_to_prune: modules, each with a parameter's name; default: all weights and biases.
        parameter_names: "weight", "bias" or both: those of all modules that are pruned by default.
        use_global_unstructured: choose among all parameters together; else in each by itself.
        amount: the part to prune of what is left, between 0 and 1; an int is a number of parameters; a function of the epoch
            gives either.
        apply_pruning: whether to prune, or a function of the epoch that says so.
        make_pruning_permanent: at the end of training, and in checkpoints, parameters are zero and there are no masks.
        use_lottery_ticket_hypothesis: go back to the values of the beginning whenever pruned; or a function of the epoch.
        resample_parameters: go back to new random values.
        pruning_dim: the dimension that structured pruning takes channels of.
        pruning_norm: the norm of "ln_structured".
        verbose: 1 logs how much is pruned, 2 also in each layer.
        prune_on_train_epoch_end: prune at the end of training epochs, else at the end of validation.

    Raises:
        MisconfigurationException: arguments that are impossible, or do not fit together; in `setup`, parameters that the
            module does not have.

    Example:
        >>> from systolic.callbacks import ModelPruning
        >>> callback = ModelPruning("l1_unstructured", amount=0.3)
    """

    PARAMETER_NAMES = ("weight", "bias")

    def __init__(
        self,
        pruning_fn: PruningFunction | str,
        parameters_to_prune: Parameters = (),
        parameter_names: list[str] | None = None,
        use_global_unstructured: bool = True,
        amount: Amount | Callable[[int], Amount] = 0.5,
        apply_pruning: bool | Callable[[int], bool] = True,
        make_pruning_permanent: bool = True,
        use_lottery_ticket_hypothesis: bool | Callable[[int], bool] = True,
        resample_parameters: bool = False,
        pruning_dim: int | None = None,
        pruning_norm: int | None = None,
        verbose: int = 0,
        prune_on_train_epoch_end: bool = True,
    ) -> None:
        self._use_global_unstructured = use_global_unstructured
        self._parameters_to_prune = parameters_to_prune
        self._use_lottery_ticket_hypothesis = use_lottery_ticket_hypothesis
        self._resample_parameters = resample_parameters
        self._prune_on_train_epoch_end = prune_on_train_epoch_end
        self._parameter_names = parameter_names or self.PARAMETER_NAMES
        self._original_layers: dict[int, _Layer] = {}
        self._method_options: dict[str, Any] = {}
        for name in self._parameter_names:
            if name not in self.PARAMETER_NAMES:
                raise MisconfigurationException(
                    f"The provided `parameter_names` name: {name} isn't in {self.PARAMETER_NAMES}."
                    f"{suggest(name, self.PARAMETER_NAMES)}"
                )
        if isinstance(pruning_fn, str):
            self.pruning_fn = self._by_name(pruning_fn.lower(), pruning_dim, pruning_norm)
        else:
            self.pruning_fn = self._method(pruning_fn)
        if use_global_unstructured and self.pruning_fn.PRUNING_TYPE != "unstructured":
            raise MisconfigurationException(
                'Only the "unstructured" PRUNING_TYPE is supported with `use_global_unstructured=True`: channels of different '
                f"parameters cannot be compared. Found method {self.pruning_fn} of type {self.pruning_fn.PRUNING_TYPE}."
            )
        if not (isinstance(amount, int | float) or callable(amount)):
            raise MisconfigurationException(
                f"`amount` should be an int, a float or a function of the epoch. Received: {amount!r}."
            )
        if verbose not in (0, 1, 2):
            raise MisconfigurationException(f"`verbose` must be any of (0, 1, 2). Received: {verbose!r}.")
        self.amount = amount
        self._apply_pruning = apply_pruning
        self._make_pruning_permanent = make_pruning_permanent
        self._verbose = verbose

    def _by_name(self, name: str, dim: int | None, norm: int | None) -> Any:
        """PyTorch's method, or its function with its options, for a name."""
        if name not in _FUNCTIONS:
            raise MisconfigurationException(
                f"The provided `pruning_fn` {name} isn't available in PyTorch's built-in functions: "
                f"{list(_FUNCTIONS)}.{suggest(name, _FUNCTIONS)}"
            )
        options: dict[str, Any] = {}
        if name.endswith("_structured"):
            if dim is None:
                raise MisconfigurationException(
                    f"When requesting `structured` pruning ({name}), the `pruning_dim` should be provided."
                )
            if name == "ln_structured":
                if norm is None:
                    raise MisconfigurationException(
                        "When requesting `ln_structured` pruning, the `pruning_norm` should be provided."
                    )
                options["n"] = norm
            options["dim"] = dim
        self._name = _METHODS[name].__name__ if self._use_global_unstructured else name
        if self._use_global_unstructured:
            self._method_options = options
            return _METHODS[name]
        return functools.partial(_FUNCTIONS[name], **options)

    def _method(self, given: object) -> Any:
        """A method of the user's."""
        if not self._is_pruning_method(given):
            raise MisconfigurationException(
                f"`pruning_fn` is expected to be a str in {list(_FUNCTIONS)} or a PyTorch `BasePruningMethod`. Found: "
                f"{given}. HINT: if passing a `BasePruningMethod`, pass the class, not an instance."
            )
        if not self._use_global_unstructured:
            raise MisconfigurationException(
                "PyTorch `BasePruningMethod` is currently only supported with `use_global_unstructured=True`."
            )
        self._name = given.__name__
        return given

    @staticmethod
    def _is_pruning_method(method: object) -> TypeGuard[type[prune.BasePruningMethod]]:
        return isinstance(method, type) and issubclass(method, prune.BasePruningMethod)

    def filter_parameters_to_prune(self, parameters_to_prune: Parameters = ()) -> Parameters:
        """Choose what is pruned: override this.

        Args:
            parameters_to_prune: what would be pruned.
        """
        return parameters_to_prune

    @staticmethod
    def sanitize_parameters_to_prune(
        pl_module: nn.Module, parameters_to_prune: Parameters = (), parameter_names: Sequence[str] = ()
    ) -> Parameters:
        """The parameters to prune, after a check that the module has them.

        Args:
            pl_module: the module.
            parameters_to_prune: what was asked for; nothing means all.
            parameter_names: of all modules' parameters those with these names.

        Raises:
            MisconfigurationException: the module has no such parameters.
        """
        modules = [module for module in pl_module.modules() if not isinstance(module, _CONTAINERS)]
        if not parameters_to_prune:
            names = parameter_names or ModelPruning.PARAMETER_NAMES
            return [(m, name) for name in names for m in modules if isinstance(getattr(m, name, None), nn.Parameter)]
        if not _are_pairs(parameters_to_prune):
            raise MisconfigurationException(
                "The provided `parameters_to_prune` should either be list of tuple with 2 elements: "
                f"(nn.Module, parameter_name_to_prune) or None. Received: {parameters_to_prune!r}."
            )
        absent = [module for module, _ in parameters_to_prune if not any(module is one for one in modules)]
        nameless = [name for module, name in parameters_to_prune if module not in absent and not hasattr(module, name)]
        if absent or nameless:
            raise MisconfigurationException(
                "Some provided `parameters_to_prune` don't exist in the model. Found missing modules: "
                f"{absent} and missing parameters: {nameless}."
            )
        return parameters_to_prune

    def setup(self, trainer: TrainerLike, pl_module: LightningModule, stage: str) -> None:
        """Choose the parameters, and keep their values."""
        chosen = self.sanitize_parameters_to_prune(pl_module, self._parameters_to_prune, self._parameter_names)
        self._parameters_to_prune = self.filter_parameters_to_prune(chosen)
        if self._use_lottery_ticket_hypothesis:
            self._original_layers = {}
            for i, (module, name) in enumerate(self._parameters_to_prune):
                if id(module) not in self._original_layers:
                    self._original_layers[id(module)] = _Layer(copy.deepcopy(module))
                self._original_layers[id(module)].pruned.append((i, name))

    def on_train_epoch_end(self, trainer: TrainerLike, pl_module: LightningModule) -> None:
        """Prune."""
        if self._prune_on_train_epoch_end:
            self._prune_in(pl_module.current_epoch)

    def on_validation_epoch_end(self, trainer: TrainerLike, pl_module: LightningModule) -> None:
        """Prune, where that is to happen after validation."""
        if not trainer.sanity_checking and not self._prune_on_train_epoch_end:
            self._prune_in(pl_module.current_epoch)

    def on_train_end(self, trainer: TrainerLike, pl_module: LightningModule) -> None:
        """Take the masks away, and let parameters be zero."""
        if self._make_pruning_permanent:
            self.make_pruning_permanent(pl_module)

    def on_save_checkpoint(self, trainer: TrainerLike, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        """Save pruned parameters without masks."""
        if self._make_pruning_permanent:
            checkpoint["state_dict"] = _without_masks(checkpoint["state_dict"])

    def _prune_in(self, epoch: int) -> None:
        applied = self._apply_pruning(epoch) if callable(self._apply_pruning) else self._apply_pruning
        amount = self.amount(epoch) if callable(self.amount) else self.amount
        if not applied or not amount:
            return
        self.apply_pruning(amount)
        going_back = self._use_lottery_ticket_hypothesis
        if going_back(epoch) if callable(going_back) else going_back:
            self.apply_lottery_ticket_hypothesis()

    def apply_pruning(self, amount: Amount) -> None:
        """Prune now.

        Args:
            amount: the part of what is left, or a number of parameters.
        """
        before = self._pruned() if self._verbose else []
        if self._use_global_unstructured:
            taken = inspect.signature(self.pruning_fn).parameters
            options = {name: value for name, value in {**self._method_options, "amount": amount}.items() if name in taken}
            # host sync: PyTorch looks at all values to choose
            prune.global_unstructured(self._parameters_to_prune, pruning_method=self.pruning_fn, **options)
        else:
            for module, name in self._parameters_to_prune:
                self.pruning_fn(module, name=name, amount=amount)  # host sync: as above
        if self._verbose:
            self._tell(before, self._pruned(), amount)

    def apply_lottery_ticket_hypothesis(self) -> None:
        """Give the parameters that are left the values of the beginning, or new random ones; masks stay."""
        for layer in self._original_layers.values():
            original = layer.original
            reset = getattr(original, "reset_parameters", None)
            if self._resample_parameters and callable(reset):
                original = copy.deepcopy(original)
                cast(Any, original).reset_parameters()
            for i, name in layer.pruned:
                module = self._parameters_to_prune[i][0]
                trained = getattr(module, f"{name}_orig", None)
                trained = getattr(module, name) if trained is None else trained
                with torch.no_grad():
                    trained.copy_(getattr(original, name))

    def make_pruning_permanent(self, module: nn.Module) -> None:
        """Take all masks of a module away, and let its parameters be zero where they were.

        Args:
            module: the module.
        """
        for part in module.modules():
            names = [name.removesuffix("_mask") for name, _ in part.named_buffers(recurse=False) if name.endswith("_mask")]
            for name in names:
                if f"{name}_orig" in dict(part.named_parameters(recurse=False)):
                    prune.remove(part, name)

    def _pruned(self) -> list[tuple[int, int]]:
        """How many elements of each parameter are pruned, and how many it has."""
        counts: list[tuple[int, int]] = []
        for module, name in self._parameters_to_prune:
            mask = dict(module.named_buffers(recurse=False)).get(f"{name}_mask")
            counts.append((0, 1) if mask is None else (int((mask == 0).sum()), mask.numel()))
        return counts

    def _tell(self, before: list[tuple[int, int]], after: list[tuple[int, int]], amount: Amount) -> None:
        if not is_main_process():
            return
        total, zeros, now = sum(size for _, size in after), sum(n for n, _ in before), sum(n for n, _ in after)
        _log.info(
            "Applied `%s`. Pruned: %s",
            self._name,
            f"{zeros}/{total} ({zeros / total:.2%}) -> {now}/{total} ({now / total:.2%})",
        )
        if self._verbose == 2:
            for (module, name), was, new in zip(self._parameters_to_prune, before, after, strict=True):
                change = f"{was[0]} ({was[0] / was[1]:.2%}) -> {new[0]} ({new[0] / new[1]:.2%})"
                _log.info("Applied `%s` to `%r.%s` with amount=%s. Pruned: %s", self._name, module, name, amount, change)


def _are_pairs(given: object) -> bool:
    if not isinstance(given, list | tuple) or not all(isinstance(pair, list | tuple) and len(pair) == 2 for pair in given):
        return False
    return all(isinstance(module, nn.Module) and isinstance(name, str) for module, name in given)


def _without_masks(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """The state of a module whose parameters are zero where masks say so."""
    found = dict(state)
    for key in [key for key in state if key.endswith("_mask") and f"{key.removesuffix('_mask')}_orig" in state]:
        name = key.removesuffix("_mask")
        original, mask = found.pop(f"{name}_orig"), found.pop(key)
        found[name] = mask.to(original.dtype) * original
    return found
