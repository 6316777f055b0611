"""TorchScript's modules, scripted, traced and loaded, train as the modules that they were made of do under Lightning."""

import io
import warnings
from collections.abc import Callable
from typing import Any

import lightning
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from trainer.beside_lightning import beside_lightning, loader, module_of, plain, trainer_of

import systolic
from systolic.compiler import DataDependentError

pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning", "ignore:`torch.jit:FutureWarning")


class Settings(nn.Module):
    """Numbers, lists and tensors as attributes, of which some are read by the mode alone."""

    scales: list[float]

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.times, self.shift, self.scales = nn.Linear(4, 8), 1000, torch.linspace(0, 1, 4), [0.5, 2.0]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.training:
            x = x + self.shift
        return F.layer_norm(self.layer(x), [8]) * self.scales[1] + 1 / self.times


class Convolution(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Conv1d(1, 4, 3), nn.BatchNorm1d(4), nn.ReLU(), nn.Flatten())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x[:, None])


class Recurrent(nn.Module):
    """An LSTM keeps its weights a second time, in a list."""

    def __init__(self) -> None:
        super().__init__()
        self.network = nn.LSTM(1, 8, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.network(x[:, :, None])[0][:, -1]


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.layer = nn.Linear(1, 8), nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(self.embed(x[:, :, None])).mean(1)


class Counting(nn.Module):
    """Writes to a buffer, to a tensor that is an attribute, to a number and to a list."""

    history: list[int]

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.last, self.count = nn.Linear(4, 8), torch.zeros(8), 0
        self.history = []
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.layer(x)
        self.seen += x.detach().abs().sum()
        self.last = y.detach().mean(0)
        self.count += 1
        self.history.append(x.size(1))
        return y


class Branching(nn.Module):
    """Decides by values, and has sizes that depend on them."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.layer(x)
        if bool(y.sum() > 0):
            y = y * 2
        return y + y[x.sum(1) > 0].mean()


def scripted(module: nn.Module) -> Any:
    return torch.jit.script(module)


def loaded(module: nn.Module) -> Any:
    file = io.BytesIO()
    torch.jit.save(torch.jit.script(module), file)
    file.seek(0)
    return torch.jit.load(file)


def traced(module: nn.Module) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what it decides by sizes holds for these
        return torch.jit.trace(module, torch.randn(3, 4, generator=torch.Generator().manual_seed(0)), check_trace=False)


def kept(module: Any) -> Any:
    """What lies in the module besides its parameters."""
    kept = [getattr(module.inside, name) for name in ("last", "count", "history") if hasattr(module.inside, name)]
    return [b.tolist() for b in module.inside.buffers()], plain(kept)


def fitted(kind: type[nn.Module], way: Callable[[nn.Module], Any], devices: int, held: Callable[[Any], Any] = kept) -> Any:
    """A module with one of TorchScript's inside: under systolic as TorchScript has it, and as it was under Lightning."""

    def prepare(module: Any) -> None:
        inside = kind()
        if isinstance(module, systolic.LightningModule) or way is traced:  # a trace runs the module once
            inside = way(inside)
        module.inside, module.head = inside, nn.Linear(8, 3)

    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.inside(x))

    def validation_step(self: Any, batch: Any, i: int) -> None:
        self.log("val", self.loss(batch))

    return beside_lightning({"forward": forward, "validation_step": validation_step}, held, prepare=prepare, devices=devices)


@pytest.mark.thin(5)
@pytest.mark.parametrize("way", [scripted, loaded, traced])
@pytest.mark.parametrize("kind", [Settings, Convolution, Recurrent, Attention, Counting])
def test_they_train_as_what_they_are_made_of(kind: type[nn.Module], way: Callable[[nn.Module], Any]) -> None:
    if way is traced and kind is Counting:
        pytest.skip("PyTorch's trace keeps none of its numbers")
    module = fitted(kind, way, devices=1)
    # the training step, and the validation step for its two sizes of batches; a number of TorchScript's is a constant of a program
    assert kind is Counting or len(module.trainer.compiles) == 3


@pytest.mark.thin(2)
@pytest.mark.parametrize("kind", [Settings, Recurrent, Counting])
def test_on_four_cores(kind: type[nn.Module]) -> None:
    def of_all(module: Any) -> Any:
        return [b.tolist() for b in module.inside.buffers()]

    fitted(kind, scripted, devices=4, held=of_all)


@pytest.mark.thin(2)
@pytest.mark.parametrize("way", [scripted, loaded])
def test_decisions_by_values(way: Callable[[nn.Module], Any]) -> None:
    fitted(Branching, way, devices=1)


class Dropping(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.drop, self.layer = nn.Dropout(0.25), nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.drop(torch.ones_like(x)) + 0 * self.layer(x)


def test_draws_are_those_of_each_step_on_any_number_of_cores() -> None:
    found: list[list[torch.Tensor]] = []
    for devices in (1, 4):

        def prepare(module: Any) -> None:
            module.inside, module.masks = scripted(Dropping()), []

        def training_step(self: Any, batch: Any, i: int) -> torch.Tensor:
            mask = self.inside(batch[0])
            self.masks.append(mask.detach())
            return mask.mean()

        systolic.seed_everything(5)
        module = module_of(systolic, {"training_step": training_step}, prepare)
        trainer_of(systolic, devices=devices).fit(module, loader(64 * 3, 1, 64 // devices))
        found.append([mask.cpu() for mask in module.masks])
    one, four = found
    assert len(one) == 3
    assert not torch.equal(one[0], one[1])
    share = torch.stack(one).eq(0).float().mean()
    assert abs(share - 0.25) < 0.06
    assert torch.stack(one).unique().tolist() == pytest.approx([0, 4 / 3])
    for a, b in zip(one, four, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=0)


def test_afterwards_it_is_torchscripts_again() -> None:
    module = fitted(Settings, scripted, devices=1)
    x = torch.randn(5, 4)
    assert type(module.inside.layer.weight) is nn.Parameter
    file = io.BytesIO()
    torch.jit.save(module.inside, file)
    file.seek(0)
    again = torch.jit.load(file)
    torch.testing.assert_close(again(x), module.inside(x), rtol=0, atol=0)
    settings = Settings()
    settings.load_state_dict(module.inside.state_dict())
    torch.testing.assert_close(settings(x), module.inside(x))


def test_checkpoints_hold_it(tmp_path: Any) -> None:
    class Module(systolic.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.inside = scripted(nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3)))

        def training_step(self, batch: Any, i: int) -> torch.Tensor:
            return F.cross_entropy(self.inside(batch[0]), batch[1])

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.Adam(self.parameters(), 0.01)

    whole, first, second = Module(), Module(), Module()
    trainer_of(systolic, max_epochs=3).fit(whole, loader(48, 1))
    stopped = trainer_of(systolic, max_epochs=1)
    stopped.fit(first, loader(48, 1))
    stopped.save_checkpoint(tmp_path / "half.ckpt")
    trainer_of(systolic, max_epochs=3).fit(second, loader(48, 1), ckpt_path=tmp_path / "half.ckpt", weights_only=False)
    for a, b in zip(whole.parameters(), second.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=0)


@pytest.mark.thin(2)
@pytest.mark.parametrize("precision", ["bf16-mixed", "64-true"])
def test_other_precisions(precision: str) -> None:
    outcomes: list[list[torch.Tensor]] = []
    for library, way in ((lightning, lambda module: module), (systolic, scripted)):

        def prepare(module: Any, way: Callable[[nn.Module], Any] = way) -> None:
            module.inside, module.head = way(nn.Sequential(nn.Linear(4, 8), nn.Tanh())), nn.Linear(8, 3)

        def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
            return self.head(self.inside(x))

        module = module_of(library, {"forward": forward}, prepare)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            trainer_of(library, precision=precision).fit(module, loader(48, 1))
        outcomes.append([p.detach() for p in module.parameters()])
    for theirs, ours in zip(*outcomes, strict=True):
        torch.testing.assert_close(ours, theirs)


class AsksForValue(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.layer(x)
        return y / float(y.abs().sum())


def test_a_value_that_its_code_asks_for_is_answered_with_the_call() -> None:
    with pytest.raises(DataDependentError, match=r"test_script_modules.py:\d+ in forward: return self.head\(self.inside"):
        fitted(AsksForValue, scripted, devices=1)
