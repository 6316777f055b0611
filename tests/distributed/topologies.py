"""Digits, and a small model of text, trained by one of some processes on eight cores or one; what came of it as JSON."""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader, Subset, TensorDataset

import systolic as L
from systolic import distributed
from systolic.callbacks import EarlyStopping, ModelCheckpoint
from systolic.strategies import ModelParallel

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))
from digits import DigitClassifier, loaders


class Recorded(L.LightningModule):
    """What both have: losses of the epochs, and predictions."""

    def predict_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        return self(batch[0])


class Digits(DigitClassifier, Recorded):
    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.net(images)

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        loss = super().training_step(batch, batch_idx)
        self.log("loss", loss, on_step=False, on_epoch=True)
        return loss


class Language(Recorded):
    """A model of sequences of 32 words, of which the next one is to be told."""

    def _loss(self, batch: Any) -> torch.Tensor:
        return F.cross_entropy(self(batch[0])[:, :-1].flatten(0, 1), batch[0][:, 1:].flatten())

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        loss = self._loss(batch)
        self.log("loss", loss, on_step=False, on_epoch=True)
        return loss

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("val_loss", self._loss(batch))


class Text(Language):
    """Two layers of attention."""

    def __init__(self) -> None:
        super().__init__()
        self.table = torch.nn.Embedding(32, 16)
        # without biases: that of the keys has no gradient but rounding, which AdamW makes a step of
        layer = torch.nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True, bias=False)
        self.layers = torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = torch.nn.Linear(16, 32)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        mask = torch.nn.Transformer.generate_square_subsequent_mask(tokens.shape[1], device=tokens.device)
        return self.head(self.layers(self.table(tokens), mask=mask, is_causal=True))

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), 3e-3)


class Library(Language):
    """A model of transformers with tied embeddings, whose own plan says what tensor parallelism divides."""

    def __init__(self, kind: str) -> None:
        import transformers  # takes seconds, which the other kinds need not wait

        super().__init__()
        sizes = {"vocab_size": 32, "use_cache": False}
        if kind == "gpt2":
            dropouts = {"embd_pdrop": 0.0, "attn_pdrop": 0.0, "resid_pdrop": 0.0}
            config = transformers.GPT2Config(n_layer=2, n_embd=64, n_head=4, n_positions=16, **dropouts, **sizes)
            self.net: Any = transformers.GPT2LMHeadModel(config)
            return
        sizes |= {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4}
        sizes |= {"max_position_embeddings": 16}
        if kind == "llama":
            tied = transformers.LlamaConfig(num_key_value_heads=2, tie_word_embeddings=True, **sizes)
            self.net = transformers.LlamaForCausalLM(tied)
        else:
            dropouts = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
            self.net = transformers.BertForMaskedLM(transformers.BertConfig(**dropouts, **sizes))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.net(input_ids=tokens, attention_mask=torch.ones_like(tokens)).logits

    def configure_optimizers(self) -> torch.optim.Optimizer:
        # not Adam's: the biases of keys have no gradient but rounding, of which it would make a step
        return torch.optim.SGD(self.parameters(), 0.1, momentum=0.9)


class Losses(L.Callback):
    """Every epoch's values, and what share of the weights is on a core."""

    def __init__(self) -> None:
        self.values: list[list[float]] = []
        self.share = 1.0

    def on_train_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self.values.append([float(trainer.callback_metrics[name]) for name in ("loss", "val_loss")])
        # small parameters lie together in one array
        arrays = {id(a): a for a in (p._cell.buffer.array for p in pl_module.parameters())}.values()
        self.share = sum(a.addressable_shards[0].data.nbytes for a in arrays) / sum(a.nbytes for a in arrays)


def data_of(kind: str, batch: int) -> tuple[L.LightningModule, DataLoader[Any], DataLoader[Any]]:
    """The module and its loaders; 94 samples for training in batches of 32 and 37 for validation divide by nothing."""
    if kind == "digits":
        train, validation = (loader.dataset for loader in loaders(batch))
        module: L.LightningModule = Digits(hidden=128)
        train, validation = Subset(train, range(94)), Subset(validation, range(37))
    else:
        words = torch.randint(0, 8, (131, 12), generator=torch.Generator().manual_seed(5)).cumsum(1) % 32
        module = Text() if kind == "text" else Library(kind)
        train, validation = TensorDataset(words[:94]), TensorDataset(words[94:])
    return module, DataLoader(train, batch_size=batch, shuffle=True), DataLoader(validation, batch_size=batch)


STRATEGIES: dict[str, str | ModelParallel] = {
    "auto": "auto",
    "fsdp": "fsdp",
    "hsdp": "hsdp",
    "tensor": ModelParallel(fsdp=4, tensor=2, plan={"net.0": "colwise", "net.2": "rowwise"}),
    "own plan": ModelParallel(fsdp=4, tensor=2),
    "mix": ModelParallel(data=2, fsdp=2, tensor=2),
}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("directory", type=Path)
    parser.add_argument("--kind", choices=["digits", "text", "gpt2", "llama", "bert"], default="digits")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--steps-per-dispatch", type=int, default=1)
    parser.add_argument("--stops", action="store_true")
    parser.add_argument("--strategy", choices=STRATEGIES, default="auto")
    options = parser.parse_args()
    distributed.join_processes()
    cores = int(os.environ["JAX_NUM_CPU_DEVICES"])
    L.seed_everything(3)
    strategy = STRATEGIES[options.strategy]
    sharing = strategy.tensor if isinstance(strategy, ModelParallel) else 1  # so many cores compute with the same samples
    module, train, validation = data_of(options.kind, 32 * sharing // (cores * distributed.process_count()))
    losses, early = Losses(), EarlyStopping("val_loss", patience=1, min_delta=1e9)
    trainer = L.Trainer(
        accelerator="cpu", devices=cores, strategy=strategy, max_epochs=options.epochs, logger=False, default_root_dir=options.directory,
        callbacks=[losses, ModelCheckpoint(options.directory, save_last=True), *([early] if options.stops else [])],
        enable_progress_bar=False, enable_model_summary=False, advice=False, steps_per_dispatch=options.steps_per_dispatch,
    )  # fmt: skip
    trainer.fit(module, train, validation, ckpt_path="last")
    [values] = trainer.validate(module, validation, verbose=False)
    predictions = trainer.predict(module, validation)
    sys.stdout.write(
        json.dumps(
            {
                "process": trainer.global_rank,
                "steps": trainer.global_step,
                "losses": losses.values,
                "share": losses.share,
                "validated": values["val_loss"],
                "weights": [value for p in module.parameters() for value in p.detach().flatten().tolist()],
                "predictions": [row.flatten().tolist() for batch in predictions for row in batch],
                "sizes": [len(batch) for batch in predictions],
            }
        )
        + "\n"
    )


if __name__ == "__main__":
    main()
