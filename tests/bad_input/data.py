"""Bad loaders, and bad batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset
from trainer.three_ways import loader, regression, samples

import systolic as L
from systolic.data import CombinedLoader
from systolic.exceptions import MisconfigurationException

from .cases import Answer, Case, trainer

X, Y = torch.randn(8, 4), torch.randn(8, 1)


def module(**methods: Any) -> Any:
    return regression(L.LightningModule, **methods)()


def of_loader(
    given: str, says: str, answer: Answer = MisconfigurationException, *, compile: bool = False, **options: Any
) -> Case:
    """A training loader: `given` is evaluated with the names of this file."""

    def tried() -> None:
        trainer(compile=compile, **options).fit(module(), eval(given, NAMES))

    shown = "".join(f", {name}={value!r}" for name, value in options.items())
    return Case(f"fit(model, {given}){shown}", tried, answer, says, long=compile)


def generator(count: int = 3) -> Iterator[Any]:
    """Batches, once."""
    yield from loader(4 * count)


class Broken(Dataset[Any]):
    """Raises at its fifth sample."""

    def __init__(self, error: type[BaseException] = ZeroDivisionError) -> None:
        self.error = error

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> Any:
        if index == 5:
            raise self.error("sample 5")
        return X[index], Y[index]


class Told:
    """Three batches, and another number told."""

    def __init__(self, told: Any) -> None:
        self.told = told

    def __len__(self) -> int:
        return self.told

    def __iter__(self) -> Iterator[Any]:
        return iter(loader(12))


class Nothing:
    """Yields nothing."""

    def __iter__(self) -> Iterator[Any]:
        return iter([])


class Stream(IterableDataset[Any]):
    """Samples without a length."""

    def __iter__(self) -> Iterator[Any]:
        yield from samples(8)


def collate(batch: Any) -> Any:
    """Raises."""
    raise ZeroDivisionError("collate")


def ragged(index: int) -> torch.Tensor:
    """A sample that is one longer than the one before it."""
    return torch.zeros(index + 1)


def _validated(**given: Any) -> Callable[[], None]:
    def tried() -> None:
        model = module(validation_step=lambda self, batch, batch_idx: None)
        trainer(compile=False).fit(model, loader(), **given)

    return tried


def _with(given: str, call: Callable[[], Any], says: str, answer: Answer = MisconfigurationException) -> Case:
    return Case(given, call, answer, says)


class Opaque:
    """No tensor, and nothing that holds one."""


NAMES: dict[str, Any] = {**globals(), "DataLoader": DataLoader, "np": np}
"""What the rows below may use."""

LOADERS = (
    of_loader("None", "No training data: pass `train_dataloaders`"),
    of_loader("7", "`train_dataloaders` is not iterable"),
    of_loader("'data.csv'", "`train_dataloaders` is not iterable"),
    of_loader("DataLoader", "`train_dataloaders` is not iterable"),
    of_loader("[]", "`train_dataloaders` has no batch"),
    of_loader("{}", "`train_dataloaders` has no batch"),
    of_loader("[None]", "`train_dataloaders[0]` is None"),
    of_loader("DataLoader(samples(0), batch_size=4)", "`train_dataloaders` has no batch"),
    of_loader("DataLoader(samples(3), batch_size=4, drop_last=True)", "fewer than one global batch"),
    of_loader("Nothing()", "has no batch: expected at least one, and this Nothing yields none"),
    of_loader("generator(0)", "has no batch"),
    of_loader("generator()", "can be read once", Warning, max_epochs=3),
    of_loader("iter(loader())", "can be read once", Warning, max_epochs=3),
    of_loader("samples(8)", "is a dataset, each sample of which", Warning),
    of_loader("torch.zeros(3, 4)", "is one tensor, each row of which", Warning),
    of_loader("np.zeros((3, 4))", "is one tensor, each row of which", Warning),
    of_loader("[[X, Y], [X, Y]]", "is a list of loaders, as in Lightning", Warning),
    of_loader("[(X, Y), (X, Y)]", "is a list of loaders, as in Lightning", Warning),
    of_loader("[(X, Y, 3)]", "`train_dataloaders[0][2]` is not iterable"),
    of_loader("{'a': 3}", "`train_dataloaders['a']` is not iterable"),
    of_loader("Told(5)", "says by its `__len__` that it has 5 batches, and epoch 0 ended after 3", Warning),
    of_loader("Told(-1)", "`Told.__len__` must return how many batches there are"),
    of_loader("Told(2.5)", "`Told.__len__` must return how many batches there are"),
    of_loader("Told('3')", "`Told.__len__` must return how many batches there are"),
    of_loader("DataLoader(Broken(), batch_size=4)", "sample 5", ZeroDivisionError),
    of_loader("DataLoader(Broken(MemoryError), batch_size=4)", "sample 5", MemoryError),
    of_loader("DataLoader(Broken(StopIteration), batch_size=4)", "does no sample raise StopIteration", Warning),
    of_loader("DataLoader(samples(8), batch_size=4, collate_fn=collate)", "collate", ZeroDivisionError),
    of_loader("DataLoader([ragged(i) for i in range(4)], batch_size=4)", "PadCollate", RuntimeError),
    of_loader("DataLoader([None, None], batch_size=2)", "NoneType", TypeError),
    of_loader("DataLoader(Stream(), batch_size=4)", "a part of the batches", limit_train_batches=0.5),
    of_loader("loader(20)", "is less than one batch", limit_train_batches=0.1),
    _with("validate(model) without data", lambda: trainer(compile=False).validate(_evaluated()), "No data: pass loaders"),
    _with("validate(model, [])", lambda: trainer(compile=False).validate(_evaluated(), []), "has no batch"),
    _with("validate(model, 3)", lambda: trainer(compile=False).validate(_evaluated(), 3), "is not iterable"),
    _with("predict(model) without data", lambda: trainer(compile=False).predict(module()), "No data: pass loaders"),
    _with("fit(model, loader, val_dataloaders=3)", _validated(val_dataloaders=3), "`val_dataloaders` is not iterable"),
    _with("fit(model, loader, val_dataloaders=[3])", _validated(val_dataloaders=[3]), "`val_dataloaders[0]` is not iterable"),
    _with("fit(model, loader, datamodule=dm)", _validated(datamodule=L.LightningDataModule()), "Received both"),
    _with("fit(model, datamodule=3)", lambda: trainer().fit(module(), datamodule=3), "`datamodule`", TypeError),
    _with(
        "fit(model, datamodule=LightningDataModule)", lambda: trainer().fit(module(), datamodule=L.LightningDataModule),
        "Pass an instance", TypeError,
    ),
    _with(
        "fit(model, datamodule=loader)", lambda: trainer().fit(module(), datamodule=loader()),
        "train_dataloaders", TypeError,
    ),
    _with(
        "fit(model, datamodule=an empty one)", lambda: trainer().fit(module(), datamodule=L.LightningDataModule()),
        "No training data",
    ),
    _with(
        "validation data without validation_step", lambda: trainer(compile=False).fit(module(), loader(), loader()),
        "have no `validation_step`", Warning,
    ),
    _with(
        "validation_step without data",
        lambda: trainer(compile=False).fit(_evaluated(), loader()), "have no `val_dataloader`", Warning,
    ),
    _with("CombinedLoader(loaders, 'longest')", lambda: CombinedLoader([loader()], "longest"), "max_size", ValueError),
    _with(
        "val_check_interval longer than the epoch",
        lambda: trainer(compile=False, val_check_interval=9).fit(_evaluated(), loader(), loader()),
        "must be less than or equal to the number of the training batches", ValueError,
    ),
    _with("preflight(slice='v9')", lambda: trainer().preflight(module(), loader(), slice="v9"), "v9", ValueError),
)  # fmt: skip


def _evaluated() -> Any:
    return module(validation_step=lambda self, batch, batch_idx: None)


def of_batch(given: str, says: str, answer: Answer = TypeError, *, compile: bool = False, **methods: Any) -> Case:
    """A batch, twice in an epoch: `given` is evaluated with the names of this file."""

    def tried() -> None:
        batch = eval(given, NAMES)
        batches = type("Batches", (), {"__iter__": lambda self: iter([batch, batch]), "__len__": lambda self: 2})()
        trainer(compile=compile).fit(module(**methods), batches)

    return Case(f"a batch: {given}{' (compiled)' if compile else ''}", tried, answer, says, long=compile)


BATCHES = (
    *(
        of_batch(given, says, answer, compile=compile)
        for compile in (False, True)
        for given, says, answer in (
            ("None", "The train_dataloader yielded None", UserWarning),
            ("3", "got the batch: 3", TypeError),
            ("'text'", "got the batch: 'text'", TypeError),
            ("Opaque()", "got the batch: Opaque()", TypeError),
            ("[]", "got the batch: []", IndexError),
            ("{}", "got the batch: {}", KeyError),
            ("[X]", "got the batch: [Tensor(8, 4) of float32]", IndexError),
            ("{'x': X, 'y': Y}", "got the batch: {'x': Tensor(8, 4) of float32, 'y': Tensor(8, 1)", KeyError),
            (
                "(X[:, :3], Y)",
                "and (4, 8) cannot be multiplied" if compile else "mat1 and mat2 shapes cannot be multiplied",
                RuntimeError,
            ),
            ("(X.long(), Y)", "int64" if compile else "mat1 and mat2 must have the same dtype", RuntimeError),
            ("(X.double(), Y)", "float64" if compile else "mat1 and mat2 must have the same dtype", RuntimeError),
            ("(X.to(torch.complex64), Y)", "complex64" if compile else "mat1 and mat2 must have the same dtype", RuntimeError),
            ("(['a', 'b'], Y)", "got the batch: (['a', 'b'], Tensor(8, 1)", TypeError),
            ("(Opaque(), Y)", "got the batch: (Opaque(), Tensor(8, 1)", TypeError),
            ("(None, Y)", "got the batch: (None, Tensor(8, 1)", TypeError),
            ("(X, None)", "got the batch: (Tensor(8, 4) of float32, None)", AttributeError),
            ("(X, 'label')", "got the batch: (Tensor(8, 4) of float32, 'label')", AttributeError),
        )
    ),
    of_batch("(X.to_sparse_csc(), Y)", "one that is sparse", TypeError, compile=True),
    of_batch("(X.to('meta'), Y)", "a meta tensor, which has no values", TypeError, compile=True),
    of_batch("(torch.quantize_per_tensor(X, 0.1, 0, torch.qint8), Y)", "one that is quantized", TypeError, compile=True),
    of_batch(
        "(X, Y, 2**70)",
        "int too big to convert",
        OverflowError,
        compile=True,
        training_step=lambda self, b, i: self.loss(b) * b[2],
    ),
    of_batch("(np.array([object()]), Y)", "got the batch: (ndarray(1,) of object, ", compile=True),
    of_batch("(np.array(['a']), Y)", "got the batch: (ndarray(1,) of <U1, ", compile=True),
    of_batch("(X.numpy().astype(np.longdouble), Y)", "got the batch: (ndarray(8, 4) of float128, ", compile=True),
    of_batch("(X, Y[:7])", "must match the size of tensor b (7)", RuntimeError, compile=True),
)

CASES = {"Loaders": LOADERS, "Batches": BATCHES}
