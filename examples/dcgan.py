"""Train a small DCGAN on scikit-learn's handwritten digits by manual optimization, and draw what it makes.

$ python examples/dcgan.py --accelerator cpu --devices 2 --batch-size 32
  +%#.      :%*        %@       *#%-        %=:    .*%@%.      +#@@    .@@*
 .@#%#      @**%      :@+      .%+--       %+ -    -%..#.     -@+*#    .@*@.
 =@.%#     -%  %:     #@-      =%-*%      *@:-%    =%-*-      %- *%     ..@.
  ##@.     =%  -=    .@*=.     .#-@%.    =@=-@#    =@@%.      ...@*      :@.
  .%@      *%  =-    #@#@%=     +#%-     %@%@@-    .=.:-.     +@@@.     :@@
  %*:%     -@  -=    +@@@%.      .::     +%%@#      . .+      . @.      %# -
  @::@.     @-.%.    .#%@-      -:=+..      @.     #%.+:        @       @+*@:
  #%@*      *@@+       -%:      *+%%#:      @.     .*=*.       -=       @%@%:
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


class DCGAN(L.LightningModule):
    """Two networks, two optimizers, one compiled step."""

    def __init__(self, width: int = 32, noise: int = 32, lr: float = 1e-3) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.noise, self.lr = noise, lr
        self.generator = nn.Sequential(
            nn.ConvTranspose2d(noise, 2 * width, 2),
            nn.BatchNorm2d(2 * width),
            nn.ReLU(),
            nn.ConvTranspose2d(2 * width, width, 4, stride=2, padding=1),
            nn.BatchNorm2d(width),
            nn.ReLU(),
            nn.ConvTranspose2d(width, 1, 4, stride=2, padding=1),
            nn.Tanh(),
        )
        self.discriminator = nn.Sequential(
            nn.Conv2d(1, width, 4, stride=2, padding=1),
            nn.LeakyReLU(0.2),
            nn.Dropout(0.3),
            nn.Conv2d(width, 2 * width, 4, stride=2, padding=1),
            nn.BatchNorm2d(2 * width),
            nn.LeakyReLU(0.2),
            nn.Dropout(0.3),
            nn.Flatten(),
            nn.Linear(8 * width, 1),
        )

    def forward(self, noise: torch.Tensor) -> torch.Tensor:
        return self.generator(noise[:, :, None, None])

    def training_step(self, batch: list[torch.Tensor], batch_idx: int) -> None:
        real = batch[0]
        make, judge = self.optimizers()
        made = self(torch.randn(len(real), self.noise))

        self.toggle_optimizer(judge)
        on_real, on_made = self.discriminator(real), self.discriminator(made.detach())
        # 0.9 in place of 1: a judge that is too sure teaches the generator nothing
        judged = F.binary_cross_entropy_with_logits(on_real, torch.full_like(on_real, 0.9))
        judged = judged + F.binary_cross_entropy_with_logits(on_made, torch.zeros_like(on_made))
        judge.zero_grad()
        self.manual_backward(judged)
        judge.step()
        self.untoggle_optimizer(judge)

        self.toggle_optimizer(make)
        loss = F.softplus(-self.discriminator(made)).mean()
        make.zero_grad()
        self.manual_backward(loss)
        make.step()
        self.untoggle_optimizer(make)
        self.log_dict({"generator": loss, "discriminator": judged}, on_step=False, on_epoch=True, prog_bar=True)

    def predict_step(self, batch: list[torch.Tensor], batch_idx: int) -> torch.Tensor:
        return self(batch[0])

    def configure_optimizers(self) -> list[torch.optim.Optimizer]:
        networks = (self.generator, self.discriminator)
        return [torch.optim.Adam(network.parameters(), lr=self.lr, betas=(0.5, 0.999)) for network in networks]


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--accelerator", default="auto")
    parser.add_argument("--devices", default="auto")
    parser.add_argument("--batch-size", type=int, default=8, help="images per core")
    parser.add_argument("--epochs", type=int, default=60)
    parser.add_argument("--width", type=int, default=32, help="channels")
    options = parser.parse_args(words)
    L.seed_everything(0)
    images = torch.tensor(load_digits().images, dtype=torch.float32)[:, None] / 8 - 1
    trainer = L.Trainer(
        accelerator=options.accelerator, devices=options.devices, max_epochs=options.epochs, log_every_n_steps=10
    )
    model = DCGAN(options.width)
    trainer.fit(model, DataLoader(TensorDataset(images), batch_size=options.batch_size, shuffle=True, drop_last=True))
    noise = DataLoader(TensorDataset(torch.randn(8, model.noise)), batch_size=8)
    print(drawn(torch.cat(trainer.predict(model, noise))[:8, 0]))


if __name__ == "__main__":
    main()
