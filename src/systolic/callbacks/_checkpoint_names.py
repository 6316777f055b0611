"""Names of checkpoint files: templates such as `{epoch}-{val_loss:.2f}`, directories, version suffixes."""

import os
import re
from collections.abc import Mapping
from string import Formatter
from typing import Any

from ..checkpoint import location
from ..exceptions import MisconfigurationException
from ._protocol import TrainerLike


def fill(template: str, metrics: Mapping[str, Any], equals: str | None) -> str:
    """Put metrics into a template; names may contain any character but braces, colons and exclamation marks.

    A metric that does not exist counts as 0, as in Lightning.

    Args:
        template: text with `{name}` or `{name:format}` in it.
        metrics: scalars by name.
        equals: what to put between a metric's name and its value; None leaves the name out.
    """
    return "".join(
        literal if name is None else literal + _fill_field(name, spec or "", metrics, equals)
        for literal, name, spec, _ in Formatter().parse(template)
    )


def _fill_field(name: str, spec: str, metrics: Mapping[str, Any], equals: str | None) -> str:
    try:
        value = format(metrics.get(name, 0), spec)
    except (TypeError, ValueError) as error:
        raise MisconfigurationException(
            f"The file name of a ModelCheckpoint has {{{name}:{spec}}}, and its value is {metrics.get(name, 0)!r}: {error}. "
            "Expected a format of numbers, such as {val_loss:.2f}."
        ) from error
    return value if equals is None else f"{name}{equals}{value}"


def unknown_names(template: str, metrics: Mapping[str, Any]) -> list[str]:
    """The names in a template for which there is no metric."""
    return [name for _, name, _, _ in Formatter().parse(template) if name is not None and name not in metrics]


def matches(file_name: str, template: str, join: str, extension: str, equals: str | None) -> bool:
    """Whether a template can have given this file its name, with a version suffix or without."""
    pattern = "".join(
        re.escape(literal) + ("" if name is None else (re.escape(f"{name}{equals}") if equals else "") + ".*")
        for literal, name, _, _ in Formatter().parse(template)
    )
    return re.fullmatch(rf"{pattern}({re.escape(join)}v\d+)?{re.escape(extension)}", file_name) is not None


def default_directory(trainer: TrainerLike) -> str:
    """`<logger's save_dir>/<name>/<version>/checkpoints`, or `<default_root_dir>/checkpoints` without a logger."""
    if not trainer.loggers:
        return os.path.join(location(trainer.default_root_dir), "checkpoints")
    logger = trainer.loggers[0]
    version = logger.version if isinstance(logger.version, str) else f"version_{logger.version}"
    save_dir = location(logger.save_dir or trainer.default_root_dir)
    return os.path.join(save_dir, str(logger.name or ""), version, "checkpoints")
