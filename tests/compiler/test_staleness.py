"""A compiled step follows every change of the Python objects that it uses, or refuses to be compiled (contract C5)."""

from __future__ import annotations

import inspect
import random
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import systolic
from systolic.compiler import DataDependentError, HiddenRandomnessError

pytestmark = pytest.mark.thin(8, 4)


@dataclass
class Settings:
    slope: float = 0.1
    power: dict[str, int] = field(default_factory=lambda: {"of": 1})


class Scale(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.factor = 1.5

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.factor


class Net(nn.Module):
    """Uses Python values in every way that a module can hold them."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(6, 8, bias=False)
        self.norm = nn.BatchNorm1d(8)
        self.scale = Scale()
        self.drop = nn.Dropout(0.0)
        self.second = nn.Linear(8, 3)
        self.register_buffer("offset", torch.zeros(8))
        self.double = False
        self.activation = "leaky"
        self.repeats = [0.5, 0.25]
        self.config = {"shift": 0.1, "deep": {"clip": 5.0}}
        self.settings = Settings()
        self.space = SimpleNamespace(gain=1.0)
        self.chosen = {"first"}
        self.limits = (-2.0, 2.0)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.norm(self.first(x)) + self.offset
        h = F.leaky_relu(h, self.settings.slope) if self.activation == "leaky" else torch.tanh(h)
        h = self.scale(h) + self.config["shift"]
        h = h.clamp(*self.limits).clamp(max=self.config["deep"]["clip"]) * self.space.gain
        for repeat in self.repeats:
            h = h + repeat * h.mean()
        if self.double:
            h = h * 2
        if "second" in self.chosen:
            h = h.square()
        return self.second(self.drop(h)).pow(self.settings.power["of"])


class World:
    """A model with its optimizer and a step over them."""

    def __init__(self, kind: str) -> None:
        torch.manual_seed(0)
        self.model = Net()
        self.handle = self.model.second.register_forward_hook(lambda module, args, output: output * 1.1)
        self.tensor_handle = self.model.second.weight.register_hook(lambda grad: grad * 0.9)
        parameters = self.model.parameters()
        if kind == "sgd":
            self.optimizer: Any = torch.optim.SGD(parameters, 0.05, momentum=0.9, weight_decay=0.01)
        else:
            self.optimizer = torch.optim.AdamW(parameters, 1e-3)
        self.scheduler = torch.optim.lr_scheduler.StepLR(self.optimizer, 1, 0.5)

    def step(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        self.optimizer.zero_grad()
        loss = F.cross_entropy(self.model(x), y)
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss.detach()


def batches(count: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    torch.manual_seed(3)
    return [(torch.randn(16, 6), torch.randint(0, 3, (16,))) for _ in range(count)]


def group(name: str, value: Any) -> Callable[[World], None]:
    def change(w: World) -> None:
        w.optimizer.param_groups[0][name] = value

    return change


def assign(path: str, value: Any) -> Callable[[World], None]:
    """Set an attribute of the model, or of something in it."""

    def change(w: World) -> None:
        *owners, name = path.split(".")
        target: Any = w.model
        for owner in owners:
            target = target[owner] if isinstance(target, dict) else getattr(target, owner)
        if isinstance(target, dict):
            target[name] = value
        else:
            setattr(target, name, value)

    return change


@torch.no_grad()
def overwrite_element(w: World) -> None:
    w.model.first.weight[0] = 0.25


@torch.no_grad()
def zero_bias(w: World) -> None:
    w.model.second.bias.zero_()
    w.model.first.weight.mul_(1.5)


def write_through_data(w: World) -> None:
    w.model.first.weight.data[:, 1] = 0.5


def write_through_view(w: World) -> None:
    w.model.second.weight.detach().view(-1)[:4].fill_(0.1)


def assign_data(w: World) -> None:
    w.model.second.weight.data = torch.full((3, 8), 0.2)


def replace_parameter(w: World) -> None:
    w.model.second.bias = nn.Parameter(torch.full((3,), 0.5))


def load_weights(w: World) -> None:
    w.model.load_state_dict(
        {name: value * 0.5 for name, value in w.model.state_dict().items() if name != "norm.num_batches_tracked"}, strict=False
    )


def replace_submodule(w: World) -> None:
    torch.manual_seed(9)
    w.model.second = nn.Linear(8, 3)


def add_parameter_group(w: World) -> None:
    torch.manual_seed(9)
    w.model.second = nn.Linear(8, 3)
    w.optimizer.add_param_group({"params": list(w.model.second.parameters()), "lr": 0.2})


def reset_optimizer_state(w: World) -> None:
    for state in w.optimizer.state.values():
        state["momentum_buffer"] = torch.ones_like(state["momentum_buffer"])


CHANGES: dict[str, Callable[[World], Any]] = {
    "lr_by_hand": group("lr", 0.2),
    "lr_by_scheduler": lambda w: w.scheduler.step(),
    "weight_decay": group("weight_decay", 0.3),
    "no_weight_decay": group("weight_decay", 0.0),
    "momentum": group("momentum", 0.5),
    "no_momentum": group("momentum", 0),
    "nesterov": group("nesterov", True),
    "momentum_buffer": reset_optimizer_state,
    "submodule_float": assign("scale.factor", 2.5),
    "submodule_int_for_float": assign("scale.factor", 2),
    "bool_flag": assign("double", True),
    "string": assign("activation", "tanh"),
    "list_append": lambda w: w.model.repeats.append(0.75),
    "list_element": lambda w: w.model.repeats.__setitem__(0, 0.9),
    "list_replaced": assign("repeats", [0.1]),
    "list_pop": lambda w: w.model.repeats.pop(),
    "dict_entry": assign("config.shift", 0.7),
    "nested_dict_entry": assign("config.deep.clip", 0.5),
    "dict_replaced": assign("config", {"shift": 0.3, "deep": {"clip": 1.0}}),
    "dataclass_field": assign("settings.slope", 0.4),
    "dict_in_dataclass": assign("settings.power.of", 2),
    "dataclass_replaced": assign("settings", Settings(slope=0.9)),
    "namespace": assign("space.gain", 0.5),
    "set": lambda w: w.model.chosen.add("second"),
    "tuple": assign("limits", (-0.5, 0.5)),
    "requires_grad": lambda w: w.model.first.requires_grad_(False),
    "eval_of_submodule": lambda w: w.model.norm.eval(),
    "eval": lambda w: w.model.eval(),
    "dropout": assign("drop.p", 1.0),
    "batch_norm_momentum": assign("norm.momentum", 0.7),
    "parameter_zeroed": zero_bias,
    "parameter_element": overwrite_element,
    "parameter_data_element": write_through_data,
    "parameter_data": assign_data,
    "parameter_view": write_through_view,
    "parameter_replaced": replace_parameter,
    "state_dict_loaded": load_weights,
    "buffer_replaced": lambda w: setattr(w.model, "offset", torch.full((8,), 0.3)),
    "buffer_written": lambda w: w.model.offset.add_(0.4),
    "submodule_replaced": replace_submodule,
    "submodule_wrapped": lambda w: setattr(w.model, "second", nn.Sequential(w.model.second, nn.Tanh())),
    "group_added": add_parameter_group,
    "forward_hook_added": lambda w: w.model.norm.register_forward_hook(lambda m, args, output: output * 3),
    "forward_hook_removed": lambda w: w.handle.remove(),
    "pre_hook_added": lambda w: w.model.register_forward_pre_hook(lambda m, args: (args[0] + args[0].square(),)),
    "backward_hook_added": lambda w: w.model.second.register_full_backward_hook(lambda m, g, _: (g[0] * 2,)),
    "tensor_hook_added": lambda w: w.model.first.weight.register_hook(lambda grad: grad * 5),
    "second_tensor_hook_added": lambda w: w.model.second.weight.register_hook(lambda grad: grad * 5),
    "tensor_hook_removed": lambda w: w.tensor_handle.remove(),
    "forward_replaced": lambda w: setattr(w.model.scale, "forward", lambda x: x * 4),
}


def close(want: torch.Tensor, got: torch.Tensor) -> bool:
    want, got = want.detach().double(), got.detach().cpu().double()
    return bool((want - got).abs().max() <= 1e-5 * want.abs().max())


def follow(change: Callable[[World], Any], kind: str = "sgd") -> systolic.compiler.JitFunction[..., Any]:
    """Three steps, the change, three more steps; eager and compiled must stay together."""
    eager, compiled, unchanged = World(kind), World(kind), World(kind)
    step = systolic.jit(compiled.step)
    moved = False
    for number, batch in enumerate(batches(6)):
        if number == 3:
            change(eager)
            change(compiled)
        want, got, old = eager.step(*batch), step(*batch), unchanged.step(*batch)
        assert close(want, got), f"step {number}: {got.item()} != {want.item()}, {step.compiles[-1].reason}"
        moved = moved or not close(want, old)
    moved = moved or not close(eager.model.norm.running_mean, unchanged.model.norm.running_mean)
    assert moved, "the change has no effect: the test shows nothing"
    for (name, want), (_, got) in zip(eager.model.state_dict().items(), compiled.model.state_dict().items(), strict=True):
        assert close(want, got), name
    return step


@pytest.mark.parametrize("name", CHANGES)
def test_change(name: str) -> None:
    follow(CHANGES[name])


@pytest.mark.parametrize(("name", "value"), [("betas", (0.5, 0.9)), ("weight_decay", 0.5), ("eps", 1e-2), ("amsgrad", True)])
def test_adam(name: str, value: Any) -> None:
    def change(w: World) -> None:
        w.optimizer.param_groups[0][name] = value
        if name == "amsgrad":
            for state in w.optimizer.state.values():
                state["max_exp_avg_sq"] = torch.full_like(state["exp_avg_sq"], 0.1)

    follow(change, "adam")


FACTOR = 2.0


def scaled(x: torch.Tensor) -> torch.Tensor:
    return x * FACTOR


def test_variables_of_closures_and_modules(monkeypatch: pytest.MonkeyPatch) -> None:
    power, activation = 1.0, torch.relu

    def calculate(x: torch.Tensor, *, extra: Any = 0) -> torch.Tensor:
        return activation(scaled(x)) ** power + extra

    step, x = systolic.jit(calculate), torch.tensor([-1.0, 3.0])

    def check() -> None:
        assert close(calculate(x), step(x)), step.compiles[-1].reason

    check()
    power = 3.0
    check()
    assert step.compiles[-1].reason == "power: 1.0 -> 3.0"
    activation = torch.sin
    check()
    monkeypatch.setitem(globals(), "FACTOR", 5.0)
    check()


def test_tensor_of_closure() -> None:
    weight = nn.Parameter(torch.ones(3))
    optimizer = torch.optim.SGD([weight], 0.1)

    @systolic.jit
    def step(x: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        loss = (x * weight).sum()
        loss.backward()
        optimizer.step()
        return loss

    losses = [step(torch.ones(3)).item() for _ in range(3)]
    assert losses == pytest.approx([3.0, 2.7, 2.4], rel=1e-5)
    assert weight.tolist() == pytest.approx([0.7] * 3, rel=1e-5)


def test_static_arguments_of_equal_value_and_other_type() -> None:
    step, x = systolic.jit(lambda x, factor: x * factor), torch.ones(2, dtype=torch.int64)
    assert [step(x, factor).dtype for factor in (1, 1.0, True)] == [torch.int64, torch.float32, torch.int64]


def test_method_of_plain_object() -> None:
    class Holder:
        def __init__(self) -> None:
            self.factor, self.calls = 2.0, 0

        def run(self, x: torch.Tensor) -> torch.Tensor:
            self.calls += 1
            return x * self.factor

    holder = Holder()
    step = systolic.jit(holder.run)
    assert step(torch.ones(1)).item() == 2.0
    holder.factor = 3.0
    assert step(torch.ones(1)).item() == 3.0
    assert holder.calls == 2


def test_dropout_between_certain_and_never() -> None:
    drop = nn.Dropout(0.0)
    step, x = systolic.jit(drop), torch.ones(1000)
    shares = []
    for probability in (0.0, 0.5, 1.0, 0.25):
        drop.p = probability
        shares.append((step(x) == 0).float().mean().item())
    assert shares[0] == 0
    assert shares[1] == pytest.approx(0.5, abs=0.1)
    assert shares[2] == 1
    assert shares[3] == pytest.approx(0.25, abs=0.1)


def draws_python(x: torch.Tensor) -> torch.Tensor:
    order = ["a", "b"]
    random.shuffle(order)  # the line to name
    return x if order[0] == "a" else 2 * x


def draws_numpy(x: torch.Tensor) -> torch.Tensor:
    order = np.arange(3)
    np.random.shuffle(order)  # the line to name
    return x[order]


def numbers(x: torch.Tensor) -> torch.Tensor:
    return x * len("%.3f" % x.sum())  # noqa: UP031 - the line to name


def arrays(x: torch.Tensor) -> torch.Tensor:
    return x * np.sum(np.asarray(x))  # the line to name


@pytest.mark.parametrize(
    ("function", "error"),
    [
        (draws_python, HiddenRandomnessError),
        (draws_numpy, HiddenRandomnessError),
        (numbers, DataDependentError),
        (arrays, DataDependentError),
    ],
)
def test_refusals_name_the_line(function: Callable[..., Any], error: type[Exception]) -> None:
    lines, first = inspect.getsourcelines(function)
    number = first + next(i for i, line in enumerate(lines) if "the line to name" in line)
    with pytest.raises(error, match=f"test_staleness.py:{number} in {function.__name__}"):
        systolic.jit(function)(torch.ones(3))


def test_gradients_that_appear_are_told_in_the_order_of_the_model() -> None:
    """All processes of a run, and every run, give the same reason for a program."""
    model = nn.Sequential(*[nn.Linear(4, 4, bias=False) for _ in range(4)])

    @systolic.jit
    def step(x: torch.Tensor) -> None:
        model(x).sum().backward()

    for _ in range(2):
        step(torch.ones(2, 4))
    told = re.findall(r"(\d)\.weight\.grad: set", step.compiles[1].reason)
    assert told == list("0123")


def test_a_step_of_eager_pytorch_between_two_compiled_ones_leaves_its_gradients() -> None:
    def losses(compile: bool) -> list[float]:
        torch.manual_seed(0)
        layer = torch.nn.Linear(2, 2)

        def step(x: torch.Tensor) -> torch.Tensor:
            loss = layer(x).square().mean()
            loss.backward()  # onto what the step before left
            return loss.detach() + layer.weight.grad.sum()

        compiled: Any = systolic.jit(step) if compile else step
        return [float(one(torch.ones(6, 2))) for one in (compiled, step, compiled, step, compiled)]

    assert losses(True) == pytest.approx(losses(False), rel=1e-5)
