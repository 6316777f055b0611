"""Graph networks whose edges are a sparse buffer, or come with the batch: training, checkpoints and resume equal Lightning's."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import lightning
import pytest
import torch
import torch.nn.functional as F
from beside_lightning import trainer_of
from torch import nn
from torch.utils.data import DataLoader

import systolic

NODES = 12


def graph(library: Any, layout: torch.layout) -> Any:
    """A graph convolutional network of two layers."""

    class Graph(library.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            generator = torch.Generator().manual_seed(1)
            torch.manual_seed(1)
            self.first, self.second = nn.Linear(4, 8), nn.Linear(8, 3)
            edges, weights = torch.randint(0, NODES, (2, 40), generator=generator), torch.rand(40, generator=generator)
            adjacency = torch.sparse_coo_tensor(edges, weights, (NODES, NODES)).coalesce()
            self.register_buffer("adjacency", adjacency if layout is torch.sparse_coo else adjacency.to_sparse_csr())

        def training_step(self, batch: Any, i: int) -> torch.Tensor:
            x, y = batch[0][0], batch[1][0]
            hidden = torch.relu(torch.sparse.mm(self.adjacency, self.first(x)))
            loss = F.cross_entropy(self.adjacency @ self.second(hidden), y)
            self.log("loss", loss)
            return loss

        def validation_step(self, batch: Any, i: int) -> None:
            self.log("val_loss", self.training_step(batch, i))

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.Adam(self.parameters(), 1e-2)

    return Graph()


def loader() -> DataLoader[Any]:
    generator = torch.Generator().manual_seed(2)
    graphs = [(torch.randn(NODES, 4, generator=generator), torch.arange(NODES) % 3) for _ in range(5)]
    return DataLoader(graphs)  # type: ignore[arg-type]


@pytest.mark.parametrize("layout", [torch.sparse_coo, torch.sparse_csr], ids=str)
def test_training_and_resuming_equal_lightnings(layout: torch.layout, tmp_path: Path) -> None:
    found: list[list[float]] = []
    for library in (lightning, systolic):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Lightning's of loaders, PyTorch's of sparse tensors
            trainer, module = trainer_of(library, max_epochs=2), graph(library, layout)
            trainer.fit(module, loader(), loader())
            trainer.save_checkpoint(tmp_path / "graph.ckpt")
            metrics = [float(trainer.callback_metrics[name]) for name in ("loss", "val_loss")]
            resumed = trainer_of(library, max_epochs=3)
            resumed.fit(graph(library, layout), loader(), ckpt_path=tmp_path / "graph.ckpt")
            metrics.append(float(resumed.callback_metrics["loss"]))
        assert module.adjacency.layout is layout
        if library is systolic:
            assert [one.reason for one in trainer.compiles] == ["first call", "first call"]
        found.append(metrics)
    assert found[1] == pytest.approx(found[0], rel=1e-5)


def with_edges(layout: torch.layout) -> DataLoader[Any]:
    """Batches of one graph each: its adjacency, which is sparse, its nodes and their classes."""
    generator = torch.Generator().manual_seed(3)
    graphs: list[Any] = []
    for count in (20, 20, 31):
        edges, weights = torch.randint(0, NODES, (2, count), generator=generator), torch.rand(count, generator=generator)
        adjacency = torch.sparse_coo_tensor(edges, weights, (NODES, NODES))
        adjacency = adjacency if layout is torch.sparse_coo else adjacency.to_sparse_csr()
        graphs.append({"edges": adjacency, "x": torch.randn(NODES, 4, generator=generator), "y": torch.arange(NODES) % 3})
    return DataLoader(graphs, batch_size=None)  # type: ignore[arg-type]


def of_batches(library: Any) -> Any:
    class OfBatches(library.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(1)
            self.inner, self.seen = nn.Linear(4, 3), []

        def training_step(self, batch: Any, i: int) -> torch.Tensor:
            loss = F.cross_entropy(batch["edges"] @ self.inner(batch["x"]), batch["y"])
            self.log("loss", loss, on_epoch=True)
            return loss

        def on_train_batch_end(self, outputs: Any, batch: Any, i: int) -> None:
            self.seen.append((batch["edges"].layout, float(batch["edges"].to_dense().sum())))

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), 0.1)

    return OfBatches()


@pytest.mark.filterwarnings("ignore")  # Lightning's of loaders, PyTorch's of sparse tensors
@pytest.mark.parametrize("layout", [torch.sparse_coo, torch.sparse_csr], ids=str)
def test_batches_with_sparse_tensors_equal_lightnings(layout: torch.layout) -> None:
    found: list[Any] = []
    for library in (lightning, systolic):
        trainer = trainer_of(library, max_epochs=2)
        module = of_batches(library)
        trainer.fit(module, with_edges(layout))
        weights = module.inner.weight.detach().flatten().tolist()
        found.append((module.seen, weights, float(trainer.callback_metrics["loss_epoch"])))
    (seen, weights, loss), (own_seen, own_weights, own_loss) = found
    assert own_seen == seen
    assert own_weights == pytest.approx(weights, rel=1e-5)
    assert own_loss == pytest.approx(loss, rel=1e-5)
