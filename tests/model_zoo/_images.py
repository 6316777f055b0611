"""Models of images."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from ._case import case, classify, labelled, own_loss, paired, reconstruct, regress

IMAGES = labelled((4, 3, 8, 8), 5)


def images() -> tuple[torch.Tensor]:
    return (torch.randn(4, 3, 8, 8),)


@case(IMAGES, classify)
def cnn_batch_norm() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 6, 3, padding=1, bias=False), nn.BatchNorm2d(6), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(6, 8, 3, bias=False), nn.BatchNorm2d(8, momentum=0.3), nn.ReLU(), nn.Flatten(), nn.Linear(32, 5),
    )  # fmt: skip


class Residual(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(outputs)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = self.norm2(self.conv2(F.relu(self.norm1(self.conv1(x)), inplace=True)))
        out += self.shortcut(x)
        return F.relu(out, inplace=True)


@case(labelled((8, 3, 16, 16), 10), classify, clip=1.0)
def resnet18() -> nn.Module:
    stem = [nn.Conv2d(3, 4, 3, 1, 1, bias=False), nn.BatchNorm2d(4), nn.ReLU(inplace=True)]
    widths = [(4, 4, 1), (4, 4, 1), (4, 8, 2), (8, 8, 1), (8, 16, 2), (16, 16, 1), (16, 32, 2), (32, 32, 1)]
    blocks = [Residual(*width) for width in widths]
    return nn.Sequential(*stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10))


@case(images, reconstruct)
def autoencoder() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 6, 3, 2, 1), nn.GELU(), nn.Conv2d(6, 8, 3, 2, 1), nn.Tanh(),
        nn.ConvTranspose2d(8, 6, 4, 2, 1), nn.GELU(), nn.ConvTranspose2d(6, 3, 3, 2, 1, output_padding=1),
    )  # fmt: skip


def with_noise() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.rand(8, 12), torch.randn(8, 3)


@case(with_noise, own_loss)
class VariationalAutoencoder(nn.Module):
    """The noise is an input, so that both sides sample alike."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(12, 10), nn.Softplus(), nn.Linear(10, 6))
        self.decoder = nn.Sequential(nn.Linear(3, 10), nn.SiLU(), nn.Linear(10, 12))

    def forward(self, x: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
        mean, log_variance = self.encoder(x).chunk(2, dim=1)
        latent = torch.addcmul(mean, noise, torch.exp(0.5 * log_variance))
        likelihood = F.binary_cross_entropy_with_logits(self.decoder(latent), x, reduction="none").sum(1)
        divergence = -0.5 * (1 + log_variance - mean.pow(2) - log_variance.exp()).sum(1)
        return (likelihood + divergence).mean()


class UNet(nn.Module):
    def __init__(self, **upsampling: Any) -> None:
        super().__init__()
        self.down = nn.Conv2d(3, 6, 3, padding=1)
        self.middle = nn.Conv2d(6, 8, 3, padding=1, padding_mode="reflect")
        self.up = nn.Upsample(scale_factor=2, **upsampling)
        self.out = nn.Conv2d(14, 2, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        wide = F.leaky_relu(self.down(x), 0.1)
        narrow = F.relu(self.middle(F.max_pool2d(wide, 2)))
        return self.out(torch.cat([self.up(narrow), wide], dim=1))


@case(paired((3, 3, 8, 8), (3, 2, 8, 8)), regress)
def unet_bilinear() -> nn.Module:
    return UNet(mode="bilinear", align_corners=False)


@case(paired((3, 3, 8, 8), (3, 2, 8, 8)), regress)
def unet_nearest() -> nn.Module:
    return UNet(mode="nearest")


@case(IMAGES, classify)
def group_norm() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, bias=False), nn.GroupNorm(4, 8), nn.SiLU(),
        nn.Conv2d(8, 8, 3, bias=False), nn.GroupNorm(2, 8), nn.Hardswish(), nn.Flatten(), nn.Linear(128, 5),
    )  # fmt: skip


