"""`systolic checkpoint show FILE` and `systolic checkpoint convert DIRECTORY FILE`."""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser, Namespace

import jax

from ..checkpoint import CheckpointFormatError, Description, Part, convert, describe
from ._command import Command

_UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB")
_SHOWN_VALUES = 8
"""Parts with more values than that tell how many; `--json` has all of them."""


def _add_arguments(parser: ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    show = actions.add_parser("show", help="print what is in a checkpoint, and whether it is whole", allow_abbrev=False)
    show.add_argument(
        "file", metavar="FILE", help="a checkpoint of systolic or Lightning: a file, a directory of shards, or a URL"
    )
    show.add_argument("--json", action="store_true", help="print one JSON object instead of text")
    text = "write a directory of shards as one file, or a file as a directory"
    conversion = actions.add_parser("convert", help=text, allow_abbrev=False)
    conversion.add_argument("source", metavar="SOURCE", help="a checkpoint that is a directory or a file")
    conversion.add_argument("target", metavar="TARGET", help="where there is nothing yet")


def _run(options: Namespace) -> int:
    return _show(options.file, options.json) if options.action == "show" else _convert(options.source, options.target)


def _convert(source: str, target: str) -> int:
    if not jax.config.values["jax_platforms"]:  # nothing is computed: an accelerator stays free for who trains on it
        jax.config.update("jax_platforms", "cpu")
    try:
        convert(source, target)
    except CheckpointFormatError as error:
        sys.stderr.write(f"systolic checkpoint convert: {error}\n")
        return 1
    found = describe(target)
    _say(f"{found.path}: {found.format}, {_size(found.bytes)}")
    return 0


def _show(path: str, as_json: bool) -> int:
    try:
        found = describe(path)
    except CheckpointFormatError as error:
        if as_json:
            _say(json.dumps({"path": path, "error": str(error)}, indent=2))
        else:
            sys.stderr.write(f"systolic checkpoint show: {error}\n")
        return 1
    _say(json.dumps(found.as_dict(), indent=2) if as_json else _as_text(found))
    return 0


def _as_text(found: Description) -> str:
    facts = {
        "format": found.format,
        "versions": ", ".join(f"{name} {version}" for name, version in found.versions.items()) or "unknown",
        "epoch": "not said" if found.epoch is None else str(found.epoch),
        "step": "not said" if found.step is None else str(found.step),
        "size": f"{_size(found.bytes)}, tensors in memory {_size(found.tensor_bytes)}",
        "checksum": "none stored that could be checked" if found.checksum is None else f"{found.checksum}: all fit",
    }
    lines = [found.path, *(f"  {name:<12}{text}" for name, text in facts.items())]
    for part in found.parts:
        lines += _lines_of(part)
    return "\n".join(map(_printable, lines))


def _printable(line: str) -> str:
    """A line without characters that would move the cursor or change colours: keys are whatever somebody wrote."""
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in line)


def _lines_of(part: Part) -> list[str]:
    if not part.tensors and list(part.values) == [""]:
        return [f"{part.name}: {part.values['']}"]
    counts = [f"{_counted(len(part.tensors), 'tensor')}, {_size(part.bytes)}"] if part.tensors else []
    counts += [_counted(len(part.values), "other value")] if part.values else []
    width = max((len(tensor.name) for tensor in part.tensors), default=0)
    lines = [f"{part.name}: {', '.join(counts)}"]
    lines += [f"  {t.name:<{width}}  {t.dtype} {list(t.shape)}  {_size(t.bytes)}" for t in part.tensors]
    if len(part.values) <= _SHOWN_VALUES:
        lines += [f"  {name} = {text}" for name, text in part.values.items()]
    return lines


def _counted(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def _size(count: float) -> str:
    unit = 0
    while count >= 1024 and unit + 1 < len(_UNITS):
        count, unit = count / 1024, unit + 1
    return f"{count:.0f} {_UNITS[unit]}" if unit == 0 else f"{count:.1f} {_UNITS[unit]}"


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")


CHECKPOINT = Command("checkpoint", "Show what is in a checkpoint, or convert one.", _add_arguments, _run)
