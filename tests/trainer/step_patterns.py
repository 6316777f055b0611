# ruff: noqa: T201, UP031  (as people write it)
"""Training steps as people write them: each is a module, its batches, and what it is about."""

from __future__ import annotations

import logging
import math
import random
import warnings
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

import systolic as L

BATCHES = 6
ROWS, FEATURES, CLASSES = 16, 8, 4

PATTERNS: dict[str, type[Step]] = {}


class Step(L.LightningModule):
    """A classifier whose training step is what a pattern changes."""

    topic = ""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(FEATURES, 16), nn.ReLU(), nn.Linear(16, CLASSES))
        self.prepare()

    def prepare(self) -> None:
        """Attributes that the pattern needs."""

    def loss(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(self.net(x), y)

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        return self.step(*batch, batch_idx)

    def step(self, x: torch.Tensor, y: torch.Tensor, batch_idx: int) -> Any:
        return self.loss(x, y)

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), lr=0.1)


def pattern(topic: str) -> Callable[[type[Step]], type[Step]]:
    def register(cls: type[Step]) -> type[Step]:
        cls.topic = topic
        PATTERNS[cls.__name__] = cls
        return cls

    return register


# ---- host effects


@pattern("print")
class PrintLoss(Step):
    def step(self, x, y, batch_idx):
        loss = self.loss(x, y)
        print(f"loss {loss.item():.4f}")
        return loss


@pattern("print")
class PrintFormatted(Step):
    def step(self, x, y, batch_idx):
        loss = self.loss(x, y)
        print(f"loss {loss:.3f}")
        return loss


@pattern("print")
class PrintTensor(Step):
    def step(self, x, y, batch_idx):
        loss = self.loss(x, y)
        print("loss", loss)
        return loss


@pattern("print")
class PrintSometimes(Step):
    def step(self, x, y, batch_idx):
        loss = self.loss(x, y)
        if batch_idx % 2 == 0:
            print(f"{batch_idx}: {loss.item():.3f}")
        return loss


@pattern("print")
class PrintDetached(Step):
    def step(self, x, y, batch_idx):
        loss = self.loss(x, y)
        self.print("loss %.3f" % loss.detach().cpu().item())
        return loss


@pattern("print")
class LogModule(Step):
    def step(self, x, y, batch_idx):
        loss = self.loss(x, y)
        logging.getLogger("steps").info("step %d loss %.4f", batch_idx, loss.item())
        return loss


@pattern("keep")
class AppendItem(Step):
    def prepare(self):
        self.losses = []

    def step(self, x, y, batch_idx):
        loss = self.loss(x, y)
        self.losses.append(loss.item())
        return loss


@pattern("keep")
class AppendDetached(Step):
    def prepare(self):
        self.losses = []

    def step(self, x, y, batch_idx):
        loss = self.loss(x, y)
        self.losses.append(loss.detach())
        return loss


@pattern("keep")
class AppendAndUse(Step):
    def prepare(self):
        self.losses = []

    def step(self, x, y, batch_idx):
        loss = self.loss(x, y)
        self.losses.append(loss.detach())
        if len(self.losses) > 3:
            self.losses.pop(0)
        return loss * (1 + 0.1 * torch.stack(self.losses).mean())


@pattern("keep")
class DequeOfLosses(Step):
    def prepare(self):
        self.recent = deque(maxlen=3)

    def step(self, x, y, batch_idx):
        loss = self.loss(x, y)
        self.recent.append(loss.detach())
        return loss * (1 + 0.1 * torch.stack(list(self.recent)).mean())


@pattern("keep")
class DequeOfNumbers(Step):
    def prepare(self):
        self.recent = deque(maxlen=3)

    def step(self, x, y, batch_idx):
        loss = self.loss(x, y)
        self.recent.append(loss.item())
        return loss


@pattern("keep")
class RunningMeanOfItems(Step):
    def prepare(self):
        self.total, self.count = 0.0, 0

    def step(self, x, y, batch_idx):
        loss = self.loss(x, y)
        self.total += loss.item()
        self.count += 1
        self.log("mean", self.total / self.count)
        return loss


