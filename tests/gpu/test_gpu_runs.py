"""Runs on a GPU equal eager PyTorch on the CPU. `make test-gpu` on a machine that has one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from loggers.log_readers import read_csv
from program_text import optimized_programs
from torch import nn
from torch.utils.data import DataLoader

import systolic as L
from systolic.callbacks import BatchSizeFinder, DeviceStatsMonitor
from systolic.exceptions import OutOfRangeError

# several workers' oracles would fight for the processors with PyTorch's threads
pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("one_thread")]

QUIET: dict[str, Any] = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
Batch = tuple[torch.Tensor, torch.Tensor]


class Convolutions(nn.Module):
    """Convolutions, strided and depthwise, batch norm, pooling."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(16, 16, 3, 1, 1, groups=16), nn.BatchNorm2d(16), nn.SiLU(),
            nn.Conv2d(16, 32, 3, 2, 1), nn.GELU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10),
        )  # fmt: skip

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)


class Recurrent(nn.Module):
    """A bidirectional LSTM over embedded tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(64, 32)
        self.lstm = nn.LSTM(32, 48, 2, batch_first=True, bidirectional=True)
        self.head = nn.Linear(96, 64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.lstm(self.tokens(x))[0])


class Decoder(nn.Module):
    """transformers' GPT-2, small, without dropout."""

    def __init__(self, **changes: Any) -> None:
        super().__init__()
        from transformers import GPT2Config, GPT2LMHeadModel

        sizes: dict[str, Any] = {"vocab_size": 64, "n_positions": 64, "n_embd": 128, "n_layer": 2, "n_head": 2}
        rates: dict[str, Any] = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
        self.model = GPT2LMHeadModel(GPT2Config(**{**sizes, **rates, **changes}))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.model(input_ids=x).logits


