"""Train a small diffusion model on scikit-learn's handwritten digits, and draw digits of the classes that are asked for.

$ python examples/diffusion.py --accelerator cpu --devices 2 --batch-size 64
loss 0.146; asked for 0 to 7:
Tracing the training step (first call) ...
  +@=       .+*=.     +@*       +#%*:      =%       *@@%*      #*.      =@@#-
  #*#=       #%%.    .#%@..    :%==*#      @*      -@+:.      -@-.      *-*%.
 :#-.*.     .#%#.    .==%.      -:=#:     =@:*.    +*  :      ##.      .= **
 .#- #-    .#@@*      -=#       .-@+     -@=*@.    -+==..    .#*-:       .#=
 -#  =+    :@@#+     .-*=         +%:    +%+%#:    .==##     .%%*#-    =*@%@#
 :%  :*     #%%:     .:--         .#-    =%*@%.       :#:     %=.+#    :+@%:.
  @::%-    .@@*-     .=#+*-.   .#*#%:     ==@:       .+*.     +#:*@.    -%:
  -@@=      .-#:      =@#*+:    *%%:       *%      .%@#:       +%@+     =*.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import systolic as L

SHADES = " .:-=+*#%@"


def drawn(images: torch.Tensor) -> str:
    """Images of 8x8 numbers from -1 to 1, side by side, a character for a pixel."""
    levels = ((images.clamp(-1, 1) + 1) / 2 * (len(SHADES) - 1)).round().long()
    return "\n".join("  ".join("".join(SHADES[i] for i in image[row]) for image in levels.tolist()) for row in range(8))


class Denoiser(nn.Module):
    """Says which noise is in an image, given how noisy it is and which digit it shows."""

    def __init__(self, width: int, steps: int) -> None:
        super().__init__()
        self.time, self.digit = nn.Embedding(steps, width), nn.Embedding(10, width)
        self.enter = nn.Linear(64, width)
        self.blocks = nn.ModuleList(nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width), nn.SiLU()) for _ in range(4))
        self.leave = nn.Linear(width, 64)

    def forward(self, images: torch.Tensor, times: torch.Tensor, digits: torch.Tensor) -> torch.Tensor:
        condition = self.time(times) + self.digit(digits)
        x = self.enter(images.flatten(1))
        for block in self.blocks:
            x = x + block(x + condition)
        return self.leave(x).view_as(images)


class Diffusion(L.LightningModule):
    """Denoising diffusion with a cosine schedule."""

    def __init__(self, width: int = 256, steps: int = 25, lr: float = 2e-3) -> None:
        super().__init__()
        self.lr, self.steps = lr, steps
        self.denoiser = Denoiser(width, steps)
        angle = torch.linspace(0, 1, steps + 1) * torch.pi / 2
        kept = torch.cos(angle * 0.98) ** 2
        self.register_buffer("kept", kept[1:])
        self.register_buffer("factor", kept[1:] / kept[:-1])

    def training_step(self, batch: list[torch.Tensor], batch_idx: int) -> torch.Tensor:
        images, digits = batch
        times = torch.randint(0, self.steps, (len(images),))
        noise = torch.randn_like(images)
        kept = self.kept[times][:, None, None]
        guess = self.denoiser(kept.sqrt() * images + (1 - kept).sqrt() * noise, times, digits)
        loss = F.mse_loss(guess, noise)
        self.log("loss", loss, on_step=False, on_epoch=True, prog_bar=True)
        return loss

    def predict_step(self, batch: list[torch.Tensor], batch_idx: int) -> torch.Tensor:
        """From noise to images of the digits in the batch; all steps are one program."""
        [digits] = batch
        images = torch.randn(len(digits), 8, 8)
        for time in reversed(range(self.steps)):
            factor, kept = self.factor[time], self.kept[time]
            noise = self.denoiser(images, torch.full_like(digits, time), digits)
            images = (images - (1 - factor) / (1 - kept).sqrt() * noise) / factor.sqrt()
            if time:
                images = images + (1 - factor).sqrt() * torch.randn_like(images)
        return images

    def configure_optimizers(self) -> dict[str, object]:
        optimizer = torch.optim.AdamW(self.parameters(), lr=self.lr)
        epochs = self.trainer.max_epochs
        return {"optimizer": optimizer, "lr_scheduler": torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs)}


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--accelerator", default="auto")
    parser.add_argument("--devices", default="auto")
    parser.add_argument("--batch-size", type=int, default=16, help="images per core")
    parser.add_argument("--epochs", type=int, default=400)
    parser.add_argument("--steps", type=int, default=25, help="from noise to image")
    options = parser.parse_args(words)
    L.seed_everything(0)
    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32) / 8 - 1
    data = TensorDataset(images, torch.tensor(digits.target))
    trainer = L.Trainer(
        accelerator=options.accelerator, devices=options.devices, max_epochs=options.epochs, log_every_n_steps=10
    )
    model = Diffusion(steps=options.steps)
    trainer.fit(model, DataLoader(data, batch_size=options.batch_size, shuffle=True, drop_last=True))
    asked = DataLoader(TensorDataset(torch.arange(8)), batch_size=8)
    print(f"loss {trainer.callback_metrics['loss']:.3f}; asked for 0 to 7:")
    print(drawn(torch.cat(trainer.predict(model, asked))))


if __name__ == "__main__":
    main()
