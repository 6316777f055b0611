from __future__ import annotations

import copy
import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from compiler.step_check import JAX_CALL, check_step, count
from torch import nn
from torch.utils.checkpoint import checkpoint

import systolic

pytestmark = pytest.mark.thin(24, 2)

NETWORKS = [nn.LSTM, nn.GRU, nn.RNN]


def batch(batch_first: bool = False) -> torch.Tensor:
    torch.manual_seed(1)
    return torch.randn((3, 5, 4) if batch_first else (5, 3, 4), requires_grad=True)


def check(module: nn.RNNBase, *tensors: torch.Tensor, calls: int = 2, **options: Any) -> Any:
    """The module equals its eager self, and is one op forward and one backward."""
    compiled = check_step(lambda x, *state: module(x, *_state(module, state)), *tensors, module=module, **options)
    assert count(compiled, JAX_CALL) == calls
    runs = module.num_layers * (2 if module.bidirectional else 1)
    assert compiled.stablehlo().count("stablehlo.while") == 2 * runs
    return compiled


def _state(module: nn.RNNBase, state: tuple[torch.Tensor, ...]) -> tuple[Any, ...]:
    return (state,) if isinstance(module, nn.LSTM) and state else state


def make(network: Any, **options: Any) -> nn.RNNBase:
    torch.manual_seed(0)
    return network(4, 6, **options)


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize(
    ("layers", "bidirectional", "batch_first"), list(itertools.product((1, 2), (False, True), (False, True)))
)
def test_stacks(network: Any, layers: int, bidirectional: bool, batch_first: bool) -> None:
    module = make(network, num_layers=layers, bidirectional=bidirectional, batch_first=batch_first)
    check(module, batch(batch_first))


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("layers", [1, 2])
def test_without_biases(network: Any, layers: int) -> None:
    check(make(network, num_layers=layers, bias=False), batch())


def test_relu() -> None:
    check(make(nn.RNN, nonlinearity="relu", num_layers=2, bidirectional=True), batch())


@pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN")
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("bidirectional", [True, False])
def test_projection(bias: bool, bidirectional: bool) -> None:
    check(make(nn.LSTM, num_layers=2, proj_size=3, bias=bias, bidirectional=bidirectional), batch())


@pytest.mark.parametrize("network", NETWORKS)
def test_given_initial_state(network: Any) -> None:
    states = [torch.randn(4, 3, 6, requires_grad=True) for _ in range(2 if network is nn.LSTM else 1)]
    check(make(network, num_layers=2, bidirectional=True), batch(), *states)


@pytest.mark.parametrize("network", NETWORKS)
def test_one_sequence_without_batch_dimension(network: Any) -> None:
    check(make(network), batch()[:, 0].detach().requires_grad_())


