"""`save_hyperparameters` row by row as under Lightning: what is kept, under which name, and what comes back.

One difference on purpose: a module that another one builds in its `__init__` keeps its own arguments only. Under Lightning it
gets those of the other one, too, in the place of its own where names are equal.
"""

from __future__ import annotations

import dataclasses
import inspect
import warnings
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from trainer.as_lightning import Package, require_same
from trainer.three_ways import loader

import systolic as L

lightning = pytest.importorskip("lightning.pytorch")
PACKAGES = {"systolic": L, "lightning": lightning}


def everything(P: Any) -> Any:
    class Model(P.LightningModule):
        def __init__(self, lr: float, *rest: int, width: int = 3, **more: Any) -> None:
            super().__init__()
            depth = 4  # noqa: F841  (a local variable is no argument)
            self.save_hyperparameters()

    return Model(0.1, 7, 8, width=5, extra="x")


def changed_before(P: Any) -> Any:
    class Model(P.LightningModule):
        def __init__(self, lr: float, name: str | None = None) -> None:
            super().__init__()
            name = name or "default"
            self.save_hyperparameters()

    return Model(0.1)


def named(P: Any) -> Any:
    class Model(P.LightningModule):
        def __init__(self, lr: float, width: int = 3, depth: int = 2) -> None:
            super().__init__()
            self.save_hyperparameters("lr", "depth")

    return Model(0.1)


def twice(P: Any) -> Any:
    class Model(P.LightningModule):
        def __init__(self, lr: float, width: int = 3, depth: int = 2) -> None:
            super().__init__()
            self.save_hyperparameters("lr")
            self.save_hyperparameters("depth", logger=False)

    return Model(0.1)


def ignored(P: Any) -> Any:
    class Model(P.LightningModule):
        def __init__(self, lr: float, width: int = 3, depth: int = 2) -> None:
            super().__init__()
            self.save_hyperparameters(ignore=["width", "unknown"])

    return Model(0.1)


def ignored_by_one_name(P: Any) -> Any:
    class Model(P.LightningModule):
        def __init__(self, lr: float, width: int = 3) -> None:
            super().__init__()
            self.save_hyperparameters(ignore="width")

    return Model(0.1)


def ignored_in_a_subclass(P: Any) -> Any:
    class Base(P.LightningModule):
        def __init__(self, lr: float, width: int = 3) -> None:
            super().__init__()
            self.save_hyperparameters()

    class Model(Base):
        def __init__(self, lr: float, network: Any, depth: int = 2) -> None:
            super().__init__(lr * 2, width=depth)
            self.save_hyperparameters(ignore=["network", "width"])

    return Model(0.1, "net")


def saved_by_the_base_class(P: Any) -> Any:
    class Base(P.LightningModule):
        def __init__(self, lr: float, width: int = 3) -> None:
            super().__init__()
            self.save_hyperparameters(ignore="width")

    class Model(Base):
        def __init__(self, depth: int = 2, **more: Any) -> None:
            super().__init__(lr=0.5, **more)

    return Model(depth=9, width=6)


def in_a_method(P: Any) -> Any:
    class Model(P.LightningModule):
        def __init__(self, lr: float, width: int = 3) -> None:
            super().__init__()
            self.remember()

        def remember(self) -> None:
            self.save_hyperparameters()

    return Model(0.1)


def in_a_given_frame(P: Any) -> Any:
    class Model(P.LightningModule):
        def __init__(self, lr: float, width: int = 3) -> None:
            super().__init__()
            remember(self, inspect.currentframe())

    def remember(model: Any, frame: Any) -> None:
        model.save_hyperparameters(frame=frame)

    return Model(0.1)


def of_a_dataclass(P: Any) -> Any:
    @dataclasses.dataclass(eq=False)
    class Model(P.LightningModule):
        lr: float
        width: int = 3
        made: int = dataclasses.field(default=0, init=False)

        def __post_init__(self) -> None:
            super().__init__()
            self.save_hyperparameters()

    return Model(0.1)


