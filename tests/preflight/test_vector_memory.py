"""Large products under the TPU compiler: the step that gets vector memory for them is estimated faster."""

from __future__ import annotations

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import systolic as L

ROWS, WIDTH, WIDER = 16_384, 4096, 14_336


class Wide(L.LightningModule):
    """One layer, whose operands are 128, 112 and 448 MiB in bfloat16."""

    def configure_model(self) -> None:
        with torch.device("meta"):
            self.layer = torch.nn.Linear(WIDTH, WIDER, bias=False)

    def training_step(self, batch: list[torch.Tensor], batch_idx: int) -> torch.Tensor:
        return torch.nn.functional.silu(self.layer(batch[0])).sum()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), 0.1)


def seconds() -> float:
    loader = DataLoader(TensorDataset(torch.zeros(ROWS, WIDTH)), batch_size=ROWS)
    trainer = L.Trainer(
        accelerator="cpu", devices=1, precision="bf16-true", max_steps=1, logger=False, enable_checkpointing=False
    )
    report = trainer.preflight(Wide(), loader, slice="v6e-1", advise=False)
    assert report.time is not None
    return report.time.step


@pytest.mark.slow  # two compilations
def test_a_step_of_large_products_is_estimated_faster_with_more_vector_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    ours = seconds()
    # libtpu has read its options long ago: this only keeps systolic from giving its own
    monkeypatch.setenv("LIBTPU_INIT_ARGS", "--xla_tpu_scoped_vmem_limit_kib=32768")
    assert ours < 0.8 * seconds()
