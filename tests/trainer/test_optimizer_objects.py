"""Optimizers whose state, groups or selves a hook replaces between steps: the steps that follow use them, as in Lightning."""

from __future__ import annotations

import copy
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import pytest
import torch
from beside_lightning import beside_lightning, loader, module_of, plain, trainer_of

import systolic

Change = Callable[[Any, torch.optim.Optimizer], Any]


def _adam(module: Any, lr: float = 1e-2) -> torch.optim.Optimizer:
    return torch.optim.Adam(module.parameters(), lr)


def _momentum(module: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(module.parameters(), 0.1, momentum=0.9)


def new_state(module: Any, optimizer: Any) -> None:
    optimizer.state = defaultdict(dict)


def cleared(module: Any, optimizer: Any) -> None:
    optimizer.state.clear()


def one_popped(module: Any, optimizer: Any) -> None:
    optimizer.state.pop(module.inner.weight)


def one_emptied(module: Any, optimizer: Any) -> None:
    optimizer.state[module.inner.weight] = {}


def one_replaced(module: Any, optimizer: Any) -> None:
    like = torch.ones_like(module.inner.weight)
    optimizer.state[module.inner.weight] = {"step": torch.tensor(3.0), "exp_avg": like * 0.1, "exp_avg_sq": like * 0.2}


def one_tensor_replaced(module: Any, optimizer: Any) -> None:
    optimizer.state[module.inner.weight]["exp_avg"] = torch.zeros_like(module.inner.weight)


def halved_and_loaded(module: Any, optimizer: Any) -> None:
    saved = optimizer.state_dict()
    for state in saved["state"].values():
        state["exp_avg"] = state["exp_avg"] * 0.5
    optimizer.load_state_dict(saved)


def loaded_of_a_new_one(module: Any, optimizer: Any) -> None:
    optimizer.load_state_dict(_adam(module).state_dict())


def rewound(module: Any, optimizer: Any) -> None:
    """Lottery tickets: back to where the first epoch ended."""
    if module.current_epoch == 1:
        module.kept = copy.deepcopy((module.state_dict(), optimizer.state_dict()))
    else:
        module.load_state_dict(module.kept[0])
        optimizer.load_state_dict(module.kept[1])


def new_groups(module: Any, optimizer: Any) -> None:
    optimizer.param_groups = [{**group, "lr": 0.001} for group in optimizer.param_groups]


def one_new_group(module: Any, optimizer: Any) -> None:
    optimizer.param_groups[0] = {**optimizer.param_groups[0], "lr": 0.003}


def fewer_parameters(module: Any, optimizer: Any) -> None:
    optimizer.param_groups[0]["params"] = list(module.outer.parameters())


def another_optimizer(module: Any, optimizer: Any) -> None:
    module.trainer.optimizers = [torch.optim.SGD(module.parameters(), 0.05)]


def another_of_the_same_class(module: Any, optimizer: Any) -> None:
    module.trainer.optimizers = [_adam(module)]


def by_the_strategy(module: Any, optimizer: Any) -> None:
    module.trainer.strategy.optimizers = [_adam(module)]


def configured_again(module: Any, optimizer: Any) -> None:
    module.trainer.strategy.setup_optimizers(module.trainer)


def two_in_turn(module: Any, optimizer: Any) -> None:
    if module.current_epoch == 1:
        module.both = (optimizer, _momentum(module))
    module.trainer.optimizers = [module.both[module.current_epoch % 2]]


def in_the_list(module: Any, optimizer: Any) -> None:
    module.trainer.optimizers[0] = _adam(module, 1.0)


_CHANGES: list[Change] = [
    new_state, cleared, one_popped, one_emptied, one_replaced, one_tensor_replaced, halved_and_loaded, loaded_of_a_new_one,
    rewound, new_groups, one_new_group, fewer_parameters, another_optimizer, another_of_the_same_class, by_the_strategy,
    configured_again, two_in_turn,
]  # fmt: skip


def _held(module: Any) -> Any:
    optimizer = module.trainer.optimizers[0]
    return plain([[dict(state) for state in optimizer.state.values()], len(optimizer.param_groups[0]["params"])])


def _between_epochs(change: Change) -> Callable[[Any], None]:
    def on_train_epoch_start(module: Any) -> None:
        if module.current_epoch:
            change(module, module.trainer.optimizers[0])

    return on_train_epoch_start


@pytest.mark.parametrize("change", _CHANGES)
def test_what_an_optimizer_holds(change: Change) -> None:
    methods = {"configure_optimizers": _adam, "on_train_epoch_start": _between_epochs(change)}
    beside_lightning(methods, _held, epochs=4)


@pytest.mark.parametrize("change", [loaded_of_a_new_one, one_emptied, another_of_the_same_class])
def test_on_four_cores(change: Change) -> None:
    methods = {"configure_optimizers": _adam, "on_train_epoch_start": _between_epochs(change)}
    beside_lightning(methods, _held, epochs=3, devices=4)


def test_the_list_of_optimizers_is_no_way_to_replace_one() -> None:
    methods = {"configure_optimizers": _adam, "on_train_epoch_start": _between_epochs(in_the_list)}
    beside_lightning(methods, lambda module: [], epochs=3)


def test_momentum_that_is_cleared() -> None:
    methods = {"configure_optimizers": _momentum, "on_train_epoch_start": _between_epochs(cleared)}
    beside_lightning(methods, _held, epochs=3)


@pytest.mark.parametrize(
    ("others", "error", "message"),
    [
        (lambda module: [], systolic.MisconfigurationException, "none in place of Adam"),
        (lambda module: [_adam(module), _adam(module)], systolic.MisconfigurationException, "Adam, Adam in place of Adam"),
        (lambda module: [torch.optim.LBFGS(module.parameters())], systolic.MisconfigurationException, "LBFGS in place of Adam"),
        (lambda module: ["adam"], TypeError, "Received: str"),
    ],
)
def test_optimizers_that_no_step_was_made_for(others: Any, error: type[Exception], message: str) -> None:
    def change(module: Any, optimizer: Any) -> None:
        module.trainer.optimizers = others(module)

    methods = {"configure_optimizers": _adam, "on_train_epoch_start": _between_epochs(change)}
    module = module_of(systolic, methods, lambda module: None)
    with pytest.raises(error, match=message):
        trainer_of(systolic, max_epochs=2).fit(module, loader(96, 1))
    assert module.trainer.global_step == 6