def one_dict(P: Any) -> Any:
    class Model(P.LightningModule):
        def __init__(self, config: dict[str, Any], width: int = 3) -> None:
            super().__init__()
            self.save_hyperparameters(config)

    return Model({"lr": 0.1, "deep": {"b": [1, 2]}})


def one_namespace(P: Any) -> Any:
    class Model(P.LightningModule):
        def __init__(self, args: Namespace) -> None:
            super().__init__()
            self.save_hyperparameters(args)

    return Model(Namespace(lr=0.1, width=4))


def a_dict_that_is_no_argument(P: Any) -> Any:
    class Model(P.LightningModule):
        def __init__(self, lr: float) -> None:
            super().__init__()
            self.save_hyperparameters({"made": lr * 2})

    return Model(0.1)


def a_dict_and_names(P: Any) -> Any:
    class Model(P.LightningModule):
        def __init__(self, config: dict[str, Any], width: int = 3) -> None:
            super().__init__()
            self.save_hyperparameters("width", config)

    return Model({"lr": 0.1})


def an_empty_dict(P: Any) -> Any:
    class Model(P.LightningModule):
        def __init__(self, config: dict[str, Any]) -> None:
            super().__init__()
            self.save_hyperparameters(config)

    return Model({})


def without_arguments(P: Any) -> Any:
    class Model(P.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.save_hyperparameters()

    return Model()


def not_for_loggers(P: Any) -> Any:
    class Model(P.LightningModule):
        def __init__(self, lr: float) -> None:
            super().__init__()
            self.save_hyperparameters(logger=False)

    return Model(0.1)


def changed_afterwards(P: Any) -> Any:
    class Model(P.LightningModule):
        def __init__(self, lr: float, layers: list[int]) -> None:
            super().__init__()
            self.save_hyperparameters()
            self.hparams.lr = 5.0
            self.hparams["layers"].append(9)
            self.hparams_initial["lr"] = 7.0

    return Model(0.1, [1])


def never(P: Any) -> Any:
    class Model(P.LightningModule):
        def __init__(self, lr: float) -> None:
            super().__init__()

    return Model(0.1)


def data_module(P: Any) -> Any:
    class Data(P.LightningDataModule):
        def __init__(self, folder: str, batch_size: int = 8) -> None:
            super().__init__()
            self.save_hyperparameters(ignore="folder")

    return Data("here")


def with_a_module(P: Any) -> Any:
    class Inner(P.LightningModule):
        def __init__(self, width: int) -> None:
            super().__init__()
            self.save_hyperparameters()

    class Model(P.LightningModule):
        def __init__(self, encoder: Any, lr: float) -> None:
            super().__init__()
            self.encoder = encoder
            self.save_hyperparameters()

    return Model(Inner(4), 0.1)


def built_by_another(P: Any) -> Any:
    """Holds the other one's arguments, too, in the place of its own where names are equal."""

    class Inner(P.LightningModule):
        def __init__(self, width: int = 1, depth: int = 2, kind: str = "a") -> None:
            super().__init__()
            self.save_hyperparameters(ignore="kind")

    class Outer(P.LightningModule):
        def __init__(self, lr: float, width: int = 7) -> None:
            super().__init__()
            self.inner = Inner(width=3)

    class Script:
        def __init__(self, seed: int) -> None:
            super().__init__()
            self.outer = Outer(0.1)

    return Script(1).outer.inner


def that_builds_another(P: Any) -> Any:
    class Inner(P.LightningModule):
        def __init__(self, width: int = 1) -> None:
            super().__init__()
            self.save_hyperparameters()

    class Outer(P.LightningModule):
        def __init__(self, lr: float, width: int = 7) -> None:
            super().__init__()
            self.inner = Inner(width=3)
            self.save_hyperparameters()

    return Outer(0.1)


ROWS: list[Callable[[Any], Any]] = [
    everything, changed_before, named, twice, ignored, ignored_by_one_name, ignored_in_a_subclass, saved_by_the_base_class,
    in_a_method, in_a_given_frame, of_a_dataclass, one_dict, one_namespace, a_dict_that_is_no_argument, a_dict_and_names,
    an_empty_dict, without_arguments, not_for_loggers, changed_afterwards, never, data_module, with_a_module,
    built_by_another, that_builds_another,
]  # fmt: skip


def seen(owner: Any) -> dict[str, Any]:
    """What can be seen of an object's hyperparameters; modules by their own."""
    plain = lambda values: {k: dict(v.hparams) if isinstance(v, nn.Module) else v for k, v in values.items()}  # noqa: E731
    return {
        "hparams": plain(owner.hparams),
        "order": list(owner.hparams),
        "attributes": all(getattr(owner.hparams, name) is owner.hparams[name] for name in owner.hparams),
        "initial": plain(owner.hparams_initial),
        "name": getattr(owner, "_hparams_name", None),
        "logged": owner._log_hyperparams,
    }


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.__name__)
def test_hyperparameters_are_those_of_lightning(row: Callable[[Any], Any]) -> None:
    with warnings.catch_warnings(record=True) as ours:
        warnings.simplefilter("always")
        received = seen(row(L))
    with warnings.catch_warnings(record=True) as theirs:
        warnings.simplefilter("always")
        expected = seen(row(lightning))
    assert received == expected
    assert len(ours) == len(theirs), "a module among them is worth a warning"


