"""Every way to write to the state inside a step is a write, equal to eager PyTorch over several steps, or is refused."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

import systolic
from systolic.compiler import CaptureError

pytestmark = pytest.mark.thin(6, 4)


class World(nn.Module):
    """Two layers, of which an optimizer updates the first, two buffers, and a tensor in an attribute."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(3, 3), nn.Linear(3, 3)
        self.register_buffer("buf", torch.zeros(3))
        self.register_buffer("other", torch.arange(3.0))
        self.kept = torch.zeros(3)
        self.first = True
        self.history: list[torch.Tensor] = []
        # an object that the object graph does not look into
        self.plain = type("Plain", (), {})()
        self.plain.weight, self.plain.bias = self.b.weight, self.b.bias
        self.names = SimpleNamespace(tensor=self.other)

    def is_first(self) -> bool:
        was, self.first = self.first, False
        return was


def average(m: Any, x: torch.Tensor) -> None:
    for teacher, student in zip(m.b.parameters(), m.a.parameters(), strict=True):
        teacher.data = 0.9 * teacher.data + 0.1 * student.data


def clamp(m: Any, x: torch.Tensor) -> None:
    for p in m.a.parameters():
        p.data = p.data.clamp(-0.1, 0.1)


def data_of_plain_object(m: Any, x: torch.Tensor) -> None:
    m.plain.weight.data = m.plain.weight.data * 0.9 + x.mean()


def data_transposed(m: Any, x: torch.Tensor) -> None:
    m.b.weight.data = m.b.weight.data.t() * 0.5


def data_shared_for_a_while(m: Any, x: torch.Tensor) -> None:
    m.b.weight.data = m.a.weight.data
    m.b.weight.data.mul_(0.5)
    m.b.weight.data = m.b.weight.data.clone()


def data_of_new_tensor(m: Any, x: torch.Tensor) -> None:
    new = torch.zeros(3)
    new.data = m.buf
    new += x.mean(0)


def other_dtype_for_a_while(m: Any, x: torch.Tensor) -> None:
    m.b.double().float()


def parts_of_a_vector(m: Any, x: torch.Tensor) -> None:
    vector = nn.utils.parameters_to_vector(m.b.parameters()).detach()
    nn.utils.vector_to_parameters(vector * 0.9, m.b.parameters())


def data_copy(m: Any, x: torch.Tensor) -> None:
    m.b.weight.data.copy_(m.a.weight.data)


def data_mul(m: Any, x: torch.Tensor) -> None:
    m.b.weight.data.mul_(0.5)


def data_element(m: Any, x: torch.Tensor) -> None:
    m.b.weight.data[1:] = x.mean()


def detached_add(m: Any, x: torch.Tensor) -> None:
    m.b.weight.detach().add_(x.mean())


def set_to_new_memory(m: Any, x: torch.Tensor) -> None:
    with torch.no_grad():
        m.b.bias.set_(m.b.bias + x.mean(0))


def swap(m: Any, x: torch.Tensor) -> None:
    torch.utils.swap_tensors(m.a.weight, m.b.weight)


def swap_of_plain_object(m: Any, x: torch.Tensor) -> None:
    torch.utils.swap_tensors(m.plain.weight, m.a.weight)


def new_buffer(m: Any, x: torch.Tensor) -> None:
    m.buf = m.buf + x.mean(0)


def new_parameter(m: Any, x: torch.Tensor) -> None:
    m.b.weight = nn.Parameter(m.b.weight.detach() * 0.9 + x.mean())


def new_frozen_parameter(m: Any, x: torch.Tensor) -> None:
    m.b.weight = nn.Parameter(m.b.weight.detach() * 0.9, requires_grad=False)


def new_leaf(m: Any, x: torch.Tensor) -> None:
    m.kept = torch.zeros(3, requires_grad=True)


def parameters_exchanged(m: Any, x: torch.Tensor) -> None:
    m.a.weight, m.b.weight = m.b.weight, m.a.weight


def buffers_exchanged(m: Any, x: torch.Tensor) -> None:
    m.buf, m.other = m.other, m.buf


def previous(m: Any, x: torch.Tensor) -> None:
    m.kept = m.buf
    m.buf = m.buf + x.mean(0)


def one_tensor_in_two_places(m: Any, x: torch.Tensor) -> None:
    if m.is_first():
        m.kept = m.buf = x.mean(0) + m.buf
    m.kept.add_(1)


def one_buffer_in_two_places(m: Any, x: torch.Tensor) -> None:
    if m.is_first():
        m.kept = m.other
    m.other.add_(1)


