"""The summary's sizes and operations, of the example input: as Lightning's."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from trainer.as_lightning import Package, require_same
from trainer.three_ways import loader

T = torch.Tensor


class Parts(nn.Module):
    """Layers that are called once, twice, by keyword and not at all; an output of several parts, and a number drawn."""

    def __init__(self) -> None:
        super().__init__()
        self.once = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Dropout(0.5))
        self.twice = nn.Linear(6, 6)
        self.recurrent = nn.LSTM(6, 3, batch_first=True)
        self.never = nn.Linear(2, 2)
        self.named = Named()

    def forward(self, x: T, scale: T | None = None) -> T:
        hidden = self.twice(self.twice(self.once(x)))
        out, _ = self.recurrent(hidden.unsqueeze(1))
        out = self.named(x=out, words=["a"])["x"]
        return out if scale is None else out * scale + torch.randn_like(out)


class Named(nn.Module):
    """Takes arguments by keyword, and gives a dict."""

    def forward(self, x: T, words: list[str]) -> dict[str, T]:
        return {"x": x * 2}


EXAMPLES = {
    "tensor": lambda: torch.ones(5, 4),
    "tuple": lambda: (torch.ones(5, 4), torch.ones(3)),
    "dict": lambda: {"x": torch.ones(2, 4), "scale": torch.ones(3)},
    "none": lambda: None,
}


@pytest.mark.parametrize("depth", [1, -1])
@pytest.mark.parametrize("example", EXAMPLES)
def test_columns(example: str, depth: int) -> None:
    def scenario(package: Package) -> Any:
        seen: list[Any] = []

        class Noted(package.L.callbacks.ModelSummary):
            @staticmethod
            def summarize(summary_data: Any, *args: Any, **kwargs: Any) -> None:
                seen.extend([{title: [cell.strip() for cell in cells] for title, cells in summary_data}, list(args), kwargs])

        module = package.module()
        module.parts = Parts()
        module.parts.once.eval()
        if depth == 1:  # Lightning counts the layers inside of layers, and finds nothing left over
            module.alone = nn.Parameter(torch.ones(7))
        type(module).forward = lambda module, *args, **kwargs: module.parts(*args, **kwargs)
        module.example_input_array = EXAMPLES[example]()
        torch.manual_seed(5)
        package.trainer(callbacks=[Noted(max_depth=depth)], enable_model_summary=True).fit(module, loader(16, 8))
        return [*seen, [part.training for part in module.modules()], torch.rand(2)]

    columns, _, kwargs, *_ = require_same(scenario)
    assert ("In sizes" in columns) is (example != "none")
    assert (kwargs["total_flops"] > 0) is (example != "none")


def test_the_example_goes_through_the_hooks_of_batches() -> None:
    def scenario(package: Package) -> Any:
        seen: list[Any] = []

        class Shown(type(package.module())):
            def forward(self, x: T) -> T:
                seen.append(x.clone())
                return super().forward(x)

            def on_before_batch_transfer(self, batch: Any, dataloader_idx: int) -> Any:
                return batch * 2 if isinstance(batch, T) else batch

            def on_after_batch_transfer(self, batch: Any, dataloader_idx: int) -> Any:
                return batch + 1 if isinstance(batch, T) else batch

        shown = Shown()
        shown.example_input_array = torch.full((2, 4), 3.0)
        package.trainer(enable_model_summary=True).fit(shown, loader(16, 8))
        return seen[0]

    assert require_same(scenario).tolist() == [[7.0] * 4] * 2