@pytest.mark.parametrize("value", [3.5, True, [1, 2]])
def test_a_value_without_names_is_refused_like_under_lightning(value: Any) -> None:
    for package in PACKAGES.values():
        with pytest.raises(ValueError):
            package.LightningModule().save_hyperparameters(value)


def test_an_unknown_name_is_refused() -> None:
    class Model(L.LightningModule):
        def __init__(self, lr: float) -> None:
            super().__init__()
            self.save_hyperparameters("rate")

    with pytest.raises(ValueError, match=r"names of arguments of __init__ \(lr\). Received: 'rate'"):
        Model(0.1)


class Config:
    """Modules of one kind for both packages: what a checkpoint of one gives back is told by the other."""

    def __init__(self, P: Any) -> None:
        class Base(P.LightningModule):
            def __init__(self) -> None:
                super().__init__()
                self.layer = nn.Linear(2, 1)

            def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
                return self.layer(batch[0]).square().mean()

            def configure_optimizers(self) -> Any:
                return torch.optim.SGD(self.parameters(), 0.1)

        class Separate(Base):
            def __init__(self, lr: float, width: int = 3, hidden: Any = None) -> None:
                super().__init__()
                self.save_hyperparameters(ignore="hidden")
                self.given = (lr, width, hidden)

        class Whole(Base):
            def __init__(self, config: Any, hidden: Any = None) -> None:
                super().__init__()
                self.save_hyperparameters(config)
                self.given = (dict(config), hidden)

        class Open(Base):
            def __init__(self, lr: float, **more: Any) -> None:
                super().__init__()
                self.save_hyperparameters()
                self.given = (lr, more)

        class Data(P.LightningDataModule):
            def __init__(self, size: int, folder: str = "here") -> None:
                super().__init__()
                self.save_hyperparameters()
                self.given = (size, folder)

            def train_dataloader(self) -> Any:
                return torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.ones(self.hparams.size, 2)), 2)

        self.package, self.Separate, self.Whole, self.Open, self.Data = P, Separate, Whole, Open, Data

    def checkpoint(self, path: Path, model: Any) -> Path:
        options = {"compile": False} if self.package is L else {}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            trainer = self.package.Trainer(
                max_steps=1, accelerator="cpu", devices=1, logger=False, enable_checkpointing=False,
                enable_progress_bar=False, enable_model_summary=False, **options,
            )  # fmt: skip
            trainer.fit(model, datamodule=self.Data(4, folder="there"))
            trainer.save_checkpoint(path)
        return path