@pattern("keep")
class DictOfCounts(Step):
    def prepare(self):
        self.counts = {"steps": 0, "seen": 0}

    def step(self, x, y, batch_idx):
        self.counts["steps"] += 1
        self.counts["seen"] += x.shape[0]
        return self.loss(x, y) / (1 + 0.01 * self.counts["steps"])


@pattern("keep")
class ExtendList(Step):
    def prepare(self):
        self.predictions = []

    def step(self, x, y, batch_idx):
        logits = self.net(x)
        self.predictions.extend(logits.argmax(1).tolist())
        return F.cross_entropy(logits, y)


@pattern("numpy")
class KeepArrays(Step):
    def prepare(self):
        self.predictions, self.last = [], {}

    def step(self, x, y, batch_idx):
        logits = self.net(x)
        self.predictions.append(logits.argmax(1).cpu().numpy())
        self.last["logits"] = logits.detach().cpu().numpy()
        self.largest = logits.detach().cpu().numpy().max()
        return F.cross_entropy(logits, y)


@pattern("numpy")
class SklearnAccuracy(Step):
    def step(self, x, y, batch_idx):
        from sklearn.metrics import accuracy_score

        logits = self.net(x)
        self.log("acc", accuracy_score(y.cpu().numpy(), logits.argmax(1).detach().cpu().numpy()))
        return F.cross_entropy(logits, y)


@pattern("numpy")
class NumpyMean(Step):
    def step(self, x, y, batch_idx):
        loss = self.loss(x, y)
        self.log("np", float(np.mean(loss.detach().cpu().numpy())))
        return loss


@pattern("numpy")
class LogItem(Step):
    def step(self, x, y, batch_idx):
        loss = self.loss(x, y)
        self.log("item", loss.item(), prog_bar=True)
        return loss


@pattern("numpy")
class DictOfItems(Step):
    def step(self, x, y, batch_idx):
        loss = self.loss(x, y)
        self.log_dict({k: v.item() for k, v in {"a": loss, "b": 2 * loss}.items()})
        return loss


# ---- numbers of the step


@pattern("numbers")
class MathOfStep(Step):
    def step(self, x, y, batch_idx):
        weight = 0.5 * (1 + math.cos(math.pi * self.global_step / 100))
        return weight * self.loss(x, y)


@pattern("numbers")
class NumpyOfStep(Step):
    def step(self, x, y, batch_idx):
        weight = np.exp(-0.1 * self.global_step)
        return weight * self.loss(x, y)


@pattern("numbers")
class MinOfEpoch(Step):
    def step(self, x, y, batch_idx):
        return min(1.0, (self.current_epoch + 1) / 10) * self.loss(x, y)


@pattern("numbers")
class WarmupBranch(Step):
    def step(self, x, y, batch_idx):
        weight = self.global_step / 4 if self.global_step < 4 else 1.0
        return weight * self.loss(x, y)


@pattern("numbers")
class SigmoidRampUp(Step):
    def step(self, x, y, batch_idx):
        phase = 1.0 - np.clip(batch_idx / 5, 0.0, 1.0)
        return float(np.exp(-5.0 * phase * phase)) * self.loss(x, y)


@pattern("numbers")
class TensorOfNumber(Step):
    def step(self, x, y, batch_idx):
        return torch.tensor(math.exp(-batch_idx)) * self.loss(x, y)


# ---- branches on values


@pattern("branch")
class IfLossLarge(Step):
    def step(self, x, y, batch_idx):
        loss = self.loss(x, y)
        if loss > 1.3:
            loss = loss * 0.5
        return loss


@pattern("branch")
class SkipNan(Step):
    def step(self, x, y, batch_idx):
        loss = self.loss(x, y)
        if torch.isnan(loss):
            return None
        return loss


