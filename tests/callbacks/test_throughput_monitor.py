"""Speed and utilisation in the logs."""

from __future__ import annotations

import time

import pytest
from loggers.log_readers import read_csv
from trainer.runs import Line, batches, trainer

import systolic as L
from systolic.callbacks import ThroughputMonitor


def logged(module: L.LightningModule, tmp_path, devices: int = 1, count: int = 8, **options: object) -> dict[str, float]:
    """The newest logged value of every name."""
    logger = L.loggers.CSVLogger(tmp_path)
    monitor = ThroughputMonitor(batch_size_fn=lambda b: len(b["x"]), length_fn=lambda b: b["x"].numel())
    run = trainer(devices=devices, logger=logger, callbacks=[monitor], log_every_n_steps=2, **options)
    run.fit(module, batches(count))
    return {name: points[-1][1] for name, points in read_csv(logger.log_dir).items()}


class Paced(Line):
    """One step takes at least 20 ms."""

    def on_train_batch_start(self, batch, batch_idx):
        time.sleep(0.02)


def test_rates(tmp_path) -> None:
    found = logged(Paced(), tmp_path)
    rate = found["train/device/batches_per_sec"]
    assert 1 < rate < 50
    assert found["train/device/samples_per_sec"] == pytest.approx(8 * rate)
    assert found["train/device/items_per_sec"] == pytest.approx(32 * rate)
    assert (found["train/batches"], found["train/samples"], found["train/lengths"]) == (8, 64, 256)
    # forward and gradient of a 4 -> 1 product for 8 samples; the input needs no gradient
    assert found["train/device/flops_per_sec"] == pytest.approx(2 * (2 * 8 * 4) * rate)
    assert "train/device/mfu" not in found  # no peak is known for a CPU


def test_several_devices_share_the_batch(tmp_path) -> None:
    found = logged(Paced(), tmp_path, devices=4)
    assert found["train/samples_per_sec"] == pytest.approx(8 * found["train/device/batches_per_sec"])
    assert found["train/device/samples_per_sec"] == pytest.approx(2 * found["train/device/batches_per_sec"])
    assert found["train/flops_per_sec"] == pytest.approx(4 * found["train/device/flops_per_sec"])


def test_flops_of_the_module_take_precedence(tmp_path) -> None:
    class Told(Paced):
        flops_per_batch = 1000

    found = logged(Told(), tmp_path)
    assert found["train/device/flops_per_sec"] == pytest.approx(1000 * found["train/device/batches_per_sec"])


# defect 7: utilisation for chips that Lightning's table lacks; here the peak of a v6e is taken for the CPU's
def test_utilisation(tmp_path) -> None:
    class OnV6e(ThroughputMonitor):
        def setup(self, trainer, pl_module, stage):
            super().setup(trainer, pl_module, stage)
            self.available_flops = 918e12

    logger = L.loggers.CSVLogger(tmp_path)
    monitor = OnV6e(batch_size_fn=lambda b: len(b["x"]))
    trainer(logger=logger, callbacks=[monitor], log_every_n_steps=1).fit(Line(), batches(4))
    found = read_csv(logger.log_dir)
    assert len(found["train/device/mfu"]) == 3
    for (_, mfu), (_, rate) in zip(found["train/device/mfu"], found["train/device/flops_per_sec"], strict=True):
        assert mfu == pytest.approx(rate / 918e12)


def test_validation_does_not_slow_training(tmp_path) -> None:
    class Validated(Line):
        def validation_step(self, batch, batch_idx):
            self.log("v", self.layer(batch["x"]).mean())

        def on_validation_batch_end(self, *args):
            time.sleep(0.1)

    logger = L.loggers.CSVLogger(tmp_path)
    monitor = ThroughputMonitor(batch_size_fn=lambda b: len(b["x"]))
    run = trainer(logger=logger, callbacks=[monitor], log_every_n_steps=2, val_check_interval=2, max_epochs=2)
    run.fit(Validated(), batches(8), batches(4))
    found = read_csv(logger.log_dir)
    times = [seconds for _, seconds in found["train/time"]]
    assert times[-1] - times[0] < 7 * 0.4  # seven validations took at least 0.4 s each between the two
    rates = zip(found["validate/device/flops_per_sec"], found["validate/device/batches_per_sec"], strict=True)
    assert all(flops == pytest.approx(2 * 8 * 4 * batches_) for (_, flops), (_, batches_) in rates)


def test_needs_a_logger() -> None:
    with pytest.raises(L.MisconfigurationException, match="`ThroughputMonitor` callback with a `Trainer` that has no logger"):
        trainer(callbacks=[ThroughputMonitor(batch_size_fn=len)]).fit(Line(), batches(2))