KEYS = ["hyper_parameters", "hparams_name", "datamodule_hyper_parameters", "datamodule_hparams_name"]
LOADS: list[tuple[str, Callable[[Config], Any], dict[str, Any]]] = [
    ("Separate", lambda c: c.Separate(0.1, width=4, hidden=1), {}),
    ("Separate", lambda c: c.Separate(0.1, width=4), {"lr": 0.7, "hidden": "h"}),
    ("Separate", lambda c: c.Separate(0.1), {"unknown": 1}),
    ("Whole", lambda c: c.Whole({"lr": 0.1, "deep": {"a": 1}}), {}),
    ("Whole", lambda c: c.Whole({"lr": 0.1}), {"lr": 0.5, "hidden": 2}),
    ("Whole", lambda c: c.Whole({"lr": 0.1}), {"config": {"lr": 0.9}}),
    ("Open", lambda c: c.Open(0.1, extra=1), {"lr": 0.2, "other": 3}),
    ("Data", lambda c: c.Separate(0.1), {}),
    ("Data", lambda c: c.Separate(0.1), {"size": 6}),
]


@pytest.mark.parametrize(("name", "make", "given"), LOADS)
def test_a_checkpoint_gives_back_what_lightning_does(
    name: str, make: Callable[[Config], Any], given: dict[str, Any], tmp_path: Path
) -> None:
    ours, theirs = Config(L), Config(lightning)
    paths = [c.checkpoint(tmp_path / f"{i}.ckpt", make(c)) for i, c in enumerate((ours, theirs))]
    saved, expected = (torch.load(path, weights_only=True) for path in paths)
    assert {key: saved.get(key) for key in KEYS} == {key: expected.get(key) for key in KEYS}
    want = getattr(theirs, name).load_from_checkpoint(paths[1], **given)
    for path in paths:
        got = getattr(ours, name).load_from_checkpoint(path, **given)
        assert got.given == want.given
        assert seen(got) == seen(want)


@pytest.mark.parametrize("kind", ["csv", "yaml"])
def test_a_file_of_hyperparameters_comes_before_those_of_the_checkpoint(kind: str, tmp_path: Path) -> None:
    text = {"csv": "key,value\nlr,0.25\nwidth,8\n", "yaml": "lr: 0.25\nwidth: 8\n"}[kind]
    (tmp_path / f"hparams.{kind}").write_text(text)
    found = []
    for number, config in enumerate((Config(L), Config(lightning))):
        path = config.checkpoint(tmp_path / f"{number}.ckpt", config.Separate(0.1, width=4))
        loaded = config.Separate.load_from_checkpoint(path, hparams_file=tmp_path / f"hparams.{kind}", width=9)
        found.append(loaded.given)
    assert found[0] == found[1]


class Loggers:
    """A logger of either package that keeps what it is told."""

    @staticmethod
    def of(P: Any) -> Any:
        class Keeping(P.loggers.logger.Logger):
            def __init__(self) -> None:
                super().__init__()
                self.told: list[dict[str, Any]] = []

            name = property(lambda self: "keeping")
            version = property(lambda self: 0)

            def log_metrics(self, metrics: Any, step: Any = None) -> None:
                pass

            def log_hyperparams(self, params: Any, *args: Any, **kwargs: Any) -> None:
                self.told.append(dict(params))

        return Keeping()


@pytest.mark.parametrize(("of_model", "of_data"), [(True, True), (True, False), (False, True), (False, False)])
def test_loggers_get_the_hyperparameters_of_module_and_data_module(of_model: bool, of_data: bool) -> None:
    found = []
    for config in (Config(L), Config(lightning)):
        logger = Loggers.of(config.package)
        model, data = config.Separate(0.1, width=4), config.Data(4)
        model._log_hyperparams, data._log_hyperparams = of_model, of_data
        options = {"compile": False} if config.package is L else {}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            config.package.Trainer(
                max_steps=1, accelerator="cpu", devices=1, logger=logger, enable_checkpointing=False,
                enable_progress_bar=False, enable_model_summary=False, **options,
            ).fit(model, datamodule=data)  # fmt: skip
        found.append(logger.told)
    assert found[0] == found[1]


