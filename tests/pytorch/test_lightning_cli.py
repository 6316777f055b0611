"""LightningCLI: the same command lines as under Lightning's own, with equal configurations, objects and weights."""

from __future__ import annotations

import types
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch

import systolic as L

pytest.importorskip("jsonargparse")
lightning = pytest.importorskip("lightning.pytorch")

from lightning.pytorch import cli as theirs  # noqa: E402

from systolic.pytorch import cli as ours  # noqa: E402

yaml = pytest.importorskip("yaml")

# lightning's own warnings, and those of a machine with two cores
pytestmark = pytest.mark.filterwarnings(
    "ignore:::lightning", "ignore:.*does not have many workers", "ignore:.*isinstance.treespec"
)


def classes_of(base: Any, module: types.ModuleType) -> types.SimpleNamespace:
    """A module, data and a callback that derive from a package's classes."""

    class Net(base.LightningModule):
        def __init__(self, width: int = 4, activation: torch.nn.Module | None = None, lr: float = 0.1):
            super().__init__()
            self.save_hyperparameters()
            self.activation = activation or torch.nn.Identity()
            self.layer = torch.nn.Linear(width, 1)

        def step(self, batch: Any) -> torch.Tensor:
            return (self.activation(self.layer(batch[0])) - batch[1]).square().mean()

        def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
            loss = self.step(batch)
            self.log("loss", loss)
            return loss

        def validation_step(self, batch: Any, batch_idx: int) -> None:
            self.log("val_loss", self.step(batch))

        def test_step(self, batch: Any, batch_idx: int) -> None:
            self.log("test_loss", self.step(batch))

        def predict_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
            return self.layer(batch[0])

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), self.hparams["lr"])

    class Wide(Net):
        def __init__(self, extra: int = 3, **kwargs: Any):
            super().__init__(**kwargs)
            self.extra = extra

    class Data(base.LightningDataModule):
        def __init__(self, batch_size: int = 8, width: int = 4):
            super().__init__()
            self.save_hyperparameters()
            self.batch_size = batch_size
            self.size = width

        def setup(self, stage: str) -> None:
            generator = torch.Generator().manual_seed(0)
            inputs = torch.randn(32, self.size, generator=generator)
            self.data = torch.utils.data.TensorDataset(inputs, inputs.sum(1, keepdim=True))

        def train_dataloader(self) -> Any:
            return torch.utils.data.DataLoader(self.data, batch_size=self.batch_size)

        val_dataloader = test_dataloader = predict_dataloader = train_dataloader

    found = types.SimpleNamespace(Net=Net, Wide=Wide, Data=Data, cli=module, base=base)
    for cls in (Net, Wide, Data):
        # class paths name it: it must be found in a module
        cls.__module__, cls.__qualname__ = module.__name__, cls.__name__
        setattr(module, cls.__name__, cls)
    return found


OURS, THEIRS = classes_of(L, ours), classes_of(lightning, theirs)
QUIET = {"accelerator": "cpu", "devices": 1, "logger": False, "enable_progress_bar": False, "enable_model_summary": False,
         "enable_checkpointing": False, "log_every_n_steps": 1}  # fmt: skip


def run(which: types.SimpleNamespace, args: list[str], **kwargs: Any) -> Any:
    """The command line of one package, with its own defaults of the classes."""
    kwargs = {"model_class": which.Net, "datamodule_class": which.Data, "save_config_callback": None, **kwargs}
    kwargs["trainer_defaults"] = {**QUIET, **kwargs.get("trainer_defaults", {})}
    cls = kwargs.pop("cls", which.cli.LightningCLI)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*will be overridden by")
        if which is THEIRS:  # Lightning calls jsonargparse by names that are deprecated
            warnings.filterwarnings("ignore", category=DeprecationWarning)
        return cls(args=args, **kwargs)


def both(args: list[str], **kwargs: Any) -> tuple[Any, Any]:
    return run(OURS, args, **kwargs), run(THEIRS, args, **kwargs)


@pytest.fixture(autouse=True)
def _alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["main.py"])
    monkeypatch.setenv("PL_GLOBAL_SEED", "0")


