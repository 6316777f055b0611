"""Host code sees the truth: tensors that live on the devices behave like tensors (C4)."""

from __future__ import annotations

import copy
import io
import pickle
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest
import torch
from torch import nn

from systolic.compiler.capture import ObjectGraph
from systolic.compiler.driver._engine import bind, release
from systolic.runtime._cells import flush, make_cells
from systolic.runtime._device_tensor import DeviceTensor, to_plain
from systolic.runtime._placement import Placement


@pytest.fixture(params=[1, 8])
def placement(request: pytest.FixtureRequest) -> Placement:
    return Placement(jax.devices("cpu")[: request.param])


@pytest.fixture
def module(placement: Placement) -> nn.Module:
    """A linear layer whose weight has an array of its own and whose bias shares one with the counter."""
    layer = nn.Linear(50, 60)
    layer.register_buffer("mean", torch.zeros(3))
    bind(ObjectGraph({"module": layer}), placement)
    return layer


def cell(tensor: Any) -> Any:
    return tensor._cell


def on_device(tensor: Any) -> torch.Tensor:
    """What a program would receive now."""
    flush(cell(tensor).buffer)
    return to_plain(tensor).detach()


def single(values: Any, placement: Placement) -> DeviceTensor:
    return DeviceTensor(make_cells([torch.as_tensor(values)], [placement.whole])[0])


def test_binding_keeps_objects_kinds_and_values() -> None:
    layer = nn.Linear(4, 3)
    weight, expected = layer.weight, layer.weight.detach().clone()
    bind(ObjectGraph({"module": layer}), Placement(jax.devices("cpu")[:1]))
    assert layer.weight is weight
    assert isinstance(weight, DeviceTensor)
    assert isinstance(weight, nn.Parameter)
    assert weight.requires_grad
    assert weight.is_leaf
    assert [name for name, _ in layer.named_parameters()] == ["weight", "bias"]
    release({"module": layer})
    assert layer.weight is weight
    assert type(weight) is nn.Parameter
    assert torch.equal(weight, expected)


def test_looking_at_metadata_fetches_nothing(module: nn.Module) -> None:
    weight: Any = module.weight
    assert weight.shape == (60, 50)
    assert weight.dtype is torch.float32
    assert weight.device.type == "cpu"
    assert weight.requires_grad
    assert weight.numel() == 3000
    assert weight.detach().shape == (60, 50)
    assert cell(weight).mirror is None


READS: dict[str, Callable[[Any], Any]] = {
    "item": lambda t: t[1].item(),
    "float": lambda t: float(t[1]),
    "tolist": lambda t: t.tolist(),
    "numpy": lambda t: t.numpy().tolist(),
    "asarray": lambda t: np.asarray(t).tolist(),
    "cpu": lambda t: t.cpu().tolist(),
    "clone": lambda t: t.clone().tolist(),
    "sum": lambda t: t.sum().item(),
    "arithmetic": lambda t: ((t * 2 + 1) / 3 - t @ t).tolist(),
    "reflected": lambda t: (1 - torch.ones(3) * t).tolist(),
    "comparison": lambda t: (t > 1).tolist(),
    "equal": lambda t: torch.equal(t, t.cpu()),
    "iteration": lambda t: [float(x) for x in t],
    "unbind": lambda t: [x.item() for x in t.unbind()],
    "split": lambda t: [x.tolist() for x in t.split(2)],
    "cat": lambda t: torch.cat([t, t]).tolist(),
    "norm": lambda t: torch.linalg.vector_norm(t).item(),
    "half": lambda t: t.to(torch.float16).tolist(),
    "same dtype": lambda t: t.float().tolist(),
    "view": lambda t: t.view(3, 1).T.reshape(-1).tolist(),
    "max": lambda t: [x.item() for x in t.max(0)],
    "format": lambda t: f"{t[2]:.3f}",
    "bool": lambda t: bool(t[0]),
    "contains": lambda t: 1.0 in t,
    "len": len,
}


@pytest.mark.parametrize("how", READS)
def test_reading(how: str, placement: Placement) -> None:
    plain = torch.tensor([1.0, -2.0, 3.5])
    assert READS[how](single(plain, placement)) == READS[how](plain)


