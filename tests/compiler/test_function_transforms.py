"""`torch.func` and forward-mode derivatives inside of a compiled step, against eager PyTorch."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import jax
import pytest
import torch
import torch.autograd.forward_ad as forward_ad
import torch.nn.functional as F
from torch import nn
from torch.func import (
    functional_call,
    functionalize,
    grad,
    hessian,
    jacfwd,
    jacrev,
    jvp,
    linearize,
    stack_module_state,
    vjp,
    vmap,
)
from torch.utils._pytree import tree_leaves

import systolic
from systolic.compiler import CaptureError

# PyTorch's, where its rules for forward mode are first asked for
pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")

Step = Callable[..., Any]
FEATURES = 8


def equal_to_eager(model: nn.Module, step: Step, *arguments: torch.Tensor) -> None:
    """A step of the model and the arguments, compiled and not, from the same weights."""
    ours = copy.deepcopy(model)
    wanted = [t.detach().clone() for t in tree_leaves(step(model, *arguments))]
    received = tree_leaves(systolic.jit(lambda *given: step(ours, *given))(*arguments))
    assert len(wanted) == len(received) > 0
    for want, got in zip(wanted, received, strict=True):
        torch.testing.assert_close(torch.as_tensor(got), want, rtol=1e-5, atol=1e-5)


def mlp() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(FEATURES, 6), nn.Tanh(), nn.Linear(6, 3))


def rows(*shape: int) -> torch.Tensor:
    torch.manual_seed(1)
    return torch.randn(*(shape or (4, FEATURES)))


def per_sample(loss: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]) -> Step:
    """The gradients of every sample's loss, as private training takes them."""

    def step(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> Any:
        parameters, buffers = dict(model.named_parameters()), dict(model.named_buffers())

        def of_one(parameters: dict[str, torch.Tensor], x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return loss(functional_call(model, (parameters, buffers), (x[None],)), y[None])

        return vmap(grad(of_one), (None, 0, 0))(parameters, x, y)

    return step


class Tokens(nn.Module):
    """Token ids to scores: attention of two heads, an encoder layer of PyTorch's, or an LSTM between two products."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.kind = kind
        self.embedding = nn.Embedding(11, FEATURES)
        self.inner: nn.Module = {
            "attention": lambda: nn.Linear(FEATURES, 3 * FEATURES),
            "encoder": lambda: nn.TransformerEncoderLayer(FEATURES, 2, 16, dropout=0.0, batch_first=True),
            "lstm": lambda: nn.LSTM(FEATURES, FEATURES, batch_first=True),
        }[kind]()
        self.scores = nn.Linear(FEATURES, 11)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        hidden = self.inner(self.embedding(tokens))
        if self.kind == "lstm":
            hidden = hidden[0]
        elif self.kind == "attention":
            query, key, value = hidden.view(*tokens.shape, 3, 2, 4).permute(2, 0, 3, 1, 4)
            hidden = F.scaled_dot_product_attention(query, key, value, is_causal=True).transpose(1, 2).flatten(2)
        return self.scores(hidden)


def of_tokens(scores: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(scores.flatten(0, 1), tokens.flatten())


IMAGES: dict[str, Callable[[], nn.Module]] = {
    "group norm": lambda: nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.GroupNorm(2, 4), nn.SiLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(36, 3)
    ),
    "mean": lambda: nn.Sequential(
        nn.Conv2d(3, 4, 3, stride=2, padding=1), nn.GELU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3)
    ),
    "batch norm": lambda: nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(144, 3)).eval(),
    "transposed": lambda: nn.Sequential(nn.ConvTranspose2d(3, 2, 3), nn.Flatten(), nn.Linear(200, 3)),
}


@pytest.mark.thin(2)
@pytest.mark.parametrize("kind", IMAGES)
def test_gradients_of_each_image(kind: str) -> None:
    torch.manual_seed(0)
    equal_to_eager(IMAGES[kind](), per_sample(F.cross_entropy), rows(4, 3, 8, 8), torch.tensor([0, 2, 1, 2]))


@pytest.mark.filterwarnings("ignore:There is a performance drop")  # PyTorch's, of its own attention in eager mode
@pytest.mark.parametrize("kind", ["attention", "encoder", "lstm"])
def test_gradients_of_each_text(kind: str) -> None:
    tokens = torch.arange(24).reshape(4, 6) % 11
    equal_to_eager(Tokens(kind), per_sample(of_tokens), tokens, tokens)


LOSSES: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "cross entropy": F.cross_entropy,
    "options": lambda o, y: F.cross_entropy(o, y, torch.tensor([1.0, 2.0, 3.0]), ignore_index=2, label_smoothing=0.1),
    "binary": lambda o, y: F.binary_cross_entropy_with_logits(o[:, 0], y.float()),
}


@pytest.mark.thin(2)
@pytest.mark.parametrize("loss", LOSSES)
def test_gradients_of_each_loss(loss: str) -> None:
    equal_to_eager(mlp(), per_sample(LOSSES[loss]), rows(), torch.tensor([0, 1, 1, 0]))


def of_outer_loss(model: nn.Module, x: torch.Tensor) -> Any:
    """A loss after one step of descent inside (MAML), to the weights before it."""
    parameters = dict(model.named_parameters())

    def inner(parameters: dict[str, torch.Tensor]) -> torch.Tensor:
        return functional_call(model, parameters, (x,)).pow(2).mean()

    moved = {name: parameters[name] - 0.1 * step for name, step in grad(inner)(parameters).items()}
    functional_call(model, moved, (x,)).pow(2).mean().backward()
    return [parameter.grad for parameter in model.parameters()]


def in_dual_numbers(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
    with forward_ad.dual_level():
        tangent = forward_ad.unpack_dual(model(forward_ad.make_dual(x, torch.ones_like(x)))).tangent
        assert tangent is not None
        return tangent


class Squared(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x: torch.Tensor) -> torch.Tensor:
        return x * x

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[torch.Tensor], output: torch.Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> torch.Tensor:
        return 2 * gradients[0] * ctx.saved_tensors[0]


def attended(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
    return F.scaled_dot_product_attention(model(x), x[..., :3], x)


def closed_over(model: nn.Module, x: torch.Tensor) -> Any:
    """The gradient of a gradient, to weights that the inner function does not take."""
    inner = grad(lambda w: F.scaled_dot_product_attention(x @ w, model(x), x).pow(2).sum())
    return torch.autograd.grad(inner(torch.eye(FEATURES, 3)).pow(2).sum(), list(model.parameters()))


WEIGHTS = torch.tensor([1.0, 2.0, 3.0])
STEPS: dict[str, Step] = {
    "vmap": lambda m, x: vmap(m)(x),
    "chunks": lambda m, x: vmap(m, chunk_size=2, out_dims=1)(x),
    "vmap twice": lambda m, x: vmap(vmap(m))(x[None]),
    "writes": lambda m, x: vmap(lambda row: m(row).add_(1).mul_(2))(x),
    "rows": lambda m, x: vmap(lambda row: torch.zeros(8).index_add(0, torch.arange(8), row))(x),
    "topk": lambda m, x: vmap(lambda row: m(row).topk(2)[0].cumsum(0))(x),
    "solve": lambda m, x: vmap(lambda row: torch.linalg.solve(torch.eye(8) * 3 + torch.outer(row, row), row))(x),
    "resized": lambda m, x: vmap(lambda row: F.interpolate(row[None, None], scale_factor=2.0))(x),
    "one hot": lambda m, x: vmap(lambda label: F.one_hot(label, 3).float() * m(x).sum())(torch.tensor([2, 0])),
    "grad": lambda m, x: grad(lambda x: m(x).sum())(x),
    "closed over": lambda m, x: vmap(grad(lambda row: (m(row) * WEIGHTS).sum()))(x),
    "vjp": lambda m, x: vjp(m, x)[1](torch.ones(4, 3)),
    "jvp": lambda m, x: jvp(m, (x,), (torch.ones_like(x),)),
    "jacrev": lambda m, x: vmap(jacrev(m))(x),
    "jacfwd": lambda m, x: vmap(jacfwd(m))(x),
    "hessian": lambda m, x: vmap(hessian(lambda row: m(row).sum()))(x),
    "product with the hessian": lambda m, x: jvp(grad(lambda x: m(x).sum()), (x,), (torch.ones_like(x),))[1],
    "trace": lambda m, x: vmap(lambda v: jvp(m, (x,), (v,))[1])(torch.eye(32).view(32, 4, 8)[:5]),
    "outer loss": of_outer_loss,
    "outer gradient": lambda m, x: torch.autograd.grad(vmap(jacrev(m))(x).pow(2).sum(), list(m.parameters())[:3]),
    "functionalize": lambda m, x: functionalize(lambda x: m(x).add_(1))(x),
    "autograd.functional": lambda m, x: torch.autograd.functional.hessian(lambda x: m(x).sum(), x, vectorize=True),
    "batched gradients": lambda m, x: torch.autograd.grad(
        m(x), list(m.parameters()), torch.eye(12).view(12, 4, 3), is_grads_batched=True
    ),
    "dual numbers": in_dual_numbers,
    "autograd function": lambda m, x: vmap(grad(lambda row: Squared.apply(m(row)).sum()))(x),  # pyright: ignore[reportFunctionMemberAccess]
    "a value decides": lambda m, x: grad(lambda x: m(x).sum() if x.sum() > 0 else x.sum())(x),
    "attention": lambda m, x: vmap(lambda row: attended(m, row[None]))(x),
    "attention, each backward": lambda m, x: torch.autograd.grad(
        vmap(lambda row: attended(m, row[None]).sum())(x).pow(2).sum(), list(m.parameters())
    ),
    "attention, forward mode": lambda m, x: jvp(lambda x: attended(m, x), (x,), (torch.ones_like(x),))[1],
    "attention, second order": lambda m, x: jacrev(jacrev(lambda x: attended(m, x).sum()))(x[:2]),
    "attention, closed over": closed_over,
}


@pytest.mark.thin(6)
@pytest.mark.parametrize("step", STEPS)
def test_a_step_equals_eager(step: str) -> None:
    equal_to_eager(mlp(), STEPS[step], rows())


def test_an_ensemble() -> None:
    def step(models: nn.Module, x: torch.Tensor) -> Any:
        assert isinstance(models, nn.ModuleList)
        first, parameters, buffers = models[0], *stack_module_state(list(models))
        return vmap(lambda p, b, x: functional_call(first, (p, b), (x,)), (0, 0, None))(parameters, buffers, x)

    equal_to_eager(nn.ModuleList(nn.Linear(FEATURES, 3) for _ in range(3)), step, rows())


def test_a_function_of_jax() -> None:
    sine = systolic.jax_op(lambda x, y: jax.numpy.sin(x) * y)
    equal_to_eager(mlp(), lambda m, x: vmap(grad(lambda row: sine(m(row), row[:3]).sum()))(x), rows())
    equal_to_eager(mlp(), lambda m, x: jvp(lambda x: sine(m(x), x[:, :3]), (x,), (torch.ones_like(x),))[1], rows())


@pytest.mark.parametrize("dropped", [F.dropout, lambda x, p: F.scaled_dot_product_attention(x, x, x, dropout_p=p)])
def test_random_numbers_are_drawn_as_vmap_was_told(dropped: Callable[[torch.Tensor, float], torch.Tensor]) -> None:
    x = torch.ones(4, 16, 16)

    def drawn(randomness: str) -> torch.Tensor:
        return torch.as_tensor(systolic.jit(lambda x: vmap(lambda row: dropped(row, 0.5), randomness=randomness)(x))(x))

    assert len(drawn("different").unique(dim=0)) == 4
    assert len(drawn("same").unique(dim=0)) == 1
    with pytest.raises(RuntimeError, match="called random operation while in randomness error mode"):
        drawn("error")


@pytest.mark.parametrize("text", [str, lambda y: f"{y:.3f}", lambda y: f"{y.item():.3f}"])
def test_what_is_printed_inside(text: Callable[[torch.Tensor], str], capsys: pytest.CaptureFixture[str]) -> None:
    model, x = mlp(), rows()

    def shown(x: torch.Tensor) -> torch.Tensor:
        y = model(x).sum()
        print("value", text(y))  # noqa: T201
        return y

    step = systolic.jit(lambda x: grad(shown)(x))
    wanted = []
    for batch in (x, 2 * x):
        wanted.append(f"value {text(model(batch).sum().detach().cpu())}")
        step(batch)
    assert capsys.readouterr().out.splitlines() == wanted


def test_linearize_is_answered() -> None:
    model = mlp()
    with pytest.raises(CaptureError, match=r"torch\.func\.jvp"):
        systolic.jit(lambda x: linearize(model, x)[1](torch.ones_like(x)))(rows())
