"""Batches for models of transformers, by what the model is asked to learn.

Four rows; the last two of a text are padded, and what is padding has the label -100, which no loss counts.
"""

from __future__ import annotations

import torch
from _models_row import Batch, MakeBatch
from _models_shrink import VOCABULARY
from torch import nn

BATCH, LENGTH = 4, 12
FIRST_WORD = 10  # the ids below are special tokens
IGNORED = -100
LABELS = 3


def words(length: int = LENGTH, rows: int = BATCH) -> torch.Tensor:
    """Random tokens, no special ones among them."""
    return torch.randint(FIRST_WORD, VOCABULARY, (rows, length))


def padding_mask(length: int = LENGTH) -> torch.Tensor:
    """One for words, zero for padding, as integers."""
    lengths = torch.tensor([length, length, length - 3, length // 2 + 1])
    return (torch.arange(length) < lengths[:, None]).long()


def text(length: int = LENGTH) -> Batch:
    """Tokens with their mask."""
    mask = padding_mask(length)
    return {"input_ids": words(length) * mask, "attention_mask": mask}


def causal(model: nn.Module) -> Batch:
    """Predict each token from those before it."""
    del model
    return _predicted(text())


def causal_long(model: nn.Module) -> Batch:
    """The same over 32 tokens, for layers that work in blocks."""
    del model
    return _predicted(text(32))


def _predicted(batch: Batch) -> Batch:
    return {**batch, "labels": batch["input_ids"].masked_fill(batch["attention_mask"] == 0, IGNORED)}


def unpadded(model: nn.Module) -> Batch:
    """Predict each token from those before it; no padding."""
    del model
    ids = words()
    return {"input_ids": ids, "labels": ids}


def masked(model: nn.Module) -> Batch:
    """Predict a third of the tokens."""
    del model
    return _masked(text())


def masked_long(model: nn.Module) -> Batch:
    """The same over 32 tokens."""
    del model
    return _masked(text(32))


def _masked(batch: Batch) -> Batch:
    hidden = (torch.rand(batch["input_ids"].shape) < 0.3) & (batch["attention_mask"] == 1)
    hidden[:, 0] = True
    labels = batch["input_ids"].masked_fill(~hidden, IGNORED)
    return {**batch, "input_ids": batch["input_ids"].masked_fill(hidden, 4), "labels": labels}


def translated(model: nn.Module) -> Batch:
    """From one text to another, shorter one; encoders that end with a token of their own have it."""
    del model
    source = text()
    target = words(8)
    target[2:, 5:] = IGNORED
    return {**source, "labels": target}


def one_label(model: nn.Module) -> Batch:
    """One class for each row of text."""
    del model
    return {**text(), "labels": torch.randint(0, LABELS, (BATCH,))}


def token_labels(model: nn.Module) -> Batch:
    """One class for each token."""
    del model
    batch = text()
    labels = torch.randint(0, LABELS, (BATCH, LENGTH)).masked_fill(batch["attention_mask"] == 0, IGNORED)
    return {**batch, "labels": labels}


def answers(model: nn.Module) -> Batch:
    """Where the answer begins and ends."""
    del model
    return {**text(), "start_positions": torch.randint(0, 6, (BATCH,)), "end_positions": torch.randint(0, 6, (BATCH,))}


def regression(model: nn.Module) -> Batch:
    """One real number for each row."""
    del model
    return {**text(), "labels": torch.randn(BATCH)}


def boxes() -> torch.Tensor:
    """A box on the page for each token."""
    corner = torch.randint(0, 400, (BATCH, LENGTH, 2))
    return torch.cat([corner, corner + torch.randint(1, 400, (BATCH, LENGTH, 2))], dim=-1)


def on_page(model: nn.Module) -> Batch:
    """Tokens with their boxes, one class for each."""
    return {**token_labels(model), "bbox": boxes()}


def image_side(model: nn.Module) -> int:
    """How many pixels an image of the model's configuration has; 64 where it does not say."""
    config = model.config
    side = config.__dict__.get("image_size", 64)
    return side[0] if isinstance(side, list | tuple) else side


def pixels(side: int, rows: int = BATCH) -> torch.Tensor:
    """Random images."""
    return torch.randn(rows, 3, side, side)


def image_label(model: nn.Module) -> Batch:
    """One class for each image."""
    return {"pixel_values": pixels(image_side(model)), "labels": torch.randint(0, LABELS, (BATCH,))}


def image_only(model: nn.Module) -> Batch:
    """Images alone."""
    return {"pixel_values": pixels(image_side(model))}


def image_classes(model: nn.Module) -> Batch:
    """One class for each pixel; 255 is ignored."""
    side = image_side(model)
    labels = torch.randint(0, LABELS, (BATCH, side, side))
    labels[:, :2] = 255
    return {"pixel_values": pixels(side), "labels": labels}


def depth(model: nn.Module) -> Batch:
    """A depth for each pixel, of models that compute their loss."""
    side = image_side(model)
    return {"pixel_values": pixels(side), "labels": torch.rand(BATCH, side, side) + 0.5}


def detected(model: nn.Module) -> Batch:
    """Two objects in each image."""
    side = image_side(model)
    found = [{"class_labels": torch.randint(0, LABELS, (2,)), "boxes": torch.rand(2, 4) * 0.4 + 0.2} for _ in range(2)]
    return {"pixel_values": pixels(side, 2), "labels": found}


def segmented(model: nn.Module) -> Batch:
    """Two objects in each image, with a mask for each."""
    side = 64
    masks = [(torch.rand(2, side, side) > 0.5).float() for _ in range(2)]
    return {"pixel_values": pixels(side, 2), "mask_labels": masks, "class_labels": [torch.tensor([0, 1]), torch.tensor([2, 1])]}


def video_label(model: nn.Module) -> Batch:
    """One class for each video of four frames."""
    side = image_side(model)
    return {"pixel_values": torch.randn(2, 4, 3, side, side), "labels": torch.randint(0, LABELS, (2,))}


def sound(samples: int = 1600) -> Batch:
    """Waves of two lengths."""
    mask = (torch.arange(samples) < torch.tensor([samples, samples, samples - 300, samples - 400])[:, None]).long()
    return {"input_values": torch.randn(BATCH, samples) * mask, "attention_mask": mask}


def sound_text(model: nn.Module) -> Batch:
    """The words that are spoken, by CTC."""
    del model
    labels = torch.randint(3, 30, (BATCH, 5))
    labels[2:, 3:] = IGNORED
    return {**sound(), "labels": labels}


def sound_label(model: nn.Module) -> Batch:
    """One class for each wave."""
    del model
    return {**sound(), "labels": torch.randint(0, LABELS, (BATCH,))}


def spectrum_text(frames: int, mels: int) -> MakeBatch:
    """From a spectrum [batch, mels, frames] to the words that are spoken."""
    return lambda model: {"input_features": torch.randn(BATCH, mels, frames), "labels": words(8)}
