"""Fit compiled equals fit in eager PyTorch and fit under Lightning: optimizers, clipping, hooks inside of the step."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from trainer.three_ways import compare, loader, quiet_trainer, regression, run

import systolic as L


def test_plain() -> None:
    outcome = compare(regression)
    assert len(outcome.losses) == 10
    assert outcome.losses[-1] < outcome.losses[0]


def test_two_cores_equal_one() -> None:
    compare(regression, devices=2)


def test_partial_last_batch() -> None:
    compare(regression, batch_size=8)


@pytest.mark.parametrize("algorithm", ["norm", "value", None])
def test_clipping(algorithm: str | None) -> None:
    clipped = compare(regression, gradient_clip_val=0.1, gradient_clip_algorithm=algorithm, max_epochs=1)
    plain = run("eager", regression, max_epochs=1)
    assert clipped.losses[-1] != pytest.approx(plain.losses[-1], rel=1e-3)


def test_own_clipping() -> None:
    def configure_gradient_clipping(
        self: Any, optimizer: Any, gradient_clip_val: Any = None, gradient_clip_algorithm: Any = None
    ) -> None:
        assert gradient_clip_val == 0.5
        self.clip_gradients(optimizer, gradient_clip_val=gradient_clip_val, gradient_clip_algorithm="norm")
        for group in optimizer.param_groups:
            for p in group["params"]:
                p.grad.mul_(0.5)

    methods = {"configure_gradient_clipping": configure_gradient_clipping}
    compare(lambda base: regression(base, **methods), gradient_clip_val=0.5)


def test_own_clipping_with_the_trainers_value() -> None:
    def configure_gradient_clipping(
        self: Any, optimizer: Any, gradient_clip_val: Any = None, gradient_clip_algorithm: Any = None
    ) -> None:
        self.clip_gradients(optimizer)

    methods = {"configure_gradient_clipping": configure_gradient_clipping}
    compare(lambda base: regression(base, **methods), gradient_clip_val=0.02, gradient_clip_algorithm="value")


def test_hooks_that_change_gradients() -> None:
    def on_after_backward(self: Any) -> None:
        for p in self.parameters():
            p.grad.mul_(2.0)

    def on_before_optimizer_step(self: Any, optimizer: Any) -> None:
        self.first.bias.grad = None
        self.second.weight.grad = self.second.weight.grad.sign() * 0.1

    methods = {"on_after_backward": on_after_backward, "on_before_optimizer_step": on_before_optimizer_step}
    compare(lambda base: regression(base, **methods))


def test_callback_hooks_that_change_gradients() -> None:
    def make(base: Any) -> list[Any]:
        class Halve(base):
            def on_after_backward(self, trainer: Any, pl_module: Any) -> None:
                for p in pl_module.parameters():
                    p.grad.mul_(0.5)

        return [Halve()]

    compare(regression, callbacks=make)


def test_own_backward() -> None:
    def backward(self: Any, loss: torch.Tensor) -> None:
        (2 * loss).backward()

    compare(lambda base: regression(base, backward=backward), max_epochs=1)


@pytest.mark.tables
def test_warm_up_by_global_step() -> None:
    def optimizer_step(self: Any, epoch: Any, batch_idx: Any, optimizer: Any, optimizer_closure: Any = None) -> None:
        optimizer.step(closure=optimizer_closure)
        if self.trainer.global_step < 6:
            scale = min(1.0, float(self.trainer.global_step + 1) / 6)
            for group in optimizer.param_groups:
                group["lr"] = scale * 0.1

    outcome = compare(lambda base: regression(base, optimizer_step=optimizer_step))
    assert outcome.rates[0] < outcome.rates[-1]


def test_step_every_second_batch() -> None:
    def optimizer_step(self: Any, epoch: Any, batch_idx: Any, optimizer: Any, optimizer_closure: Any = None) -> None:
        if batch_idx % 2 == 0:
            optimizer.step(closure=optimizer_closure)
        else:
            optimizer_closure()

    compare(lambda base: regression(base, optimizer_step=optimizer_step), lightning=False)


def test_optimizer_step_that_never_calls_the_closure() -> None:
    def optimizer_step(self: Any, epoch: Any, batch_idx: Any, optimizer: Any, optimizer_closure: Any = None) -> None:
        return None

    module = regression(L.LightningModule, optimizer_step=optimizer_step)()
    with pytest.raises(L.MisconfigurationException, match="never called its `optimizer_closure`"):
        quiet_trainer().fit(module, loader())


# defect 13: None from training_step
@pytest.mark.filterwarnings("ignore:.*`training_step` returned `None`")
def test_skipped_batches() -> None:
    def training_step(self: Any, batch: Any, batch_idx: Any) -> Any:
        if batch_idx % 3 == 1:
            return None
        return self.loss(batch)

    outcome = compare(lambda base: regression(base, training_step=training_step))
    assert [loss != loss for loss in outcome.losses[:5]] == [False, True, False, False, True]


def test_dict_outputs() -> None:
    seen: list[Any] = []

    def training_step(self: Any, batch: Any, batch_idx: Any) -> Any:
        prediction = self(batch[0])
        loss = torch.nn.functional.mse_loss(prediction, batch[1])
        return {"loss": loss, "prediction": prediction, "name": "x", "twice": 2 * loss.detach()}

    def on_train_batch_end(self: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        seen.append((sorted(outputs), outputs["name"], outputs["prediction"].shape, outputs["prediction"].sum().item()))

    methods = {"training_step": training_step, "on_train_batch_end": on_train_batch_end}
    compare(lambda base: regression(base, **methods), max_epochs=1)
    compiled, eager, lightning = seen[:5], seen[5:10], seen[10:]
    for one, two, three in zip(compiled, eager, lightning, strict=True):
        assert one[:3] == two[:3] == three[:3] == (["loss", "name", "prediction", "twice"], "x", torch.Size([4, 1]))
        assert one[3] == pytest.approx(two[3], rel=1e-5) == three[3]


def test_numbers_in_the_loss() -> None:
    def training_step(self: Any, batch: Any, batch_idx: int) -> Any:
        scale = 1.0 + 0.1 * self.current_epoch + 0.01 * batch_idx + 0.001 * self.global_step
        loss = scale * self.loss(batch)
        if batch_idx % 3 == 0:
            loss = loss + 0.01 * self.second.weight.square().sum()
        if self.current_epoch > 0:
            loss = loss + 0.01 * self.first.weight.abs().sum()
        return loss

    compare(lambda base: regression(base, training_step=training_step))


def test_without_optimizer() -> None:
    def configure_optimizers(self: Any) -> None:
        return None

    def build(base: Any) -> Any:
        return regression(base, configure_optimizers=configure_optimizers)

    with pytest.warns(UserWarning, match="`configure_optimizers` of Regression returned None: fit will run with no optimizer"):
        outcome = compare(build)
    with pytest.warns(UserWarning, match="returned None"):
        before = run("eager", build, max_epochs=1)
    torch.testing.assert_close(outcome.parameters, before.parameters)
