"""Modules made on the meta device train from the values that making them on the CPU gives."""

import gc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch.utils.data import DataLoader

import systolic as L
from systolic.exceptions import MisconfigurationException
from systolic.strategies import ModelParallel


class Net(L.LightningModule):
    def __init__(self, device: str, extra: torch.nn.Module | None = None) -> None:
        super().__init__()
        self.made_on, self.losses = device, []
        self.head = torch.nn.Linear(64, 1)
        self.extra = extra

    def configure_model(self) -> None:
        with torch.device(self.made_on):
            self.first = torch.nn.Linear(64, 64)
            self.attention = torch.nn.MultiheadAttention(64, 4, batch_first=True)
            self.norm = torch.nn.BatchNorm1d(64)
            self.lstm = torch.nn.LSTM(64, 64, batch_first=True)
            self.wide = torch.nn.Linear(64, 512)
            self.narrow = torch.nn.Linear(512, 64)
            self.tied = torch.nn.Linear(64, 64)
            self.tied.weight = self.first.weight

    def on_fit_start(self) -> None:
        self.start = {name: value.detach().cpu().clone() for name, value in self.state_dict().items()}

    def training_step(self, batch, batch_idx):
        x = self.first(batch)
        x = self.norm(x + self.attention(x[:, None], x[:, None], x[:, None])[0][:, 0])
        x = self.narrow(self.wide(self.lstm(x[:, None])[0][:, 0]).relu())
        loss = self.head(self.tied(x)).square().mean()
        return loss

    def on_train_batch_end(self, outputs, batch, batch_idx):
        self.losses.append(float(outputs["loss"]))

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)


def fit(model: L.LightningModule, rows: torch.Tensor, ckpt_path: str | None = None, **options: Any) -> L.Trainer:
    options = {"devices": 4, "max_epochs": 1, "enable_checkpointing": False} | options
    trainer = L.Trainer(accelerator="cpu", logger=False, enable_progress_bar=False, **options)
    trainer.fit(model, DataLoader(rows, batch_size=4), ckpt_path=ckpt_path)
    return trainer


def fitted(device: str, extra: torch.nn.Module | None = None, **options: Any) -> Net:
    torch.manual_seed(0)
    rows = torch.randn(64, 64)
    model = Net(device, extra)
    fit(model, rows, **options)
    return model


OPTIONS: dict[str, dict[str, Any]] = {
    "ddp": {},
    "ddp_sharded": {"strategy": "ddp_sharded"},
    "fsdp": {"strategy": "fsdp"},
    "hsdp": {"strategy": "hsdp"},
    "tensor": {"strategy": ModelParallel(data=2, fsdp=1, tensor=2, plan={"first": "colwise", "tied": "rowwise"})},
    "bfloat16": {"strategy": "fsdp", "precision": "bf16-true"},
    "one device": {"devices": 1},
    "eager": {"devices": 1, "compile": False},
}


@pytest.mark.parametrize("name", OPTIONS)
def test_values_and_losses_are_those_of_the_cpu(name: str) -> None:
    eager, meta = fitted("cpu", **OPTIONS[name]), fitted("meta", **OPTIONS[name])
    assert eager.start.keys() == meta.start.keys()
    assert all(torch.equal(value, meta.start[name]) for name, value in eager.start.items())
    assert len(meta.losses) == len(eager.losses) > 0
    assert eager.losses == meta.losses
    assert meta.tied.weight is meta.first.weight
    assert all(type(p) is torch.nn.Parameter and p.device.type == "cpu" for p in meta.parameters())


def test_a_checkpoint_fills_them(tmp_path: Path) -> None:
    torch.manual_seed(0)
    rows, first = torch.randn(64, 64), Net("cpu")
    fit(first, rows, strategy="fsdp").save_checkpoint(tmp_path / "one.ckpt")
    again, meta = Net("cpu"), Net("meta")
    for model in (again, meta):
        fit(model, rows, str(tmp_path / "one.ckpt"), strategy="fsdp", max_epochs=2)
    assert len(meta.losses) == 4
    assert again.losses == meta.losses