def common(config: Any) -> dict[str, Any]:
    """What a configuration says of everything but the Trainer, whose arguments are not all the same."""
    plain = config.as_dict()
    plain = plain.get(plain.get("subcommand") or "", plain)
    return {key: value for key, value in plain.items() if key != "trainer"}


COMMANDS: dict[str, list[str]] = {
    "defaults": ["fit"],
    "values": ["fit", "--model.lr=0.05", "--data.batch_size=4", "--seed_everything=7"],
    "optimizer by name": ["fit", "--optimizer=Adam", "--optimizer.lr=0.02"],
    "optimizer and scheduler": ["fit", "--optimizer=SGD", "--optimizer.lr=0.1", "--lr_scheduler=StepLR", "--lr_scheduler.step_size=1"],
    "optimizer by path": ["fit", '--optimizer={"class_path": "torch.optim.RMSprop", "init_args": {"lr": 0.01}}'],
    "plateau": ["fit", "--optimizer=SGD", "--optimizer.lr=0.1", "--lr_scheduler=ReduceLROnPlateau", "--lr_scheduler.monitor=loss"],
    "module argument": ["fit", "--model.activation=torch.nn.LeakyReLU", "--model.activation.negative_slope=0.2"],
    "trainer arguments": ["fit", "--trainer.gradient_clip_val=0.1", "--trainer.accumulate_grad_batches=2"],
    "validate": ["validate"],
    "test": ["test"],
}  # fmt: skip


@pytest.mark.thin(5)
@pytest.mark.parametrize("command", COMMANDS)
def test_command_lines_do_what_they_do_under_lightning(command: str) -> None:
    our, their = both(COMMANDS[command], trainer_defaults={"max_epochs": 2})
    ignored = ("class_path",)
    got, expected = common(our.config), common(their.config)
    assert got.keys() == expected.keys()
    assert {k: v for k, v in got.items() if k not in ignored and command != "plateau"} == {
        k: v for k, v in expected.items() if k not in ignored and command != "plateau"
    }
    assert our.subcommand == their.subcommand
    assert our.trainer.global_step == their.trainer.global_step
    assert {**our.model.hparams} == {**their.model.hparams}
    assert {**our.datamodule.hparams} == {**their.datamodule.hparams}
    for name, value in their.model.state_dict().items():
        torch.testing.assert_close(our.model.state_dict()[name], value, rtol=1e-5, atol=1e-6)
    for name, value in their.trainer.callback_metrics.items():
        torch.testing.assert_close(our.trainer.callback_metrics[name], value, rtol=1e-5, atol=1e-6)


@pytest.mark.tables
def test_predict_runs() -> None:
    cli = run(OURS, ["predict"])
    assert cli.subcommand == "predict"
    assert cli.trainer.state.finished


def test_a_configuration_file_gives_what_was_saved(tmp_path: Path) -> None:
    args = ["fit", "--model.lr=0.05", "--optimizer=Adam", "--optimizer.lr=0.02", "--trainer.max_epochs=1"]
    first = run(OURS, args, save_config_callback=ours.SaveConfigCallback)
    saved = yaml.safe_load((tmp_path / "config.yaml").read_text())
    assert (tmp_path / "config.yaml").read_text().startswith("# systolic==")
    assert saved["model"] == {"width": 4, "activation": None, "lr": 0.05}
    assert saved["seed_everything"] == 0
    with pytest.raises(RuntimeError, match="to NOT exist. Aborting to avoid overwriting"):
        run(OURS, args, save_config_callback=ours.SaveConfigCallback)
    overwriting = {"save_config_callback": ours.SaveConfigCallback, "save_config_kwargs": {"overwrite": True}}
    again = run(OURS, ["fit", "--config=config.yaml"], **overwriting)
    assert torch.equal(first.model.layer.weight, again.model.layer.weight)