def test_one_name_with_two_values_in_module_and_data_module_is_refused() -> None:
    config = Config(L)
    data = config.Data(4)
    data.save_hyperparameters({"lr": 0.5})
    trainer = L.Trainer(max_steps=1, accelerator="cpu", devices=1, logger=Loggers.of(L), compile=False)
    with pytest.raises(L.MisconfigurationException, match=r"both have the hyperparameters \['lr'\]"):
        trainer.fit(config.Separate(0.1), datamodule=data)


def test_an_omegaconf_container_stays_one_and_comes_back(tmp_path: Path) -> None:
    OmegaConf = pytest.importorskip("omegaconf").OmegaConf
    config = Config(L)
    model = config.Whole(OmegaConf.create({"lr": 0.1, "deep": {"a": [1, 2]}, "same": "${lr}"}))
    assert OmegaConf.is_config(model.hparams)
    model.hparams.lr = 0.3
    assert (model.hparams_initial.lr, model._hparams_name) == (0.1, "config")
    path = config.checkpoint(tmp_path / "x.ckpt", model)
    assert torch.load(path, weights_only=True)["hyper_parameters"]["same"] == "${lr}"
    loaded = config.Whole.load_from_checkpoint(path)
    assert OmegaConf.is_config(loaded.hparams)
    assert (loaded.hparams.lr, loaded.hparams.same, list(loaded.hparams.deep.a)) == (0.3, 0.3, [1, 2])


def test_a_step_notices_a_changed_omegaconf_value() -> None:
    OmegaConf = pytest.importorskip("omegaconf").OmegaConf
    module = nn.Linear(1, 1)
    module.config = OmegaConf.create({"scale": {"factor": 2.0}})
    step = L.jit(lambda x: x * module.config.scale.factor)
    x = torch.ones(1)
    values = []
    for factor in (2.0, 3.0, 4.0, 4.0):
        module.config.scale.factor = factor
        values.append(step(x).item())
    assert values == [2.0, 3.0, 4.0, 4.0]


class WithFunction:
    """Hyperparameters of which one cannot be pickled, for a module of either package."""

    def __init__(self, width: int = 3, function: Any = lambda x: x) -> None:
        super().__init__()
        self.save_hyperparameters()  # type: ignore[attr-defined]


def test_hyperparameters_that_cannot_be_pickled_leave_before_a_run_as_in_lightning() -> None:
    def scenario(package: Package) -> Any:
        base = type(package.module())
        module = type("Functional", (WithFunction, base), {})()
        warned = package.warned(lambda: package.trainer(max_steps=1).fit(module, loader(4)), "'function'", "cannot be pickled")
        return warned, dict(module.hparams)

    assert require_same(scenario, ("lightning", "eager")) == (True, {"width": 3})


@pytest.mark.parametrize("key", ["hparams", "module_arguments"])
def test_hyperparameters_of_checkpoints_of_old_lightning(key: str) -> None:
    def scenario(package: Package) -> Any:
        cls = type("Wide", (WithFunction, type(package.module())), {})
        path = package.path / "old.ckpt"
        told = {"state_dict": cls().state_dict(), "pytorch-lightning_version": "0.7.6", "epoch": 1, "global_step": 1}
        torch.save({key: {"width": 7}, "checkpoint_callback_best": 0.0, **told}, path)
        return cls.load_from_checkpoint(path).hparams["width"]

    assert require_same(scenario, ("lightning", "eager")) == 7


def test_a_file_of_hyperparameters_that_is_missing_is_told() -> None:
    def scenario(package: Package) -> Any:
        cls = type("Wide", (WithFunction, type(package.module())), {})
        path, found = package.path / "some.ckpt", []
        torch.save({"state_dict": cls().state_dict(), "pytorch-lightning_version": "2.6.0"}, path)
        load = lambda: found.append(cls.load_from_checkpoint(path, hparams_file=package.path / "none.yaml"))  # noqa: E731
        return package.warned(load, "none.yaml"), found[0].hparams["width"]

    assert require_same(scenario, ("lightning", "eager")) == (True, 3)