@pattern("branch")
class NotFinite(Step):
    def step(self, x, y, batch_idx):
        loss = self.loss(x, y)
        if not torch.isfinite(loss):
            raise ValueError("loss is not finite")
        return loss


@pattern("branch")
class AssertLabels(Step):
    def step(self, x, y, batch_idx):
        assert (y >= 0).all(), "labels"
        return self.loss(x, y)


@pattern("branch")
class RaiseOnLabels(Step):
    def step(self, x, y, batch_idx):
        if y.max() >= CLASSES:
            raise ValueError(f"label {y.max().item()}")
        return self.loss(x, y)


@pattern("branch")
class WhileNorm(Step):
    def step(self, x, y, batch_idx):
        while x.norm() > 5:
            x = x * 0.7
        return self.loss(x, y)


@pattern("branch")
class IfAny(Step):
    def step(self, x, y, batch_idx):
        mask = y == 0
        loss = self.loss(x, y)
        if mask.any():
            loss = loss + F.cross_entropy(self.net(x), y, reduction="none")[mask].mean()
        return loss


@pattern("branch")
class IfSumZero(Step):
    def step(self, x, y, batch_idx):
        mask = (y == 1).float()
        if mask.sum() == 0:
            return self.loss(x, y)
        return (F.cross_entropy(self.net(x), y, reduction="none") * mask).sum() / mask.sum()


@pattern("branch")
class IfItem(Step):
    def step(self, x, y, batch_idx):
        logits = self.net(x)
        accuracy = (logits.argmax(1) == y).float().mean().item()
        return F.cross_entropy(logits, y) * (2.0 if accuracy < 0.4 else 1.0)


@pattern("branch")
class BestSoFar(Step):
    def prepare(self):
        self.best = float("inf")

    def step(self, x, y, batch_idx):
        loss = self.loss(x, y)
        if loss.item() < self.best:
            self.best = loss.item()
        return loss


@pattern("branch")
class IfEqual(Step):
    def step(self, x, y, batch_idx):
        loss = self.loss(x, y)
        return loss * 2 if torch.equal(y, y.sort().values) else loss


@pattern("branch")
class Allclose(Step):
    def step(self, x, y, batch_idx):
        p = self.net(x).softmax(-1)
        assert torch.allclose(p.sum(-1), torch.ones(len(p)), atol=1e-4)
        return F.nll_loss(p.log(), y)


# ---- shapes that depend on values


@pattern("shape")
class MaskedRows(Step):
    def step(self, x, y, batch_idx):
        mask = y != 0
        return F.cross_entropy(self.net(x)[mask], y[mask])


@pattern("shape")
class MaskBefore(Step):
    def step(self, x, y, batch_idx):
        mask = x[:, 0] > 0
        return F.cross_entropy(self.net(x[mask]), y[mask])


@pattern("shape")
class MaskedSelect(Step):
    def step(self, x, y, batch_idx):
        losses = F.cross_entropy(self.net(x), y, reduction="none")
        return torch.masked_select(losses, losses > losses.mean()).mean()


@pattern("shape")
class BooleanMean(Step):
    def step(self, x, y, batch_idx):
        losses = F.cross_entropy(self.net(x), y, reduction="none")
        return losses[losses > losses.median()].mean()


@pattern("shape")
class NonzeroRows(Step):
    def step(self, x, y, batch_idx):
        rows = torch.nonzero(y == 1).squeeze(1)
        return self.loss(x, y) + self.net(x)[rows].square().sum()


@pattern("shape")
class WhereIndices(Step):
    def step(self, x, y, batch_idx):
        (rows,) = torch.where(y > 1)
        return self.loss(x, y) + self.net(x)[rows].square().mean()


@pattern("shape")
class UniqueClasses(Step):
    def step(self, x, y, batch_idx):
        logits = self.net(x)
        total = 0.0
        for c in y.unique():
            total = total + F.cross_entropy(logits[y == c], y[y == c])
        return total


