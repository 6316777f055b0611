"""Turn the tracer's errors into ones that say what the user's line did and what to do instead."""

from __future__ import annotations

import contextlib
import traceback
from collections.abc import Iterator

from ...utilities._entries import Entry, see
from ...utilities._torch_internals import DataDependentOutputException, DynamicOutputShapeException, GuardOnDataDependentSymNode
from .._errors import CaptureError, DataDependentError, user_line_of

_OF_NAMED_TENSORS = ("refine_names", "rename", "rename_", "align_to", "align_as")


@contextlib.contextmanager
def explained() -> Iterator[None]:
    """Inside the block, errors about values that only the device knows are raised as `DataDependentError`."""
    try:
        yield
    except CaptureError:
        raise
    except (GuardOnDataDependentSymNode, DataDependentOutputException) as error:
        raise DataDependentError(value_needed(user_line_of(error))) from None
    except DynamicOutputShapeException as error:
        raise DataDependentError(_shape_needed(user_line_of(error), str(error.func))) from None
    except AttributeError as error:
        if (error.name in _OF_NAMED_TENSORS and "FunctionalTensor" in str(error)) or _in_masked_tensors(error):
            raise CaptureError(_of_other_kind(user_line_of(error))) from None
        raise
    except ValueError as error:
        # an array of NumPy's puts an error of its own in the place of that of a value which it is to keep
        if isinstance(error.__cause__, (GuardOnDataDependentSymNode, DataDependentOutputException, DataDependentError)):
            raise DataDependentError(host_needed(user_line_of(error))) from None
        raise
    except TypeError as error:
        if "FunctionalTensor.__format__" in str(error):
            raise DataDependentError(value_needed(user_line_of(error))) from None
        raise
    except RuntimeError as error:
        if ".numpy() is not supported" in str(error) or "data is not allocated yet" in str(error):
            raise DataDependentError(host_needed(user_line_of(error))) from None
        if "doesn't have storage" in str(error):
            raise CaptureError(_without_storage(user_line_of(error))) from None
        if "data pointer" in str(error):
            raise DataDependentError(host_needed(user_line_of(error))) from None
        if "is not tracked with proxy" in str(error) or "nested_tensor_from_jagged" in str(error):
            raise CaptureError(_of_other_kind(user_line_of(error))) from None
        if "expected to contain only concrete integers" in str(error):
            raise DataDependentError(value_needed(user_line_of(error))) from None
        if "data-dependent" in str(error) or "unbacked symint" in str(error).lower():
            raise DataDependentError(value_needed(user_line_of(error))) from None
        raise


def host_needed(line: str) -> str:
    """Text of the error for values that a library of the host wants while a step is traced."""
    return (
        "The step hands a tensor's values to NumPy, or to a library that computes on the host, while it is being traced. The "
        "values exist only when the program runs.\n"
        f"  used at {line}\n"
        "Options: compute it with torch; make the function that wants values one with systolic.host(function), which calls it "
        "after every step, and log what it gives; return the tensor from the step and use its values in a hook such as "
        "on_train_batch_end, which runs on the host; use torchmetrics in place of sklearn.metrics; "
        f"or run in eager PyTorch with Trainer(compile=False).{see(Entry.DATA_DEPENDENT)}"
    )


def _without_storage(line: str) -> str:
    return (
        "The step uses a tensor that is not dense (sparse, nested or quantized), which a compiled program cannot hold.\n"
        f"  used at {line}\n"
        "Options: call .to_dense() before training; write the sparse product with index_select and index_add; "
        "or run in eager PyTorch with Trainer(compile=False)."
    )


def _in_masked_tensors(error: AttributeError) -> bool:
    frames = traceback.extract_tb(error.__traceback__)
    return any(frame.filename.replace("\\", "/").rpartition("/")[0].endswith("torch/masked/maskedtensor") for frame in frames)


def _of_other_kind(line: str) -> str:
    return (
        "The step makes a tensor of another kind (nested, of the class MaskedTensor, or with named dimensions), which a "
        "compiled program cannot hold.\n"
        f"  used at {line}\n"
        "Options: pad to one length and give attention and losses a mask; torch.masked.sum, mean, softmax and the others take "
        "a mask beside a plain tensor; drop the names of dimensions; or run in eager PyTorch with Trainer(compile=False)."
    )


def value_needed(line: str) -> str:
    return (
        "The step asks for the value of a tensor while it is being traced (an `if`, `while`, `int()`, `bool()`, "
        "`len()` or a formatted string that depends on it). The step becomes one program, compiled once; the value "
        "exists only when that program runs.\n"
        f"  used at {line}\n"
        "Options: choose between values with torch.where(condition, a, b) or multiply by a mask; log a value with "
        "self.log(...), which costs nothing; move the decision to a callback hook such as on_train_batch_end; "
        f"or run in eager PyTorch with Trainer(compile=False).{see(Entry.DATA_DEPENDENT)}"
    )


def _shape_needed(line: str, op: str) -> str:
    return (
        f"The op {op} gives a tensor whose shape depends on values (boolean indexing, nonzero, unique, ...). "
        "A compiled program has fixed shapes.\n"
        f"  used at {line}\n"
        "Options: keep the full shape and use torch.where or a mask in the reduction; prepare such selections in the "
        f"dataset or collate function, which run on the host; or use Trainer(compile=False).{see(Entry.DATA_DEPENDENT)}"
    )
