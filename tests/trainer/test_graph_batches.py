"""Loaders of torch_geometric: batches of graphs are inputs of one program, and the graphs of a batch can be told apart in it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from beside_lightning import beside_lightning
from torch import nn

T = torch.Tensor

graphs = pytest.importorskip("torch_geometric.data")
loaders = pytest.importorskip("torch_geometric.loader")
layers = pytest.importorskip("torch_geometric.nn")


def _graph(seed: int) -> Any:
    generator = torch.Generator().manual_seed(seed)
    ring = torch.arange(5)
    x, y = torch.randn(5, 4, generator=generator), torch.randint(0, 3, (1,), generator=generator)
    return graphs.Data(x=x, edge_index=torch.stack([ring, (ring + 1) % 5]), y=y, name=f"graph {seed}")


def _bipartite(seed: int) -> Any:
    generator = torch.Generator().manual_seed(seed)
    found = graphs.HeteroData()
    found["a"].x, found["b"].x = torch.randn(3, 4, generator=generator), torch.randn(2, 4, generator=generator)
    found["a", "to", "b"].edge_index = torch.tensor([[0, 1, 2], [0, 1, 0]])
    found["b", "to", "a"].edge_index = torch.tensor([[0, 1, 1], [2, 1, 0]])
    found.y = torch.randint(0, 3, (1,), generator=generator)
    return found


def _data(make: Callable[[int], Any]) -> Callable[[int, int, int], Any]:
    return lambda count, seed, batch_size: loaders.DataLoader(
        [make(1000 * seed + i) for i in range(count)], batch_size=batch_size
    )


def _convolved(module: Any, batch: Any) -> T:
    return layers.global_mean_pool(module.graph(batch.x, batch.edge_index).relu(), batch.batch, size=batch.num_graphs)


def _crossed(module: Any, batch: Any) -> T:
    found = module.graph(batch.x_dict, batch.edge_index_dict)["b"]
    return layers.global_mean_pool(found.relu(), batch["b"].batch, size=batch.num_graphs)


@pytest.mark.parametrize("kind", ["graphs", "of several kinds"])
def test_batches_of_graphs(kind: str) -> None:
    pooled, make = (_convolved, _graph) if kind == "graphs" else (_crossed, _bipartite)

    def prepare(module: Any) -> None:
        module.graph = (
            layers.GCNConv(4, 4)
            if kind == "graphs"
            else layers.HeteroConv({(a, "to", b): layers.SAGEConv((4, 4), 4) for a, b in ("ab", "ba")})
        )
        module.head = nn.Linear(4, 4)

    def training_step(module: Any, batch: Any, i: int) -> T:
        loss = module.loss((module.head(pooled(module, batch)), batch.y))
        module.log("loss", loss, batch_size=batch.num_graphs)
        return loss

    def on_train_batch_end(module: Any, outputs: Any, batch: Any, i: int) -> None:
        module.seen.append([type(batch).__name__, batch.num_graphs, batch.get("name", None)])

    methods = {"training_step": training_step, "on_train_batch_end": on_train_batch_end}
    module = beside_lightning(methods, lambda module: module.seen, prepare=prepare, data=_data(make))
    assert len(module.trainer.compiles) == 1, [one.reason for one in module.trainer.compiles]


def test_the_graphs_of_a_batch() -> None:
    def training_step(module: Any, batch: Any, i: int) -> T:
        graphs = batch.to_data_list()
        module.log("third", graphs[2].x.sum(), batch_size=1)
        module.log("second", batch[1].x.mean(), batch_size=1)
        return module.loss((torch.stack([graph.x.mean(0) for graph in graphs]), batch.y))

    module = beside_lightning({"training_step": training_step}, lambda module: [], data=_data(_graph))
    assert len(module.trainer.compiles) == 1, [one.reason for one in module.trainer.compiles]
