"""Models of sequences."""

from __future__ import annotations

import warnings

import torch
import torch.nn.functional as F
from torch import nn

from ._case import case, classify, labelled, labelled_tokens, next_token, own_loss, paired, regress, tokens
from ._images import Block


@case(tokens((3, 7), 11), next_token, clip=1.0)
class GptTied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(11, 8)
        self.position = nn.Embedding(7, 8)
        self.blocks = nn.Sequential(Block(8, 2, causal=True), Block(8, 2, causal=True))
        self.norm = nn.LayerNorm(8)
        self.head = nn.Linear(8, 11, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        here = torch.arange(x.shape[1], device=x.device)
        return self.head(self.norm(self.blocks(self.embedding(x) + self.position(here))))


@case(labelled_tokens((4, 6), 13, 3), classify)
class LstmClassifier(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(13, 6)
        self.lstm = nn.LSTM(6, 5, num_layers=2, bidirectional=True, batch_first=True)
        self.head = nn.Linear(10, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        _, (hidden, _) = self.lstm(self.embedding(x))
        return self.head(torch.cat([hidden[-2], hidden[-1]], dim=1))


@case(paired((5, 3, 4), (3, 2)), regress)
class PlainRnn(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.rnn = nn.RNN(4, 6, nonlinearity="tanh")
        self.head = nn.Linear(6, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.rnn(x)[0][-1])


def translation() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randint(0, 9, (3, 5)), torch.randint(0, 7, (3, 4))


@case(translation, own_loss)
class Seq2SeqGru(nn.Module):
    """A cell in a Python loop decodes, with attention over what the encoder read."""

    def __init__(self) -> None:
        super().__init__()
        self.source, self.target = nn.Embedding(9, 6), nn.Embedding(7, 6)
        self.encoder = nn.GRU(6, 8, batch_first=True)
        self.decoder = nn.GRUCell(14, 8)
        self.head = nn.Linear(8, 7)

    def forward(self, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        read, hidden = self.encoder(self.source(source))
        state = hidden[0]
        scores = []
        for token in self.target(target[:, :-1]).unbind(1):
            weights = torch.softmax(torch.einsum("bsh,bh->bs", read, state), dim=1)
            context = torch.bmm(weights[:, None], read)[:, 0]
            state = self.decoder(torch.cat([token, context], dim=1), state)
            scores.append(self.head(state))
        return F.nll_loss(torch.stack(scores, dim=2).log_softmax(1), target[:, 1:])


def bags() -> tuple[torch.Tensor, ...]:
    offsets = torch.tensor([0, 2, 5, 9])
    return torch.randint(0, 12, (13,)), offsets, torch.rand(13), torch.randint(0, 3, (4,))


@case(bags, own_loss)
class EmbeddingBags(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.mean = nn.EmbeddingBag(12, 5)
        self.sum = nn.EmbeddingBag(12, 5, mode="sum")
        self.head = nn.Linear(10, 3)

    def forward(self, x: torch.Tensor, offsets: torch.Tensor, weights: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        pooled = [self.mean(x, offsets), self.sum(x, offsets, per_sample_weights=weights)]
        return F.cross_entropy(self.head(torch.cat(pooled, dim=1)), y)


def padded() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    lengths = torch.randint(2, 6, (4,))
    return torch.randn(4, 5, 8), torch.arange(5)[None] >= lengths[:, None], torch.randint(0, 3, (4,))


@case(padded, own_loss)
class MaskedAttention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2, bias=False, batch_first=True)
        self.head = nn.Linear(8, 3)

    def forward(self, x: torch.Tensor, padding: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        mask = torch.ones(5, 5, dtype=torch.bool, device=x.device).triu(1)
        mixed, weights = self.attention(x, x, x, key_padding_mask=padding, attn_mask=mask)
        pooled = mixed.masked_fill(padding[..., None], 0).sum(1) / (~padding).sum(1, keepdim=True)
        return F.cross_entropy(self.head(pooled), y) + weights.square().mean()


@case(padded, own_loss)
class EncoderLayers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(8, 2, 12, dropout=0.0, batch_first=True, norm_first=True, bias=False)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="enable_nested_tensor is True", category=UserWarning)
            self.encoder = nn.TransformerEncoder(layer, 2)
        self.head = nn.Linear(8, 3)

    def forward(self, x: torch.Tensor, padding: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(self.head(self.encoder(x, src_key_padding_mask=padding)[:, 0]), y)


class LlamaBlock(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.head_width = width // heads
        self.norm1, self.norm2 = nn.RMSNorm(width), nn.RMSNorm(width)
        self.query, self.leave = nn.Linear(width, width, bias=False), nn.Linear(width, width, bias=False)
        self.key, self.value = nn.Linear(width, width // 2, bias=False), nn.Linear(width, width // 2, bias=False)
        self.gate, self.up = nn.Linear(width, 12, bias=False), nn.Linear(width, 12, bias=False)
        self.down = nn.Linear(12, width, bias=False)
        self.register_buffer("frequencies", 1 / 100 ** torch.arange(0, 1, 2 * heads / width), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.leave(self.attend(self.norm1(x)))
        h = self.norm2(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))

    def attend(self, x: torch.Tensor) -> torch.Tensor:
        query, key, value = (self.by_head(f(x)) for f in (self.query, self.key, self.value))
        angles = torch.outer(torch.arange(x.shape[1], dtype=torch.float32, device=x.device), self.frequencies)
        query, key = self.rotated(query, angles), self.rotated(key, angles)
        key, value = (t.repeat_interleave(2, dim=1) for t in (key, value))
        return F.scaled_dot_product_attention(query, key, value, is_causal=True).transpose(1, 2).flatten(2)

    def by_head(self, x: torch.Tensor) -> torch.Tensor:
        return x.unflatten(2, (-1, self.head_width)).transpose(1, 2)

    def rotated(self, x: torch.Tensor, angles: torch.Tensor) -> torch.Tensor:
        cos, sin = angles.cos().repeat(1, 2), angles.sin().repeat(1, 2)
        left, right = x.chunk(2, dim=-1)
        return x * cos + torch.cat([-right, left], dim=-1) * sin


@case(tokens((3, 6), 11), next_token, clip=1.0)
def llama() -> nn.Module:
    return nn.Sequential(
        nn.Embedding(11, 16), LlamaBlock(16, 4), LlamaBlock(16, 4), nn.RMSNorm(16), nn.Linear(16, 11, bias=False)
    )


@case(labelled_tokens((4, 5), 9, 3), classify)
class PaddedEmbedding(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(9, 6, padding_idx=0)
        self.head = nn.Linear(6, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        present = (x != 0).float()[..., None]
        return self.head((self.embedding(x) * present).sum(1) / present.sum(1).clamp(min=1))


@case(labelled((4, 3, 16), 4), classify)
class Conv1dPooling(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv1d(3, 6, 3, padding=1, padding_mode="circular")
        self.conv2 = nn.Conv1d(6, 8, 5, stride=2, padding=2)
        self.head = nn.Linear(24, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.avg_pool1d(F.softsign(self.conv1(x)), 3, stride=1, padding=1, count_include_pad=False)
        x = F.softplus(self.conv2(x))
        pooled = [F.max_pool1d(x, 3, ceil_mode=True).amax(2), F.adaptive_avg_pool1d(x, 2).sum(2), F.lp_pool1d(x, 2, 4).mean(2)]
        return self.head(torch.cat(pooled, dim=1))


@case(paired((2, 3, 10), (2, 3, 10)), regress)
class CausalConvolutions(nn.Module):
    """A WaveNet: dilated, padded on the left only, gated."""

    def __init__(self) -> None:
        super().__init__()
        self.enter = nn.Conv1d(3, 6, 1)
        self.dilated = nn.ModuleList(nn.Conv1d(6, 12, 2, dilation=2**i) for i in range(3))
        self.leave = nn.Conv1d(6, 3, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.enter(x)
        for i, conv in enumerate(self.dilated):
            value, gate = conv(F.pad(x, (2**i, 0))).chunk(2, dim=1)
            x = x + torch.tanh(value) * torch.sigmoid(gate)
        return self.leave(x)
