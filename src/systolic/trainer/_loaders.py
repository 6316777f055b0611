"""Which loaders a stage uses, and how many of their batches."""

from __future__ import annotations

from typing import Any

from torch.utils._pytree import tree_map
from torch.utils.data import DataLoader

from ..data import CombinedLoader, check_loader, empty_loader_error, limit_batches, num_batches, scale_loader
from ..exceptions import MisconfigurationException

_METHODS = {
    "train": "train_dataloader",
    "validation": "val_dataloader",
    "test": "test_dataloader",
    "predict": "predict_dataloader",
}
_LIMITS = {"train": "train", "validation": "val", "test": "test", "predict": "predict"}


def training(trainer: Any, given: Any) -> Any:
    """The training loader, its batches scaled to all cores; sets `num_training_batches`.

    Raises:
        MisconfigurationException: there is none, it cannot be iterated over, or it is empty.
    """
    loader = given_or_own(trainer, "train", given)
    if loader is None:
        raise MisconfigurationException(
            "No training data: pass `train_dataloaders` to trainer.fit, or define `train_dataloader()` in "
            f"{type(trainer.lightning_module).__name__} or in the datamodule."
        )
    check_loader(loader)
    loader = _scaled(trainer, loader)
    if isinstance(loader, (list, tuple, dict)):
        loader = CombinedLoader(loader, "max_size_cycle")
    loader = _OnlyBatches(loader) if isinstance(loader, CombinedLoader) else loader
    available = num_batches(loader)
    if available == 0:
        raise empty_loader_error(loader)
    trainer.num_training_batches = limit_batches(available, trainer.limits["train"])
    return loader


def evaluation(trainer: Any, stage: str, given: Any) -> tuple[list[Any], list[int | float]]:
    """The loaders of an evaluation stage and how many batches of each are used."""
    loaders = given_or_own(trainer, stage, given)
    if loaders is None:
        if trainer.state.fn == "fit":
            return [], []
        raise MisconfigurationException(
            f"No data: pass loaders to the call, or define `{_METHODS[stage]}()` in "
            f"{type(trainer.lightning_module).__name__} or in the datamodule."
        )
    name = f"{_LIMITS[stage]}_dataloaders"
    check_loader(loaders, name=name)
    listed = list(loaders.values()) if isinstance(loaders, dict) else loaders
    listed = list(listed) if isinstance(listed, (list, tuple)) else [listed]
    scaled = [_scaled(trainer, loader) for loader in listed]
    limit = trainer.limits[_LIMITS[stage]]
    limits = [limit_batches(num_batches(s), limit, name=f"limit_{_LIMITS[stage]}_batches") for s in scaled]
    return scaled, limits


def given_or_own(trainer: Any, stage: str, given: Any) -> Any:
    """The loaders that were given, or those of the datamodule or module."""
    if given is not None:
        return given
    owner = trainer.datamodule if trainer.datamodule is not None else trainer.lightning_module
    method = getattr(owner, _METHODS[stage], None)
    return method() if method is not None else None


def _scaled(trainer: Any, loaders: Any) -> Any:
    if isinstance(loaders, CombinedLoader):
        loaders.flattened = [_scaled(trainer, loader) for loader in loaders.flattened]
        return loaders

    def scale(loader: Any) -> Any:
        if not isinstance(loader, DataLoader):
            return loader
        return scale_loader(loader, trainer.num_devices, use_distributed_sampler=trainer.use_distributed_sampler)

    return tree_map(scale, loaders) if isinstance(loaders, (list, tuple, dict)) else scale(loaders)


class _OnlyBatches:
    """A combined loader that yields batches without their numbers."""

    def __init__(self, combined: CombinedLoader) -> None:
        self.combined = combined

    def __len__(self) -> int:
        return len(self.combined)

    def __iter__(self) -> Any:
        for batch, _, _ in self.combined:
            yield batch
