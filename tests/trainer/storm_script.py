"""The process that the storm test kills: trains, and goes on from its last checkpoint."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch
from trainer.resuming import LOADERS, Counting, Losses, Model, Rows, Story, columns  # noqa: I001

import systolic as L


def main(path: Path, compiled: bool, epochs: int) -> None:
    """Fit with everything that has a state, and leave the end in `end.pt`."""
    torch.set_num_threads(1)
    L.seed_everything(3)
    story = Story()
    options: dict[str, Any] = {
        "accelerator": "cpu", "devices": 1, "compile": compiled, "max_epochs": epochs, "enable_progress_bar": False,
        "enable_model_summary": False, "accumulate_grad_batches": 2, "val_check_interval": 3, "advice": False,
        "default_root_dir": path, "logger": Rows(),
    }  # fmt: skip
    counting = Counting()
    keeps = L.callbacks.ModelCheckpoint(path / "kept", every_n_train_steps=1, save_last=True, save_top_k=1)
    trainer = L.Trainer(**options, callbacks=[Losses(story), counting, keeps])
    module = Model(total_steps=8 * epochs)
    val = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(*columns(8)), batch_size=4)
    trainer.fit(module, LOADERS["workers"](), val, ckpt_path="last")
    trainer.save_checkpoint(path / "end.ckpt")
    end = torch.load(path / "end.ckpt", weights_only=True)
    kept = {name: end[name] for name in ("state_dict", "optimizer_states", "lr_schedulers", "global_step")}
    torch.save({**kept, "counts": counting.state_dict()}, path / "end.pt.new")
    (path / "end.pt.new").rename(path / "end.pt")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2] == "compiled", int(sys.argv[3]))