class Encoder(nn.Module):
    """transformers' BERT, small, without dropout, with padding masked."""

    def __init__(self) -> None:
        super().__init__()
        from transformers import BertConfig, BertForMaskedLM

        sizes: dict[str, Any] = {"vocab_size": 64, "hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 2}
        rates: dict[str, Any] = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
        self.model = BertForMaskedLM(BertConfig(num_attention_heads=2, **sizes, **rates))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.model(input_ids=x, attention_mask=(x != 0).long()).logits


def digits(count: int) -> list[Batch]:
    """Batches of 32 pictures, 3 x 16 x 16, of scikit-learn's digits."""
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    pixels = torch.tensor(images, dtype=torch.float32).view(-1, 1, 8, 8) / 16
    pixels = F.interpolate(pixels, size=16).expand(-1, 3, -1, -1).contiguous()
    return list(zip(pixels.split(32)[:count], torch.tensor(labels).split(32)[:count], strict=True))


def texts(count: int) -> list[Batch]:
    """Batches of 8 pieces of Python's documentation, 64 letters each, the last ones padded with 0."""
    from pydoc_data import topics

    text = torch.frombuffer(bytearray("".join(topics.topics.values()).encode()), dtype=torch.uint8).long() % 63 + 1
    rows = text[: count * 8 * 65].view(-1, 65)
    lengths = torch.arange(count * 8).remainder(8).mul(6)
    padded = rows.masked_fill(torch.arange(65) >= 65 - lengths[:, None], 0)
    return [(piece[:, :-1].contiguous(), piece[:, 1:].contiguous()) for piece in padded.split(8)]


def loss_of(network: nn.Module, batch: Batch) -> torch.Tensor:
    logits = network(batch[0])
    return F.cross_entropy(logits.reshape(-1, logits.shape[-1]), batch[1].reshape(-1))


class Module(L.LightningModule):
    """Keeps the loss of every step."""

    def __init__(self, network: nn.Module, optimizer: Callable[..., torch.optim.Optimizer]) -> None:
        super().__init__()
        self.network, self.optimizer = network, optimizer

    def training_step(self, batch: Batch, batch_idx: int) -> torch.Tensor:
        loss = loss_of(self.network, batch)
        self.log("loss", loss, on_epoch=True)
        return loss

    def predict_step(self, batch: Batch, batch_idx: int) -> torch.Tensor:
        return self.network(batch[0])

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return self.optimizer(self.parameters())


class Losses(L.Callback):
    """The loss of every step of a run."""

    def __init__(self) -> None:
        self.values: list[float] = []

    def on_train_batch_end(self, trainer: Any, module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        self.values.append(float(outputs["loss"]))


def momentum(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.05, momentum=0.9)


def adamw(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, lr=1e-3)


def fitted(network: nn.Module, batches: list[Batch], optimizer: Callable[..., Any], **options: Any) -> list[float]:
    """Losses of a fit on the GPU."""
    losses = Losses()
    options = {"accelerator": "gpu", "max_epochs": 1, "enable_checkpointing": False, **options}
    trainer = L.Trainer(devices=1, callbacks=[losses], **QUIET, **options)
    trainer.fit(Module(network, optimizer), DataLoader(batches, batch_size=None))
    return losses.values


def eager(network: nn.Module, batches: list[Batch], optimizer: Callable[..., Any], narrow: bool = False) -> list[float]:
    """Losses of the same training, op by op on the CPU."""
    stepping, losses = optimizer(network.parameters()), []
    for batch in batches:
        stepping.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=narrow):
            loss = loss_of(network, batch)
        loss.backward()
        stepping.step()
        losses.append(loss.item())
    return losses


@dataclass(frozen=True)
class Row:
    """A network, its batches, its optimizer, and whether cuDNN's attention is in its program for bfloat16."""

    network: Callable[[], nn.Module]
    batches: Callable[[int], list[Batch]]
    optimizer: Callable[..., torch.optim.Optimizer]
    fused_attention: bool = False


ROWS = {
    "convolutions": Row(Convolutions, digits, momentum),
    "recurrent": Row(Recurrent, texts, momentum),
    "decoder": Row(Decoder, texts, adamw, fused_attention=True),
    "encoder": Row(Encoder, texts, adamw, fused_attention=True),
}


def twins(row: Row) -> tuple[nn.Module, nn.Module]:
    one, other = row.network(), row.network()
    other.load_state_dict(one.state_dict())
    return one.train(), other.train()


@pytest.mark.parametrize("name", ROWS)
def test_float32_equals_eager(name: str) -> None:
    row, batches = ROWS[name], ROWS[name].batches(12)
    on_gpu, on_cpu = twins(row)
    received, expected = fitted(on_gpu, batches, row.optimizer), eager(on_cpu, batches, row.optimizer)
    torch.testing.assert_close(torch.tensor(received), torch.tensor(expected), rtol=2e-4, atol=1e-5)
    for (key, got), want in zip(on_gpu.state_dict().items(), on_cpu.state_dict().values(), strict=True):
        torch.testing.assert_close(got.cpu(), want, rtol=1e-3, atol=2e-4, msg=lambda text, key=key: f"{key}: {text}")


# without the LSTM: eager PyTorch computes it in bfloat16 on few processors only
@pytest.mark.parametrize("name", [name for name in ROWS if name != "recurrent"])
def test_bfloat16_equals_eager(name: str) -> None:
    row, batches = ROWS[name], ROWS[name].batches(12)
    on_gpu, on_cpu = twins(row)
    with optimized_programs() as programs:
        received = fitted(on_gpu, batches, row.optimizer, precision="bf16-mixed")
    expected = eager(on_cpu, batches, row.optimizer, narrow=True)
    torch.testing.assert_close(torch.tensor(received), torch.tensor(expected), rtol=2e-2, atol=1e-3)
    assert any("__cudnn$fmha" in text for text in programs) == row.fused_attention


def test_dropout_draws_the_same_again_and_something_else_for_another_seed() -> None:
    def run(seed: int) -> list[float]:
        L.seed_everything(seed)
        network = Decoder(resid_pdrop=0.3, embd_pdrop=0.3)
        L.seed_everything(seed + 1)
        return fitted(network, texts(6), adamw)

    first = run(1)
    assert first == run(1)
    assert first != run(2)


def test_a_checkpoint_of_a_gpu_goes_on_on_the_cpu() -> None:
    row, batches = ROWS["convolutions"], digits(8)
    whole, part = twins(row)
    expected = eager(whole, batches * 2, row.optimizer)
    trainer = L.Trainer(accelerator="gpu", devices=1, max_epochs=1, **QUIET)
    trainer.fit(Module(part, row.optimizer), DataLoader(batches, batch_size=None))
    trainer.save_checkpoint("one.ckpt")
    losses = Losses()
    options = {"max_epochs": 2, "callbacks": [losses], "enable_checkpointing": False, **QUIET}
    on_cpu = L.Trainer(accelerator="cpu", devices=1, **options)
    module = Module(row.network(), row.optimizer)
    on_cpu.fit(module, DataLoader(batches, batch_size=None), ckpt_path="one.ckpt")
    torch.testing.assert_close(torch.tensor(losses.values), torch.tensor(expected[8:]), rtol=2e-4, atol=1e-5)
    saved = torch.load("one.ckpt", weights_only=True)
    assert all(tensor.device.type == "cpu" for tensor in saved["state_dict"].values())


def test_predictions_equal_eager() -> None:
    network, batches = Convolutions().eval(), digits(3)
    trainer = L.Trainer(accelerator="gpu", devices=1, **QUIET)
    received = trainer.predict(Module(network, momentum), DataLoader(batches, batch_size=None))
    assert received is not None
    for got, batch in zip(received, batches, strict=True):
        torch.testing.assert_close(got.cpu(), network(batch[0]), rtol=1e-4, atol=1e-5)


def test_an_index_out_of_range_is_refused() -> None:
    class Looks(Module):
        def training_step(self, batch: Batch, batch_idx: int) -> torch.Tensor:
            return super().training_step((batch[0] + 60, batch[1]), batch_idx)

    trainer = L.Trainer(accelerator="gpu", devices=1, max_epochs=1, enable_checkpointing=False, **QUIET)
    with pytest.raises(OutOfRangeError, match="Expected: 0 to 63"):
        trainer.fit(Looks(Recurrent(), momentum), DataLoader(texts(2), batch_size=None))


def test_a_jitted_function_is_as_exact_as_eager() -> None:
    x, y = torch.randn(256, 512), torch.randn(512, 128)
    # TensorFloat-32 would be off by a thousandth
    torch.testing.assert_close(L.jit(torch.matmul)(x, y).cpu(), x @ y, rtol=1e-5, atol=1e-4)


def test_auto_is_the_gpu() -> None:
    assert L.Trainer(**QUIET).run.config.platform == "gpu"


def test_several_steps_a_dispatch() -> None:
    batches = texts(12)
    one, other = twins(ROWS["recurrent"])
    for network, size in ((one, 4), (other, 1)):
        options = {"max_epochs": 1, "enable_checkpointing": False, "steps_per_dispatch": size, **QUIET}
        trainer = L.Trainer(accelerator="gpu", devices=1, **options)
        trainer.fit(Module(network, momentum), DataLoader(batches, batch_size=None))
    for got, want in zip(one.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(got.cpu(), want.cpu(), rtol=1e-5, atol=1e-6)


def test_memory_is_logged(tmp_path: Path) -> None:
    logger = L.loggers.CSVLogger(tmp_path)
    options = {**QUIET, "logger": logger, "log_every_n_steps": 1, "enable_checkpointing": False}
    trainer = L.Trainer(accelerator="gpu", devices=1, max_epochs=1, callbacks=[DeviceStatsMonitor()], **options)
    trainer.fit(Module(Convolutions(), momentum), DataLoader(digits(2), batch_size=None))
    (name,) = [name for name in read_csv(logger.log_dir) if name.endswith("batch_end/gpu:0/peak_bytes_in_use")]
    assert all(value > sum(p.nbytes for p in Convolutions().parameters()) for _, value in read_csv(logger.log_dir)[name])


def test_the_batch_size_finder_survives_a_full_gpu() -> None:
    class Wide(L.LightningModule):
        """A row of the batch takes a GiB and more."""

        def __init__(self) -> None:
            super().__init__()
            self.batch_size, self.layer = 2, nn.Linear(64, 256)

        def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
            return self.layer(batch[0][:, :1, None].expand(-1, 1 << 20, 64)).relu().square().mean()

        def train_dataloader(self) -> DataLoader[Any]:
            data = torch.utils.data.TensorDataset(torch.randn(512, 4))
            return DataLoader(data, batch_size=self.batch_size)

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), lr=0.1)

    module, finder = Wide(), BatchSizeFinder(steps_per_trial=1, init_val=2)
    options = {"max_steps": 1, "enable_checkpointing": False, "callbacks": [finder], **QUIET}
    L.Trainer(accelerator="gpu", devices=1, **options).fit(module)
    assert 2 <= module.batch_size < 512