@pytest.mark.parametrize("network", NETWORKS)
def test_double_precision(network: Any) -> None:
    check(make(network).double(), batch().detach().double().requires_grad_(), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("network", NETWORKS)
def test_bfloat16(network: Any) -> None:
    check(make(network).bfloat16(), batch().detach().bfloat16().requires_grad_(), rtol=5e-2, atol=5e-2)


@pytest.mark.parametrize("network", NETWORKS)
def test_autocast(network: Any) -> None:
    module = make(network)

    def function(x: torch.Tensor) -> Any:
        with torch.autocast("cpu", torch.bfloat16):
            return module(x)

    oracle = _cast_by_hand(module) if isinstance(module, nn.LSTM) else None
    check_step(function, batch(), module=module, oracle=oracle, rtol=5e-2, atol=5e-2)


def _cast_by_hand(module: nn.LSTM) -> Callable[[torch.Tensor], Any]:
    """The casts that autocast makes around an LSTM.

    Under autocast PyTorch asks oneDNN for a bfloat16 LSTM on every processor, and oneDNN has one for AVX-512 only; given
    bfloat16 tensors, PyTorch takes a kernel that the processor has.
    """

    def function(x: torch.Tensor) -> Any:
        zeros = torch.zeros(1, x.shape[1], module.hidden_size, dtype=torch.bfloat16)
        weights = [weight.bfloat16() for weight in module.all_weights[0]]
        output, hidden, cell = torch.lstm(x.bfloat16(), [zeros, zeros], weights, True, 1, 0.0, True, False, False)
        return output, (hidden, cell)

    return function


@pytest.mark.parametrize("network", NETWORKS)
def test_double_backward(network: Any) -> None:
    module = make(network).double()

    def penalty(x: torch.Tensor) -> torch.Tensor:
        (gradient,) = torch.autograd.grad(module(x)[0].square().sum(), x, create_graph=True)
        return gradient.square().sum()

    check_step(penalty, batch().detach().double().requires_grad_(), module=nn.ParameterList(list(module.parameters())[:2]))


@pytest.mark.parametrize("network", NETWORKS)
def test_under_checkpointing(network: Any) -> None:
    module = make(network)
    check_step(lambda x: checkpoint(lambda y: module(y.tanh())[0].sin(), x, use_reentrant=False), batch(), module=module)


@pytest.mark.parametrize("network", NETWORKS)
def test_frozen_weights(network: Any) -> None:
    module = make(network)
    module.weight_hh_l0.requires_grad_(False)
    check(module, batch())


@pytest.mark.parametrize("cell", [nn.LSTMCell, nn.GRUCell, nn.RNNCell])
def test_cells(cell: Any) -> None:
    torch.manual_seed(0)
    module = cell(4, 6)
    compiled = check_step(module, torch.randn(3, 4, requires_grad=True), module=module)
    assert count(compiled, JAX_CALL) == 0


def test_dropout_between_the_layers_in_training_only() -> None:
    module = make(nn.LSTM, num_layers=2, dropout=0.5)
    step = systolic.jit(lambda x: module(x)[0].detach())
    x = batch().detach()
    assert (step(x).cpu() != step(x).cpu()).any()
    module.eval()
    torch.testing.assert_close(step(x).cpu(), copy.deepcopy(module)(x)[0].detach(), rtol=1e-5, atol=1e-6)


def test_full_dropout_leaves_the_second_layer_its_biases_only() -> None:
    module = make(nn.GRU, num_layers=2, dropout=1.0)
    x = batch()
    check_step(module, x, module=module)


def make_step(model: nn.Module) -> Any:
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)

    def step(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        loss = (model(x)[0] - y).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    return step


@pytest.mark.parametrize("network", NETWORKS)
def test_training_and_release(network: Any) -> None:
    model = make(network, num_layers=2, bidirectional=True)
    reference = copy.deepcopy(model)
    eager, compiled = make_step(reference), systolic.jit(make_step(model))
    for _ in range(5):
        x, y = torch.randn(5, 3, 4), torch.randn(5, 3, 12)
        torch.testing.assert_close(compiled(x, y).cpu(), eager(x, y), rtol=1e-5, atol=1e-6)
    assert compiled.compile_count == 1
    compiled.release()
    assert all(a is b for a, b in zip(model._flat_weights, model.parameters(), strict=True))
    torch.testing.assert_close(model(x), reference(x), rtol=1e-4, atol=1e-5)


def test_eager_use_between_compiled_steps_sees_the_new_weights() -> None:
    model = make(nn.LSTM)
    compiled = systolic.jit(make_step(model))
    x, y = torch.randn(5, 3, 4), torch.randn(5, 3, 6)
    with torch.no_grad():
        before = model(x)[0].clone()
        compiled(x, y)
        after = model(x)[0]
        compiled(x, y)
    assert (before != after).any()
    assert len(compiled.compiles) == 1


@pytest.mark.tables
def test_weight_norm_on_a_recurrent_weight() -> None:
    model = make(nn.LSTM)
    nn.utils.parametrizations.weight_norm(model, "weight_hh_l0")
    reference = copy.deepcopy(model)
    eager, compiled = make_step(reference), systolic.jit(make_step(model))
    for _ in range(3):
        x, y = torch.randn(5, 3, 4), torch.randn(5, 3, 6)
        torch.testing.assert_close(compiled(x, y).cpu(), eager(x, y), rtol=1e-5, atol=1e-6)
    assert len(compiled.compiles) == 1