def detached_buffer_in_another_place(m: Any, x: torch.Tensor) -> None:
    if m.is_first():
        m.kept = m.other.detach()
    m.other.add_(1)


def detached_buffer_in_every_step(m: Any, x: torch.Tensor) -> None:
    m.kept = m.other.detach()
    m.other.add_(1)


def data_of_a_trained_weight(m: Any, x: torch.Tensor) -> None:
    if m.is_first():
        m.names.tensor = m.a.weight.data
    m.buf = m.names.tensor[0] * 2


def view_of_a_weight_that_stays(m: Any, x: torch.Tensor) -> None:
    if m.is_first():
        m.names.tensor = m.b.weight.detach().t()
    m.buf = m.names.tensor[0] * 2


def view_made_anew(m: Any, x: torch.Tensor) -> None:
    m.names.tensor = m.a.weight.detach().t()


def buffer_in_a_list(m: Any, x: torch.Tensor) -> None:
    m.history.append(m.other)
    m.other.add_(1)
    m.buf = m.history[0] + m.history[-1]


def replaced_buffer_in_a_list(m: Any, x: torch.Tensor) -> None:
    m.history.append(m.other)
    m.other = m.other + 1
    m.buf = m.history[0] + m.history[-1]


def other_shape_for_a_while(m: Any, x: torch.Tensor) -> None:
    m.other.unsqueeze_(0)
    m.other.add_(x.mean(0))
    m.other.squeeze_(0)


def frozen(m: Any, x: torch.Tensor) -> None:
    m.b.weight.requires_grad_(False)


def gradient(m: Any, x: torch.Tensor) -> None:
    m.b.weight.grad = m.a.weight.detach() * 2


Write = Callable[[Any, torch.Tensor], None]
FOLLOWED: list[Write] = [
    average, clamp, data_of_plain_object, data_transposed, data_shared_for_a_while, data_of_new_tensor,
    other_dtype_for_a_while, parts_of_a_vector, data_copy, data_mul, data_element, detached_add, set_to_new_memory, swap,
    swap_of_plain_object, new_buffer, new_parameter, new_frozen_parameter, new_leaf, parameters_exchanged, buffers_exchanged,
    previous, one_tensor_in_two_places, one_buffer_in_two_places, detached_buffer_in_another_place,
    detached_buffer_in_every_step, data_of_a_trained_weight, view_of_a_weight_that_stays, view_made_anew, buffer_in_a_list,
    replaced_buffer_in_a_list, other_shape_for_a_while, frozen, gradient,
]  # fmt: skip


