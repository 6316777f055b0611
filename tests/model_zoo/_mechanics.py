"""Models that use PyTorch's machinery in unusual ways: autograd, hooks, parametrizations, views, model libraries."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import parametrizations
from torch.utils.checkpoint import checkpoint

from ._case import case, classify, labelled, own_loss, paired, regress, tokens

ROWS = labelled((8, 6), 4)


class ClippedSquare(torch.autograd.Function):
    """Its gradient is another one than autograd would find."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, bound: float) -> torch.Tensor:
        ctx.save_for_backward(x)
        ctx.bound = bound
        return x.square()

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        (x,) = ctx.saved_tensors
        return (grad * 2 * x).clamp(-ctx.bound, ctx.bound), None


@case(ROWS, classify)
class CustomFunction(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.enter, self.leave = nn.Linear(6, 8), nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.leave(ClippedSquare.apply(self.enter(x), 0.05))


@case(ROWS, classify)
class InPlaceAndViews(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.enter, self.leave = nn.Linear(6, 8), nn.Linear(8, 4)
        self.register_buffer("mean", torch.zeros(8))
        self.register_buffer("table", torch.zeros(2, 8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.enter(x).clone()
        h[:, :2] *= 2
        h.view(-1, 2, 4)[:, 1].add_(h[:, :4] * 0.5)
        h[:, -1] = h[:, 0].detach()
        h.masked_fill_(h > 3, 3.0)
        left, right = h[:, :4], h[:, 4:]
        left.mul_(0.5)
        right.add_(torch.sigmoid(x[:, :1])).sub_(left)
        h.neg_().squeeze_()
        with torch.no_grad():
            self.mean.mul_(0.9).add_(h.mean(0), alpha=0.1)
            self.table[1] = h[0]
            self.table[0, 2:4].copy_(self.mean[:2])
        return self.leave(h - self.mean + self.table.sum(0))


@case(ROWS, classify, clip=1.0)
class Checkpointed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.enter = nn.Linear(6, 8)
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 8)) for _ in range(2))
        self.leave = nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.enter(x)
        for block in self.blocks:
            x = x + checkpoint(block, x, use_reentrant=False)
        return self.leave(x)


def penalized(model: nn.Module, real: torch.Tensor, fake: torch.Tensor) -> torch.Tensor:
    """A critic's loss with a gradient penalty: the gradient of a gradient."""
    between = (0.3 * real + 0.7 * fake).requires_grad_()
    (slope,) = torch.autograd.grad(model(between).sum(), between, create_graph=True)
    penalty = (slope.norm(2, dim=1) - 1).square().mean()
    return model(fake).mean() - model(real).mean() + 10 * penalty


@case(paired((8, 6), (8, 6)), penalized)
def gradient_penalty() -> nn.Module:
    # no bias at the end: a difference of two means does not depend on it
    return nn.Sequential(nn.Linear(6, 12), nn.Tanh(), nn.Linear(12, 12), nn.Softplus(), nn.Linear(12, 1, bias=False))


@case(ROWS, classify)
def weight_norm() -> nn.Module:
    first, last = nn.Linear(6, 8), nn.Linear(8, 4)
    return nn.Sequential(parametrizations.weight_norm(first), nn.ReLU(), parametrizations.weight_norm(last, dim=1))


@case(ROWS, classify)
def spectral_norm() -> nn.Module:
    first, last = nn.Linear(6, 8), nn.Linear(8, 4)
    return nn.Sequential(parametrizations.spectral_norm(first), nn.ReLU(), parametrizations.spectral_norm(last))


@case(ROWS, classify)
def hooks() -> nn.Module:
    """Hooks that change an input, an output, a gradient of a tensor, and a gradient of a parameter."""
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 4))
    model[0].register_forward_pre_hook(lambda module, args: (args[0] * 0.5,))
    model[1].register_forward_hook(lambda module, args, output: output + 0.1)
    model[2].register_full_backward_hook(lambda module, grads, _: (grads[0].clamp(-0.05, 0.05),))
    model[2].weight.register_hook(lambda grad: grad * 2)
    return model


class FrozenBackbone(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.backbone = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU())
        self.head = nn.Linear(8, 4)
        self.backbone.requires_grad_(False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            features = self.backbone(x)
        return self.head(features)


@case(ROWS, classify)
def frozen_backbone() -> nn.Module:
    return FrozenBackbone()


@case(paired((8, 6), (8, 6)), own_loss)
class MomentumTeacher(nn.Module):
    """Self-distillation: the teacher's parameters follow the student's inside the step."""

    def __init__(self) -> None:
        super().__init__()
        self.student, self.teacher = nn.Linear(6, 5), nn.Linear(6, 5)
        self.teacher.load_state_dict(self.student.state_dict())
        self.teacher.requires_grad_(False)

    def forward(self, one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            for slow, fast in zip(self.teacher.parameters(), self.student.parameters(), strict=True):
                slow.lerp_(fast, 0.2)
            wanted = F.softmax(self.teacher(other) / 0.5, dim=1)
        return F.kl_div(F.log_softmax(self.student(one), dim=1), wanted, reduction="batchmean")


@case(paired((8, 6), (8, 4)), regress)
class FunctionalState(nn.Module):
    """Tensors in dicts, lists and plain attributes; one is replaced in every step."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Linear(6, 4)
        self.scales = {"in": torch.tensor(0.5), "out": [torch.tensor(2.0)]}
        self.last = torch.zeros(4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = self.net(x * self.scales["in"]) * self.scales["out"][0] + 0.1 * self.last
        self.last = out.detach().mean(0)
        return out


def language_loss(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
    return model(input_ids=x, labels=x).loss


@case(tokens((2, 6), 17), language_loss, clip=1.0)
def hugging_face_gpt2() -> nn.Module:
    from transformers import GPT2Config, GPT2LMHeadModel

    no_dropout = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
    sizes = {"vocab_size": 17, "n_positions": 8, "n_embd": 8, "n_layer": 2, "n_head": 2}
    return GPT2LMHeadModel(GPT2Config(**sizes, **no_dropout, bos_token_id=0, eos_token_id=0))


def masked_loss(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
    return model(input_ids=x, attention_mask=(x != 0).long(), labels=x).loss


@case(tokens((2, 6), 17), masked_loss)
def hugging_face_bert() -> nn.Module:
    from transformers import BertConfig, BertForMaskedLM

    sizes = {"vocab_size": 17, "hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 12}
    no_dropout = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    model = BertForMaskedLM(BertConfig(**sizes, **no_dropout, max_position_embeddings=8))
    for layer in model.bert.encoder.layer:
        layer.attention.self.key.bias.requires_grad_(False)  # the softmax does not depend on it
    return model
