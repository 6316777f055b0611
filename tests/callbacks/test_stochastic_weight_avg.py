"""StochasticWeightAveraging: what Lightning's does, its epoch for batch norms included."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from callbacks.averaging import EIGHT, ONE, account, loaders, module, require_close
from trainer.as_lightning import Package, accounts, package
from trainer.three_ways import quiet_trainer

import systolic as L


def scheduled(self: Any) -> Any:
    optimizer = torch.optim.SGD(self.parameters(), lr=0.05, momentum=0.9)
    return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.8)]


def grouped(self: Any) -> Any:
    return torch.optim.SGD([{"params": self.net[0].parameters()}, {"params": self.net[3].parameters(), "lr": 0.02}], lr=0.05)


TABLE: dict[str, dict[str, Any]] = {
    "batch norm": {"swa_lrs": 0.02, "swa_epoch_start": 2, "annealing_epochs": 2},
    "without": {"swa_lrs": 0.02, "swa_epoch_start": 2, "annealing_epochs": 2, "annealing_strategy": "linear", "norm": False},
    "a part": {"swa_lrs": 0.02, "norm": False},
    "on the devices": {"swa_lrs": 0.02, "swa_epoch_start": 0.5, "device": None},
    "another scheduler": {"swa_lrs": 0.02, "swa_epoch_start": 2, "methods": {"configure_optimizers": scheduled}},
    "groups": {"swa_lrs": [0.02, 0.01], "swa_epoch_start": 1, "methods": {"configure_optimizers": grouped}},
    "avg_fn": {"swa_lrs": 0.02, "swa_epoch_start": 1, "avg_fn": lambda mean, new, count: 0.75 * mean + 0.25 * new},
    "accumulation": {"swa_lrs": 0.02, "swa_epoch_start": 2, "accumulate_grad_batches": 2},
    "stops before": {"swa_lrs": 0.02, "swa_epoch_start": 2, "max_steps": 7, "norm": False},
}
OF_THE_RUN = ("norm", "methods", "accumulate_grad_batches", "max_steps")


def averaged(package: Package, name: str, **options: Any) -> Any:
    given = {key: value for key, value in TABLE[name].items() if key not in OF_THE_RUN}
    run = {key: value for key, value in TABLE[name].items() if key in OF_THE_RUN}
    make = lambda callbacks: callbacks.StochasticWeightAveraging(**given)  # noqa: E731
    return account(package, make, **{"epochs": 4, **run, **options})


@pytest.mark.thin(4)
@pytest.mark.parametrize("name", list(TABLE))
def test_averages_are_lightnings(name: str) -> None:
    theirs, *ours = accounts(lambda package: averaged(package, name), ONE)
    for found in ours:
        require_close(found, theirs)


@pytest.mark.thin(2)
@pytest.mark.parametrize("name", ["on the devices", "another scheduler"])
def test_averages_on_eight_cores(name: str) -> None:
    theirs, ours = accounts(lambda package: averaged(package, name, devices=8), EIGHT)
    require_close(ours, theirs)


OFTEN = {("batch norm", 1): (), ("batch norm", 4): pytest.mark.tables, ("another scheduler", 3): pytest.mark.tables}


@pytest.mark.parametrize(
    ("name", "done"),
    [
        pytest.param(name, done, marks=OFTEN.get((name, done), pytest.mark.slow))
        for name in ("batch norm", "another scheduler")
        for done in (1, 3, 4)
    ],
)
def test_a_run_goes_on_with_its_average(name: str, done: int) -> None:
    def scenario(package: Package) -> Any:
        averaged(package, name)
        found = averaged(package, name, path=package.path / f"{done - 1}.ckpt")
        found[1] = [seen for seen in found[1] if seen[0] == "epoch"]  # Lightning validates the last epoch once more
        if done == 4:  # of an average that is only taken up Lightning saves the values, and forgets how many they are of
            del found[2][0]["callback"]["n_averaged"]
        return found

    (whole,) = accounts(lambda package: averaged(package, name), ("compiled",))
    theirs, ours = accounts(scenario, EIGHT)
    require_close(ours, theirs)
    require_close(ours[0], whole[0])


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"swa_lrs": 0.1, "swa_epoch_start": 0}, "swa_epoch_start"),
        ({"swa_lrs": 0.1, "swa_epoch_start": 1.5}, "swa_epoch_start"),
        ({"swa_lrs": 0.1, "swa_epoch_start": -1}, "swa_epoch_start"),
        ({"swa_lrs": 0.0}, "swa_lrs"),
        ({"swa_lrs": [0.1, 1]}, "swa_lrs"),
        ({"swa_lrs": 0.1, "avg_fn": 3}, "avg_fn"),
        ({"swa_lrs": 0.1, "device": "cuda"}, "device"),
    ],
)
def test_what_is_refused(arguments: dict[str, Any], named: str) -> None:
    with pytest.raises(L.MisconfigurationException, match=named):
        L.callbacks.StochasticWeightAveraging(**arguments)


def test_one_optimizer_and_one_scheduler(tmp_path: Any) -> None:
    def two(self: Any) -> Any:
        optimizer = torch.optim.SGD(self.parameters(), lr=0.1)
        return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1) for _ in range(2)]

    for methods, epochs, match in (({"configure_optimizers": two}, 2, "one scheduler"), ({}, -1, "part of max_epochs")):
        trainer = quiet_trainer(max_epochs=epochs, max_steps=2, callbacks=[L.callbacks.StochasticWeightAveraging(0.1)])
        with pytest.raises(L.MisconfigurationException, match=match):
            trainer.fit(module(package("compiled", tmp_path), **methods), loaders(1)[0])


@pytest.mark.parametrize("epoch", [2, 4])
def test_a_run_goes_on_in_the_middle_of_an_epoch(epoch: int, tmp_path: Any) -> None:
    """Of an averaged one, and of the one for the batch norms."""

    class Saving(L.Callback):
        def on_train_batch_end(self, trainer: L.Trainer, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
            if trainer.current_epoch == epoch and batch_idx == 2:
                trainer.save_checkpoint(tmp_path / "middle.ckpt")

    def fitted(*callbacks: L.Callback, path: Any = None) -> dict[str, Any]:
        averaging = L.callbacks.StochasticWeightAveraging(0.02, 2, annealing_epochs=2)
        trainer = quiet_trainer(max_epochs=4, callbacks=[averaging, *callbacks])
        model = module(package("compiled", tmp_path), validation_step=None)
        trainer.fit(model, loaders(1)[0], ckpt_path=path)
        assert model.net[1].momentum == 0.1
        return {**model.state_dict(), "lr": torch.tensor(trainer.optimizers[0].param_groups[0]["lr"])}

    whole = fitted(Saving())
    require_close(fitted(path=tmp_path / "middle.ckpt"), whole)
