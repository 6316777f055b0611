"""All rows of the model sweep."""

from __future__ import annotations

import importlib

from _models_row import ROWS as ROWS

for _tables in ("_models_text", "_models_vision", "_models_sound", "_models_several", "_models_packages", "_models_further"):
    importlib.import_module(_tables)
