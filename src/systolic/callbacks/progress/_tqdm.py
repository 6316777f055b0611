"""tqdm's bar with numbers of a steady width; imported where a bar is made, as tqdm need not be installed."""

import importlib.util
from typing import TYPE_CHECKING, Any

# with ipywidgets, tqdm.auto draws in notebooks; without, it would warn there
if TYPE_CHECKING or importlib.util.find_spec("ipywidgets") is None:
    from tqdm import tqdm
else:
    from tqdm.auto import tqdm

_WIDTH = 5


class Tqdm(tqdm):
    """A bar of tqdm's whose metrics are filled up with zeros, so that it does not jump."""

    @staticmethod
    def format_num(n: Any) -> str:
        """`0.1` as `0.100`; integers, exponents and words stay what they are."""
        text = n if isinstance(n, str) else str(tqdm.format_num(n))
        if not isinstance(n, float | str) or "e" in text:
            return text
        if "." not in text and len(text) < _WIDTH:
            if not _is_number(text):
                return text
            text += "."
        return text.ljust(_WIDTH, "0")


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
