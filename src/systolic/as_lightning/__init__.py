"""`import systolic.as_lightning` first, and what a script imports from Lightning is systolic.

`lightning`, `lightning.pytorch` and `pytorch_lightning` are systolic from then on, whether or not they are installed. What
systolic lacks is Lightning's own where Lightning is installed, else an error that names it. `systolic run train.py` does the
same for a script that is not to be changed.

Example:
    >>> import systolic.as_lightning  # doctest: +SKIP
    >>> import lightning as L  # doctest: +SKIP
    >>> L.Trainer  # doctest: +SKIP
    <class 'systolic.trainer._trainer.Trainer'>
"""

from ._finder import VERSION as VERSION
from ._finder import install as install

install()
