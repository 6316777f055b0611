"""The models that are timed, as LightningModules of whichever library is given."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class MLP(nn.Module):
    """64 -> 128 -> 128 -> 10."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 10))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.net(x)


class Block(nn.Module):
    """ResNet's basic block."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.shortcut = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        return F.relu(h + self.shortcut(x))


class ResNet18(nn.Module):
    """ResNet-18 for 32x32 images: 64, 128, 256, 512 channels, two blocks each."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 64, 3, 1, 1, bias=False), nn.BatchNorm2d(64), nn.ReLU())
        widths = [(64, 64, 1), (64, 128, 2), (128, 256, 2), (256, 512, 2)]
        self.blocks = nn.Sequential(*[b for i, o, s in widths for b in (Block(i, o, s), Block(o, o, 1))])
        self.head = nn.Linear(512, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.blocks(self.stem(x)).mean((2, 3)))


class Attention(nn.Module):
    """Causal self-attention with dropout on its output."""

    def __init__(self, dim: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(dim, 3 * dim)
        self.out = nn.Linear(dim, dim)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, dim = x.shape
        q, k, v = (t.view(batch, length, self.heads, dim // self.heads).transpose(1, 2) for t in self.qkv(x).split(dim, dim=2))
        h = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.dropout(self.out(h.transpose(1, 2).reshape(batch, length, dim)))


class GPT(nn.Module):
    """4 layers, d 256, 4 heads, 128 tokens, 256 bytes of vocabulary, dropout 0.1, tied embeddings."""

    def __init__(self, layers: int = 4, dim: int = 256, heads: int = 4, length: int = 128, dropout: float = 0.1) -> None:
        super().__init__()
        self.tokens = nn.Embedding(256, dim)
        self.positions = nn.Parameter(torch.randn(length, dim) * 0.02)
        self.dropout = nn.Dropout(dropout)
        self.layers = nn.ModuleList(
            nn.ModuleList(
                [
                    nn.LayerNorm(dim),
                    Attention(dim, heads, dropout),
                    nn.LayerNorm(dim),
                    nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim), nn.Dropout(dropout)),
                ]
            )
            for _ in range(layers)
        )
        self.norm = nn.LayerNorm(dim)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.dropout(self.tokens(x) + self.positions)
        for norm1, attention, norm2, feed_forward in self.layers:
            h = h + attention(norm1(h))
            h = h + feed_forward(norm2(h))
        return self.norm(h) @ self.tokens.weight.T


class LSTM(nn.Module):
    """2 layers of 256 over 128 bytes of text, dropout 0.2 between them."""

    def __init__(self, dim: int = 256) -> None:
        super().__init__()
        self.tokens = nn.Embedding(256, dim)
        self.lstm = nn.LSTM(dim, dim, 2, batch_first=True, dropout=0.2)
        self.head = nn.Linear(dim, 256)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.lstm(self.tokens(x))[0])


class Bert(nn.Module):
    """BERT-tiny of transformers as it comes, over 128 bytes of text: 2 layers, d 128, 2 heads, dropout 0.1, padding masked."""

    def __init__(self) -> None:
        super().__init__()
        from transformers import BertConfig, BertForMaskedLM

        sizes: dict[str, Any] = {"vocab_size": 256, "hidden_size": 128, "intermediate_size": 512}
        self.model = BertForMaskedLM(BertConfig(num_hidden_layers=2, num_attention_heads=2, **sizes))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.model(input_ids=x, attention_mask=(x != 0).long()).logits


def loss_of(model: nn.Module, batch: Any) -> torch.Tensor:
    """Cross-entropy over the last dimension of the logits."""
    x, y = batch
    logits = model(x)
    return F.cross_entropy(logits.reshape(-1, logits.shape[-1]), y.reshape(-1))


def optimizer_of(name: str, model: nn.Module) -> torch.optim.Optimizer:
    """The optimizer that every contender uses for a model."""
    if name == "resnet18":
        return torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    return torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.01)


MODELS = {"mlp": MLP, "resnet18": ResNet18, "gpt": GPT, "lstm": LSTM, "bert": Bert}
BATCH = {"mlp": 64, "resnet18": 32, "gpt": 16, "lstm": 16, "bert": 16}


def _texts(count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Pieces of Python's documentation, 128 bytes each, and what follows each byte."""
    from pydoc_data import topics

    raw = "".join(topics.topics.values()).encode()
    text = torch.frombuffer(bytearray(raw), dtype=torch.uint8).long()
    starts = torch.randint(0, len(text) - 129, (count,), generator=torch.Generator().manual_seed(0))
    rows = torch.stack([text[s : s + 129] for s in starts.tolist()])
    return rows[:, :-1].contiguous(), rows[:, 1:].contiguous()


def _with_gaps(texts: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Texts of 64 to 128 bytes, padded with 0; of a seventh of the bytes 1 stands in their place, and they are the targets."""
    generator = torch.Generator().manual_seed(1)
    there = torch.arange(texts.shape[1]) < torch.randint(64, 129, (len(texts), 1), generator=generator)
    hidden = there & (torch.rand(texts.shape, generator=generator) < 1 / 7)
    return texts.masked_fill(hidden, 1).masked_fill(~there, 0), texts.masked_fill(~hidden, -100)


def data_of(name: str, batches: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Inputs and targets for a number of batches: digits, digits as 32x32 images, bytes of Python's documentation."""
    count = BATCH[name] * batches
    if name in ("gpt", "lstm"):
        return _texts(count)
    if name == "bert":
        return _with_gaps(_texts(count)[0])
    from sklearn.datasets import load_digits

    digits = load_digits()
    picked = torch.arange(count) % len(digits.target)
    images = torch.tensor(digits.data, dtype=torch.float32)[picked] / 16
    if name == "resnet18":
        images = F.interpolate(images.view(-1, 1, 8, 8), size=32).expand(-1, 3, -1, -1).contiguous()
    return images, torch.tensor(digits.target)[picked]


def loader_of(name: str, batches: int) -> DataLoader:
    """A torch DataLoader over that data."""
    return DataLoader(TensorDataset(*data_of(name, batches)), batch_size=BATCH[name], shuffle=True)


def lightning_module(library: Any, name: str) -> Any:
    """The model as a LightningModule of `library` (systolic, or lightning itself)."""

    class Module(library.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.model = MODELS[name]()

        def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
            loss = loss_of(self.model, batch)
            self.log("train_loss", loss)
            return loss

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return optimizer_of(name, self.model)

    return Module()