def test_a_run_that_fails_before_its_first_step_gives_the_tensors_back() -> None:
    class Failing(Net):
        def configure_optimizers(self):
            raise ValueError("no optimizer")

    model = Failing("meta")
    with pytest.raises(ValueError, match="no optimizer"):
        fit(model, torch.randn(64, 64), strategy="fsdp")
    assert all(type(p) is torch.nn.Parameter and p.device.type == "cpu" for p in model.parameters())


class Bare(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = torch.nn.Parameter(torch.ones(3, device="meta"))


class Forgetful(Bare):
    def reset_parameters(self) -> None:
        pass


@pytest.mark.parametrize(
    ("kind", "words"), [(Bare, "'scale' of .*'extra'.*no `reset_parameters`"), (Forgetful, "left 'scale'")]
)
def test_what_cannot_be_initialised_is_named(kind: type[torch.nn.Module], words: str) -> None:
    with pytest.raises(MisconfigurationException, match=words):
        fitted("cpu", kind())


def test_the_host_holds_one_submodule_at_a_time() -> None:
    held: list[int] = []

    def bytes_on_the_host() -> int:
        tensors = [t for t in gc.get_objects() if type(t) in (torch.nn.Parameter, torch.Tensor) and t.layout == torch.strided]
        return sum(t.nbytes for t in tensors if t.device.type == "cpu")

    class Counting(torch.nn.Linear):
        def reset_parameters(self) -> None:
            super().reset_parameters()
            if not self.weight.is_meta:
                held.append(bytes_on_the_host() - before)

    class Deep(Net):
        def configure_model(self) -> None:
            with torch.device("meta"):
                self.layers = torch.nn.Sequential(*(Counting(512, 512) for _ in range(16)))

        def training_step(self, batch, batch_idx):
            return self.layers(batch).square().mean()

    before = bytes_on_the_host()
    held.clear()
    fit(Deep("meta"), torch.randn(32, 512), strategy="fsdp")
    assert len(held) == 16
    layer = 4 * 512 * 513
    assert layer <= max(held) < 1.5 * layer


def llama(tied: bool) -> torch.nn.Module:
    sizes = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4}
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(vocab_size=512, tie_word_embeddings=tied, **sizes))


def bert() -> torch.nn.Module:
    sizes = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4}
    return transformers.BertForMaskedLM(transformers.BertConfig(vocab_size=512, **sizes))


def t5() -> torch.nn.Module:
    return transformers.T5ForConditionalGeneration(
        transformers.T5Config(
            vocab_size=512, d_model=64, d_kv=16, d_ff=128, num_layers=2, num_heads=4, decoder_start_token_id=0
        )
    )


MODELS: dict[str, Callable[[], torch.nn.Module]] = {
    "llama": lambda: llama(False),
    "llama, tied": lambda: llama(True),
    "gpt2": lambda: transformers.GPT2LMHeadModel(transformers.GPT2Config(vocab_size=512, n_embd=64, n_layer=2, n_head=4)),
    "bert": bert,
    "t5": t5,
}


class Language(L.LightningModule):
    def __init__(self, make: Callable[[], torch.nn.Module], device: str) -> None:
        super().__init__()
        self.make, self.made_on = make, device
        self.start: dict[str, torch.Tensor] = {}

    def configure_model(self) -> None:
        with torch.device(self.made_on):
            self.net = self.make()

    def on_fit_start(self) -> None:
        tensors = (*self.named_parameters(), *self.named_buffers())
        self.start = {name: value.detach().cpu().clone() for name, value in tensors}

    def training_step(self, batch, batch_idx):
        return self.net(input_ids=batch, labels=batch).loss

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), 1e-3)


@pytest.mark.parametrize("name", MODELS)
def test_models_of_transformers_have_the_values_of_their_constructors(name: str) -> None:
    models = []
    for device in ("cpu", "meta"):
        torch.manual_seed(0)
        words = torch.randint(0, 512, (16, 12))
        model = Language(MODELS[name], device)
        fit(model, words, strategy="fsdp")
        models.append(model)
    eager, meta = models
    assert eager.start.keys() == meta.start.keys()
    different = [key for key, value in eager.start.items() if not torch.equal(value, meta.start[key])]
    assert not different
    torch.testing.assert_close(dict(meta.named_parameters()), dict(eager.named_parameters()), rtol=0, atol=0)