@pattern("shape")
class Bincount(Step):
    def step(self, x, y, batch_idx):
        counts = torch.bincount(y, minlength=CLASSES).float()
        return F.cross_entropy(self.net(x), y, weight=1.0 / (counts + 1))


@pattern("shape")
class RepeatInterleave(Step):
    def step(self, x, y, batch_idx):
        repeats = (y % 2) + 1
        return F.cross_entropy(self.net(x).repeat_interleave(repeats, 0), y.repeat_interleave(repeats))


@pattern("shape")
class OffDiagonal(Step):
    def step(self, x, y, batch_idx):
        z = F.normalize(self.net(x))
        s = z @ z.T
        n = len(s)
        negatives = s[~torch.eye(n, dtype=torch.bool)].view(n, n - 1)
        return self.loss(x, y) + negatives.exp().sum(1).log().mean()


@pattern("shape")
class MaskedFillWrite(Step):
    def step(self, x, y, batch_idx):
        x = x.clone()
        x[x < 0] = 0.0
        return self.loss(x, y)


@pattern("shape")
class WriteMasked(Step):
    def step(self, x, y, batch_idx):
        out = torch.zeros(len(x), CLASSES)
        mask = y > 1
        out[mask] = self.net(x[mask])
        out[~mask] = 2 * self.net(x[~mask])
        return F.cross_entropy(out, y)


@pattern("shape")
class HardNegatives(Step):
    def step(self, x, y, batch_idx):
        losses = F.cross_entropy(self.net(x), y, reduction="none")
        k = int((y == 0).sum()) + 1
        return losses.topk(k).values.mean()


@pattern("shape")
class TripletMining(Step):
    def step(self, x, y, batch_idx):
        z = self.net(x)
        d = torch.cdist(z, z)
        same = y[:, None] == y[None]
        positive = d[same & ~torch.eye(len(y), dtype=torch.bool)]
        return positive.mean() + F.relu(1 - d[~same]).mean()


# ---- host randomness


@pattern("random")
class CoinFlip(Step):
    def step(self, x, y, batch_idx):
        if random.random() < 0.5:
            x = x.flip(1)
        return self.loss(x, y)


@pattern("random")
class Mixup(Step):
    def step(self, x, y, batch_idx):
        lam = np.random.beta(0.4, 0.4)
        logits = self.net(lam * x + (1 - lam) * x.flip(0))
        return lam * F.cross_entropy(logits, y) + (1 - lam) * F.cross_entropy(logits, y.flip(0))


@pattern("random")
class CutMix(Step):
    def step(self, x, y, batch_idx):
        start = np.random.randint(0, FEATURES - 2)
        x = x.clone()
        x[:, start : start + 2] = x.flip(0)[:, start : start + 2]
        return self.loss(x, y)


@pattern("random")
class RandomCrop(Step):
    def step(self, x, y, batch_idx):
        start = random.randint(0, 3)
        return self.loss(F.pad(x[:, start : start + 5], (0, 3)), y)


@pattern("random")
class NumpyNoise(Step):
    def step(self, x, y, batch_idx):
        noise = torch.from_numpy(np.random.normal(size=x.shape).astype("float32"))
        return self.loss(x + 0.1 * noise, y)


@pattern("random")
class RandomChoiceOfLoss(Step):
    def step(self, x, y, batch_idx):
        scale = random.choice([0.5, 1.0, 2.0])
        return scale * self.loss(x, y)


@pattern("random")
class LayerDrop(Step):
    def prepare(self):
        self.extra = nn.ModuleList(nn.Linear(CLASSES, CLASSES) for _ in range(3))

    def step(self, x, y, batch_idx):
        h = self.net(x)
        for layer in self.extra:
            if np.random.uniform(0, 1) > 0.3:
                h = h + layer(h)
        return F.cross_entropy(h, y)


@pattern("random")
class PythonShuffle(Step):
    def step(self, x, y, batch_idx):
        order = list(range(len(x)))
        random.shuffle(order)
        return self.loss(x[order], y[order])


# ---- numbers from tensors


