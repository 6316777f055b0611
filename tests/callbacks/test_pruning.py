"""ModelPruning: the weights of every epoch, and the checkpoints, are those of Lightning's callback."""

from __future__ import annotations

import copy
import logging
from typing import Any

import pytest
import torch
from torch.nn.utils import prune
from torch.utils.data import DataLoader, TensorDataset

import systolic as L
from systolic.callbacks import ModelPruning

lightning = pytest.importorskip("lightning.pytorch")

QUIET = {"accelerator": "cpu", "devices": 1, "logger": False, "enable_progress_bar": False, "enable_model_summary": False}


class Threshold(prune.BasePruningMethod):
    PRUNING_TYPE = "unstructured"

    def __init__(self, amount: float) -> None:
        self.amount = amount

    def compute_mask(self, t: torch.Tensor, default_mask: torch.Tensor) -> torch.Tensor:
        return default_mask * (t.abs() > 0.1 * self.amount)


TABLE: dict[str, dict[str, Any]] = {
    "global l1": {"pruning_fn": "l1_unstructured"},
    "without the lottery ticket": {"pruning_fn": "l1_unstructured", "use_lottery_ticket_hypothesis": False},
    "random": {"pruning_fn": "random_unstructured", "amount": 0.3},
    "each by itself": {"pruning_fn": "l1_unstructured", "use_global_unstructured": False, "amount": 0.25},
    "structured": {"pruning_fn": "ln_structured", "use_global_unstructured": False, "pruning_dim": 0, "pruning_norm": 1,
                   "parameter_names": ["weight"]},
    "random structured": {"pruning_fn": "random_structured", "use_global_unstructured": False, "pruning_dim": 1,
                          "parameter_names": ["weight"]},
    "resampled": {"pruning_fn": "l1_unstructured", "resample_parameters": True},
    "number": {"pruning_fn": "l1_unstructured", "amount": 3, "parameter_names": ["weight"]},
    "functions": {"pruning_fn": "l1_unstructured", "amount": lambda epoch: 0.1 * (epoch + 1),
                  "apply_pruning": lambda epoch: epoch != 1, "use_lottery_ticket_hypothesis": lambda epoch: epoch == 2},
    "masks stay": {"pruning_fn": "l1_unstructured", "make_pruning_permanent": False},
    "after validation": {"pruning_fn": "l1_unstructured", "prune_on_train_epoch_end": False},
    "a method": {"pruning_fn": Threshold, "amount": 0.5},
}  # fmt: skip


def module_of(package: Any) -> Any:
    class Net(package.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.layers = torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.ReLU(), torch.nn.Linear(6, 2))

        def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
            loss = (self.layers(batch[0]) - batch[1]).square().mean()
            self.log("loss", loss)
            return loss

        def validation_step(self, batch: Any, batch_idx: int) -> None:
            self.log("val_loss", (self.layers(batch[0]) - batch[1]).square().mean())

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), 0.1, momentum=0.9)

    torch.manual_seed(1)
    return Net()


def loader() -> Any:
    generator = torch.Generator().manual_seed(2)
    return DataLoader(
        TensorDataset(torch.randn(16, 4, generator=generator), torch.randn(16, 2, generator=generator)), batch_size=4
    )


