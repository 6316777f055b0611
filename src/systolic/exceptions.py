"""Exceptions that systolic raises on purpose, and its category of warnings."""


class MisconfigurationException(Exception):
    """The user asked for something that cannot be done as asked.

    The name is Lightning's, so that `except MisconfigurationException` in a ported script keeps working. The message
    says what was expected, what was received and what to do next.
    """


class MissingAttributeError(MisconfigurationException, AttributeError):
    """Something was to be found under a name in the module, its hyperparameters or the datamodule, and is not there."""


class NothingToSaveError(MisconfigurationException, AttributeError):
    """A checkpoint was asked for before there was a module."""


class OldInterfaceError(MisconfigurationException, RuntimeError):
    """A module has hooks, arguments or optimizers as Lightning 1 had them."""


class CollidingHyperparametersError(MisconfigurationException, RuntimeError):
    """The module and the datamodule have different hyperparameters of one name, and a logger has one place for each."""


class ArgumentTypeError(MisconfigurationException, TypeError):
    """An argument is of a type that it cannot be."""


class OutOfRangeError(IndexError, RuntimeError):
    """A compiled step met an index, a class or a probability that eager PyTorch refuses.

    For some ops eager PyTorch raises an IndexError, for others a RuntimeError; this is both.
    """


class OutOfMemoryError(RuntimeError):
    """The devices have too little memory for the step; the message says what was allocated and what to change."""


class LoggerBlockedError(RuntimeError):
    """A logger has not come back within the time that it is given, and training would wait for it for ever."""


class PossibleUserWarning(UserWarning):
    """Something that is often a mistake, and sometimes meant; the name is Lightning's, for filters of warnings."""


class SIGTERMException(SystemExit):
    """SIGTERM ended a run, after a checkpoint was saved; left to itself it ends the process with exit code 143."""

    def __init__(self) -> None:
        super().__init__(143)


class TrainingSpikeException(RuntimeError):
    """The loss of a batch was suddenly much worse than before; `SpikeDetection` ends training with it.

    Args:
        batch_idx: the number of the batch in its epoch.
    """

    def __init__(self, batch_idx: int, *args: object) -> None:
        super().__init__(f"Training spike detected in batch {batch_idx}", *args)
        self.batch_idx = batch_idx
