"""Mocks that a training step calls, as tests of users' do: they are called in every step, with its values, as under Lightning."""

from __future__ import annotations

import warnings
from typing import Any
from unittest import mock

import lightning
import pytest
import torch
from beside_lightning import beside_lightning, loader, module_of, require_equal, trainer_of

import systolic

T = torch.Tensor


def calls(seen: mock.Mock) -> list[Any]:
    """Names, and arguments as numbers."""
    return [(call[0], *(torch.as_tensor(one).item() for one in call[1]), *call[2].items()) for call in seen.mock_calls]


@pytest.mark.parametrize("devices", [1, 4])
def test_a_mock_of_the_module_is_called_in_every_step(devices: int) -> None:
    def prepare(module: Any) -> None:
        module.__dict__.update(tracker=mock.Mock(), answers=mock.MagicMock(return_value=2.0))

    def training_step(module: Any, batch: Any, i: int) -> T:
        loss = module.loss(batch)
        module.tracker(loss, i)
        module.tracker.client.log(loss.detach() * 2, i, step=module.global_step)
        module.tracker.named(function=i, args=2)
        return loss * module.answers(i)

    def held(module: Any) -> Any:
        return [calls(module.tracker), module.tracker.call_count, calls(module.answers)]

    module = beside_lightning({"training_step": training_step}, held, prepare=prepare, devices=devices)
    assert module.tracker.call_count == 6
    assert len(module.trainer.compiles) == 1


def test_a_mock_that_wraps_a_method_belongs_to_the_step() -> None:
    def prepare(module: Any) -> None:
        module.__dict__["watched"] = mock.Mock(wraps=module.loss)

    def training_step(module: Any, batch: Any, i: int) -> T:
        loss = module.watched(batch)
        module.log("loss", loss)
        return loss

    module = beside_lightning(
        {"training_step": training_step},
        lambda module: [module.watched.call_count, len(module.watched.call_args[0])],
        prepare=prepare,
    )
    assert module.watched.call_count == 6
    assert len(module.trainer.compiles) == 1


@pytest.mark.parametrize("accumulated", [1, 2])
def test_a_patched_method_of_an_optimizer_is_called_in_every_step(accumulated: int) -> None:
    def on_train_batch_end(module: Any, *_: Any) -> None:
        module.seen.append(zeroed.call_count)

    found = []
    for library in (lightning, systolic):
        with mock.patch("torch.optim.SGD.zero_grad") as zeroed, warnings.catch_warnings():
            warnings.simplefilter("ignore" if library is lightning else "error")
            module = module_of(library, {"on_train_batch_end": on_train_batch_end}, lambda module: None)
            trainer_of(library, max_epochs=2, accumulate_grad_batches=accumulated).fit(module, loader(48, 0))
            found.append((module.seen, [p.detach().double().sum().item() for p in module.parameters()]))
    require_equal(found[1], found[0])
    assert found[1][0] == ([1, 2, 3, 4, 5, 6] if accumulated == 1 else [1, 1, 2, 3, 3, 4])


def test_what_a_hook_in_the_step_tells_a_mock() -> None:
    def prepare(module: Any) -> None:
        module.__dict__["tracker"] = mock.Mock()

    def on_before_optimizer_step(module: Any, optimizer: Any) -> None:
        module.tracker.norm(torch.stack([p.grad.norm() for p in module.parameters()]).norm())

    beside_lightning(
        {"on_before_optimizer_step": on_before_optimizer_step}, lambda module: calls(module.tracker), prepare=prepare
    )


def test_a_mock_that_a_step_resets() -> None:
    def prepare(module: Any) -> None:
        module.__dict__["tracker"] = mock.Mock()

    def training_step(module: Any, batch: Any, i: int) -> T:
        module.tracker(i)
        module.tracker.reset_mock()
        module.tracker(i, "kept")
        return module.loss(batch)

    def on_train_batch_end(module: Any, *_: Any) -> None:
        module.tracker()
        module.seen.append([module.tracker.call_count, [call.args for call in module.tracker.call_args_list]])

    methods = {"training_step": training_step, "on_train_batch_end": on_train_batch_end}
    module = beside_lightning(methods, lambda module: [one[0] for one in module.seen], prepare=prepare)
    assert module.seen[-1] == [2, [(2, "kept"), ()]]