def test_print_config_is_a_configuration(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    with pytest.raises(SystemExit) as end:
        run(OURS, ["fit", "--trainer.callbacks+=EarlyStopping", "--trainer.callbacks.monitor=loss", "--print_config"])
    assert end.value.code == 0
    text = capsys.readouterr().out
    assert yaml.safe_load(text)["trainer"]["callbacks"][0]["class_path"] == "systolic.callbacks.EarlyStopping"
    (tmp_path / "printed.yaml").write_text(text)
    cli = run(OURS, ["fit", "-c", "printed.yaml", "--trainer.max_epochs=1"])
    assert isinstance(cli.trainer.early_stopping_callback, L.callbacks.EarlyStopping)


def test_names_of_loggers_callbacks_and_profilers_suffice(tmp_path: Path) -> None:
    args = ["--trainer.logger=CSVLogger", "--trainer.logger.save_dir=logs", "--trainer.profiler=SimpleProfiler",
            "--trainer.callbacks+=LearningRateMonitor", "--trainer.callbacks.logging_interval=step",
            "--trainer.callbacks+=Timer", "--trainer.plugins=AsyncCheckpointIO", "--trainer.precision=bf16-mixed",
            "--trainer.max_time=00:01:00:00", "--trainer.devices=2"]  # fmt: skip
    cli = run(OURS, args, run=False)
    assert isinstance(cli.trainer.logger, L.loggers.CSVLogger)
    assert cli.trainer.logger.save_dir == "logs"
    assert isinstance(cli.trainer.profiler, L.profilers.SimpleProfiler)
    names = [type(callback).__name__ for callback in cli.trainer.callbacks]
    assert names[:2] == ["LearningRateMonitor", "Timer"]
    assert cli.trainer.precision == "bf16-mixed"
    assert cli.trainer.num_devices == 2
    timers = [callback for callback in cli.trainer.callbacks if isinstance(callback, L.callbacks.Timer)]
    assert [timer.time_remaining() for timer in timers] == [None]  # as in Lightning: beside a Timer, max_time counts nothing


def test_a_cluster_and_options_of_strategies_may_be_named(tmp_path: Path) -> None:
    cli = run(
        OURS,
        [
            "--trainer.plugins=SLURMEnvironment", "--trainer.plugins.requeue_signal=SIGUSR2",
            "--trainer.strategy=DDPStrategy", "--trainer.strategy.find_unused_parameters=true", "--trainer.logger=false",
        ],
        run=False,
    )  # fmt: skip
    assert cli.trainer._accelerator_connector.cluster_environment.requeue_signal.name == "SIGUSR2"
    assert cli.config_init.trainer.strategy.find_unused_parameters is True


def test_misspelt_arguments_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        run(OURS, ["fit", "--trainer.max_epocs=1"])
    assert "max_epocs" in capsys.readouterr().err


@pytest.mark.tables
@pytest.mark.parametrize("which", [OURS, THEIRS], ids=["ours", "theirs"])
def test_links_defaults_and_methods_of_a_subclass(which: types.SimpleNamespace) -> None:
    class MyCLI(which.cli.LightningCLI):
        called: list[str] = []

        def add_arguments_to_parser(self, parser: Any) -> None:
            parser.link_arguments("data.width", "model.width")
            parser.add_lightning_class_args(which.base.callbacks.EarlyStopping, "stopping")
            parser.set_defaults({"stopping.monitor": "loss", "stopping.patience": 9})

        def before_instantiate_classes(self) -> None:
            self.called.append("before_instantiate")

        def after_instantiate_classes(self) -> None:
            self.called.append("after_instantiate")

        def before_fit(self) -> None:
            self.called.append("before_fit")

        def after_fit(self) -> None:
            self.called.append("after_fit")

    cli = run(which, ["fit", "--data.width=6"], cls=MyCLI, trainer_defaults={"max_epochs": 1})
    assert MyCLI.called == ["before_instantiate", "after_instantiate", "before_fit", "after_fit"]
    assert cli.model.layer.in_features == 6
    assert cli.model.hparams["width"] == 6
    assert cli.trainer.early_stopping_callback.patience == 9


@pytest.mark.tables
@pytest.mark.parametrize("which", [OURS, THEIRS], ids=["ours", "theirs"])
def test_a_checkpoint_builds_the_subclass_with_its_arguments(which: types.SimpleNamespace, tmp_path: Path) -> None:
    args = [f"--model={which.cli.__name__}.Wide", "--model.extra=5", "--model.activation=torch.nn.LeakyReLU",
            "--model.activation.negative_slope=0.5", "--model.width=4"]  # fmt: skip
    cli = run(which, ["fit", *args], subclass_mode_model=True, trainer_defaults={"max_epochs": 1})
    cli.trainer.save_checkpoint("a.ckpt")
    loaded = which.base.LightningModule.load_from_checkpoint("a.ckpt")
    assert type(loaded) is which.Wide
    assert loaded.extra == 5
    if which is OURS:  # Lightning keeps the objects then, and warns of them
        assert {**loaded.hparams} == {**cli.model.hparams}
    assert loaded.activation.negative_slope == 0.5
    assert torch.equal(loaded.layer.weight, cli.model.layer.weight)
    predicted = run(which, ["predict", f"--model={which.cli.__name__}.Wide", "--ckpt_path=a.ckpt"], subclass_mode_model=True)
    assert predicted.model.extra == 5


@pytest.mark.tables
def test_files_of_both_packages_are_read_by_the_other(tmp_path: Path) -> None:
    for which, name in ((OURS, "ours"), (THEIRS, "theirs")):
        cli = run(which, ["fit", "--model.activation=torch.nn.ReLU"], trainer_defaults={"max_epochs": 1})
        cli.trainer.save_checkpoint(f"{name}.ckpt")
    assert isinstance(OURS.Net.load_from_checkpoint("theirs.ckpt").activation, torch.nn.ReLU)
    assert isinstance(THEIRS.Net.load_from_checkpoint("ours.ckpt").activation, torch.nn.ReLU)


@pytest.mark.tables
def test_a_checkpoint_names_no_function_and_no_class_of_its_own(tmp_path: Path) -> None:
    cli = run(OURS, ["fit"], trainer_defaults={"max_epochs": 1})
    cli.trainer.save_checkpoint("a.ckpt")
    for change, message in (
        ({"_instantiator": "os.system"}, "could run any code"),
        ({"_class_path": "os.path"}, "imported already"),
    ):
        checkpoint = torch.load("a.ckpt", weights_only=True)
        checkpoint["hyper_parameters"].update(change)
        torch.save(checkpoint, "b.ckpt")
        with pytest.raises(ValueError, match=message):
            OURS.Net.load_from_checkpoint("b.ckpt")


@pytest.mark.tables
def test_two_automatic_optimizers_are_refused() -> None:
    class TwoCLI(ours.LightningCLI):
        def add_arguments_to_parser(self, parser: Any) -> None:
            parser.add_optimizer_args(torch.optim.Adam, "first")
            parser.add_optimizer_args(torch.optim.SGD, "second")

    with pytest.raises(L.MisconfigurationException, match="at most one optimizer"):
        run(OURS, [], cls=TwoCLI, run=False)


@pytest.mark.tables
def test_an_optimizer_of_the_command_line_is_told() -> None:
    with pytest.warns(UserWarning, match="Net.configure_optimizers` will be overridden by `LightningCLI"):
        ours.LightningCLI(OURS.Net, OURS.Data, args=["--optimizer=Adam"], run=False, save_config_callback=None)


@pytest.mark.tables
def test_words_beside_a_command_line_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["main.py", "--model.lr=1"])
    with pytest.warns(UserWarning, match="LightningCLI's args parameter"):
        cli = run(OURS, ["--model.lr=2"], run=False)
    assert cli.model.hparams["lr"] == 2


def test_everything_of_lightnings_module_is_here() -> None:
    public = {"ActionConfigFile", "ArgsType", "ArgumentParser", "LRSchedulerCallable", "LRSchedulerType", "LRSchedulerTypeTuple",
              "LRSchedulerTypeUnion", "LightningArgumentParser", "LightningCLI", "Namespace", "OptimizerCallable", "ReduceLROnPlateau",
              "SaveConfigCallback", "class_from_function", "instantiate_class", "instantiate_module"}  # fmt: skip
    assert public <= set(vars(theirs))
    assert public <= set(vars(ours))


def test_without_jsonargparse_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "jsonargparse", None)
    monkeypatch.delitem(__import__("sys").modules, "systolic.pytorch.cli")
    monkeypatch.delattr("systolic.pytorch.cli")
    with pytest.raises(ModuleNotFoundError, match=r'pip install "systolic\[cli\]"'):
        _ = L.pytorch.cli
