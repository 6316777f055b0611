"""Bad modules, optimizers, schedulers and losses, and hooks with the wrong arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.optim import lr_scheduler
from trainer.three_ways import loader, regression

import systolic as L
from systolic.exceptions import MisconfigurationException, OutOfRangeError

from .cases import Answer, Case, trainer

SGD = torch.optim.SGD


def module(**methods: Any) -> Any:
    return regression(L.LightningModule, **methods)()


def of_module(
    given: str,
    says: str,
    answer: Answer = MisconfigurationException,
    *,
    options: dict[str, Any] | None = None,
    data: Callable[[], Any] = loader,
    compile: bool = False,
    **methods: Any,
) -> Case:
    """A module with these methods, in fit."""
    tried = lambda: trainer(compile=compile, **(options or {})).fit(module(**methods), data())  # noqa: E731
    return Case(given, tried, answer, says, long=compile)


def of_optimizers(given: str, says: str, answer: Answer = MisconfigurationException, **options: Any) -> Case:
    """A `configure_optimizers` that returns `given`, which is evaluated with `self` and the names of this file."""
    scope = {"SGD": SGD, "torch": torch, "lr_scheduler": lr_scheduler, "plateau": lr_scheduler.ReduceLROnPlateau}
    returned = eval(f"lambda self, sgd: {given}", scope)  # the page shows what is run
    found = lambda self: returned(self, SGD(self.parameters(), lr=0.1))  # noqa: E731
    return of_module(f"configure_optimizers: {given}", says, answer, configure_optimizers=found, **options)


def of_step(
    given: str, says: str, answer: Answer = MisconfigurationException, *, compile: bool = False, **options: Any
) -> Case:
    """A `training_step` that returns `given`."""
    body = eval(f"lambda self, batch: {given}", {"torch": torch, "F": torch.nn.functional})
    return of_module(
        f"training_step: {given}{' (compiled)' if compile else ''}", says, answer, compile=compile,
        training_step=lambda self, batch, batch_idx: body(self, batch), **options,
    )  # fmt: skip


def _manually(self: Any) -> None:
    """The `__init__` of a module with manual optimization."""
    super(type(self), self).__init__()
    self.automatic_optimization = False


class _NoOptimizers(L.LightningModule):
    def training_step(self, batch: Any) -> None:
        del batch


class _NoStep(L.LightningModule):
    def configure_optimizers(self) -> None:
        return None


def _fit(model: Any) -> Callable[[], object]:
    return lambda: trainer(compile=False).fit(model, loader())


_STRAY = torch.nn.Linear(3, 2)

OPTIMIZERS = (
    of_optimizers("3", "Unknown configuration for model optimizers"),
    of_optimizers("'sgd'", "Unknown configuration for model optimizers"),
    of_optimizers("SGD", "Unknown configuration for model optimizers"),
    of_optimizers("[3]", "Unknown configuration for model optimizers"),
    of_optimizers("None", "returned None: fit will run with no optimizer", Warning),
    of_optimizers("[]", "returned no optimizer: fit will run with no optimizer", Warning),
    of_optimizers("([], [])", "returned no optimizer: fit will run with no optimizer", Warning),
    of_optimizers("[None]", "Unknown configuration for model optimizers"),
    of_optimizers("{}", "needs the key 'optimizer'"),
    of_optimizers("{'optimizer': None}", "needs the key 'optimizer'"),
    of_optimizers("{'optimiser': sgd}", "Did you mean 'optimizer'"),
    of_optimizers("{'optimizer': sgd, 'lr_schedular': 1}", "Did you mean 'lr_scheduler'"),
    of_optimizers("{'optimizer': sgd, 'mine': 1}", "Found unsupported keys in the optimizer configuration", Warning),
    of_optimizers("[sgd, SGD(self.parameters(), lr=1.0)]", "only supported with manual optimization"),
    of_optimizers("([sgd], [3])", "doesn't follow PyTorch's LRScheduler"),
    of_optimizers("([sgd], ['cosine'])", "doesn't follow PyTorch's LRScheduler"),
    of_optimizers("([3], [])", "must return torch.optim.Optimizer objects"),
    of_optimizers("(sgd, lr_scheduler.StepLR(sgd, 1))", "Unknown configuration for model optimizers"),
    of_optimizers("([sgd], [plateau(sgd)])", "must include a monitor when a `ReduceLROnPlateau`"),
    of_optimizers("{'optimizer': sgd, 'lr_scheduler': plateau(sgd)}", "must include a monitor when a `ReduceLROnPlateau`"),
    of_optimizers(
        "{'optimizer': sgd, 'lr_scheduler': plateau(sgd), 'monitor': 'vall_loss'}", "vall_loss"
    ),
    of_optimizers("{'optimizer': sgd, 'lr_scheduler': {}}", 'must have the key "scheduler"'),
    of_optimizers(
        "{'optimizer': sgd, 'lr_scheduler': {'scheduler': lr_scheduler.StepLR(sgd, 1), 'interval': 'batch'}}",
        "must be \"epoch\" or",
    ),
    of_optimizers(
        "{'optimizer': sgd, 'lr_scheduler': {'scheduler': lr_scheduler.StepLR(sgd, 1), 'frequency': 0}}",
        "is an integer >= 1",
    ),
    of_optimizers(
        "{'optimizer': sgd, 'lr_scheduler': {'scheduler': lr_scheduler.StepLR(sgd, 1), 'frequency': 1.5}}",
        "is an integer >= 1",
    ),
    of_optimizers(
        "{'optimizer': sgd, 'lr_scheduler': {'scheduler': lr_scheduler.StepLR(sgd, 1), 'intervall': 'step'}}",
        "Did you mean 'interval'",
    ),
    of_optimizers(
        "{'optimizer': sgd, 'lr_scheduler': lr_scheduler.StepLR(SGD(self.parameters(), lr=1.0), 1)}",
        "is attached with an optimizer that wasn't returned from `configure_optimizers`: SGD",
    ),
    of_optimizers("SGD(self.parameters(), lr=float('nan'))", "lr=nan"),
    of_optimizers("SGD(self.parameters(), lr='0.1')", "'<' not supported between instances of 'str' and 'float'", TypeError),
    of_optimizers("SGD([{'params': self.first.parameters(), 'lr': float('inf')}], lr=0.1)", "lr=inf"),
    of_optimizers("SGD(self.parameters(), lr=-1)", "Invalid learning rate: -1", ValueError),
    of_optimizers("SGD([], lr=0.1)", "empty parameter list", ValueError),
    of_optimizers("SGD([torch.zeros(3, requires_grad=True)], lr=0.1)", "do not belong"),
    of_optimizers(
        "torch.optim.LBFGS(self.parameters()) # manual, compiled", "LBFGS decides by values", compile=True, __init__=_manually
    ),
    Case(
        "an optimizer of another module",
        lambda: _fit(module(configure_optimizers=lambda self: SGD(_STRAY.parameters(), lr=0.1)))(),
        MisconfigurationException, "SGD holds 2 parameter(s) that do not belong",
    ),
    of_optimizers("SGD(torch.nn.LazyLinear(3).parameters(), lr=0.1)", "lazy modules that have no shape yet"),
)  # fmt: skip

STEPS = (
    of_step("self(batch[0])", "loss with one element. Received: shape (4, 1)"),
    of_step("self.loss(batch).detach()", "does not depend on any parameter"),
    of_step("batch[0].mean()", "does not depend on any parameter"),
    of_step("3.0", "must return a Tensor, a dict, or None"),
    of_step("'loss'", "must return a Tensor, a dict, or None"),
    of_step("True", "must return a Tensor, a dict, or None"),
    of_step("(self.loss(batch), 1)", "Received: tuple"),
    of_step("[self.loss(batch)]", "Received: list"),
    of_step("{'los': self.loss(batch)}", "a dict with the keys ['los']"),
    of_step("{'loss': 1}", "a dict with the keys ['loss']"),
    of_step("{}", "a dict with the keys []"),
    of_step("self.loss(batch) * 1j", "complex"),
    of_step("self.nothing", "has no attribute 'nothing'", AttributeError),
    of_step("self.loss(batch, 3)", "takes 2 positional arguments but 3 were given", TypeError),
    of_step("self.log('a', self.loss(batch), on_step=False, on_epoch=False) or self.loss(batch)", "is not useful"),
    of_step("self.log('a', 'text') or self.loss(batch)", "Received: str", ValueError),
    of_step("self.log(3, self.loss(batch)) or self.loss(batch)", "The name of a logged value must be a string. Received: 3"),
    of_step("self.log('a', batch[0]) or self.loss(batch)", "tensor with one element", ValueError),
    of_step("self.log('a', self.loss(batch), reduce_fx='average') or self.loss(batch)", "`reduce_fx` of self.log. Expected"),
    of_step("self.log('a', self.loss(batch), reduce_fx=3) or self.loss(batch)", "`reduce_fx` of self.log. Expected"),
    of_step("self.log('a', 1.0, on_step=True) or self.log('a', 1.0, on_epoch=True) or self.loss(batch)", "twice"),
    of_step("self.log_dict([1]) or self.loss(batch)", "self.log_dict(...) expects a dict", TypeError),
    of_step("self.manual_backward(self.loss(batch)) or self.loss(batch)", "belongs to manual optimization"),
    of_step("self.optimizers()[3]", "'LightningOptimizer' object is not subscriptable", TypeError),
    of_step("self.log('a', self.loss(batch), batch_size='4') or self.loss(batch)", "expected the number of samples", TypeError),
    of_step("torch.log(-self.loss(batch))", "nan", FloatingPointError, options={"detect_anomaly": True}),
    # what a program cannot do
    of_step("self.loss(batch) * float(self.loss(batch).detach().__array__())", "hands a tensor's values to NumPy", RuntimeError, compile=True),
    of_step("F.cross_entropy(self(batch[0]).expand(-1, 2) * self.first.weight[0, 0], torch.full((4,), 7))", "7", OutOfRangeError, compile=True),
    of_step("F.embedding(torch.full((4,), 99), self.first.weight).mean()", "99", OutOfRangeError, compile=True),
    of_step("self.first.weight[torch.tensor([99])].mean()", "99", OutOfRangeError, compile=True),
    of_step("self.first.weight.gather(0, torch.tensor([[99]])).mean()", "99", OutOfRangeError, compile=True),
    of_step("F.one_hot(torch.tensor([5]), 3).float().mean() * self.loss(batch)", "5", OutOfRangeError, compile=True),
    of_step("F.binary_cross_entropy(torch.sigmoid(self(batch[0])), torch.full((4, 1), 5.0))", "5", OutOfRangeError, compile=True),
    of_step("F.cross_entropy(self(batch[0]).expand(-1, 2), torch.full((4,), -3))", "-3", OutOfRangeError, compile=True),
    of_step("F.cross_entropy(self(batch[0]).expand(-1, 2), torch.full((4,), 1.0))", "got the batch", RuntimeError, compile=True),
)  # fmt: skip

MODULES = (
    Case("fit(torch.nn.Linear(1, 1))", _fit(torch.nn.Linear(1, 1)), TypeError, "`model` must be a `LightningModule` of systolic"),
    Case("fit(None)", _fit(None), TypeError, "`model` must be a `LightningModule` of systolic"),
    Case("fit(3)", _fit(3), TypeError, "`model` must be a `LightningModule` of systolic"),
    Case("fit(LightningModule)", _fit(L.LightningModule), TypeError, "`model` must be a `LightningModule` of systolic"),
    Case("fit(loader)", _fit(loader()), TypeError, "`model` must be a `LightningModule` of systolic"),
    Case("no training_step", _fit(_NoStep()), MisconfigurationException, "No `training_step()` method defined"),
    Case("no configure_optimizers", _fit(_NoOptimizers()), MisconfigurationException, "No `configure_optimizers()` method"),
    Case(
        "validate, no validation_step", lambda: trainer(compile=False).validate(module(), loader()),
        MisconfigurationException, "No `validation_step()` method defined",
    ),
    Case(
        "test, no test_step", lambda: trainer(compile=False).test(module(), loader()),
        MisconfigurationException, "No `test_step()` method defined",
    ),
    Case("validate() before any run", lambda: trainer().validate(), TypeError, "requires a `LightningModule`"),
    Case("test() before any run", lambda: trainer().test(), TypeError, "requires a `LightningModule`"),
    Case("predict() before any run", lambda: trainer().predict(), TypeError, "requires a `LightningModule`"),
    of_module("training_step(self)", "training_step", TypeError, training_step=lambda self: None),
    of_module("training_step(self, *, batch)", "training_step", TypeError, training_step=lambda self, *, batch: None),
    of_module(
        "training_step(self, batch, batch_idx, extra)", "expected `training_step(self, batch, batch_idx)`", TypeError,
        training_step=lambda self, batch, batch_idx, extra: self.loss(batch),
    ),
    of_module(
        "training_step(self, dataloader_iter, batch_idx)", "dataloader_iter", training_step=lambda self, dataloader_iter, batch_idx: None,
    ),
    of_module("training_step = 3", "training_step", TypeError, training_step=3),
    of_module("on_train_start(self, extra)", "on_train_start", TypeError, on_train_start=lambda self, extra: None),
    of_module(
        "on_train_batch_end(self)", "on_train_batch_end", TypeError, on_train_batch_end=lambda self: None,
    ),
    of_module("setup(self)", "setup", TypeError, setup=lambda self: None),
    of_module("a hook of an old Lightning: training_epoch_end", "is a hook that Lightning 2.0 removed", MisconfigurationException, training_epoch_end=lambda self, o: None),
    of_module("a misspelt hook: on_train_epoch_ends", "Did you mean 'on_train_epoch_end'", Warning, on_train_epoch_ends=lambda self: None),
    of_module("a misspelt hook: validaton_step", "Did you mean 'validation_step'", Warning, validaton_step=lambda self, b: None),
    of_module("clipping with manual optimization", "not supported for manual", options={"gradient_clip_val": 1.0}, __init__=_manually),
    of_module(
        "accumulation with manual optimization", "not supported for manual", options={"accumulate_grad_batches": 2},
        __init__=_manually,
    ),
    of_module(
        "parameters on the meta device", "on the meta device cannot be initialised", MisconfigurationException,
        configure_model=lambda self: self.register_parameter("scale", torch.nn.Parameter(torch.ones(3, device="meta"))),
    ),
    of_module("moved to the meta device in on_fit_start", "is on the meta device", MisconfigurationException, on_fit_start=lambda self: self.to("meta")),
    of_module("configure_callbacks returns 3", "`callbacks` expects objects", configure_callbacks=lambda self: 3),
)  # fmt: skip

CASES = {
    "Optimizers and schedulers": OPTIMIZERS,
    "Steps and losses": STEPS,
    "Modules and hooks": MODULES,
}
