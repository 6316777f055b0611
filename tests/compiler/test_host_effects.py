"""What a step shows, stores or draws on the host happens in every step, in order, as in eager PyTorch."""

from __future__ import annotations

import logging
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import systolic
import systolic as L

T = torch.Tensor


def shows(x: T, number: int) -> T:
    loss = x.square().mean()
    print("first", loss, f"{loss:.3f}", f"{loss.item():>8.2f}|", number)  # noqa: T201
    print(x.shape, [loss.item(), "two"], {"three": number}, sep="; ", end="!\n")  # noqa: T201
    x += 1  # after it was shown
    print(f"{x[0]} and {float(number) / 2}")  # noqa: T201
    return loss


def test_prints_are_eagers_line_for_line(capsys: pytest.CaptureFixture[str]) -> None:
    outputs = []
    for function in (systolic.jit(shows), shows):
        for seed in range(3):
            function(torch.arange(4.0) + seed, seed)
        outputs.append(capsys.readouterr().out)
    assert outputs[0] == outputs[1]
    assert outputs[0].count("\n") == 9


def test_a_log_record_has_the_line_and_the_values(caplog: pytest.LogCaptureFixture) -> None:
    logger = logging.getLogger("test_host_effects")

    @systolic.jit
    def step(x: T) -> T:
        logger.warning("sum %s of %.1f and %s", x.sum().item(), x.max().item(), f"{x.min():.2f}")
        return x * 2

    with caplog.at_level(logging.INFO, "test_host_effects"):
        for start in range(2):
            step(torch.arange(3.0) + start)
    own = [record for record in caplog.records if record.name == "test_host_effects"]
    assert [record.getMessage() for record in own] == ["sum 3.0 of 2.0 and 0.00", "sum 6.0 of 3.0 and 1.00"]
    assert {Path(record.pathname).name for record in own} == {"test_host_effects.py"}
    assert {record.funcName for record in own} == {"step"}


class Writes(L.LightningModule):
    """Writes to its logger's experiment by hand, every second batch."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(2, 1)

    def training_step(self, batch: Any, batch_idx: int) -> T:
        loss = self.layer(batch[0]).square().mean()
        assert isinstance(self.logger, L.loggers.TensorBoardLogger)
        if batch_idx % 2 == 0:
            self.logger.experiment.add_scalar("by_hand", loss, self.global_step)
        self.logger.log_metrics({"twice": 2 * loss.item()}, step=self.global_step)
        self.log("loss", loss)
        return loss

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), lr=0.1)


def test_a_logger_that_is_written_to_in_a_step_has_every_value(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    torch.manual_seed(0)
    logger = L.loggers.TensorBoardLogger(tmp_path)
    trainer = L.Trainer(
        accelerator="cpu", max_epochs=2, logger=logger, log_every_n_steps=1, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False,
    )  # fmt: skip
    trainer.fit(Writes(), DataLoader(TensorDataset(torch.randn(12, 2)), batch_size=3))
    events = EventAccumulator(str(logger.log_dir)).Reload()
    losses = {event.step: event.value for event in events.Scalars("loss")}
    assert {event.step: event.value for event in events.Scalars("by_hand")} == pytest.approx(
        {step: value for step, value in losses.items() if step % 4 % 2 == 0}
    )
    assert {event.step: event.value for event in events.Scalars("twice")} == pytest.approx(
        {step: 2 * value for step, value in losses.items()}
    )


def draws(x: T) -> T:
    if random.random() < 0.5:
        x = x * random.uniform(1, 2)
    start = np.random.randint(0, 3)
    x = x[:, start : start + 2] * float(np.random.choice(3)) + random.choice([1.0, 5.0])
    return x.sum() * np.random.beta(0.4, 0.4)


def test_draws_are_eagers_and_leave_the_generators_as_eager_does() -> None:
    ends = []
    for function in (systolic.jit(draws), draws):
        random.seed(1)
        np.random.seed(1)
        values = [float(function(torch.ones(2, 5) * i)) for i in range(30)]
        ends.append((values, random.random(), np.random.rand()))
    assert ends[0][0] == pytest.approx(ends[1][0], rel=1e-5)
    assert ends[0][1:] == ends[1][1:]


def test_a_list_that_is_appended_to_and_read_is_looked_at() -> None:
    def run(compiled: bool) -> tuple[list[float], list[float]]:
        module = torch.nn.Identity()
        module.history = []

        def step(x: T) -> T:
            module.history.append(x.mean())
            return torch.stack(module.history[-2:]).sum()

        function = systolic.jit(step) if compiled else step
        return [float(function(torch.full((2,), float(i)))) for i in range(5)], [float(v) for v in module.history]

    assert run(True) == run(False)
