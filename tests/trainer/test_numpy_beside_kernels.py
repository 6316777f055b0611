"""A function of NumPy that the host calls for a step, and that JAX calls, too, while it traces a kernel of the same step."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from trainer.as_lightning import Package, require_same


def test_jax_gets_the_function_itself() -> None:
    """The gradient of a CTC loss asks for `np.arange`."""

    def scenario(package: Package) -> Any:
        class Model(package.L.LightningModule):  # type: ignore[misc]
            def __init__(self) -> None:
                super().__init__()
                self.net, self.loss, self.seen = nn.Linear(6, 5), nn.CTCLoss(blank=4), []

            def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
                x, targets, lengths = batch
                scores = self.net(x).log_softmax(-1).transpose(0, 1)
                self.seen.append(np.arange(lengths.numpy().max()).sum())
                return self.loss(scores, targets, torch.full((len(x),), 12), lengths)

            def configure_optimizers(self) -> Any:
                return torch.optim.SGD(self.parameters(), 0.1)

        torch.manual_seed(0)
        model = Model()
        data = TensorDataset(torch.randn(16, 12, 6), torch.randint(0, 4, (16, 5)), torch.randint(2, 6, (16,)))
        package.trainer().fit(model, DataLoader(data, 4))
        return {"seen": [int(one) for one in model.seen], "weights": list(model.state_dict().values())}

    require_same(scenario)
