"""Write plain data as YAML, for hparams.yaml.

A writer of one page is cheaper than a dependency. What it writes loads equal under YAML 1.1 (PyYAML) and 1.2. JSON
would not: PyYAML reads JSON's `1e-05` as a string.
"""

import json
import math
import re
from typing import Any

_SAFE_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_./-]*")
# Words that YAML 1.1 reads as booleans or null.
_WORDS = {"y", "n", "yes", "no", "on", "off", "true", "false", "null"}


def dump_yaml(data: dict[Any, Any]) -> str:
    """Return block-style YAML for nested dicts, lists and scalars."""
    return "\n".join(_lines(data)) + "\n"


def _lines(value: object) -> list[str]:
    if isinstance(value, dict) and value:
        return [line for key, item in value.items() for line in _entry(f"{_scalar(key)}:", item)]
    if isinstance(value, list) and value:
        return [line for item in value for line in _element(item)]
    return [_flow(value)]


def _entry(head: str, item: object) -> list[str]:
    if isinstance(item, dict | list) and item:
        return [head, *(f"  {line}" for line in _lines(item))]
    return [f"{head} {_flow(item)}"]


def _element(item: object) -> list[str]:
    first, *rest = _lines(item)
    return [f"- {first}", *(f"  {line}" for line in rest)]


def _flow(value: object) -> str:
    if isinstance(value, dict | list):
        return "{}" if isinstance(value, dict) else "[]"
    return _scalar(value)


def _scalar(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return _float(value)
    return str(value) if isinstance(value, int) else _string(value)


def _float(value: float) -> str:
    if math.isnan(value):
        return ".nan"
    if math.isinf(value):
        return ".inf" if value > 0 else "-.inf"
    digits, exponent, power = repr(value).partition("e")
    # YAML 1.1 takes a number without a point for a string.
    return f"{digits}.0e{power}" if exponent and "." not in digits else repr(value)


def _string(text: str) -> str:
    if _SAFE_PLAIN.fullmatch(text) and text.lower() not in _WORDS:
        return text
    quoted = json.dumps(text, ensure_ascii=False)
    return "".join(char if char.isprintable() else _escaped(char) for char in quoted)


def _escaped(char: str) -> str:
    return f"\\u{ord(char):04x}" if ord(char) < 0x10000 else f"\\U{ord(char):08x}"