def step_of(write: Write, when: str, model: World) -> Callable[[torch.Tensor], torch.Tensor]:
    optimizer = torch.optim.SGD(model.a.parameters(), 0.1, momentum=0.9)

    def step(x: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        if when == "first":
            write(model, x)
        loss = (model.b(model.a(x)) + model.buf + model.kept).square().mean()
        loss.backward()
        optimizer.step()
        if when == "last":
            write(model, x)
        return loss.detach()

    return step


def state_of(model: World) -> dict[str, Any]:
    """The values, and what else can be seen of the tensors."""
    tensors = {**model.state_dict(keep_vars=True), "kept": model.kept, "names": model.names.tensor}
    tensors |= {f"history.{i}": tensor for i, tensor in enumerate(model.history)}
    values: dict[str, Any] = {name: tensor.detach().clone().cpu() for name, tensor in tensors.items()}
    for name, tensor in tensors.items():
        values[f"{name} flags"] = (tensor.requires_grad, isinstance(tensor, nn.Parameter))
        if tensor.is_leaf:
            values[f"{name}.grad"] = None if tensor.grad is None else tensor.grad.detach().clone().cpu()
    return values


def run(write: Write, when: str, *, compiled: bool) -> tuple[list[dict[str, Any]], int]:
    torch.manual_seed(0)
    model = World()
    step: Any = step_of(write, when, model)
    if compiled:
        step = systolic.jit(step)
    found = []
    for x in torch.randn(4, 5, 3):
        loss = step(x)
        found.append({"loss": loss.cpu().clone(), **state_of(model)})
    return found, len(step.compiles) if compiled else 0


@pytest.mark.filterwarnings("ignore:grad and param do not obey")
@pytest.mark.parametrize("when", ["first", "last"])
@pytest.mark.parametrize("write", FOLLOWED, ids=lambda write: write.__name__)
def test_a_write_to_the_state_equals_eager(write: Write, when: str) -> None:
    expected, _ = run(write, when, compiled=False)
    received, _ = run(write, when, compiled=True)
    for number, (want, got) in enumerate(zip(expected, received, strict=True)):
        assert want.keys() == got.keys()
        for name, value in want.items():
            if isinstance(value, torch.Tensor):
                torch.testing.assert_close(got[name], value, rtol=1e-5, atol=1e-6, msg=f"{name} after step {number}")
            else:
                assert got[name] == value, f"{name} after step {number}"


@pytest.mark.parametrize("write", [average, clamp, new_buffer, buffers_exchanged, previous, detached_buffer_in_every_step])
def test_a_write_in_every_step_is_traced_a_few_times_only(write: Write) -> None:
    assert run(write, "last", compiled=True)[1] <= 3


def shared_data(m: Any, x: torch.Tensor) -> None:
    m.b.weight.data = m.a.weight.data  # the line to name


def shared_set(m: Any, x: torch.Tensor) -> None:
    with torch.no_grad():
        m.b.bias.set_(m.a.bias)  # the line to name


def other_dtype(m: Any, x: torch.Tensor) -> None:
    m.buf.data = m.buf.data.double()  # the line to name


def other_shape(m: Any, x: torch.Tensor) -> None:
    m.other.unsqueeze_(0)  # the line to name


def somebody_elses_data(m: Any, x: torch.Tensor) -> None:
    m.plain.stranger.data = x.mean(0)  # the line to name


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (shared_data, "m.a.weight and m.b.weight look at the same memory"),
        (shared_set, "m.a.bias and m.b.bias look at the same memory"),
        (other_dtype, r"m.buf with another shape or dtype. Expected: \(3,\), torch.float32. Received: \(3,\), torch.float64"),
        (other_shape, r"m.other with another shape or dtype. Expected: \(3,\), torch.float32. Received: \(1, 3\)"),
        (somebody_elses_data, "not part of its modules"),
    ],
)
def test_a_write_that_cannot_be_followed_is_refused_on_its_line(write: Write, message: str) -> None:
    model = World()
    model.plain.stranger = torch.zeros(3)
    with pytest.raises(CaptureError, match=message) as caught:
        systolic.jit(lambda x, m=model: step_of(write, "last", m)(x))(torch.randn(5, 3))
    assert "the line to name" in str(caught.value) or f"in {write.__name__}: " in str(caught.value)


def test_a_stored_view_of_a_tensor_that_the_step_changes_is_refused_when_it_is_read() -> None:
    def write(m: Any, x: torch.Tensor) -> None:
        if m.is_first():
            m.kept = m.other.view(1, 3)
        m.other.add_(1)

    with pytest.raises(CaptureError, match=r"kept is a view of .*other.* that an earlier step stored"):
        run(write, "last", compiled=True)


def test_a_swap_past_the_tracer_is_refused() -> None:
    real = torch.utils.swap_tensors

    def write(m: Any, x: torch.Tensor) -> None:
        real(m.plain.weight, m.plain.other)

    model = World()
    model.plain.other = nn.Parameter(torch.zeros(3, 3))
    step = systolic.jit(step_of(write, "first", model))
    with pytest.raises(CaptureError, match="exchanges .*b.weight with another tensor past the tracer"):
        step(torch.randn(5, 3))


def test_a_view_that_host_code_stored_in_the_state_is_refused() -> None:
    layer = nn.Linear(3, 3)
    step = systolic.jit(lambda x: layer(x))
    step(torch.ones(2, 3))
    layer.row = layer.weight[0]
    with pytest.raises(CaptureError, match="layer.row is a view of another tensor of the state"):
        step(torch.ones(2, 3))


@pytest.mark.parametrize("clears", [True, False], ids=["cleared", "added to"])
def test_gradients_that_are_there_before_the_first_step(clears: bool) -> None:
    def trained(compile: bool) -> list[torch.Tensor]:
        torch.manual_seed(1)
        layer = nn.Linear(3, 3)
        optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
        layer(torch.ones(2, 3)).square().sum().backward()

        def step(x: torch.Tensor) -> torch.Tensor:
            if clears:
                optimizer.zero_grad()
            loss = layer(x).square().sum()
            loss.backward()
            optimizer.step()
            return loss.detach()

        run = systolic.jit(step) if compile else step
        losses = [run(torch.full((2, 3), i / 4)).clone() for i in range(3)]
        return [*losses, *(p.detach().clone() for p in layer.parameters()), *(p.grad.clone() for p in layer.parameters())]  # type: ignore[union-attr]

    for want, got in zip(trained(False), trained(True), strict=True):
        torch.testing.assert_close(got.cpu(), want, rtol=1e-5, atol=1e-6)