WRITES: dict[str, Callable[[Any], Any]] = {
    "zero": lambda t: t.zero_(),
    "add": lambda t: t.add_(1),
    "augmented": lambda t: t.__imul__(2),
    "copy": lambda t: t.copy_(torch.arange(12.0).view(3, 4)),
    "item": lambda t: t.__setitem__((1, 2), 7.0),
    "slice": lambda t: t.__setitem__(slice(0, 2), 5.0),
    "mask": lambda t: t.__setitem__(t > 0, -1.0),
    "row": lambda t: t[0].fill_(3),
    "transposed": lambda t: t.T[1].mul_(2),
    "view of a view": lambda t: t.view(-1)[2:8].view(2, 3)[1].zero_(),
    "unbind": lambda t: t.unbind(1)[2].fill_(9),
    "chunk": lambda t: t.chunk(2, dim=1)[1].neg_(),
    "data": lambda t: setattr(t, "data", torch.full((3, 4), 2.0)),
    "data in place": lambda t: t.data.mul_(3),
    "data slice": lambda t: t.data[1].fill_(0),
    "detach": lambda t: t.detach().add_(2),
    "out": lambda t: torch.mul(torch.ones(3, 4), 4, out=t),
    "init": lambda t: nn.init.constant_(t, 0.5),
    "lerp": lambda t: t.lerp_(torch.ones(3, 4), 0.5),
    "clamp": lambda t: t.clamp_(0, 1),
    "index_fill": lambda t: t.index_fill_(0, torch.tensor([2]), 8),
    "foreach": lambda t: torch._foreach_add_([t, t.detach()[0]], 1.0),
}


@pytest.mark.parametrize("how", WRITES)
@pytest.mark.parametrize("packed", [False, True])
def test_writing_reaches_the_devices(how: str, packed: bool, placement: Placement) -> None:
    plain = torch.linspace(-1, 2, 12).view(3, 4)
    values = [torch.zeros(5), plain.clone(), torch.ones(2)] if packed else [plain.clone()]
    cells = make_cells(values, [placement.whole] * len(values))
    tensor = DeviceTensor(cells[1 if packed else 0])
    assert (cells[-1].offset >= 0) is packed
    WRITES[how](plain)
    WRITES[how](tensor)
    assert torch.equal(tensor.cpu(), plain)
    assert torch.equal(on_device(tensor), plain)
    if packed:
        assert torch.equal(on_device(DeviceTensor(cells[0])), torch.zeros(5))
        assert torch.equal(on_device(DeviceTensor(cells[2])), torch.ones(2))


@pytest.mark.parametrize("how", WRITES)
def test_writing_in_inference_mode(how: str, placement: Placement) -> None:
    plain = torch.linspace(-1, 2, 12).view(3, 4)
    tensor = single(plain.clone(), placement)
    with torch.inference_mode():
        WRITES[how](plain)
        WRITES[how](tensor)
    assert torch.equal(on_device(tensor), plain)


def test_views_in_inference_mode_are_ordinary_tensors(module: nn.Module) -> None:
    weight: Any = module.weight
    with torch.inference_mode():
        views = (weight[None], weight.t(), weight.view(-1), weight.detach(), weight.split(25)[1], weight.expand(60, 50))
        assert not any(view.is_inference() for view in views)  # as of every tensor that was made outside
        assert module(torch.ones(2, 50)).is_inference()
    (views[3] * torch.ones(50, requires_grad=True)).sum().backward()


def test_a_view_that_was_kept_sees_the_value_after_a_step(placement: Placement) -> None:
    tensor = single(torch.zeros(3, 4), placement)
    row = tensor[1]
    buffer = cell(tensor).buffer
    flush(buffer)
    buffer.array = placement.replicate(np.full((3, 4), 6.0, np.float32))
    assert row.tolist() == [6.0] * 4
    row.fill_(2)
    assert on_device(tensor)[1].tolist() == [2.0] * 4


def test_values_that_were_copied_do_not_change(placement: Placement) -> None:
    tensor = single(torch.zeros(4), placement)
    kept = [tensor.cpu(), tensor.clone(), tensor.detach().cpu(), tensor + 0]
    tensor.add_(1)
    assert all(copied.sum() == 0 for copied in kept)


def test_numpy_is_read_only(module: nn.Module) -> None:
    with pytest.raises(RuntimeError, match="requires grad"):
        module.weight.numpy()
    values = module.weight.detach().numpy()
    with pytest.raises(ValueError, match="read-only"):
        values[0] = 1
    assert module.weight.numpy(force=True).shape == (60, 50)


