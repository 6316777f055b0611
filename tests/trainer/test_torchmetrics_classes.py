"""Classes of torchmetrics in training and validation steps, against their own eager computation."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset
from trainer.three_ways import quiet_trainer
from trainer.torchmetrics_rows import FAMILIES, names, row

import systolic as L

pytest.importorskip("torchmetrics")
pytestmark = pytest.mark.filterwarnings("ignore")  # torchmetrics', of buffers that grow and of classes without samples

REFUSED = {"PeakSignalNoiseRatioWithBlockedEffect": "unhashable type: non-nested SymInt"}
"""Classes whose update does not compile, with words of the answer."""


class Measured(L.LightningModule):
    """Updates one metric in training steps and one in validation steps; logs them where they are one number."""

    def __init__(self, metric: Any, arguments: dict[str, Any], logs: bool) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(()))
        self.trained, self.validated = metric(**arguments), metric(**arguments)
        self.logs = logs
        self.found: dict[str, Any] = {}

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        self.trained.update(*batch)
        if self.logs:
            self.log("trained", self.trained, on_step=False, on_epoch=True)
        return self.weight**2

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.validated.update(*batch)
        if self.logs:
            self.log("validated", self.validated)

    def on_validation_epoch_end(self) -> None:
        self.found["validated"] = self.validated.compute()

    def on_train_epoch_end(self) -> None:
        self.found["trained"] = self.trained.compute()

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), lr=0.1)


def alone(metric: Any, batches: Any) -> Any:
    for batch in batches:
        metric.update(*batch)
    return metric.compute()


@pytest.mark.tables(every=4)
@pytest.mark.parametrize(("family", "name"), [(f, name) for f in ("aggregation", *FAMILIES) for name in names(f)])
def test_a_class_gives_what_it_gives_alone(family: str, name: str) -> None:
    require_row(family, name)


@pytest.mark.parametrize(
    ("family", "name"),
    # the last one keeps its values in attributes whose names have numbers in them
    [("classification", "MulticlassAccuracy"), ("regression", "R2Score"), ("aggregation", "RunningMean")],
)
def test_a_few_of_them(family: str, name: str) -> None:
    require_row(family, name)


def require_row(family: str, name: str) -> None:
    metric, arguments, data = row(family, name)
    batches = DataLoader(TensorDataset(*data), batch_size=8)
    expected = alone(metric(**arguments), batches)
    logs = isinstance(expected, torch.Tensor) and expected.ndim == 0
    module = Measured(metric, arguments, logs)
    trainer = quiet_trainer(num_sanity_val_steps=0, advice=False)
    if name in REFUSED:
        with pytest.raises(Exception, match=REFUSED[name]):
            trainer.fit(module, batches, batches)
        return
    trainer.fit(module, batches, batches)
    for found in module.found.values():
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6, equal_nan=True)
    if logs:
        for found in (trainer.callback_metrics[key] for key in ("trained", "validated")):
            torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6, equal_nan=True, check_dtype=False)