@pytest.fixture(autouse=True)
def _kept_originals(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a CPU Lightning lets parameters share memory with the kept originals, which then train along; on a GPU it copies."""
    shared = lightning.callbacks.ModelPruning._copy_param

    def copied(new: torch.nn.Module, old: torch.nn.Module, name: str) -> None:
        shared(new, copy.deepcopy(old), name)

    monkeypatch.setattr(lightning.callbacks.ModelPruning, "_copy_param", staticmethod(copied))


def fitted(package: Any, tmp_path: Any, arguments: dict[str, Any], **options: Any) -> dict[str, Any]:
    """Weights with masks after every epoch and at the end, losses, and the checkpoint."""
    epochs: list[Any] = []

    class Watch(package.callbacks.Callback):
        def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:
            state = {name: value.detach().clone() for name, value in pl_module.state_dict().items()}
            epochs.append((state, {n: float(v) for n, v in trainer.callback_metrics.items()}))

    module = module_of(package)
    callback = package.callbacks.ModelPruning(**arguments)
    trainer = package.Trainer(
        max_epochs=4, callbacks=[callback, Watch()], default_root_dir=tmp_path, num_sanity_val_steps=0, log_every_n_steps=1,
        **QUIET, **options,
    )  # fmt: skip
    torch.manual_seed(3)
    trainer.fit(module, loader(), loader())
    path = trainer.checkpoint_callback.best_model_path
    saved = torch.load(path, weights_only=False)["state_dict"]
    return {"epochs": epochs, "end": dict(module.state_dict()), "saved": dict(saved), "hooks": prune.is_pruned(module)}


@pytest.mark.thin(4)
@pytest.mark.parametrize("case", TABLE)
@pytest.mark.filterwarnings("ignore:::lightning", "ignore:.*does not have many workers", "ignore:.*isinstance.treespec")
def test_weights_and_checkpoints_are_lightnings(case: str, tmp_path: Any) -> None:
    got = fitted(L, tmp_path / "ours", TABLE[case])
    expected = fitted(lightning, tmp_path / "theirs", TABLE[case])
    assert got["hooks"] == expected["hooks"]
    assert len(got["epochs"]) == len(expected["epochs"]) == 4
    for one, other in zip([*got["epochs"]], [*expected["epochs"]], strict=True):
        torch.testing.assert_close(one[0], other[0], rtol=1e-5, atol=1e-6)
        assert one[1] == pytest.approx(other[1], rel=1e-5)
    torch.testing.assert_close(got["end"], expected["end"], rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(got["saved"], expected["saved"], rtol=1e-5, atol=1e-6)


def test_several_cores_prune_alike_and_compile_twice(tmp_path: Any) -> None:
    one = fitted(L, tmp_path / "one", TABLE["global l1"])
    module = module_of(L)
    trainer = L.Trainer(**{**QUIET, "devices": 2}, max_epochs=4, callbacks=[ModelPruning("l1_unstructured")],
                        enable_checkpointing=False, log_every_n_steps=1)  # fmt: skip
    torch.manual_seed(3)
    data = loader().dataset
    trainer.fit(module, DataLoader(data, batch_size=2))
    torch.testing.assert_close(dict(module.state_dict()), one["end"], rtol=1e-5, atol=1e-6)
    assert [entry.is_new_executable for entry in trainer.compiles] == [True, True, False, False]


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "name": ({"pruning_fn": "l2_unstructured"}, "isn't available in PyTorch's built-in functions.*Did you mean"),
    "parameter": ({"pruning_fn": "l1_unstructured", "parameter_names": ["wieght"]}, "isn't in.*Did you mean 'weight'"),
    "dim": ({"pruning_fn": "random_structured"}, "`pruning_dim` should be provided"),
    "norm": ({"pruning_fn": "ln_structured", "pruning_dim": 0}, "`pruning_norm` should be provided"),
    "global": ({"pruning_fn": "random_structured", "pruning_dim": 0}, 'Only the "unstructured" PRUNING_TYPE'),
    "instance": ({"pruning_fn": Threshold(0.1)}, "HINT: if passing a `BasePruningMethod`, pass the class"),
    "local method": (
        {"pruning_fn": Threshold, "use_global_unstructured": False},
        "only supported with `use_global_unstructured",
    ),
    "amount": ({"pruning_fn": "l1_unstructured", "amount": "half"}, "`amount` should be an int, a float or"),
    "verbose": ({"pruning_fn": "l1_unstructured", "verbose": 3}, "`verbose` must be any of"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_impossible_arguments(case: str) -> None:
    arguments, message = REFUSED[case]
    with pytest.raises(L.MisconfigurationException, match=message):
        ModelPruning(**arguments)
    with pytest.raises(lightning.utilities.exceptions.MisconfigurationException):
        lightning.callbacks.ModelPruning(**arguments)


def test_parameters_that_the_module_does_not_have() -> None:
    module = module_of(L)
    first = module.layers[0]
    for given in ([(torch.nn.Linear(1, 1), "weight")], [(first, "gain")]):
        with pytest.raises(L.MisconfigurationException, match="don't exist in the model"):
            ModelPruning.sanitize_parameters_to_prune(module, given)
    with pytest.raises(L.MisconfigurationException, match="should either be list of tuple"):
        ModelPruning.sanitize_parameters_to_prune(module, ["weight"])  # type: ignore[list-item]
    assert ModelPruning.sanitize_parameters_to_prune(module, [(first, "bias")]) == [(first, "bias")]


def test_verbose_tells_how_much(caplog: pytest.LogCaptureFixture) -> None:
    module = module_of(L)
    callback = ModelPruning("l1_unstructured", [(module.layers[0], "weight")], amount=0.5, verbose=2)
    with caplog.at_level(logging.INFO, logger="systolic"):
        callback.apply_pruning(0.5)
        callback.apply_pruning(0.5)
    assert [
        record.getMessage().partition(": ")[2] for record in caplog.records if "with amount" not in record.getMessage()
    ] == [
        "0/24 (0.00%) -> 12/24 (50.00%)",
        "12/24 (50.00%) -> 18/24 (75.00%)",
    ]
