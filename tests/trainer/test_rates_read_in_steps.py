"""What `training_step` reads of an optimizer and a scheduler after the scheduler has stepped is what that step has set."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from beside_lightning import beside_lightning, loader, module_of, plain, trainer_of
from torch.optim import lr_scheduler as schedulers

import systolic

READS: dict[str, Callable[[Any, Any], float]] = {
    "last_lr": lambda optimizer, scheduler: scheduler.get_last_lr()[0],
    "group": lambda optimizer, scheduler: optimizer.param_groups[0]["lr"],
    "trainer's": lambda optimizer, scheduler: scheduler.optimizer.param_groups[0]["lr"],
    "count": lambda optimizer, scheduler: float(scheduler.last_epoch) / 10,
}

Step = Callable[[Any, Any, torch.Tensor, int], None]
STEPS: dict[str, tuple[Callable[[Any], Any], Step]] = {
    "exponential": (lambda o: schedulers.ExponentialLR(o, 0.8), lambda m, s, loss, i: s.step()),
    "sequence": (
        lambda o: schedulers.SequentialLR(
            o, [schedulers.LinearLR(o, 0.1, total_iters=4), schedulers.StepLR(o, 2, 0.5)], milestones=[4]
        ),
        lambda m, s, loss, i: s.step(),
    ),
    # as PyTorch's documentation has it
    "restarts": (
        lambda o: schedulers.CosineAnnealingWarmRestarts(o, 2),
        lambda m, s, loss, i: s.step(m.current_epoch + i / 4),
    ),
    "plateau": (lambda o: schedulers.ReduceLROnPlateau(o, patience=1, threshold=0.3), lambda m, s, loss, i: s.step(loss)),
    "last batch": (
        lambda o: schedulers.ExponentialLR(o, 0.5),
        lambda m, s, loss, i: s.step() if m.trainer.is_last_batch else None,
    ),
    "twice": (lambda o: schedulers.CosineAnnealingLR(o, 30), lambda m, s, loss, i: (s.step(), s.step())[0]),
}


def _manual(module: Any) -> None:
    module.automatic_optimization = False


def _held(module: Any) -> Any:
    return plain([module.seen, module.optimizers().param_groups[0]["lr"], module.lr_schedulers().state_dict()])


def _update(module: Any, batch: Any) -> torch.Tensor:
    optimizer, loss = module.optimizers(), module.loss(batch)
    optimizer.zero_grad()
    module.manual_backward(loss)
    optimizer.step()
    return loss


@pytest.mark.thin(2)
@pytest.mark.filterwarnings("ignore:Detected call of `lr_scheduler.step", "ignore:The epoch parameter in")
@pytest.mark.parametrize("devices", [1, 4])
@pytest.mark.parametrize("read", READS)
@pytest.mark.parametrize("kind", STEPS)
def test_after_the_scheduler_stepped(kind: str, read: str, devices: int) -> None:
    make, advance = STEPS[kind]

    def training_step(module: Any, batch: Any, i: int) -> None:
        loss = _update(module, batch)
        advance(module, module.lr_schedulers(), loss.detach(), i)
        value = READS[read](module.optimizers(), module.lr_schedulers())
        module.log("rate", value, on_step=True, on_epoch=True)
        module.seen.append(value)

    def configure_optimizers(module: Any) -> Any:
        optimizer = torch.optim.SGD(module.parameters(), 0.1, momentum=0.9)
        return [optimizer], [make(optimizer)]

    methods = {"training_step": training_step, "configure_optimizers": configure_optimizers}
    module = beside_lightning(methods, _held, prepare=_manual, devices=devices, epochs=3)
    assert len(set(module.seen)) > 1


def _of_two(self: Any) -> Any:
    groups = [{"params": self.inner.parameters(), "lr": 0.02}, {"params": self.outer.parameters()}]
    optimizer = torch.optim.AdamW(groups, 0.01)
    return [optimizer], [schedulers.ExponentialLR(optimizer, 0.8)]


def _before_and_after(self: Any, batch: Any, i: int) -> None:
    groups = self.optimizers().param_groups
    before = [group["lr"] for group in groups]
    _update(self, batch)
    self.lr_schedulers().step()
    self.seen.append([before, [group["lr"] for group in groups], self.lr_schedulers().get_last_lr()])
    self.log_dict({f"lr{k}": group["lr"] for k, group in enumerate(groups)})


def _set_by_itself_first(self: Any, batch: Any, i: int) -> None:
    for group in self.optimizers().param_groups:
        group["lr"] = group["lr"] * (1 + i) / 2
    _update(self, batch)
    self.lr_schedulers().step()
    self.seen.append([group["lr"] for group in self.optimizers().param_groups])


def _follows_the_rate(self: Any, batch: Any, i: int) -> None:
    _update(self, batch)
    self.lr_schedulers().step()
    rate = self.optimizers().param_groups[0]["lr"]
    with torch.no_grad():
        for p in self.outer.parameters():
            p.mul_(1 - rate)
    if self.lr_schedulers().last_epoch % 3 == 0:
        self.seen.append(f"{rate:.4f}")


@pytest.mark.parametrize("step", [_before_and_after, _set_by_itself_first, _follows_the_rate])
def test_other_uses(step: Any) -> None:
    methods = {"training_step": step, "configure_optimizers": _of_two}
    beside_lightning(methods, _held, prepare=_manual, epochs=2)


def test_only_steps_that_read_run_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    counted: list[int] = []
    get_lr = schedulers.ExponentialLR.get_lr
    monkeypatch.setattr(schedulers.ExponentialLR, "get_lr", lambda self: counted.append(self.last_epoch) or get_lr(self))

    def training_step(self: Any, batch: Any, i: int) -> None:
        _update(self, batch)
        self.lr_schedulers().step()
        if self.reads:
            self.log("rate", self.optimizers().param_groups[0]["lr"])

    found = []
    for reads in (False, True):
        counted.clear()
        methods = {"training_step": training_step, "configure_optimizers": _of_two, "reads": reads}
        trainer_of(systolic, max_epochs=4).fit(module_of(systolic, methods, _manual), loader(48, 1))
        found.append(len(counted))
    assert found[0] == 13  # one when it is made, and one for each of twelve steps
    assert found[1] > 2 * 12
