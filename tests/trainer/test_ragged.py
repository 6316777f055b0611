"""Text of any length, trained with a few programs, with the losses of the unpadded lines."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader
from trainer.runs import Recorder, trainer

import systolic as L
from systolic.data import BucketBatchSampler, PadCollate, masked_mean

BUCKETS = [24, 48, 96]
DOCS = Path(__file__).parents[2] / "docs" / "ragged.md"


def text() -> list[dict[str, torch.Tensor]]:
    """Lines of a module of the standard library, as characters."""
    lines = [line.strip() for line in Path(textwrap.__file__).read_text().splitlines()]
    return [{"ids": torch.tensor([min(ord(c), 127) for c in line])} for line in lines if 2 <= len(line) <= 96][:150]


def loader(batch_size: int, drop_last: bool = True) -> DataLoader[Any]:
    samples: Any = text()
    lengths = [len(sample["ids"]) for sample in samples]
    sampler = BucketBatchSampler(lengths, batch_size, BUCKETS, drop_last=drop_last)
    return DataLoader(samples, batch_sampler=sampler, collate_fn=PadCollate(BUCKETS, pad_value={"ids": 0}))


class NextCharacter(L.LightningModule):
    """Predicts the next character by causal attention over those before."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(5)
        self.embed, self.head = nn.Embedding(128, 16), nn.Linear(16, 128)

    def losses(self, ids: torch.Tensor) -> torch.Tensor:
        hidden = self.embed(ids[:, :-1])
        hidden = hidden + F.scaled_dot_product_attention(hidden, hidden, hidden, is_causal=True)
        return F.cross_entropy(self.head(hidden).transpose(1, 2), ids[:, 1:], reduction="none")

    def training_step(self, batch: dict[str, torch.Tensor], batch_idx: int) -> torch.Tensor:
        loss = masked_mean(self.losses(batch["ids"]), batch["mask"][:, 1:])
        self.log("loss", loss, on_step=False, on_epoch=True)
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=1.0)


def unpadded_losses(epochs: int, drop_last: bool = True) -> list[float]:
    """Plain PyTorch on single lines that nothing was added to."""
    module, found, samples = NextCharacter(), [], text()
    optimizer: Any = module.configure_optimizers()
    sampler: Any = loader(16, drop_last).batch_sampler
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        for indices in sampler:
            losses = torch.cat([module.losses(samples[i]["ids"][None])[0] for i in indices])
            loss = losses.mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            found.append(loss.item())
    return found


# promise 7: R#1433, TRL PR 2001
@pytest.mark.parametrize("devices", [pytest.param(1, marks=pytest.mark.tables), 8])
def test_ragged_text_needs_one_program_a_bucket_and_has_the_unpadded_losses(devices: int) -> None:
    recorder = Recorder()
    run = trainer(devices, max_epochs=2, callbacks=[recorder])
    run.fit(NextCharacter(), loader(16 // devices))
    assert len(run.compiles) == len(BUCKETS)
    expected = unpadded_losses(2)
    assert len(expected) > 12
    assert recorder.losses == pytest.approx(expected, rel=1e-5)
    assert expected[-1] < expected[0]


@pytest.mark.tables
def test_the_example_of_the_docs_runs() -> None:
    code = re.findall(r"```python\n(.*?)```", DOCS.read_text(), re.DOTALL)[0]
    code = code.replace("L.Trainer(", "L.Trainer(enable_progress_bar=False, enable_model_summary=False, logger=False, ")
    names: dict[str, Any] = {"__name__": "example"}
    exec(compile(code, str(DOCS), "exec"), names)
    assert len(names["trainer"].compiles) == len(names["BUCKETS"])


def unbucketed() -> Any:
    samples: Any = text()
    return DataLoader(samples, batch_size=4, collate_fn=PadCollate(range(1, 97), pad_value={"ids": 0}))


# promise 7: R#1433
def test_ever_new_lengths_are_an_error_that_lists_them_and_says_what_to_do() -> None:
    run = trainer(recompile_limit=3)
    with pytest.raises(L.RecompileLimitError) as caught:
        run.fit(NextCharacter(), unbucketed())
    told = str(caught.value)
    widths = list(dict.fromkeys(batch["ids"].shape[1] for batch in unbucketed()))[:4]
    assert len([c for c in run.compiles if c.compile_seconds]) == 3
    assert f"batch['ids'] dimension 1: {widths[0]} -> {widths[1]}" in told
    assert f"-> {widths[3]}" in told
    for tool in ("PadCollate(buckets=", "Trainer(pad_batches=True)", "docs/ragged.md"):
        assert tool in told