@case(paired((4, 4, 9, 9), (4, 4, 17, 17)), regress)
def unusual_convolutions() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(4, 8, 3, padding="same", groups=2), nn.ReLU(), nn.Conv2d(8, 8, 3, padding=2, dilation=2), nn.ReLU(),
        nn.Conv2d(8, 6, (1, 3), padding=(0, 1)), nn.ReLU(), nn.ConvTranspose2d(6, 4, 3, stride=2, padding=1, groups=2),
    )  # fmt: skip


@case(IMAGES, classify)
def depthwise_separable() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 3, 3, padding=1, groups=3), nn.Conv2d(3, 8, 1), nn.ReLU6(),
        nn.Conv2d(8, 16, 3, stride=2, groups=8), nn.Conv2d(16, 8, 1), nn.Hardtanh(), nn.AvgPool2d(3), nn.Flatten(),
        nn.Linear(8, 5),
    )  # fmt: skip


@case(images, reconstruct)
def instance_norm() -> nn.Module:
    return nn.Sequential(
        nn.ReflectionPad2d(1), nn.Conv2d(3, 6, 3, bias=False), nn.InstanceNorm2d(6, affine=True), nn.Mish(),
        nn.ReplicationPad2d(1), nn.Conv2d(6, 6, 3, bias=False),
        nn.InstanceNorm2d(6, affine=True, track_running_stats=True), nn.Conv2d(6, 3, 1),
    )  # fmt: skip


class Attention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.enter = nn.Linear(width, 3 * width, bias=False)
        self.leave = nn.Linear(width, width)

    def forward(self, x: torch.Tensor, causal: bool = False) -> torch.Tensor:
        batch, length, width = x.shape
        split = self.enter(x).view(batch, length, 3, self.heads, width // self.heads)
        query, key, value = split.permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=causal)
        return self.leave(mixed.transpose(1, 2).reshape(batch, length, width))


class Block(nn.Module):
    def __init__(self, width: int, heads: int, causal: bool = False) -> None:
        super().__init__()
        self.causal = causal
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.feed = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.norm1(x), self.causal)
        return x + self.feed(self.norm2(x))


@case(IMAGES, classify, clip=0.5)
class VisionTransformer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, 8, 4, stride=4)
        self.summary = nn.Parameter(torch.randn(1, 1, 8) * 0.1)
        self.position = nn.Parameter(torch.randn(1, 5, 8) * 0.1)
        self.blocks = nn.Sequential(Block(8, 2), Block(8, 2))
        self.norm = nn.LayerNorm(8)
        self.head = nn.Linear(8, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        patches = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.summary.expand(len(x), -1, -1), patches], dim=1) + self.position
        return self.head(self.norm(self.blocks(x))[:, 0])


class MixerBlock(nn.Module):
    def __init__(self, patches: int, width: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.over_patches = nn.Sequential(nn.Linear(patches, 6), nn.GELU(approximate="tanh"), nn.Linear(6, patches))
        self.over_channels = nn.Sequential(nn.Linear(width, 16), nn.GELU(), nn.Linear(16, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.over_patches(self.norm1(x).mT).mT
        return x + self.over_channels(self.norm2(x))


@case(IMAGES, classify)
class Mixer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.enter = nn.Linear(48, 8)
        self.blocks = nn.Sequential(MixerBlock(4, 8), MixerBlock(4, 8))
        self.head = nn.Linear(8, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        patches = F.unfold(x, 4, stride=4).transpose(1, 2)
        return self.head(self.blocks(self.enter(patches)).mean(1))


@case(paired((2, 2, 6, 6, 6), (2, 3)), regress)
def conv3d() -> nn.Module:
    return nn.Sequential(
        nn.Conv3d(2, 4, 3, bias=False), nn.ELU(), nn.MaxPool3d(2), nn.Conv3d(4, 4, 1, bias=False), nn.BatchNorm3d(4),
        nn.AdaptiveAvgPool3d((1, 1, 2)), nn.Flatten(), nn.Linear(8, 3),
    )  # fmt: skip


@case(labelled((4, 3, 8, 8), 5), classify)
def squeeze_excitation() -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), Excitation(8), nn.AdaptiveMaxPool2d(2), nn.Flatten(), nn.Linear(32, 5))


class Excitation(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.gate = nn.Sequential(nn.Linear(width, 4), nn.ReLU(), nn.Linear(4, width), nn.Hardsigmoid())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.gate(x.mean((2, 3)))[:, :, None, None]