def test_another_shape_is_refused(placement: Placement) -> None:
    with pytest.raises(ValueError, match=r"expected \(3,\), received \(4,\)"):
        single(torch.zeros(3), placement).data = torch.zeros(4)


def test_copies_are_ordinary_tensors(module: nn.Module) -> None:
    clone = copy.deepcopy(module)
    assert type(clone.weight) is nn.Parameter
    assert type(clone.mean) is torch.Tensor
    assert torch.equal(clone.weight, module.weight.cpu())
    tied = copy.deepcopy([module.weight, module.weight])
    assert tied[0] is tied[1]
    assert type(copy.copy(module.weight.detach())) in (torch.Tensor, DeviceTensor)


def test_pickles_hold_ordinary_tensors(module: nn.Module) -> None:
    restored = pickle.loads(pickle.dumps([module.weight, module.mean]))
    assert [type(t) for t in restored] == [nn.Parameter, torch.Tensor]
    assert torch.equal(restored[0], module.weight.cpu())


def test_saved_files_are_plain(module: nn.Module) -> None:
    file = io.BytesIO()
    torch.save({"state": module.state_dict(), "parameter": module.weight}, file)
    file.seek(0)
    loaded = torch.load(file, weights_only=True)
    assert all(type(value) is torch.Tensor for value in loaded["state"].values())
    assert torch.equal(loaded["state"]["weight"], module.weight.cpu())
    assert torch.equal(loaded["parameter"], module.weight.cpu())


def test_loading_a_state_dict_reaches_the_devices(module: nn.Module) -> None:
    other = nn.Linear(50, 60)
    other.register_buffer("mean", torch.ones(3))
    module.load_state_dict(other.state_dict())
    assert torch.equal(on_device(module.weight), other.weight)
    assert torch.equal(on_device(module.mean), torch.ones(3))


def test_text(placement: Placement) -> None:
    for plain in (torch.tensor([1.0, 2.5]), torch.tensor(3), torch.tensor([True])):
        assert repr(single(plain, placement)) == repr(plain)
    assert f"{single(torch.tensor(2.5), placement):.2f}" == "2.50"
    assert f"{single(torch.tensor(2.5), placement)}" == f"{torch.tensor(2.5)}"


def test_text_of_parameters(module: nn.Module) -> None:
    plain = copy.deepcopy(module.bias)
    assert repr(module.bias) == repr(plain)


def test_gradients_flow_through_eager_code(module: nn.Module) -> None:
    plain = copy.deepcopy(module)
    x = torch.randn(4, 50)
    module(x).square().sum().backward()
    plain(x).square().sum().backward()
    torch.testing.assert_close(module.weight.grad, plain.weight.grad, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("make", [torch.optim.SGD, torch.optim.AdamW])
def test_an_eager_optimizer_updates_the_devices(make: Any, module: nn.Module) -> None:
    plain = copy.deepcopy(module)
    x = torch.randn(4, 50)
    for layer in (module, plain):
        optimizer = make(layer.parameters(), lr=0.1)
        for _ in range(2):
            optimizer.zero_grad()
            layer(x).square().mean().backward()
            optimizer.step()
    torch.testing.assert_close(on_device(module.weight), plain.weight.detach(), rtol=1e-6, atol=1e-7)
    torch.testing.assert_close(on_device(module.bias), plain.bias.detach(), rtol=1e-6, atol=1e-7)


def test_freezing_and_thawing(module: nn.Module) -> None:
    module.requires_grad_(False)
    assert not module.weight.requires_grad
    module.weight.requires_grad_()
    assert module.weight.requires_grad
    assert isinstance(module.weight, nn.Parameter)


@pytest.mark.parametrize(
    "dtype", [torch.bfloat16, torch.float16, torch.float64, torch.int64, torch.bool, torch.uint8, torch.complex64]
)
def test_every_dtype(dtype: torch.dtype, placement: Placement) -> None:
    plain = torch.tensor([0, 1, 2]).to(dtype)
    tensor = single(plain, placement)
    assert tensor.dtype is dtype
    assert torch.equal(tensor.cpu(), plain)
    tensor.fill_(1)
    assert torch.equal(on_device(tensor), torch.ones(3, dtype=dtype))