@pattern("int")
class QueuePointer(Step):
    def prepare(self):
        self.register_buffer("queue", torch.randn(32, CLASSES))
        self.register_buffer("pointer", torch.zeros(1, dtype=torch.long))

    def step(self, x, y, batch_idx):
        z = self.net(x)
        loss = F.cross_entropy(z, y) + (z @ self.queue.T).exp().mean().log()
        start = int(self.pointer)
        with torch.no_grad():
            self.queue = torch.cat([self.queue[:start], z, self.queue[start + len(z) :]])
            self.pointer[0] = (start + len(z)) % 32
        return loss


@pattern("int")
class IntOfLength(Step):
    def step(self, x, y, batch_idx):
        lengths = y + 2
        longest = int(lengths.max())
        return self.loss(F.pad(x[:, :longest], (0, FEATURES - longest)), y)


@pattern("int")
class LoopOverRows(Step):
    def step(self, x, y, batch_idx):
        logits = self.net(x)
        total = 0.0
        for i in range(len(x)):
            total = total - logits[i].log_softmax(-1)[y[i]]
        return total / len(x)


@pattern("int")
class ItemAsWeight(Step):
    def step(self, x, y, batch_idx):
        loss = self.loss(x, y)
        return loss / max(loss.item(), 1e-3)


@pattern("int")
class FloatOfTensor(Step):
    def step(self, x, y, batch_idx):
        return self.loss(x * (1.0 / float(x.abs().max())), y)


# ---- libraries and rarer parts of PyTorch


@pattern("distributions")
class NormalSample(Step):
    def step(self, x, y, batch_idx):
        h = self.net(x)
        q = torch.distributions.Normal(h, F.softplus(h) + 0.1)
        kl = torch.distributions.kl_divergence(q, torch.distributions.Normal(torch.zeros_like(h), torch.ones_like(h)))
        return F.cross_entropy(q.mean, y) + 0.01 * kl.mean()


@pattern("distributions")
class CategoricalLogProb(Step):
    def step(self, x, y, batch_idx):
        d = torch.distributions.Categorical(logits=self.net(x))
        return -d.log_prob(y).mean() - 0.01 * d.entropy().mean()


@pattern("distributions")
class IndependentMixture(Step):
    def step(self, x, y, batch_idx):
        h = self.net(x)
        mixture = torch.distributions.MixtureSameFamily(
            torch.distributions.Categorical(logits=h), torch.distributions.Normal(h, torch.ones_like(h))
        )
        return -mixture.log_prob(x[:, 0]).mean()


@pattern("distributions")
class BernoulliMultinomial(Step):
    def step(self, x, y, batch_idx):
        h = self.net(x)
        return -torch.distributions.Bernoulli(logits=h).log_prob(F.one_hot(y, CLASSES).float()).mean()


@pattern("sequence")
class Packed(Step):
    def prepare(self):
        self.lstm = nn.LSTM(2, 6, batch_first=True)
        self.head = nn.Linear(6, CLASSES)

    def step(self, x, y, batch_idx):
        lengths = (y + 1).cpu()
        packed = nn.utils.rnn.pack_padded_sequence(x.view(-1, 4, 2), lengths, batch_first=True, enforce_sorted=False)
        _, (h, _) = self.lstm(packed)
        return F.cross_entropy(self.head(h[-1]), y)


@pattern("sequence")
class PackedOutput(Step):
    def prepare(self):
        self.gru = nn.GRU(2, 6, batch_first=True, bidirectional=True)
        self.head = nn.Linear(12, CLASSES)

    def step(self, x, y, batch_idx):
        lengths = (y + 1).cpu()
        packed = nn.utils.rnn.pack_padded_sequence(x.view(-1, 4, 2), lengths, batch_first=True, enforce_sorted=False)
        out, _ = self.gru(packed)
        out, _ = nn.utils.rnn.pad_packed_sequence(out, batch_first=True, total_length=4)
        return F.cross_entropy(self.head(out.mean(1)), y)


