"""Batch values that are no tensors: never stale, and no new trace for what the step does not read."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple

import pytest
import torch
import torch.nn.functional as F
from torch.utils._pytree import tree_map
from trainer.runs import Given, Line, Recorder, batches, losses_both_ways, plain_loss, trainer

from systolic.trainer._recording import RecordingDict, unwatched


def counted(loss_of: Callable[[Any, Any], torch.Tensor], data: Any, eager: bool = True) -> tuple[int, int]:
    """Traces and compilations of one epoch; the losses must be those of eager PyTorch."""
    if eager:
        compiled, expected = losses_both_ways(lambda: Line(loss_of), data)
        assert compiled == pytest.approx(expected, rel=1e-5)
    run = trainer()
    run.fit(Line(loss_of), data)
    return len(run.compiles), sum(entry.is_new_executable for entry in run.compiles)


def with_sign(module: Any, batch: Any) -> torch.Tensor:
    return plain_loss(module, batch) * (2.0 if batch["name"].startswith("b") else 1.0)


def test_an_unread_file_name_is_traced_and_compiled_once() -> None:
    assert counted(plain_loss, batches(6, lambda i: {"name": f"file{i}.png"})) == (1, 1)


def test_unread_values_of_every_kind_are_traced_once() -> None:
    data = batches(6, lambda i: {"names": [f"{i}a", f"{i}b"], "meta": {"path": str(i), "none": None}, "thing": object()})
    assert counted(plain_loss, data) == (1, 1)


def test_a_nested_value_that_is_not_read_beside_one_that_is() -> None:
    def loss_of(module: Any, batch: Any) -> torch.Tensor:
        return plain_loss(module, batch) * (1.0 if batch["meta"]["kind"] == "a" else 3.0)

    assert counted(loss_of, batches(6, lambda i: {"meta": {"path": str(i), "kind": "a"}})) == (1, 1)
    traces, programs = counted(loss_of, batches(6, lambda i: {"meta": {"path": str(i), "kind": "ab"[i % 2]}}))
    assert (traces, programs) == (2, 2)


def test_a_read_value_is_followed() -> None:
    names = ["a1", "b1", "a1", "b1", "a1"]
    assert counted(with_sign, batches(5, lambda i: {"name": names[i]})) == (2, 2)


def test_a_value_that_only_a_later_trace_reads_is_followed() -> None:
    """The name matters only where `flag` says so: the first trace knows nothing of it."""

    def loss_of(module: Any, batch: Any) -> torch.Tensor:
        return with_sign(module, batch) if batch["flag"] == "yes" else plain_loss(module, batch)

    cases = [("no", "a"), ("no", "b"), ("yes", "a"), ("yes", "b"), ("no", "a"), ("yes", "a"), ("no", "b"), ("yes", "b")]
    # the fourth trace says so; capture used to swallow the warning, and the error that tests make of it
    with pytest.warns(UserWarning, match="traced again for every new value of batch\\['flag'\\], batch\\['name'\\]"):
        counted(loss_of, batches(8, lambda i: dict(zip(("flag", "name"), cases[i], strict=True))))


READS: dict[str, Callable[[Any], str]] = {
    "item": lambda b: b["name"],
    "get": lambda b: b.get("name"),
    "values": lambda b: list(b.values())[-1],
    "items": lambda b: dict(b.items())["name"],
    "dict": lambda b: dict(b)["name"],
    "stars": lambda b: dict(**b)["name"],
    "braces": lambda b: {**b}["name"],
    "copy": lambda b: b.copy()["name"],
    "copy.copy": lambda b: copy.copy(b)["name"],
    "deepcopy": lambda b: copy.deepcopy({"name": b["name"]})["name"],
    "or": lambda b: (b | {})["name"],
    "ror": lambda b: ({} | b)["name"],
    "update": lambda b: _updated(b)["name"],
    "pop": lambda b: b.pop("name"),
    "popitem": lambda b: b.popitem()[1],
    "setdefault": lambda b: b.setdefault("name", ""),
    "format": lambda b: "{name}".format_map(b),
    "percent": lambda b: "%(name)s" % b,  # noqa: UP031
    "match": lambda b: _matched(b),
    "tree_map": lambda b: tree_map(lambda leaf: leaf, b)["name"],
    "equality": lambda b: "b" if b == {**b, "name": "b"} else "a",
    "repr": lambda b: "b" if "'name': 'b'" in repr({k: v for k, v in b.items() if k == "name"}) else "a",
    "json": lambda b: json.loads(json.dumps({"name": b["name"]}))["name"],
}


def _updated(batch: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    found.update(batch)
    return found


def _matched(batch: Any) -> str:
    match batch:
        case {"name": name}:
            return name
    return ""


@pytest.mark.thin(2)
@pytest.mark.parametrize("how", READS)
def test_every_way_of_reading_a_dict_is_noticed(how: str) -> None:
    read: set[int] = set()
    recording = RecordingDict({"x": 1, "name": "b"})
    recording.watch({"name": [0]}, read)
    assert READS[how](recording) == "b"
    assert read == {0}


def test_looking_at_keys_reads_nothing() -> None:
    read: set[int] = set()
    recording = RecordingDict({"x": 1, "name": "b"})
    recording.watch({"name": [0]}, read)
    assert list(recording) == list(recording.keys()) == ["x", "name"]
    assert "name" in recording
    assert len(recording) == 2
    assert recording["x"] == recording.get("x") == 1
    assert type(unwatched([recording])[0]) is dict
    assert not read


def test_logging_an_epoch_mean_reads_nothing() -> None:
    """The batch size is taken from the batch, which must not count as reading its names."""

    def loss_of(module: Any, batch: Any) -> torch.Tensor:
        loss = plain_loss(module, batch)
        module.log("loss", loss, on_epoch=True)
        return loss

    assert counted(loss_of, batches(5, lambda i: {"name": str(i)}), eager=False) == (1, 1)


def test_a_number_that_changes_is_traced_twice_and_never_again() -> None:
    def loss_of(module: Any, batch: Any) -> torch.Tensor:
        return plain_loss(module, batch) * batch["weight"] + batch["count"]

    traces, programs = counted(loss_of, batches(8, lambda i: {"weight": 0.5 + i / 3, "count": 7 * i}))
    assert (traces, programs) == (2, 2)


def test_a_number_that_stays_costs_nothing() -> None:
    data = batches(5, lambda i: {"weight": float("0.5"), "big": 2**60, "infinite": float("inf")})
    assert counted(plain_loss, data) == (1, 1)


@pytest.mark.parametrize("values", [[0.0, -0.0, 0.0], [2**60, -(2**60), 3], [float("inf"), -1.0, float("-inf")]])
def test_odd_numbers_are_followed(values: list[Any]) -> None:
    def loss_of(module: Any, batch: Any) -> torch.Tensor:
        return plain_loss(module, batch) * torch.tensor(1.0).copysign(torch.tensor(float(batch["n"])))

    recorder = Recorder()
    trainer(callbacks=[recorder]).fit(Line(loss_of), batches(3, lambda i: {"n": values[i]}))
    assert [loss < 0 for loss in recorder.losses] == [str(value).startswith("-") for value in values]


def test_a_number_used_as_a_size_is_followed() -> None:
    def loss_of(module: Any, batch: Any) -> torch.Tensor:
        return F.mse_loss(module.layer(batch["x"][: batch["n"]]), batch["y"][: batch["n"]])

    counted(loss_of, batches(6, lambda i: {"n": [3, 5, 3, 4, 5, 8][i]}))


def test_a_number_used_as_a_size_leaves_the_learning_rate_variable() -> None:
    class Scheduled(Line):
        def configure_optimizers(self) -> Any:
            optimizer = torch.optim.SGD(self.parameters(), lr=0.1)
            schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
            return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}

    run = trainer()
    run.fit(Scheduled(lambda m, b: m.layer(b["x"][: b["n"]]).square().mean()), batches(8, lambda i: {"n": 3 + 2 * (i % 2)}))
    assert len(run.compiles) == 2


class Pair(NamedTuple):
    x: torch.Tensor
    name: str


@dataclass
class Record:
    x: torch.Tensor
    name: str


class Frozen:
    def __init__(self, name: str) -> None:
        self.name = name


CONTAINERS: dict[str, tuple[Callable[[Any, str], Any], Callable[[Any], Any], Callable[[Any], str]]] = {
    "list": (lambda x, name: [x, name], lambda b: b[0], lambda b: b[1]),
    "tuple": (lambda x, name: (x, (name,)), lambda b: b[0], lambda b: b[1][0]),
    "named tuple": (Pair, lambda b: b.x, lambda b: b.name),
    "dataclass": (Record, lambda b: b.x, lambda b: b.name),
    "mapping proxy": (lambda x, name: MappingProxyType({"x": x, "name": name}), lambda b: b["x"], lambda b: b["name"]),
    "object": (lambda x, name: {"x": x, "o": Frozen(name)}, lambda b: b["x"], lambda b: b["o"].name),
}


@pytest.mark.thin(2)
@pytest.mark.parametrize("kind", CONTAINERS)
def test_read_values_in_other_containers_are_followed(kind: str) -> None:
    make, tensor_of, name_of = CONTAINERS[kind]
    data = Given(make(batch["x"], "ab"[i % 2]) for i, batch in enumerate(batches(3)))

    def loss_of(module: Any, batch: Any) -> torch.Tensor:
        return module.layer(tensor_of(batch)).square().mean() * (2.0 if name_of(batch) == "b" else 1.0)

    compiled, expected = losses_both_ways(lambda: Line(loss_of), data)
    assert compiled == pytest.approx(expected, rel=1e-5)


def test_values_read_in_trace_after_trace_are_pointed_out() -> None:
    data = Given([batch["x"], f"{i}.png"] for i, batch in enumerate(batches(5)))
    with pytest.warns(UserWarning, match=r"every new value of batch\[1\]"):
        trainer().fit(Line(lambda module, batch: module.layer(batch[0]).square().mean() * len(batch[1])), data)


def test_a_batch_that_is_returned_comes_back_as_a_plain_dict() -> None:
    returned: list[Any] = []

    class Keeps(Recorder):
        def on_train_batch_end(self, trainer: Any, module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
            returned.append(outputs["batch"])

    def loss_of(module: Any, batch: Any) -> Any:
        return {"loss": plain_loss(module, batch), "batch": batch}

    trainer(callbacks=[Keeps()]).fit(Line(loss_of), batches(3, lambda i: {"name": str(i)}))
    assert [type(batch) for batch in returned] == [dict] * 3
    assert [batch["name"] for batch in returned] == ["0", "1", "2"]
