"""A rule decides how the state lies on the devices, and changes nothing else."""

from __future__ import annotations

import io

import jax
import pytest
import torch
from jax.sharding import PartitionSpec
from torch import nn

import systolic
from systolic.compiler import TrainState
from systolic.sharding import StateEntry, StateRule, replicate_state, shard_by_name

CORES = 8
SPLIT = {"rows": PartitionSpec("data"), "columns": PartitionSpec(None, "data")}


class Tagger(nn.Module):
    """One large parameter, and small ones."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(64, 64)
        self.norm = nn.BatchNorm1d(64)
        self.head = nn.Linear(64, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.norm(self.table(x).mean(1)))


class Trained:
    """Some steps under a rule."""

    def __init__(self, rule: StateRule, steps: int = 4) -> None:
        torch.manual_seed(0)
        self.model = Tagger()
        # not Adam: its first steps divide small gradients by themselves, rounding included
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.05, momentum=0.9)
        model, optimizer = self.model, self.optimizer

        def step(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            return loss

        self.step = systolic.jit(step, devices=jax.devices()[:CORES], rule=rule)
        generator = torch.Generator().manual_seed(1)
        batches = [
            (torch.randint(64, (16, 5), generator=generator), torch.randint(3, (16,), generator=generator))
            for _ in range(steps)
        ]
        self.losses = [self.step(*batch).item() for batch in batches]
        self.state = TrainState.of({"model": self.model, "optimizer0": self.optimizer})

    def parts(self, name: str) -> list[tuple[int, ...]]:
        """The shapes of what each core holds of a tensor."""
        tensor = dict(zip([e.name for e in self.state.entries], self.state.tensors, strict=True))[name]
        return [tuple(shard.data.shape) for shard in tensor._cell.buffer.array.addressable_shards]  # type: ignore[attr-defined]


@pytest.fixture(scope="module")
def replicated() -> Trained:
    return Trained(replicate_state)


@pytest.mark.thin(2)
@pytest.mark.parametrize("split", SPLIT)
def test_a_split_parameter_trains_as_a_whole_one(split: str, replicated: Trained) -> None:
    sharded = Trained(shard_by_name({r"table\.weight": SPLIT[split]}))
    part = (8, 64) if split == "rows" else (64, 8)
    for name in ("table.weight", "optimizer0.momentum_buffer.table.weight"):
        assert sharded.parts(name) == [part] * CORES
        assert replicated.parts(name) == [(64, 64)] * CORES
    assert sharded.losses == pytest.approx(replicated.losses, rel=1e-5)
    assert sharded.step.compile_count == replicated.step.compile_count
    for name, value in sharded.state.snapshot().items():
        torch.testing.assert_close(value, replicated.state.snapshot()[name], rtol=1e-5, atol=1e-6, msg=name)


def test_a_checkpoint_of_split_state_is_whole(replicated: Trained) -> None:
    sharded = Trained(shard_by_name({r"table\.weight": PartitionSpec("data")}))
    file = io.BytesIO()
    torch.save({"model": sharded.model.state_dict(), "optimizer": sharded.optimizer.state_dict()}, file)
    file.seek(0)
    read = torch.load(file, weights_only=True)
    assert read["model"]["table.weight"].shape == (64, 64)
    expected = replicated.state.snapshot()
    torch.testing.assert_close(read["model"]["table.weight"], expected["table.weight"], rtol=1e-5, atol=1e-6)
    moment = read["optimizer"]["state"][0]["momentum_buffer"]
    torch.testing.assert_close(moment, expected["optimizer0.momentum_buffer.table.weight"], rtol=1e-5, atol=1e-6)


def test_what_is_written_on_the_host_goes_back_to_the_parts() -> None:
    sharded = Trained(shard_by_name({r"table\.weight": PartitionSpec("data")}), steps=1)
    before = sharded.state.snapshot("parameter")
    sharded.step(torch.zeros(16, 5, dtype=torch.int64), torch.zeros(16, dtype=torch.int64))
    sharded.state.restore(before)
    assert all(torch.equal(value, before[name]) for name, value in sharded.state.snapshot("parameter").items())
    sharded.step(torch.zeros(16, 5, dtype=torch.int64), torch.zeros(16, dtype=torch.int64))
    assert sharded.parts("table.weight") == [(8, 64)] * CORES


def test_a_rule_that_does_not_divide_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match=r"The rule for head\.weight of shape \(3, 64\) .* a dimension of 3 over 8 devices"):
        Trained(shard_by_name({r"head\.weight": PartitionSpec("data")}), steps=1)


def test_the_state_is_listed_by_name_and_kind() -> None:
    model = Tagger()
    optimizer = torch.optim.SGD(
        [{"params": model.head.parameters()}, {"params": model.table.parameters(), "momentum": 0.9}], lr=0.1
    )
    model.norm.weight.grad = torch.zeros(64)
    model(torch.zeros(2, 5, dtype=torch.int64)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    model.head.bias.grad = torch.ones(3)
    model.norm.weight.grad = model.norm.bias.grad = None
    state = TrainState.of({"model": model, "optimizer0": optimizer})
    kinds: dict[str, list[str]] = {}
    for entry in state.entries:
        kinds.setdefault(entry.kind, []).append(entry.name)
    assert kinds == {
        "parameter": ["table.weight", "norm.weight", "norm.bias", "head.weight", "head.bias"],
        "buffer": ["norm.running_mean", "norm.running_var", "norm.num_batches_tracked"],
        "optimizer": ["optimizer0.momentum_buffer.table.weight"],
        "gradient": ["head.bias.grad"],
    }
    assert state.count("parameter") == sum(p.numel() for p in model.parameters())
    assert state.bytes("optimizer") == 64 * 64 * 4
    assert state.bytes() == state.bytes("parameter") + state.bytes("buffer") + state.bytes("optimizer") + 3 * 4
    with pytest.raises(ValueError, match=r"head\.bias has the shape \(3,\)"):
        state.restore({"head.bias": torch.zeros(4)})
    with pytest.raises(ValueError, match="tail is not part of the state"):
        state.restore({"tail": torch.zeros(4)})


def test_the_rule_decides_by_the_parameters_name_and_shape() -> None:
    rule = shard_by_name({r"a\.weight": PartitionSpec("data"), r".*\.weight": PartitionSpec(None, "data")})
    entry = StateEntry("optimizer0.exp_avg.b.weight", (8, 8), "optimizer", "b.weight", (8, 8))
    assert rule(entry) == PartitionSpec(None, "data")
    assert rule(StateEntry("optimizer0.step.b.weight", (), "optimizer", "b.weight", (8, 8))) == PartitionSpec()
    assert rule(StateEntry("a.weight", (8, 8), "parameter", "a.weight", (8, 8))) == PartitionSpec("data")
    assert rule(StateEntry("a.running_mean", (8,), "buffer")) == PartitionSpec()
