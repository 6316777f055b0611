"""A table of a model's layers and the number of their parameters."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from rich.console import Group
from rich.markup import escape
from rich.table import Table
from torch import nn
from torch.nn.parameter import UninitializedParameter

from ._example_run import UNKNOWN, ExampleRun, Size, run_example

_UNITS = (" ", "K", "M", "B", "T")
_COLUMNS = (" ", "Name", "Type", "Params", "Mode", "FLOPs")
_SIZES = ("In sizes", "Out sizes")
_LEFTOVER = "other params"
_NOT_APPLICABLE = "n/a"


@dataclass(frozen=True)
class LayerSummary:
    """One row: a module, and its parameters with those of the modules inside it."""

    name: str
    layer_type: str
    num_parameters: int
    training: bool
    uninitialized: int
    flops: int = 0
    in_size: Size = UNKNOWN
    out_size: Size = UNKNOWN

    @property
    def count(self) -> str:
        """The number of parameters as the table shows it; `?` stands for lazy ones without a shape yet."""
        if not self.uninitialized:
            return get_human_readable_count(self.num_parameters)
        return f"{get_human_readable_count(self.num_parameters)} + ?" if self.num_parameters else "?"


class SummaryColumns(list[tuple[str, list[str]]]):
    """The table's columns: each with its title and its cells.

    Attributes:
        notes: Lines below the totals: a number and what it counts.
    """

    def __init__(self, columns: Iterable[tuple[str, list[str]]], notes: Iterable[tuple[str, str]] = ()) -> None:
        super().__init__(columns)
        self.notes = list(notes)


@dataclass(frozen=True)
class SummaryTable:
    """A table and the lines below it, drawn with rich or as text.

    Attributes:
        columns: Titles and cells.
        totals: Numbers and what they count.
    """

    columns: Sequence[tuple[str, Sequence[str]]]
    totals: Sequence[tuple[str, str]]

    @property
    def _rows(self) -> list[tuple[str, ...]]:
        return list(zip(*(cells for _, cells in self.columns), strict=True))

    def __rich__(self) -> Group:
        table = Table(header_style="bold magenta")
        for title, _ in self.columns:
            table.add_column(title, justify="right" if title == "Params" else "left", no_wrap=title == "Name")
        for row in self._rows:
            table.add_row(*map(escape, row))
        grid = Table.grid(padding=(0, 2))
        for number, meaning in self.totals:
            grid.add_row(f"[bold]{meaning}[/]", number.strip())
        return Group(table, grid) if self._rows else Group(grid)

    def __str__(self) -> str:
        lines = [f"{number:<10}{meaning}" for number, meaning in self.totals]
        if not self._rows:
            return "\n".join(lines)
        cells = [tuple(title for title, _ in self.columns), *self._rows]
        widths = [max(len(cell) for cell in column) for column in zip(*cells, strict=True)]
        head, *body = [" | ".join(map(str.ljust, row, widths)) for row in cells]
        rule = "-" * len(head)
        return "\n".join([head, rule, *body, rule, *lines])


class ModelSummary:
    """Layers and parameter counts of a module at the moment of construction; the module is not kept.

    A module with an `example_input_array` is run once with it, in evaluation mode and without gradients, for the sizes of what
    goes in and out of its layers, and their operations; without it these are counted as 0.

    A parameter that several modules share is counted in the row of each of them and once in the totals. Lazy
    parameters have no size yet: they are left out of the totals, and counted in `uninitialized_parameters`.

    Args:
        model: The module.
        max_depth: How many levels of nested modules to show; 0 shows totals only, -1 everything.
        transferred: Function that makes of the example what `forward` gets.
    """

    def __init__(self, model: nn.Module, max_depth: int = 1, transferred: Callable[[object], object] | None = None) -> None:
        if isinstance(max_depth, bool) or not isinstance(max_depth, int) or max_depth < -1:
            raise ValueError(f"max_depth must be -1 (all levels), 0 (totals only) or positive, got {max_depth!r}.")
        shown = dict(_modules_to_depth(model, max_depth))
        example: object = getattr(model, "example_input_array", None)
        self._has_sizes = example is not None
        if transferred is not None and self._has_sizes:
            example = transferred(example)
        seen = run_example(model, shown, example) if self._has_sizes else ExampleRun()
        self.total_flops = seen.total_flops
        self.layers = tuple(_layer(name, module, seen) for name, module in shown.items())
        parameters = list(model.parameters())
        sized = _sized(parameters)
        in_layers = {id(parameter) for module in shown.values() for parameter in module.parameters()}
        self.total_parameters = _count(sized)
        self.trainable_parameters = _count(p for p in sized if p.requires_grad)
        self.leftover_parameters = _count(p for p in sized if id(p) not in in_layers) if max_depth else 0
        self.uninitialized_parameters = len(parameters) - len(sized)
        self.shared_parameters = _count(_shared(model))
        self.model_size = sum(p.numel() * p.element_size() for p in sized) / 1e6
        modes = [module.training for module in model.modules()][1:]
        self.total_training_modes = {"train": modes.count(True), "eval": modes.count(False)}

    @property
    def non_trainable_parameters(self) -> int:
        """Number of parameters that do not require a gradient."""
        return self.total_parameters - self.trainable_parameters

    @property
    def layer_names(self) -> list[str]:
        """Names of the modules shown."""
        return [layer.name for layer in self.layers]

    @property
    def layer_types(self) -> list[str]:
        """Class names of the modules shown."""
        return [layer.layer_type for layer in self.layers]

    @property
    def param_nums(self) -> list[int]:
        """Number of parameters of each module shown."""
        return [layer.num_parameters for layer in self.layers]

    @property
    def training_modes(self) -> list[bool]:
        """Whether each module shown is in training mode."""
        return [layer.training for layer in self.layers]

    @property
    def in_sizes(self) -> list[Size]:
        """Shape of what each module shown was first given."""
        return [layer.in_size for layer in self.layers]

    @property
    def out_sizes(self) -> list[Size]:
        """Shape of what each module shown first gave."""
        return [layer.out_size for layer in self.layers]

    def rows(self) -> list[tuple[str, ...]]:
        """The cells of the table, without its header: number, name, type, parameters, mode, operations, sizes if known."""
        rows: list[tuple[str, ...]] = [self._row(number, layer) for number, layer in enumerate(self.layers)]
        if self.leftover_parameters:
            leftover = get_human_readable_count(self.leftover_parameters)
            rest = len(_COLUMNS) - 4 + self._has_sizes * len(_SIZES)
            rows.append((" ", _LEFTOVER, _NOT_APPLICABLE, leftover, *[_NOT_APPLICABLE] * rest))
        return rows

    def _row(self, number: int, layer: LayerSummary) -> tuple[str, ...]:
        mode = "train" if layer.training else "eval"
        sizes = (str(layer.in_size), str(layer.out_size)) if self._has_sizes else ()
        flops = get_human_readable_count(layer.flops)
        return (str(number), layer.name, layer.layer_type, layer.count, mode, flops, *sizes)

    def columns(self) -> SummaryColumns:
        """The same by columns, with their titles, and the lines that not every module has."""
        notes: list[tuple[str, str]] = []
        if self.shared_parameters:
            notes.append((get_human_readable_count(self.shared_parameters), "Params shared by modules, counted once"))
        if self.uninitialized_parameters:
            notes.append((str(self.uninitialized_parameters), "Lazy parameters without a shape yet, not counted"))
        rows = self.rows()
        titles = [*_COLUMNS, *(_SIZES if self._has_sizes else ())]
        return SummaryColumns(((title, [row[i] for row in rows]) for i, title in enumerate(titles)), notes)

    def totals(self) -> list[tuple[str, str]]:
        """The lines below the table: a number and what it counts."""
        counts = self.total_parameters, self.trainable_parameters, self.model_size
        return [*totals_of(*counts, self.total_training_modes, self.total_flops), *self.columns().notes]

    def __rich__(self) -> Group:
        return SummaryTable(self.columns(), self.totals()).__rich__()

    def __str__(self) -> str:
        return str(SummaryTable(self.columns(), self.totals()))

    __repr__ = __str__


def totals_of(total: int, trainable: int, megabytes: float, modes: Mapping[str, int], flops: int = 0) -> list[tuple[str, str]]:
    """The lines below the table that every module has."""
    return [
        (get_human_readable_count(trainable), "Trainable params"),
        (get_human_readable_count(total - trainable), "Non-trainable params"),
        (get_human_readable_count(total), "Total params"),
        (f"{megabytes:,.3f}", "Total estimated model params size (MB)"),
        (str(modes["train"]), "Modules in train mode"),
        (str(modes["eval"]), "Modules in eval mode"),
        (get_human_readable_count(flops), "Total Flops"),
    ]


def summarize(module: nn.Module, max_depth: int = 1) -> ModelSummary:
    """Summarize a module down to `max_depth` levels of nested modules; see `ModelSummary`."""
    return ModelSummary(module, max_depth=max_depth)


def get_human_readable_count(number: int) -> str:
    """Abbreviate a count as Lightning does: `"123  "`, `"1.2 K"`, `"132 K"`, `"2.0 M"`."""
    if number < 0:
        raise ValueError(f"A count cannot be negative, got {number}.")
    group = min((len(str(int(number))) - 1) // 3, len(_UNITS) - 1)
    scaled = number / 1000**group
    digits = f"{int(scaled):,d}" if group == 0 or scaled >= 100 else f"{scaled:,.1f}"
    return f"{digits} {_UNITS[group]}"


def _modules_to_depth(model: nn.Module, max_depth: int) -> Iterator[tuple[str, nn.Module]]:
    for name, module in model.named_modules():
        if name and (max_depth == -1 or name.count(".") < max_depth):
            yield name, module


def _layer(name: str, module: nn.Module, seen: ExampleRun) -> LayerSummary:
    parameters = list(module.parameters())
    sized = _sized(parameters)
    lazy = len(parameters) - len(sized)
    sizes = seen.sizes.get(name, (UNKNOWN, UNKNOWN))
    return LayerSummary(name, type(module).__name__, _count(sized), module.training, lazy, seen.flops.get(name, 0), *sizes)


def _sized(parameters: Iterable[nn.Parameter]) -> list[nn.Parameter]:
    return [parameter for parameter in parameters if not isinstance(parameter, UninitializedParameter)]


def _count(parameters: Iterable[nn.Parameter]) -> int:
    return sum(parameter.numel() for parameter in parameters)


def _shared(model: nn.Module) -> list[nn.Parameter]:
    """Return the parameters that belong to more than one module."""
    owners: dict[int, list[nn.Parameter]] = {}
    for module in model.modules():
        for parameter in _sized(module.parameters(recurse=False)):
            owners.setdefault(id(parameter), []).append(parameter)
    return [same[0] for same in owners.values() if len(same) > 1]
