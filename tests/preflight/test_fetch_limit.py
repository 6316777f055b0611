"""Steps that fetch more parameters than a core's memory holds are compiled with a limit on fetching ahead."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from trainer.runs import trainer

import systolic as L
from systolic.preflight import parse_slice, slice_devices
from systolic.trainer.inspection import Subject, trace_step

pytest.importorskip("libtpu")

WIDTH = 16_384
OPTION = "xla_tpu_scheduler_percent_shared_memory_limit"


class Layers(L.LightningModule):
    """Layers of a GiB each, without values."""

    def __init__(self, layers: int) -> None:
        super().__init__()
        self.layers = layers

    def configure_model(self) -> None:
        with torch.device("meta"):
            self.net = nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(self.layers)))

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        return self.net(batch[0].expand(-1, WIDTH)).square().mean()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


def options(slice: str, layers: int, strategy: str = "fsdp") -> dict[str, Any]:
    devices = slice_devices(parse_slice(slice))
    loader = DataLoader(TensorDataset(torch.rand(len(devices), 1)), batch_size=1)
    step = trace_step(Subject.of(trainer(strategy=strategy), "fit", Layers(layers), loader), devices, None)
    program, _ = step.program(devices)
    return dict(program.options or {})


@pytest.mark.parametrize(
    ("slice", "layers", "strategy", "limited"),
    [
        ("v5litepod-64", 17, "fsdp", True),
        ("v5litepod-64", 12, "fsdp", False),  # 12 of 15.75 GiB
        ("v5litepod-8", 17, "fsdp", False),  # a core's part of the state alone is 6.4 GiB
        ("v5litepod-64", 17, "ddp", False),  # which does not fit, whatever the scheduler does
        ("v6e-64", 17, "fsdp", False),  # 17 of 31.25 GiB
    ],
)
def test_where_parameters_do_not_fit_beside_each_other(slice: str, layers: int, strategy: str, limited: bool) -> None:
    assert options(slice, layers, strategy).get(OPTION) == ("60" if limited else None)


def test_a_value_of_the_user_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LIBTPU_INIT_ARGS", f"--{OPTION}=90")
    assert OPTION not in options("v5litepod-64", 17)
