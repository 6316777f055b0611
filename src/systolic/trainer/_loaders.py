"""Loaders that a stage uses, and how many of their batches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch.utils.data import DataLoader

from ..core import LightningDataModule, LightningModule
from ..data import (
    CombinedBatches,
    CombinedLoader,
    NotIterableError,
    check_loader,
    empty_loader_error,
    limit_batches,
    num_batches,
    part_of,
    scale_loader,
    seed_workers,
    share_loader,
    share_stream,
    warn_of_unlikely_loader,
    warn_of_workers,
)
from ..distributed import host
from ..utilities._overrides import overrides
from ..utilities._torch_internals import tree_leaves, tree_map
from . import _guests
from ._fingerprints import require_same_data
from ._overfit import in_order
from ._stage import Stage, TrainerFn

if TYPE_CHECKING:
    from ._config import TrainerConfig
    from ._run import Run


def training(run: Run, given: Any) -> tuple[Any, int | float]:
    """The training loader, its batches scaled to all cores, and how many of them an epoch uses.

    Raises:
        NotIterableError: there is none, or it cannot be iterated over.
        EmptyLoaderError: it is empty.
    """
    loader = given_or_own(run, Stage.FIT, given)
    if loader is None:
        raise NotIterableError(
            f"An invalid dataloader was {_source(run, Stage.FIT, given)}. No training data: pass `train_dataloaders` to "
            f"trainer.fit, or define `train_dataloader()` in {type(run.module).__name__} or in the datamodule."
        )
    check_loader(loader, source=_source(run, Stage.FIT, given))
    warn_of_unlikely_loader(loader)
    loader = _scaled(run.config, _the_same(run, loader, "train"))
    run.shown_loaders[Stage.FIT] = loader.iterables if isinstance(loader, CombinedLoader) else loader
    if isinstance(loader, (list, tuple, dict)):
        loader = CombinedLoader(loader, "max_size_cycle")
    loader = CombinedBatches(loader) if isinstance(loader, CombinedLoader) else _shared(run, loader)
    require_same_data(Stage.FIT, [loader])
    available = num_batches(loader)
    if available == 0:
        raise empty_loader_error(loader)
    return loader, limit_batches(available, run.config.limit(Stage.FIT))


def evaluation(run: Run, stage: Stage, given: Any) -> tuple[list[Any], list[int | float]]:
    """The loaders of an evaluation stage and how many batches of each are used; where none is wanted nobody is asked."""
    if run.config.limit(stage) == 0:
        return [], []
    loaders = given_or_own(run, stage, given)
    if loaders is None:
        if run.state.fn is TrainerFn.FITTING:
            return [], []
        raise NotIterableError(
            f"An invalid dataloader was {_source(run, stage, given)}. No data: pass loaders to the call, or define "
            f"`{stage.loader}()` in {type(run.module).__name__} or in the datamodule."
        )
    if run.state.fn is TrainerFn.FITTING and isinstance(loaders, (list, tuple, dict)) and not loaders:
        return [], []
    source = _source(run, stage, given)
    check_loader(loaders, name=f"{stage.data}_dataloaders", source=source)
    loaders = _the_same(run, loaders, stage.data)
    if isinstance(loaders, CombinedLoader) and loaders.mode != "sequential":
        return _joint(run, stage, loaders)
    listed = loaders.flattened if isinstance(loaders, CombinedLoader) else loaders
    listed = list(listed.values()) if isinstance(listed, dict) else listed
    listed = list(listed) if isinstance(listed, (list, tuple)) else [listed]
    if isinstance(loaders, list | tuple):
        for number, loader in enumerate(listed):
            check_loader(loader, name=f"{stage.data}_dataloaders[{number}]", source=source, may_be_empty=True)
    if stage is Stage.PREDICT:
        scaled = [_own_part(run, loader) for loader in listed]
    else:
        scaled = [_shared(run, _scaled(run.config, loader)) for loader in listed]
        require_same_data(stage, scaled)
    run.shown_loaders[stage] = _structured(loaders, scaled)
    limit = run.config.limit(stage)
    limits = [limit_batches(num_batches(s), limit, name=f"limit_{stage.data}_batches") for s in scaled]
    return scaled, limits


def _joint(run: Run, stage: Stage, combined: CombinedLoader) -> tuple[list[Any], list[int | float]]:
    """Loaders that a mode other than "sequential" combines are one: its batches have a part of each."""
    batches = CombinedBatches(_scaled(run.config, combined))
    run.shown_loaders[stage] = combined.iterables
    limit = limit_batches(num_batches(batches), run.config.limit(stage), name=f"limit_{stage.data}_batches")
    return [batches], [limit]


def batches_of_each(run: Run, stage: Stage) -> list[int | float]:
    """How many batches an evaluation takes of each loader, those that a mode combines counted singly."""
    loaders, limits = run.evaluation_loaders(stage)
    if len(loaders) != 1 or not isinstance(loaders[0], CombinedBatches):
        return limits
    wanted, name = run.config.limit(stage), f"limit_{stage.data}_batches"
    return [limit_batches(num_batches(loader), wanted, name=name) for loader in loaders[0].flattened]


def _the_same(run: Run, loaders: Any, data: str) -> Any:
    """The loaders; with `overfit_batches` those of training and validation in the same order in every epoch."""
    if not run.config.overfit_batches or run.state.fn is not TrainerFn.FITTING:
        return loaders
    if isinstance(loaders, CombinedLoader):
        loaders.flattened = [in_order(loader, data) for loader in loaders.flattened]
        return loaders
    return tree_map(lambda loader: in_order(loader, data), loaders)


def _structured(given: Any, scaled: list[Any]) -> Any:
    """Loaders in the structure in which they were given."""
    if isinstance(given, dict):
        return dict(zip(given, scaled, strict=True))
    if isinstance(given, (list, tuple)):
        return scaled
    return given.iterables if isinstance(given, CombinedLoader) else scaled[0]


def are_defined(run: Run, stage: Stage) -> bool:
    """Whether there are loaders of a stage, without asking for them."""
    owner, base = _owner(run)
    return run.given.get(stage) is not None or overrides(owner, stage.loader, base)


def given_or_own(run: Run, stage: Stage, given: Any) -> Any:
    """The loaders that were given, or those of the datamodule or module."""
    owner, base = _owner(run)
    loaders = given
    if given is None and overrides(owner, stage.loader, base):
        loaders = getattr(owner, stage.loader)()
    loaders = _guests.loaders(loaders)
    for loader in loaders.flattened if isinstance(loaders, CombinedLoader) else tree_leaves(loaders):
        if isinstance(loader, DataLoader):
            seed_workers(loader, run.processes.index)
            warn_of_workers(
                loader,
                f"{stage.data}_dataloader",
                processes=-(-run.processes.count // host().count),
                reloads=run.config.reload_dataloaders_every_n_epochs > 0,
            )
    return loaders


def _source(run: Run, stage: Stage, given: Any) -> str:
    """Source of a stage's loaders, for messages."""
    owner, base = _owner(run)
    if given is None and overrides(owner, stage.loader, base):
        return f"returned from `{type(owner).__name__}.{stage.loader}()`"
    assert run.state.fn is not None, "loaders are looked up for a call"
    fits = run.state.fn is TrainerFn.FITTING
    return f"passed to `Trainer.{run.state.fn.value}({f'{stage.data}_dataloaders' if fits else 'dataloaders'}=...)`"


