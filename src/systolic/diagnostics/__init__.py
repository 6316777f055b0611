"""What a run or a machine can be asked about itself."""

from ._metrics import Metrics as Metrics