@pattern("rare")
class OldWeightNorm(Step):
    def prepare(self):
        self.normed = nn.utils.weight_norm(nn.Linear(FEATURES, CLASSES))

    def step(self, x, y, batch_idx):
        return F.cross_entropy(self.normed(x), y)


@pattern("rare")
class OldSpectralNorm(Step):
    def prepare(self):
        self.normed = nn.utils.spectral_norm(nn.Linear(FEATURES, CLASSES))

    def step(self, x, y, batch_idx):
        return F.cross_entropy(self.normed(x), y)


@pattern("rare")
class NewSpectralNorm(Step):
    def prepare(self):
        self.normed = nn.utils.parametrizations.spectral_norm(nn.Linear(FEATURES, CLASSES))

    def step(self, x, y, batch_idx):
        return F.cross_entropy(self.normed(x), y)


@pattern("rare")
class Scripted(Step):
    def prepare(self):
        self.scripted = scripted(nn.Sequential(nn.Linear(FEATURES, CLASSES), nn.Tanh()))

    def step(self, x, y, batch_idx):
        return F.cross_entropy(self.scripted(x), y)


class _Scaled(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x / float(x.abs().sum())


@pattern("rare")
class ScriptedValue(Step):
    def prepare(self):
        self.scripted = scripted(_Scaled())

    def step(self, x, y, batch_idx):
        return F.cross_entropy(self.scripted(self.net(x)), y)


def scripted(function: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        warnings.simplefilter("ignore", FutureWarning)  # what PyTorch 2.15 says it by
        return torch.jit.script(function)


@scripted
def swish(x: torch.Tensor) -> torch.Tensor:
    return x * torch.sigmoid(x)


@pattern("rare")
class ScriptedFunction(Step):
    def step(self, x, y, batch_idx):
        return F.cross_entropy(swish(self.net(x)), y)


@pattern("rare")
class Compiled(Step):
    def prepare(self):
        self.compiled = torch.compile(nn.Linear(FEATURES, CLASSES))

    def step(self, x, y, batch_idx):
        return F.cross_entropy(self.compiled(x), y)


@pattern("rare")
class PerSampleGradients(Step):
    def step(self, x, y, batch_idx):
        parameters = {k: v.detach() for k, v in self.net.named_parameters()}

        def one(p, a, b):
            return F.cross_entropy(torch.func.functional_call(self.net, p, (a[None],)), b[None])

        grads = torch.func.vmap(torch.func.grad(one), (None, 0, 0))(parameters, x, y)
        self.log("norm", grads["0.weight"].flatten(1).norm(dim=1).mean())
        return self.loss(x, y)


@pattern("rare")
class Vmapped(Step):
    def step(self, x, y, batch_idx):
        return F.cross_entropy(torch.vmap(lambda row: self.net(row))(x), y)


@pattern("rare")
class SparseEmbedding(Step):
    def prepare(self):
        self.table = nn.Embedding(10, CLASSES, sparse=True)

    def step(self, x, y, batch_idx):
        return F.cross_entropy(self.table(y) + self.net(x), y)


@pattern("rare")
class SparseBuffer(Step):
    def prepare(self):
        self.register_buffer("mixing", (torch.eye(CLASSES) + torch.ones(CLASSES, CLASSES).triu(2) / 2).to_sparse())

    def step(self, x, y, batch_idx):
        return F.cross_entropy(torch.sparse.mm(self.mixing, self.net(x).T).T, y)


@pattern("host")
class WeightsOfNumpy(Step):
    def step(self, x, y, batch_idx):
        logits = self.net(x)
        sure = logits.softmax(-1).amax(-1).detach().cpu().numpy()
        weights = torch.from_numpy(np.interp(sure, [0.0, 0.5, 1.0], [2.0, 1.0, 0.5])).float()
        return (F.cross_entropy(logits, y, reduction="none") * weights).mean()


@pattern("rare")
class SparseProduct(Step):
    def prepare(self):
        self.adjacency = torch.eye(ROWS).to_sparse()

    def step(self, x, y, batch_idx):
        return F.cross_entropy(torch.sparse.mm(self.adjacency, self.net(x)), y)


@pattern("rare")
class Histogram(Step):
    def step(self, x, y, batch_idx):
        self.log("h", torch.histc(x, 4, -2, 2)[0])
        return self.loss(x, y)


@pattern("rare")
class Spectrogram(Step):
    def step(self, x, y, batch_idx):
        s = torch.stft(x.flatten(), 16, return_complex=True, window=torch.hann_window(16))
        back = torch.istft(s, 16, window=torch.hann_window(16), length=x.numel())
        return self.loss(back.view_as(x), y)


@pattern("rare")
class ComplexFft(Step):
    def prepare(self):
        self.filter = nn.Parameter(torch.randn(FEATURES // 2 + 1, dtype=torch.cfloat))

    def step(self, x, y, batch_idx):
        return self.loss(torch.fft.irfft(torch.fft.rfft(x) * self.filter, n=FEATURES), y)


@pattern("rare")
class Lbfgs(Step):
    def configure_optimizers(self):
        return torch.optim.LBFGS(self.parameters(), lr=0.1, max_iter=4)


@pattern("rare")
class Checkpointed(Step):
    def step(self, x, y, batch_idx):
        return F.cross_entropy(torch.utils.checkpoint.checkpoint(self.net, x, use_reentrant=False), y)


@pattern("rare")
class CheckpointedReentrant(Step):
    def step(self, x, y, batch_idx):
        return F.cross_entropy(torch.utils.checkpoint.checkpoint(self.net, x.requires_grad_(), use_reentrant=True), y)


@pattern("rare")
class GradientPenalty(Step):
    def step(self, x, y, batch_idx):
        x = x.requires_grad_()
        out = self.net(x)
        (g,) = torch.autograd.grad(out.sum(), x, create_graph=True)
        return F.cross_entropy(out, y) + (g.norm(2, 1) - 1).square().mean()


class Frozen(OrderedDict):
    """A dict whose entries are attributes and that cannot be changed."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        for key, value in self.items():
            object.__setattr__(self, key, value)
        self.frozen = True

    def __setitem__(self, name, value):
        if hasattr(self, "frozen"):
            raise Exception("cannot be changed")
        super().__setitem__(name, value)

    def setdefault(self, *args, **kwargs):
        raise Exception("cannot be used")

    def pop(self, *args, **kwargs):
        raise Exception("cannot be used")

    def update(self, *args, **kwargs):
        raise Exception("cannot be used")


@pattern("rare")
class FrozenConfig(Step):
    def prepare(self):
        self.settings = Frozen(scale=2.0, name="x")

    def step(self, x, y, batch_idx):
        return self.settings["scale"] * self.loss(x, y)


class Factory(dict):
    """A dict that makes what it is asked for."""

    def __getitem__(self, key):
        return super().__getitem__(key)()


class Pair(tuple):
    """A tuple that has no length, as e3nn's of irreducible representations."""

    def __len__(self):
        raise NotImplementedError


@pattern("rare")
class TupleWithoutLength(Step):
    def prepare(self):
        self.kinds = Pair((2, 0.5))

    def step(self, x, y, batch_idx):
        return F.cross_entropy(self.net(x), y) * self.kinds[0] * self.kinds[1]


@pattern("rare")
class ComputingDict(Step):
    def prepare(self):
        self.activations = Factory(relu=nn.ReLU)

    def step(self, x, y, batch_idx):
        return F.cross_entropy(self.activations["relu"](self.net(x)), y)


@pattern("metrics")
class MeanMetric(Step):
    def prepare(self):
        import torchmetrics

        self.mean = torchmetrics.MeanMetric()

    def step(self, x, y, batch_idx):
        loss = self.loss(x, y)
        self.mean.update(loss.detach())
        self.log("mean", self.mean, on_step=False, on_epoch=True)
        return loss


@pattern("metrics")
class MeanMetricCall(Step):
    def prepare(self):
        import torchmetrics

        self.mean = torchmetrics.MeanMetric()

    def step(self, x, y, batch_idx):
        loss = self.loss(x, y)
        self.log("mean", self.mean(loss))
        return loss


def _metric(name: str, make: Callable[[], Any], probabilities: bool = False) -> None:
    def prepare(self):
        self.metric = make()

    def step(self, x, y, batch_idx):
        logits = self.net(x)
        out = self.metric(logits.softmax(-1) if probabilities else logits.argmax(1), y)
        if isinstance(out, dict):
            self.log_dict(self.metric)
        elif out.ndim == 0:
            self.log("metric", self.metric)
        return F.cross_entropy(logits, y)

    PATTERNS[name] = type(name, (Step,), {"prepare": prepare, "step": step, "topic": "metrics"})


def _metrics() -> None:
    import torchmetrics
    from torchmetrics import classification as c

    _metric("MulticlassAccuracyMacro", lambda: c.MulticlassAccuracy(CLASSES))
    _metric("AccuracyTask", lambda: torchmetrics.Accuracy(task="multiclass", num_classes=CLASSES))
    _metric("F1", lambda: c.MulticlassF1Score(CLASSES))
    _metric("ConfusionMatrix", lambda: c.MulticlassConfusionMatrix(CLASSES))
    _metric("Jaccard", lambda: c.MulticlassJaccardIndex(CLASSES))
    _metric("AurocBinned", lambda: c.MulticlassAUROC(CLASSES, thresholds=5), True)
    _metric("AurocExact", lambda: c.MulticlassAUROC(CLASSES), True)
    _metric(
        "Collection",
        lambda: torchmetrics.MetricCollection([c.MulticlassAccuracy(CLASSES), c.MulticlassPrecision(CLASSES)]),
    )


_metrics()


# ---- teachers and other writes


@pattern("writes")
class EmaTeacher(Step):
    def prepare(self):
        import copy

        self.teacher = copy.deepcopy(self.net).requires_grad_(False)

    def step(self, x, y, batch_idx):
        with torch.no_grad():
            for s, t in zip(self.net.parameters(), self.teacher.parameters(), strict=True):
                t.data = 0.9 * t.data + 0.1 * s.data
            target = self.teacher(x).softmax(-1)
        return self.loss(x, y) + F.kl_div(self.net(x).log_softmax(-1), target, reduction="batchmean")


@pattern("writes")
class ManualTwice(Step):
    def prepare(self):
        self.automatic_optimization = False

    def step(self, x, y, batch_idx):
        opt = self.optimizers()
        for _ in range(2):
            opt.zero_grad()
            loss = self.loss(x, y)
            self.manual_backward(loss)
            opt.step()
        return loss


@pattern("writes")
class ManualClosure(Step):
    def prepare(self):
        self.automatic_optimization = False

    def step(self, x, y, batch_idx):
        opt = self.optimizers()

        def closure():
            opt.zero_grad()
            loss = self.loss(x, y)
            self.manual_backward(loss)
            return loss

        opt.step(closure=closure)


@pattern("host")
class Hungarian(Step):
    def step(self, x, y, batch_idx):
        from scipy.optimize import linear_sum_assignment

        logits = self.net(x)
        cost = -logits.softmax(-1)[:, y]
        rows, columns = linear_sum_assignment(cost.detach().cpu().numpy())
        return cost[torch.as_tensor(rows), torch.as_tensor(columns)].mean() + F.cross_entropy(logits, y)


@pattern("host")
class ReturnDict(Step):
    def step(self, x, y, batch_idx):
        logits = self.net(x)
        return {"loss": F.cross_entropy(logits, y), "logits": logits.detach(), "n": len(x)}


@pattern("host")
class Strings(Step):
    def step(self, x, y, batch_idx):
        names = [f"sample {i}" for i in range(len(x))]
        return self.loss(x, y) * (len(names) / len(x))