def _owner(run: Run) -> tuple[LightningModule | LightningDataModule, type]:
    return (run.module, LightningModule) if run.datamodule is None else (run.datamodule, LightningDataModule)


def _shared(run: Run, loader: Any) -> Any:
    """The loader, read in parts where several processes train: not where whole batches are looked at before they are sent."""
    config = run.config
    if not config.compile or run.before_transfer() is not None or config.pad_batches:
        return loader
    loader = share_stream(loader, run.processes, own=not config.use_distributed_sampler)
    return share_loader(loader, run.processes) if config.use_distributed_sampler else loader


def _own_part(run: Run, loader: Any) -> Any:
    """The part that this process predicts for: its rows of each batch that one process would have for the cores of all."""
    config, processes = run.config, run.processes
    if isinstance(loader, DataLoader):
        loader = scale_loader(loader, processes.devices, use_distributed_sampler=config.use_distributed_sampler)
    return part_of(loader, processes) if processes.count > 1 and config.use_distributed_sampler else loader


def _scaled(config: TrainerConfig, loaders: Any) -> Any:
    if isinstance(loaders, CombinedLoader):
        loaders.flattened = [_scaled(config, loader) for loader in loaders.flattened]
        return loaders

    def scale(loader: Any) -> Any:
        if not isinstance(loader, DataLoader):
            return loader
        return scale_loader(loader, config.batch_parts, use_distributed_sampler=config.use_distributed_sampler)

    return tree_map(scale, loaders) if isinstance(loaders, (list, tuple, dict)) else scale(loaders)
