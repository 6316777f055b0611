"""Settings that a step makes at its first run are no reason to trace it twice, where that is sure; else it is, and is right."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
from beside_lightning import Method, beside_lightning, module_of, trainer_of
from torch.utils.data import DataLoader
from transformers import BertConfig, BertForSequenceClassification, LlamaConfig, LlamaForCausalLM

import systolic


@dataclasses.dataclass
class Config:
    classes: int = 3
    kind: str | None = None
    scale: float | None = None


def _chosen(self: Any, batch: Any, i: int) -> torch.Tensor:
    if self.config.kind is None:
        if self.config.classes == 1:
            self.config.kind = "regression"
        elif self.config.classes > 1 and batch[1].dtype in (torch.long, torch.int):
            self.config.kind = "single"
        else:
            self.config.kind = "multi"
    return self.loss(batch) * (2 if self.config.kind == "single" else 3)


def _two_settings(self: Any, batch: Any, i: int) -> torch.Tensor:
    config = self.config
    if config.scale is None:
        config.scale = 0.5
    if config.kind is None:
        config.kind = "single"
    return self.loss(batch) * config.scale + len(config.kind)


def _read_before(self: Any, batch: Any, i: int) -> torch.Tensor:
    loss = self.loss(batch) * (5 if self.config.kind is None else 1)
    return loss + _two_settings(self, batch, i)


def _otherwise(self: Any, batch: Any, i: int) -> torch.Tensor:
    scale = 1
    if self.config.kind is None:
        self.config.kind = "single"
    else:
        scale = 2
    return self.loss(batch) * scale


def _does_more(self: Any, batch: Any, i: int) -> torch.Tensor:
    scale = 1
    if self.config.kind is None:
        self.config.kind = "single"
        scale = 4
    return self.loss(batch) * scale


def _counts(self: Any, batch: Any, i: int) -> torch.Tensor:
    if self.config.kind is None:
        self.config.kind = self.count()
    return self.loss(batch)


def _looked_through(self: Any, batch: Any, i: int) -> torch.Tensor:
    filled = [value for value in vars(self.config).values() if value is not None]
    if self.config.kind is None:
        self.config.kind = "single"
    return self.loss(batch) * len(filled)


def _by_name(self: Any, batch: Any, i: int) -> torch.Tensor:
    scale = 3 if getattr(self.config, "kind", None) else 1
    if self.config.kind is None:
        self.config.kind = "single"
    return self.loss(batch) * scale


def _with_config(module: Any) -> None:
    module.config = Config()
    module.counted = []
    module.count = lambda: str(len(module.counted))


ONCE: dict[str, Method] = {"chosen": _chosen, "two settings": _two_settings}
TWICE: dict[str, Method] = {
    "read before": _read_before, "otherwise": _otherwise, "does more": _does_more, "counts": _counts,
    "looked through": _looked_through, "by name": _by_name,
}  # fmt: skip


@pytest.mark.thin(2)
@pytest.mark.parametrize("name", [*ONCE, *TWICE])
def test_steps_equal_lightnings(name: str) -> None:
    step = {**ONCE, **TWICE}[name]
    held = lambda module: dataclasses.asdict(module.config)  # noqa: E731
    module = beside_lightning({"training_step": step}, held, prepare=_with_config)
    assert len(module.trainer.compiles) == (1 if name in ONCE else 2)


def test_a_setting_that_is_taken_back_is_made_again() -> None:
    def on_train_epoch_start(self: Any) -> None:
        if self.current_epoch == 1:
            self.config.kind = None

    beside_lightning(
        {"training_step": _chosen, "on_train_epoch_start": on_train_epoch_start}, lambda m: m.config.kind, prepare=_with_config
    )


def test_a_preflight_leaves_it_to_the_step() -> None:
    module = module_of(systolic, {"training_step": _chosen}, _with_config)
    trainer_of(systolic, devices=8).preflight(module, DataLoader([(torch.zeros(4), 0)] * 16, batch_size=2), slice="v5litepod-8")
    assert module.config.kind is None


SMALL = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32, "vocab_size": 50}
MODELS: dict[str, Any] = {
    "problem_type": lambda: BertForSequenceClassification(BertConfig(num_labels=3, **SMALL)),
    "hidden states": lambda: LlamaForCausalLM(LlamaConfig(output_hidden_states=True, **SMALL)),
}


@pytest.mark.thin(2)
@pytest.mark.parametrize("name", MODELS)
def test_models_of_transformers_are_traced_once(name: str) -> None:
    torch.manual_seed(0)
    model = MODELS[name]()
    tokens = torch.randint(0, 50, (24, 8))
    labels = torch.arange(24) % 3 if name == "problem_type" else tokens

    def training_step(self: Any, batch: Any, i: int) -> torch.Tensor:
        out = model(input_ids=batch[0], labels=batch[1])
        return out.loss + (out.hidden_states[1].pow(2).mean() if name == "hidden states" else 0)

    def prepare(module: Any) -> None:
        module.model = model

    module = module_of(systolic, {"training_step": training_step}, prepare)
    trainer = trainer_of(systolic)
    trainer.fit(module, DataLoader(list(zip(tokens, labels, strict=True)), batch_size=8))
    assert [one.reason for one in trainer.compiles] == ["first call"]
    hooks = sum(len(one._forward_hooks) for one in model.modules())
    assert (hooks > 0) == (name == "hidden states")
