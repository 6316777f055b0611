"""Batch values that are no tensors: numbers stay variable, and what a step never reads costs no new trace.

Numbers stand in a dict that the engine walks like the module's attributes. For a text (a file name) a trace gets a token that
notes what is done with it. For everything else (None, objects) a trace records what it reads: dicts do that key by key, what
other containers hold counts as read.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import warnings
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..compiler import NUMPY_NUMBERS, GivenText, HostResult, TextsAreReadError, is_capture_thread
from ..data import BatchSpec
from ..data._batch import LEAF, Node, Static, Tree
from ._recording import RecordingDict

Number = int | float
_PLAIN = (bool, int, float, complex, str, bytes, type(None), np.number)
_EXACT_IN_FLOAT64 = 2**53
_TRACES_BEFORE_WARNING = 4
_OURS = str(Path(__file__).parents[1])


class BatchStatics:
    """The values of one step function's batches that are no tensors.

    Attributes:
        numbers: the numbers of the current batch, by where they stand in it; part of the object graph that the engine walks.
        warns: whether a step that is traced again for every batch is warned of.
        changing: places of the values that were others in each of the first traces, and were read.
    """

    def __init__(self) -> None:
        self.numbers: dict[str, Number] = {}
        self.warns = True
        self.changing: list[str] = []
        self._structures: dict[Hashable, _Structure] = {}
        self._current: Sequence[Any] = ()
        self._tokens = _NO_TOKENS

    def enter(self, spec: BatchSpec, statics: Sequence[Any]) -> tuple[Any, Callable[[list[Any]], tuple[Any]]]:
        """Prepare for a batch.

        Args:
            spec: the batch without its tensors.
            statics: `spec.statics`.

        Returns:
            A value that is equal for batches which differ in nothing that a trace read, numbers aside; and a function
            that makes the step's argument from the batch's tensors.
        """
        self._current, self._tokens = statics, _NO_TOKENS
        if not statics:
            if self.numbers:
                self.numbers.clear()
            return spec, lambda leaves: (spec.unflatten(leaves),)
        key = spec.structure_key()
        structure = self._structures.get(key)
        if structure is None:
            structure = _Structure(key, list(_labels(spec.tree, "")), list(_tensor_labels(spec.tree, "")))
            self._structures[key] = structure
        self._keep_numbers(structure.labels, statics)
        return BatchKey(structure, statics), lambda leaves: (self._traceable(spec, structure, statics, leaves),)

    def _keep_numbers(self, labels: list[str], statics: Sequence[Any]) -> None:
        known = dict(self.numbers)
        self.numbers.clear()
        for label, value in zip(labels, statics, strict=True):
            if _is_number(value):
                # the engine's fast check compares identities, so an equal number stays the same object
                self.numbers[label] = known[label] if _same(known.get(label), value) else value

    def _traceable(self, spec: BatchSpec, structure: _Structure, statics: Sequence[Any], leaves: list[Any]) -> Any:
        if not is_capture_thread():
            return spec.unflatten(leaves)
        self._note_trace(structure, statics)
        self._tokens = _Tokens(structure.read)
        builder = _Builder(iter(leaves), structure, statics, self.numbers, self._token_for)
        return builder.build(spec.tree, parent_records=False)

    def _token_for(self, place: int) -> GivenText | None:
        """A token for a text that no trace has read so far."""
        tokens = self._tokens
        if place in tokens.read:
            return None
        tokens.given.add(place)
        return GivenText(lambda: self._current[place], lambda: tokens.note(place))

    @contextlib.contextmanager
    def reads_noted(self) -> Iterator[None]:
        """Around a step's code.

        Raises:
            TextsAreReadError: a trace has tokens for texts that the step turned out to read.
        """
        try:
            yield
        except Exception as error:
            # code in C takes no token for a text: it may have been the reason
            if self._tokens.given and _may_be_of_texts(error):
                self._tokens.note(*self._tokens.given)
            if not self._tokens.are_read:
                raise
            raise TextsAreReadError from error
        if self._tokens.are_read:
            raise TextsAreReadError

    def _note_trace(self, structure: _Structure, statics: Sequence[Any]) -> None:
        changing = structure.changing_with(statics)
        if changing and self.warns:
            warnings.warn(
                f"The step is traced again for every new value of batch{', batch'.join(changing)}. Values that are no "
                "tensors cost nothing while the step does not read them, which is noticed in batches that are dicts, or "
                "while it only keeps texts, or gives them to a function under systolic.host. Read the value in "
                "a hook, as on_before_batch_transfer, or in the dataset or collate function.",
                stacklevel=2,
            )
        self.changing += changing


class _Structure:
    """Facts about all batches of one structure: the names of their statics, and which of them a trace read."""

    def __init__(self, key: Hashable, labels: list[str], tensor_labels: list[str]) -> None:
        self.key = key
        self.labels = labels
        self.tensor_labels = tensor_labels
        self.read: set[int] = set()
        self._traced: list[Sequence[Any]] = []

    def changing_with(self, statics: Sequence[Any]) -> list[str]:
        """Places of values that were read and differ in trace after trace, at the first trace that is one too many."""
        if len(self._traced) == _TRACES_BEFORE_WARNING or (self._traced and self._traced[-1] is statics):
            return []
        self._traced.append(statics)
        if len(self._traced) < _TRACES_BEFORE_WARNING:
            return []
        first = self._traced[0]
        return [self.labels[i] for i in sorted(self.read) if any(not _same(t[i], first[i]) for t in self._traced[1:])]


class _Tokens:
    """Facts about the tokens of one trace.

    Args:
        read: places of the statics that some trace has read.

    Attributes:
        given: places of the texts that this trace has tokens for.
        are_read: whether it read one of them.
    """

    def __init__(self, read: set[int]) -> None:
        self.read = read
        self.given: set[int] = set()
        self.are_read = False

    def note(self, *places: int) -> None:
        """The step reads these."""
        self.are_read = True
        self.read.update(places)


_NO_TOKENS = _Tokens(set())
"""Of steps that are not traced."""


class BatchKey:
    """Compares batches by structure, and by those values that some trace of the structure has read so far.

    A later trace may read more. Then older keys are compared by those values, too, so that none matches by mistake.
    """

    __slots__ = ("_statics", "_structure")

    def __init__(self, structure: _Structure, statics: Sequence[Any]) -> None:
        self._structure = structure
        self._statics = statics

    @property
    def tensor_labels(self) -> list[str]:
        """Place of each tensor of the batch."""
        return self._structure.tensor_labels

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, BatchKey)
            and self._structure is other._structure
            and all(_same(self._statics[i], other._statics[i]) for i in self._structure.read)
        )

    def __hash__(self) -> int:
        return hash(self._structure.key)

    def __repr__(self) -> str:
        read = {self._structure.labels[i]: self._statics[i] for i in sorted(self._structure.read)}
        return f"BatchKey({', '.join(f'batch{label}={value!r:.60}' for label, value in read.items())})"


class _Builder:
    """Makes a batch for a trace: like `BatchSpec.unflatten`, with numbers of the engine, tokens, and dicts that record."""

    def __init__(
        self,
        leaves: Iterator[Any],
        structure: _Structure,
        statics: Sequence[Any],
        numbers: dict[str, Number],
        token_for: Callable[[int], GivenText | None],
    ) -> None:
        self._leaves = leaves
        self._structure = structure
        self._statics = statics
        self._numbers = numbers
        self._token_for = token_for
        self._given = set[int]()
        self._position = 0

    def build(self, tree: Tree, parent_records: bool) -> Any:
        """The value of a tree; without a recording dict around it, its statics count as read."""
        if tree is LEAF:
            return next(self._leaves)
        if isinstance(tree, Static):
            return self._static(parent_records)
        assert isinstance(tree, Node)
        if tree.kind is dict:
            return self._recording(tree)
        return tree.rebuild([self.build(child, parent_records) for child in tree.children])

    def _static(self, parent_records: bool) -> Any:
        index = self._position
        self._position += 1
        if self._structure.labels[index] in self._numbers:
            return self._numbers[self._structure.labels[index]]
        token = self._token_for(index) if type(self._statics[index]) is str else None
        if token is not None:
            self._given.add(index)
            return token
        if not parent_records:
            self._structure.read.add(index)
        return self._statics[index]

    def _recording(self, tree: Node) -> dict[Any, Any]:
        values, unread = [], {}
        for name, child in zip(tree.context[0], tree.children, strict=True):  # type: ignore[index]
            start = self._position
            values.append(self.build(child, parent_records=True))
            known = [i for i in range(start, self._position) if i not in self._given]
            own = [i for i in known if self._structure.labels[i] not in self._numbers]
            if own and not isinstance(values[-1], RecordingDict):
                unread[name] = own
        plain = tree.rebuild(values)
        if not unread:
            return plain
        recording = RecordingDict(plain)
        recording.watch(unread, self._structure.read)
        return recording


def _labels(tree: Tree, label: str) -> Iterator[str]:
    """Place of each static, as Python text behind the word "batch"."""
    if isinstance(tree, Static):
        yield label
    elif isinstance(tree, Node):
        for name, child in zip(_names(tree), tree.children, strict=True):
            yield from _labels(child, label + name)


def _tensor_labels(tree: Tree, label: str) -> Iterator[str]:
    """Place of each tensor."""
    if tree is LEAF:
        yield label
    elif isinstance(tree, Node):
        for name, child in zip(_names(tree), tree.children, strict=True):
            yield from _tensor_labels(child, label + name)


def tensor_name(structure: tuple[Any, ...], index: int) -> str:
    """Users' name of a tensor of a batch: `batch['x']`.

    Args:
        structure: what `BatchStatics.enter` returned, first.
        index: the tensor's number in the flattened batch.
    """
    key = structure[0]
    labels = key.tensor_labels if isinstance(key, BatchKey) else list(_tensor_labels(key.tree, ""))
    return f"batch{labels[index]}"


def _names(node: Node) -> list[str]:
    context: Any = node.context
    if issubclass(node.kind, Mapping):
        return [f"[{key!r}]" for key in context[0]]
    if dataclasses.is_dataclass(node.kind):
        return [f".{name}" for name in context]
    return [f"[{index}]" for index in range(len(node.children))]


def _may_be_of_texts(error: Exception) -> bool:
    """Whether a token in the place of a text may be the reason for an error; any other error ends a step at once."""
    if not isinstance(error, TypeError):
        return False
    innermost = error.__traceback__
    while innermost is not None and innermost.tb_next is not None:
        innermost = innermost.tb_next
    of_ours = innermost is not None and innermost.tb_frame.f_code.co_filename.startswith(_OURS)
    return not of_ours and HostResult.__name__ not in str(error)


def _is_number(value: Any) -> bool:
    if type(value) not in (int, float, *NUMPY_NUMBERS) or not math.isfinite(value) or abs(value) > _EXACT_IN_FLOAT64:
        return False
    return value != 0 or math.copysign(1, value) > 0  # the engine's guards do not tell -0.0 from 0.0


def _same(a: Any, b: Any) -> bool:
    """Equal plain values (0.0 and -0.0 differ, nan is itself), or the same object."""
    if a is b:
        return True
    if type(a) is not type(b) or not isinstance(a, _PLAIN):
        return False
    return repr(a) == repr(b) if isinstance(a, float | complex | np.floating) else a == b
