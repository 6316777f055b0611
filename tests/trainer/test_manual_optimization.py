"""Manual optimization: whatever the user's Python does is what gets compiled."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn import functional as F
from trainer.as_lightning import Package, require_same
from trainer.three_ways import compare, loader, quiet_trainer, regression

import systolic as L


def gan(base: Any) -> Any:
    class Gan(base):
        def __init__(self) -> None:
            super().__init__()
            self.automatic_optimization = False
            self.generator = torch.nn.Sequential(torch.nn.Linear(2, 8), torch.nn.Tanh(), torch.nn.Linear(8, 4))
            self.discriminator = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))

        def training_step(self, batch: Any, batch_idx: int) -> Any:
            real = batch[0]
            noise, one, zero = real[:, :2] * 0.5, torch.ones(len(real), 1), torch.zeros(len(real), 1)
            first, second = self.optimizers()

            self.toggle_optimizer(first)
            g_loss = F.binary_cross_entropy_with_logits(self.discriminator(self.generator(noise)), one)
            first.zero_grad()
            self.manual_backward(g_loss)
            first.step()
            self.untoggle_optimizer(first)

            self.toggle_optimizer(second)
            fake = self.generator(noise).detach()
            d_loss = F.binary_cross_entropy_with_logits(self.discriminator(real), one)
            d_loss = (d_loss + F.binary_cross_entropy_with_logits(self.discriminator(fake), zero)) / 2
            second.zero_grad()
            self.manual_backward(d_loss)
            self.clip_gradients(second, gradient_clip_val=0.5, gradient_clip_algorithm="norm")
            second.step()
            self.untoggle_optimizer(second)
            self.log_dict({"g": g_loss, "d": d_loss}, on_epoch=True)
            return {"loss": d_loss, "g": g_loss}

        def configure_optimizers(self) -> Any:
            first = torch.optim.Adam(self.generator.parameters(), lr=0.01, betas=(0.5, 0.99))
            second = torch.optim.Adam(self.discriminator.parameters(), lr=0.02)
            return [first, second], [torch.optim.lr_scheduler.StepLR(second, 1, 0.5)]

        def on_train_epoch_end(self) -> None:
            self.lr_schedulers().step()

    return Gan


@pytest.mark.tables
def test_gan() -> None:
    outcome = compare(gan, max_epochs=2)
    assert outcome.trainer.global_step == 20
    assert all(p.requires_grad for p in outcome.module.parameters())
    assert len(outcome.trainer.compiles) == 2, "without gradients, and with those of the step before"


# promise 17: L#14249, L#20206
def test_gan_on_two_cores() -> None:
    compare(gan, max_epochs=1, devices=2)


def manual(training_step: Any) -> Any:
    """The small module with a training_step that optimizes by itself."""
    return lambda base: regression(base, training_step=training_step, automatic_optimization=property(_no, _ignore))


def _no(self: Any) -> bool:
    return False


def _ignore(self: Any, value: bool) -> None:
    del value


# promise 17: L#7879
def test_gradient_penalty_with_double_backward() -> None:
    def training_step(self: Any, batch: Any, batch_idx: int) -> Any:
        x = batch[0].clone().requires_grad_()
        loss = F.mse_loss(self(x), batch[1])
        (gradient,) = torch.autograd.grad(loss, x, create_graph=True)
        total = loss + 0.1 * gradient.square().sum()
        optimizer = self.optimizers()
        optimizer.zero_grad()
        self.manual_backward(total)
        optimizer.step()
        return total

    compare(manual(training_step))


def test_accumulation_by_hand() -> None:
    def training_step(self: Any, batch: Any, batch_idx: int) -> Any:
        optimizer = self.optimizers()
        loss = self.loss(batch) / 2
        self.manual_backward(loss)
        if (batch_idx + 1) % 2 == 0:
            optimizer.step()
            optimizer.zero_grad()
        return loss

    outcome = compare(manual(training_step))
    assert outcome.trainer.global_step == 4


def test_closure_given_to_the_optimizer() -> None:
    def training_step(self: Any, batch: Any, batch_idx: int) -> Any:
        optimizer = self.optimizers()

        def closure() -> Any:
            loss = self.loss(batch)
            optimizer.zero_grad()
            self.manual_backward(loss)
            return loss

        optimizer.step(closure=closure)

    compare(manual(training_step), max_epochs=1)


def test_torch_optimizer_without_the_wrapper() -> None:
    def training_step(self: Any, batch: Any, batch_idx: int) -> Any:
        optimizer = self.optimizers(use_pl_optimizer=False)
        assert isinstance(optimizer, torch.optim.SGD)
        loss = self.loss(batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    outcome = compare(manual(training_step), max_epochs=1, lightning=False)
    assert outcome.losses[-1] < outcome.losses[0]


def test_clipping_by_the_trainer_is_refused() -> None:
    module = manual(lambda self, batch, batch_idx: None)(L.LightningModule)()
    with pytest.raises(L.MisconfigurationException, match="manual optimization.*gradient_clip_val.*clip_gradients"):
        quiet_trainer(gradient_clip_val=1.0).fit(module, loader())


def test_accumulation_by_the_trainer_is_refused() -> None:
    module = manual(lambda self, batch, batch_idx: None)(L.LightningModule)()
    with pytest.raises(
        L.MisconfigurationException, match="not supported for manual optimization: remove Trainer.accumulate_grad_batches=2"
    ):
        quiet_trainer(accumulate_grad_batches=2).fit(module, loader())


def test_toggled_optimizers_may_share_parameters() -> None:
    def scenario(package: Package) -> Any:
        flags: list[list[bool]] = []

        def configure_optimizers(self: Any) -> Any:
            first, second = list(self.first.parameters()), list(self.second.parameters())
            return [torch.optim.SGD(group, lr=0.1) for group in (first, first + second, second)]

        def training_step(self: Any, batch: Any, batch_idx: int) -> None:
            for optimizer in self.optimizers():
                self.toggle_optimizer(optimizer)
                flags.append([parameter.requires_grad for parameter in self.parameters()])
                self.untoggle_optimizer(optimizer)
                flags.append([parameter.requires_grad for parameter in self.parameters()])

        module = package.module(training_step=training_step, configure_optimizers=configure_optimizers)
        module.automatic_optimization = False
        package.trainer(max_steps=-1).fit(module, loader(4))
        return flags[:6]

    assert require_same(scenario, ("lightning", "eager"))[1] == [True] * 4


@pytest.mark.parametrize("plateau", [True, False])
def test_schedulers_that_the_module_steps_need_no_metric(plateau: bool) -> None:
    def scenario(package: Package) -> Any:
        class Own:
            """Has no `step`."""

            def __init__(self, optimizer: Any) -> None:
                self.optimizer = optimizer

            def state_dict(self) -> dict[str, Any]:
                return {}

            def load_state_dict(self, state: dict[str, Any]) -> None:
                pass

        def configure_optimizers(self: Any) -> Any:
            optimizer = torch.optim.SGD(self.parameters(), lr=0.1)
            scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer) if plateau else Own(optimizer)
            return {"optimizer": optimizer, "lr_scheduler": scheduler}

        def training_step(self: Any, batch: Any, batch_idx: int) -> None:
            self.optimizers().step()

        module = package.module(training_step=training_step, configure_optimizers=configure_optimizers)
        module.automatic_optimization = False
        package.trainer().fit(module, loader(4))
        return type(module.lr_schedulers()).__name__

    require_same(scenario, ("lightning", "eager"))
