"""Loggers of trackers (Weights & Biases, MLflow, Comet), with their real packages offline."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest
import torch
from loggers.test_logger_contract import TRACKERS
from loggers.test_logger_contract import offline as offline
from loggers.tracker_readers import comet_parameters, mlflow_parameters, wandb_config, wandb_records
from torch.utils.data import DataLoader

import systolic as L
from systolic.loggers import CometLogger, MLFlowLogger, WandbLogger

# sockets that the packages leave open
pytestmark = [pytest.mark.usefixtures("offline"), pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")]

PARAMETERS = {"lr": 1e-05, "model": {"layers": [64, 32], "act": torch.nn.ReLU}, "opt": Namespace(name="adam"), "none": None}
PLAIN = {
    "lr": 1e-05,
    "model": {"layers": [64, 32], "act": "torch.nn.modules.activation.ReLU"},
    "opt": {"name": "adam"},
    "none": None,
}
FLAT = {
    "lr": 1e-05,
    "model|layers": [64, 32],
    "model|act": "torch.nn.modules.activation.ReLU",
    "opt|name": "adam",
    "none": None,
}


@pytest.fixture(params=TRACKERS)
def name(request: pytest.FixtureRequest) -> str:
    pytest.importorskip(TRACKERS[request.param].package or "")
    return request.param


class Net(L.LightningModule):
    def __init__(self, width: int = 4) -> None:
        super().__init__()
        self.save_hyperparameters()
        self.layer = torch.nn.Linear(width, 1)

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        loss = self.layer(batch).square().mean()
        self.log("loss", loss)
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), 0.1)


def fitted(logger: Any, tmp_path: Path, **kwargs: Any) -> L.Trainer:
    trainer = L.Trainer(accelerator="cpu", devices=2, max_epochs=2, logger=logger, log_every_n_steps=1, enable_progress_bar=False,
                        enable_model_summary=False, default_root_dir=tmp_path, **kwargs)  # fmt: skip
    trainer.fit(Net(), torch.utils.data.DataLoader(torch.ones(8, 4), batch_size=4))
    return trainer


@pytest.mark.tables
def test_hyperparameters(name: str, tmp_path: Path) -> None:
    logger = TRACKERS[name].make(tmp_path)
    logger.log_hyperparams(PARAMETERS)
    logger.log_hyperparams(Namespace(later=1))
    logger.finalize("success")
    if name == "wandb":
        assert wandb_config(logger) == {**PLAIN, "later": 1}
    elif name == "comet":
        assert comet_parameters(logger) == {**FLAT, "later": 1}
    else:
        flat = {key.replace("|", "/"): str(value) for key, value in FLAT.items()}
        assert mlflow_parameters(logger) == {**flat, "later": "1"}


def test_properties_make_nothing(name: str, tmp_path: Path) -> None:
    if name == "comet":
        pytest.skip("as in Lightning, its experiment is made with the logger")
    logger = TRACKERS[name].make(tmp_path)
    assert logger.save_dir == str(tmp_path)
    assert logger.root_dir is None
    if name == "wandb":
        assert (logger.name, logger.version) == ("lightning_logs", None)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.tables
def test_a_run_is_logged_and_its_checkpoints_are_named_by_it(name: str, tmp_path: Path) -> None:
    logger = TRACKERS[name].make(tmp_path)
    trainer = fitted(logger, tmp_path)
    assert logger.version is not None
    assert trainer.checkpoint_callback.dirpath.endswith(f"{logger.version}/checkpoints")
    assert trainer.log_dir == logger.save_dir
    values = TRACKERS[name].read(logger)
    assert [step for step, _ in values["loss"]] == [0, 1]
    assert values["loss"][-1][1] == pytest.approx(float(trainer.callback_metrics["loss"]), rel=1e-6)


@pytest.mark.tables
def test_copies_go_on_with_the_same_run(name: str, tmp_path: Path) -> None:
    if name == "comet":
        pytest.skip("an offline experiment is one file, which only its own process writes")
    logger = TRACKERS[name].make(tmp_path)
    logger.log_metrics({"x": 1.0}, 0)
    version = logger.version
    if name == "wandb":
        logger.experiment.finish()
    for other in (copy.deepcopy(logger), pickle.loads(pickle.dumps(logger))):
        assert other.version == version


@pytest.mark.tables
def test_wandb_media_and_prefix(tmp_path: Path) -> None:
    wandb = pytest.importorskip("wandb")
    logger = WandbLogger(save_dir=tmp_path, offline=True, prefix="run", project="digits", tags=["a"])
    logger.log_metrics({"x": 1.0}, 3)
    logger.log_text("text", columns=["a", "b"], data=[["one", "two"]], step=3)
    logger.log_table("table", columns=["a"], data=[[1], [2]])
    logger.log_image("image", [torch.zeros(3, 4, 4)], caption=["black"], step=4)
    with pytest.raises(TypeError, match='Expected a list as "images", found'):
        logger.log_image("image", torch.zeros(3, 4, 4))
    with pytest.raises(ValueError, match="Expected 1 items but only found 2 for caption"):
        logger.log_image("image", [torch.zeros(3, 4, 4)], caption=["a", "b"])
    assert logger.name == "digits"
    assert logger.experiment is wandb.run
    assert logger.version == wandb.run.id
    with pytest.warns(UserWarning, match="A run of wandb is in progress"):
        assert WandbLogger(save_dir=tmp_path, offline=True).experiment is wandb.run
    logger.experiment.finish()
    names = {item.key or item.nested_key[0] for record in wandb_records(tmp_path) for item in record.history.item}
    assert {"run-x", "run-text", "run-table", "run-image", "trainer/global_step"} <= names


@pytest.mark.tables
def test_wandb_keeps_checkpoints_as_artifacts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("wandb")
    logger = WandbLogger(save_dir=tmp_path, log_model="all")  # offline by the environment, as in a job that is synced later
    trainer = fitted(logger, tmp_path, callbacks=[L.callbacks.ModelCheckpoint(monitor="loss", save_top_k=2)])
    best = trainer.checkpoint_callback.best_model_path
    logger.experiment.finish()
    artifacts = [r.request.log_artifact.artifact for r in wandb_records(tmp_path) if r.request.HasField("log_artifact")]
    artifacts += [r.artifact for r in wandb_records(tmp_path) if r.HasField("artifact")]
    kept = [a for a in artifacts if a.type == "model"]
    assert {a.name for a in kept} == {f"model-{logger.version}"}
    assert len(kept) == 2
    assert set(kept[-1].aliases) == {"latest", "best"}  # wandb keeps them in an order of its own
    assert Path(best).name in kept[-1].metadata
    assert [entry.path for entry in kept[-1].manifest.contents] == ["model.ckpt"]


def test_wandb_refuses_and_warns() -> None:
    pytest.importorskip("wandb")
    with pytest.raises(L.MisconfigurationException, match="is an invalid configuration"):
        WandbLogger(offline=True, log_model=True)
    with pytest.warns(UserWarning, match="records nothing"):
        WandbLogger(offline=True).watch(torch.nn.Linear(1, 1))


@pytest.mark.tables
@pytest.mark.parametrize("log_model", [True, "all", False])
def test_mlflow_keeps_checkpoints(log_model: Any, tmp_path: Path) -> None:
    pytest.importorskip("mlflow")
    logger = MLFlowLogger(
        "digits", run_name="first", tracking_uri=f"file:{tmp_path}/runs", tags={"a": "b"}, log_model=log_model
    )
    callback = L.callbacks.ModelCheckpoint(monitor="loss", filename="{epoch}", save_top_k=1)
    fitted(logger, tmp_path, callbacks=[callback])
    run = logger.experiment.get_run(logger.run_id)
    assert run.info.status == "FINISHED"
    assert run.info.run_name == "first"
    assert run.data.tags["a"] == "b"
    places = sorted(file.path for file in logger.experiment.list_artifacts(logger.run_id))
    assert places == {True: ["epoch=1"], "all": ["epoch=0", "epoch=1"], False: []}[log_model]
    if log_model:
        files = sorted(file.path for file in logger.experiment.list_artifacts(logger.run_id, "epoch=1"))
        assert files == ["epoch=1/aliases.txt", "epoch=1/epoch=1.ckpt", "epoch=1/metadata.yaml"]


@pytest.mark.tables
def test_mlflow_goes_on_with_a_run_and_replaces_characters(tmp_path: Path) -> None:
    pytest.importorskip("mlflow")
    first = MLFlowLogger(tracking_uri=f"file:{tmp_path}")
    first.log_metrics({"loss": 1.0}, 0)
    first.finalize("failed")
    assert first.experiment.get_run(first.run_id).info.status == "FAILED"
    second = MLFlowLogger(tracking_uri=f"file:{tmp_path}", run_id=first.run_id)
    assert second.experiment_id == first.experiment_id
    with pytest.warns(RuntimeWarning, match=r"Replacing a,b \(c\) with ab c"):
        second.log_metrics({"a,b (c)": 2.0}, 1)
    with pytest.warns(UserWarning, match="Discarding metric with string value"):
        second.log_metrics({"word": "x"}, 1)
    assert second.experiment.get_run(first.run_id).data.metrics == {"loss": 1.0, "ab c": 2.0}


@pytest.mark.tables
def test_comet_takes_old_names(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    pytest.importorskip("comet_ml")
    logger = CometLogger(project_name="digits", offline=True, save_dir=str(tmp_path), prefix="run", display_summary_level=0)
    assert logger.name == "digits"
    assert logger.save_dir == str(tmp_path)
    assert len([r for r in caplog.records if "today" in r.message]) == 3
    logger.log_metrics({"x": torch.tensor(1.0), "epoch": 3}, 2)
    assert TRACKERS["comet"].read(logger) == {"run_x": [(2, 1.0)]}


@pytest.mark.parametrize("cls", [WandbLogger, MLFlowLogger, CometLogger])
def test_without_its_package_the_error_says_what_to_install(cls: type, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("wandb", "mlflow", "comet_ml"):
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ModuleNotFoundError, match="Install it with `pip install "):
        cls()


@pytest.mark.tables
def test_importing_loggers_imports_no_tracker() -> None:
    code = "import sys, systolic; print([m for m in ('wandb', 'mlflow', 'comet_ml') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"


@pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning")  # Lightning's
def test_runs_begin_before_setup_and_that_of_wandb_first(tmp_path: Path) -> None:
    """As in Lightning: `setup` may log, and what TensorBoard writes is synchronized with a run of wandb that is there."""

    def seen(package: Any) -> list[str]:
        order: list[str] = []

        class Kept(package.loggers.CSVLogger):  # type: ignore[misc]
            @property
            def experiment(self) -> Any:
                order.append(type(self).__name__)
                return super().experiment

        WandbLogger = type(
            "WandbLogger", (package.loggers.WandbLogger,), {"experiment": property(lambda self: order.append("w"))}
        )

        class Model(package.LightningModule):  # type: ignore[misc]
            def setup(self, stage: str) -> None:
                order.append("module")

            def test_step(self, batch: Any, batch_idx: int) -> None: ...

        class Data(package.LightningDataModule):  # type: ignore[misc]
            def prepare_data(self) -> None:
                order.append("prepare")

            def setup(self, stage: str) -> None:
                order.append("data")

            def test_dataloader(self) -> Any:
                return DataLoader(torch.zeros(2, 1))

        loggers = [Kept(tmp_path), WandbLogger(save_dir=tmp_path, offline=True)]
        trainer = package.Trainer(accelerator="cpu", devices=1, logger=loggers, enable_progress_bar=False)
        trainer.test(Model(), datamodule=Data())
        return list(dict.fromkeys(order))[:5]  # Lightning asks twice

    pytest.importorskip("wandb")
    assert seen(L) == seen(pytest.importorskip("lightning.pytorch")) == ["prepare", "w", "Kept", "data", "module"]


def test_mlflow_that_cannot_choose_how_to_send_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("mlflow")
    monkeypatch.setattr("systolic.loggers.mlflow._MLFLOW_SYNCHRONOUS_AVAILABLE", False)
    MLFlowLogger(save_dir=str(tmp_path))
    with pytest.raises(ModuleNotFoundError, match=r"synchronous=False\) needs mlflow>=2.8.0"):
        MLFlowLogger(save_dir=str(tmp_path), synchronous=False)
