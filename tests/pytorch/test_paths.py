"""Names at Lightning's paths: `from systolic.pytorch.utilities import grad_norm` and the like."""

from __future__ import annotations

import importlib
from typing import Any

import lightning.pytorch
import pytest
import torch
from torch import nn

import systolic as L

PATHS = {
    "callbacks.early_stopping": ["EarlyStopping"],
    "callbacks.model_checkpoint": ["ModelCheckpoint"],
    "callbacks.progress": ["ProgressBar", "RichProgressBar", "TQDMProgressBar"],
    "callbacks.progress.rich_progress": ["RichProgressBar", "RichProgressBarTheme"],
    "core.datamodule": ["LightningDataModule"],
    "core.module": ["LightningModule"],
    "core.optimizer": ["LightningOptimizer"],
    "demos.boring_classes": ["BoringModel", "BoringDataModule", "DemoModel", "ManualOptimBoringModel", "RandomDataset"],
    "loggers.csv_logs": ["CSVLogger"],
    "loggers.tensorboard": ["TensorBoardLogger"],
    "plugins.environments": ["SLURMEnvironment"],
    "plugins.io": ["AsyncCheckpointIO", "CheckpointIO", "TorchCheckpointIO"],
    "profilers.simple": ["SimpleProfiler"],
    "strategies": ["DDPStrategy", "FSDPStrategy", "SingleDeviceStrategy"],
    "trainer.states": ["RunningStage", "TrainerFn", "TrainerStatus"],
    "tuner.tuning": ["Tuner"],
    "utilities.combined_loader": ["CombinedLoader"],
    "utilities.enums": ["GradClipAlgorithmType"],
    "utilities.exceptions": ["MisconfigurationException"],
    "utilities.grads": ["grad_norm"],
    "utilities.memory": ["garbage_collection_cuda", "is_oom_error", "recursive_detach"],
    "utilities.model_helpers": ["is_overridden"],
    "utilities.model_summary": ["ModelSummary", "summarize"],
    "utilities.parsing": ["AttributeDict", "is_picklable", "lightning_getattr", "lightning_hasattr", "lightning_setattr"],
    "utilities.rank_zero": ["rank_zero_deprecation", "rank_zero_info", "rank_zero_only", "rank_zero_warn"],
    "utilities.seed": ["isolate_rng"],
    "utilities.types": ["EVAL_DATALOADERS", "STEP_OUTPUT", "TRAIN_DATALOADERS", "OptimizerLRScheduler"],
}
"""By module of `lightning.pytorch`: what scripts import from there."""

NOT_HERE = {"LightningEnum", "disable_possible_user_warnings", "is_shared_filesystem", "measure_flops"}
"""Names of `lightning.pytorch.utilities` that systolic has no use for."""


@pytest.mark.parametrize("path", PATHS)
def test_names_are_where_lightning_has_them(path: str) -> None:
    theirs, ours = (importlib.import_module(f"{root}.pytorch.{path}") for root in ("lightning", "systolic"))
    for name in PATHS[path]:
        assert hasattr(theirs, name), f"Lightning has no {path}.{name}"
        found = getattr(ours, name)
        assert getattr(found, "__module__", "systolic").startswith(("systolic", "typing", "types", "torch"))


def test_all_of_utilities_but_a_few() -> None:
    names = set(lightning.pytorch.utilities.__all__)
    missing = {name for name in names if not hasattr(L.pytorch.utilities, name)}
    assert missing == NOT_HERE


def test_a_path_gives_the_class_and_no_second_one() -> None:
    from systolic.pytorch.callbacks.early_stopping import EarlyStopping
    from systolic.pytorch.utilities.combined_loader import CombinedLoader

    assert EarlyStopping is L.callbacks.EarlyStopping
    assert L.pytorch.callbacks.early_stopping.EarlyStopping is EarlyStopping
    assert L.pytorch.utilities.combined_loader.CombinedLoader is CombinedLoader


def test_what_is_nowhere_is_an_error() -> None:
    with pytest.raises(AttributeError, match=r"module 'systolic\.pytorch\.utilities' has no attribute 'nothing'"):
        _ = L.pytorch.utilities.nothing
    with pytest.raises(ImportError):
        importlib.import_module("systolic.pytorch.nothing")


@pytest.mark.parametrize("kind", [1, 2.0, "inf"])
def test_norms_of_gradients_are_lightnings(kind: Any) -> None:
    model = nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 1), nn.Linear(2, 2))
    model[:2](torch.randn(5, 4)).square().sum().backward()
    ours = L.pytorch.utilities.grad_norm(model, kind)
    theirs = lightning.pytorch.utilities.grad_norm(model, kind)
    assert list(ours) == list(theirs)
    torch.testing.assert_close({k: float(v) for k, v in ours.items()}, {k: float(v) for k, v in theirs.items()})
    with pytest.raises(ValueError, match="above zero"):
        L.pytorch.utilities.grad_norm(model, 0)


class _Module(L.LightningModule):
    def __init__(self, width: int = 3) -> None:
        super().__init__()
        self.save_hyperparameters()

    def training_step(self, batch: Any) -> None: ...


def test_methods_that_are_overridden() -> None:
    asked = L.pytorch.utilities.model_helpers.is_overridden
    assert [asked(name, _Module()) for name in ("training_step", "validation_step", "nothing")] == [True, False, False]
    assert not asked("training_step", None)
    assert asked("training_step", _Module(), parent=L.LightningModule)
    with pytest.raises(ValueError, match="Expected a parent"):
        asked("training_step", object())


def test_attributes_of_modules_and_of_hyper_parameters() -> None:
    parsing = L.pytorch.utilities.parsing
    module = _Module()
    assert parsing.lightning_hasattr(module, "width")
    assert not parsing.lightning_hasattr(module, "height")
    parsing.lightning_setattr(module, "width", 5)
    assert parsing.lightning_getattr(module, "width") == module.hparams["width"] == 5
    with pytest.raises(AttributeError, match="height"):
        parsing.lightning_getattr(module, "height")


def test_the_generators_are_as_they_were() -> None:
    torch.manual_seed(3)
    with L.pytorch.utilities.seed.isolate_rng():
        drawn = torch.rand(2)
    torch.testing.assert_close(torch.rand(2), drawn)


def test_shared_parameters() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    model[1].weight = model[0].weight
    utilities = L.pytorch.utilities
    shared = utilities.find_shared_parameters(model)
    assert shared == lightning.pytorch.utilities.find_shared_parameters(model) == [["0.weight", "1.weight"]]
    model[1].weight = nn.Parameter(torch.zeros(2, 2))
    assert utilities.set_shared_parameters(model, shared)[1].weight is model[0].weight
