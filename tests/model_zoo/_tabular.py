"""Models of vectors and graphs, and unusual losses."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from ._case import case, classify, labelled, own_loss, paired, regress

ROWS = labelled((8, 6), 4)


@case(ROWS, classify, clip=1.0)
def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 4))


@case(ROWS, classify)
def activations() -> nn.Module:
    return nn.Sequential(
        nn.Linear(6, 8), nn.PReLU(8), nn.Linear(8, 8), nn.SELU(), nn.Linear(8, 8), nn.ELU(0.7), nn.Linear(8, 8),
        nn.CELU(1.3), nn.Linear(8, 8), nn.LeakyReLU(), nn.Linear(8, 8), nn.LogSigmoid(), nn.Linear(8, 8), nn.GLU(),
        nn.Linear(4, 4),
    )  # fmt: skip


@case(ROWS, classify)
def batch_norm_1d() -> nn.Module:
    return nn.Sequential(
        nn.Linear(6, 10, bias=False), nn.BatchNorm1d(10), nn.ReLU(), nn.Linear(10, 10, bias=False),
        nn.BatchNorm1d(10, affine=False, track_running_stats=False), nn.Sigmoid(), nn.Linear(10, 4),
    )  # fmt: skip


def triple() -> tuple[torch.Tensor, ...]:
    return torch.randn(6, 5), torch.randn(6, 5), torch.randint(0, 2, (6,)).float()


@case(triple, own_loss)
class Siamese(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 4))

    def forward(self, left: torch.Tensor, right: torch.Tensor, same: torch.Tensor) -> torch.Tensor:
        a, b = self.embed(left), self.embed(right)
        distance = F.pairwise_distance(a, b)
        contrastive = same * distance.square() + (1 - same) * F.relu(1.5 - distance).square()
        cosine = F.cosine_embedding_loss(a, b, 2 * same - 1, margin=0.1)
        return contrastive.mean() + cosine + F.triplet_margin_loss(a, b, a.roll(1, 0), margin=0.5)


class SmoothedLoss(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.loss = nn.CrossEntropyLoss(torch.tensor([0.5, 1.0, 2.0, 0.7]), label_smoothing=0.1, ignore_index=3)
        self.net = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 4))

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return self.loss(self.net(x), y)


@case(ROWS, own_loss)
def smoothed_weighted_loss() -> nn.Module:
    return SmoothedLoss()


def many_targets() -> tuple[torch.Tensor, ...]:
    return torch.randn(8, 6), torch.randint(0, 3, (8,)), torch.randn(8), torch.rand(8, 2)


@case(many_targets, own_loss)
class MultiTask(nn.Module):
    """Named outputs, a loss each, weighted by learned uncertainties."""

    def __init__(self) -> None:
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(6, 10), nn.SiLU())
        self.heads = nn.ModuleDict({"kind": nn.Linear(10, 3), "size": nn.Linear(10, 1), "tags": nn.Linear(10, 2)})
        self.uncertainty = nn.ParameterDict({name: torch.zeros(()) + 0.1 for name in self.heads})

    def outputs(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        trunk = self.trunk(x)
        return {name: head(trunk) for name, head in self.heads.items()}

    def forward(self, x: torch.Tensor, kind: torch.Tensor, size: torch.Tensor, tags: torch.Tensor) -> torch.Tensor:
        out = self.outputs(x)
        losses = {
            "kind": F.cross_entropy(out["kind"], kind),
            "size": F.smooth_l1_loss(out["size"].squeeze(1), size) + F.huber_loss(out["size"][:, 0], size, delta=0.5),
            "tags": F.binary_cross_entropy(out["tags"].sigmoid(), tags),
        }
        return sum((torch.exp(-s) * losses[n] + s for n, s in self.uncertainty.items()), torch.zeros(()))


def graph() -> tuple[torch.Tensor, ...]:
    return torch.randn(7, 5), torch.randint(0, 7, (2, 15)), torch.randint(0, 3, (7,))


@case(graph, own_loss)
class GraphNet(nn.Module):
    """Message passing: gather over edges, add and average at nodes, attention over the edges of a node."""

    def __init__(self) -> None:
        super().__init__()
        self.message = nn.Linear(10, 6)
        self.update = nn.Linear(11, 6)
        self.score = nn.Linear(12, 1)
        self.head = nn.Linear(6, 3)

    def forward(self, x: torch.Tensor, edges: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        source, target = edges
        messages = F.relu(self.message(torch.cat([x[source], x.index_select(0, target)], dim=1)))
        summed = torch.zeros(7, 6).index_add(0, target, messages)
        hidden = torch.tanh(self.update(torch.cat([x, summed], dim=1)))
        pairs = torch.cat([hidden[source], hidden[target]], dim=1)
        score = F.leaky_relu(self.score(pairs), 0.2).exp()
        total = torch.zeros(7, 1).scatter_add(0, target[:, None], score)
        weighted = torch.zeros(7, 6).scatter_add_(0, target[:, None].expand(-1, 6), hidden[source] * score)
        return F.cross_entropy(self.head(hidden + weighted / (total + 1e-3)), y)


@case(paired((8, 6), (8, 2)), regress)
class Mixture(nn.Module):
    """Soft experts in one batched product, mixed by the two best scores."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Linear(6, 4)
        self.weight = nn.Parameter(torch.randn(4, 6, 2) * 0.4)
        self.bias = nn.Parameter(torch.randn(4, 2) * 0.1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        best, index = self.gate(x).topk(2, dim=1)
        experts = torch.einsum("bi,eio->beo", x, self.weight) + self.bias
        chosen = experts.gather(1, index[..., None].expand(-1, -1, 2))
        return (chosen * best.softmax(1)[..., None]).sum(1)


@case(paired((8, 6), (8, 3)), regress)
class Bilinear(nn.Module):
    """Parts that share one matrix: `ParameterList`, `bilinear`, a symmetric product, a determinant."""

    def __init__(self) -> None:
        super().__init__()
        self.bilinear = nn.Bilinear(6, 6, 3)
        self.factors = nn.ParameterList([torch.randn(6, 2) * 0.3, torch.randn(6, 2) * 0.3])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        symmetric = sum((f @ f.T for f in self.factors), torch.eye(6))
        solved = torch.linalg.solve(symmetric, x.T).T
        return self.bilinear(x, solved) + torch.logdet(symmetric) * 0.1
