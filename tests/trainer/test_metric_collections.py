"""Collections of metrics that share their states, as torchmetrics makes them: updated and logged in training and in validation."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
import torchmetrics
from beside_lightning import beside_lightning, loader

T = torch.Tensor


def _classified(**options: Any) -> torchmetrics.MetricCollection:
    of = {"task": "multiclass", "num_classes": 3, "average": "macro"}
    kinds = {"acc": torchmetrics.Accuracy, "prec": torchmetrics.Precision, "rec": torchmetrics.Recall}
    return torchmetrics.MetricCollection({name: kind(**of) for name, kind in kinds.items()}, **options)


def _doubles(**options: Any) -> torchmetrics.MetricCollection:
    return torchmetrics.MetricCollection([torchmetrics.MeanMetric(), torchmetrics.SumMetric()], **options).set_dtype(
        torch.float64
    )


@pytest.mark.parametrize("devices", [1, 4])
@pytest.mark.parametrize("groups", [True, False])
@pytest.mark.parametrize("make", [_classified, _doubles])
def test_they_are_logged_whole(make: Any, groups: bool, devices: int) -> None:
    def prepare(module: Any) -> None:
        module.of_training = make(prefix="train_", compute_groups=groups)
        module.of_validation = module.of_training.clone(prefix="val_")

    def arguments(module: Any, batch: Any) -> tuple[T, ...]:
        return (module(batch[0]), batch[1]) if make is _classified else (module(batch[0]).square(),)

    def training_step(module: Any, batch: Any, i: int) -> T:
        module.of_training.update(*arguments(module, batch))
        module.log_dict(module.of_training, on_step=False, on_epoch=True)
        return module.loss(batch)

    def validation_step(module: Any, batch: Any, i: int) -> None:
        module.of_validation.update(*arguments(module, batch))
        module.log_dict(module.of_validation)

    methods = {"training_step": training_step, "validation_step": validation_step}
    module = beside_lightning(methods, lambda module: [], prepare=prepare, devices=devices, epochs=3)
    assert len(module.trainer.compiles) <= 6, [one.reason for one in module.trainer.compiles]


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy])
def test_copies_of_numbers_are_the_numbers(copied: Any) -> None:
    def prepare(module: Any) -> None:
        module.count, module.kept, module.share = 0, 0, 0.0

    def training_step(module: Any, batch: Any, i: int) -> T:
        module.count += 1
        kept = copied({"count": module.count, "share": module.share + 0.5, "many": module.count > 2})
        module.kept, module.share = kept["count"], kept["share"]
        return module.loss(batch) * (module.kept + copied(module.share)) * (2 if kept["many"] else 1)

    module = beside_lightning({"training_step": training_step}, lambda module: [module.kept, module.share], prepare=prepare)
    assert len(module.trainer.compiles) <= 4, [one.reason for one in module.trainer.compiles]


class Rows(torchmetrics.Metric):
    """A metric of a user's, with a list and a number; its calls update it twice, as torchmetrics does without a promise."""

    def __init__(self) -> None:
        super().__init__()
        self.add_state("rows", default=[], dist_reduce_fx="cat")
        self.add_state("count", default=torch.tensor(0), dist_reduce_fx="sum")

    def update(self, values: T) -> None:
        self.rows.append(values)
        self.count += len(values)

    def compute(self) -> T:
        return torch.cat(self.rows).mean() * self.count


def _area() -> torchmetrics.Metric:
    return torchmetrics.AUROC(task="multiclass", num_classes=3)


@pytest.mark.parametrize("resets", [True, False])
@pytest.mark.parametrize("make", [Rows, _area, torchmetrics.CatMetric])
def test_calls_of_metrics_with_lists(make: Any, resets: bool) -> None:
    """The value of the batch, and that of all batches, by one program however long the lists are."""

    def prepare(module: Any) -> None:
        module.of_training, module.of_validation = make(), make()

    def called(metric: Any, module: Any, batch: Any) -> T:
        scores = module(batch[0]).detach()
        return (metric(scores, batch[1]) if make is _area else metric(scores)).mean()

    def training_step(module: Any, batch: Any, i: int) -> T:
        module.log("of_batch", called(module.of_training, module, batch))
        return module.loss(batch)

    def validation_step(module: Any, batch: Any, i: int) -> None:
        module.log("val_of_batch", called(module.of_validation, module, batch), batch_size=16)

    def on_train_epoch_end(module: Any) -> None:
        module.seen.append(float(module.of_training.compute().mean()))
        if resets:
            module.of_training.reset()
            module.of_validation.reset()

    methods = {"training_step": training_step, "validation_step": validation_step, "on_train_epoch_end": on_train_epoch_end}
    # a list that nobody empties is more state of training, too, in each epoch
    module = beside_lightning(methods, lambda module: module.seen, prepare=prepare, epochs=4, data=_long, advice=resets)
    if resets:
        assert len(module.trainer.compiles) <= 8, [one.reason for one in module.trainer.compiles]


def _long(count: int, seed: int, batch_size: int) -> Any:
    return loader(2 * count if count == 48 else 96, seed, batch_size)
