"""Conditions with which a step goes on or raises: `assert (y >= 0).all()`, `if labels.max() >= words: raise ...`.

No program is needed for the way that raises, and nobody has to wait for the devices to learn that a batch does not go there.
Whether it is such a condition is read from the bytecode of the function that asks: every path from the jump for one of the two
answers ends in `raise`, and no function on the stack, up to the step, catches it.
"""

from __future__ import annotations

import dis
import functools
import sys
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FrameType

import torch

_TORCH = str(Path(torch.__file__).parent)
_OURS = __name__.partition(".")[0]
_STEP_BEGINS = f"{__package__}._trace"
_ASKING = (f"{_TORCH}/fx/", f"{_TORCH}/_subclasses/")
_BEFORE_THE_JUMP = ("TO_BOOL", "UNARY_NOT", "CACHE", "EXTENDED_ARG", "NOT_TAKEN")
_JUMPS = frozenset([*dis.hasjrel, *dis.hasjabs])


def answer_to_go_on() -> bool | None:
    """The answer with which the step goes on, to the condition being asked for; None if the other one does not only raise."""
    asking = next(frames := _frames_of_step(), None)
    if asking is None:  # a question of our own code, in a step without code of the user's
        return None
    raising = [answer for answer in (True, False) if _raises(asking.f_code, asking.f_lasti, answer)]
    if len(raising) != 1 or any(_is_caught(frame.f_code, frame.f_lasti) for frame in frames):
        return None
    return not raising[0]


def _frames_of_step() -> Iterator[FrameType]:
    """The function that asks, and those that called it, up to the step."""
    frame: FrameType | None = sys._getframe(1)
    begun = False
    while frame is not None and frame.f_globals.get("__name__") != _STEP_BEGINS:
        if begun or not _passes_on(frame):
            begun = True
            yield frame
        frame = frame.f_back


def _passes_on(frame: FrameType) -> bool:
    """Whether a function belongs to what happens when a tensor is asked for its truth."""
    code = frame.f_code
    ours = frame.f_globals.get("__name__", "").partition(".")[0] == _OURS
    return ours or code.co_filename.startswith(_ASKING) or code.co_qualname in ("SymBool.__bool__", "Tensor.__bool__")


@functools.cache
def _raises(code: CodeType, offset: int, answer: bool) -> bool:
    """Whether a function can only raise once the condition at an instruction has this answer."""
    function = _Function(code)
    place = function.places.get(offset)
    if place is None:
        return False
    for instruction in function.instructions[place:]:
        if instruction.opname == "UNARY_NOT":
            answer = not answer
        elif "IF_TRUE" in instruction.opname or "IF_FALSE" in instruction.opname:
            jumps = answer is ("IF_TRUE" in instruction.opname)
            return function.only_raises(instruction.argval if jumps else function.after(instruction))
        elif instruction.opname not in _BEFORE_THE_JUMP:
            return False
    return False


@functools.cache
def _is_caught(code: CodeType, offset: int) -> bool:
    """Whether a function that calls what raises may go on."""
    function = _Function(code)
    return not function.lets_pass(offset)


class _Function:
    """The ways through a function's instructions."""

    def __init__(self, code: CodeType) -> None:
        bytecode = dis.Bytecode(code)
        self.instructions = list(bytecode)
        self.places = {instruction.offset: place for place, instruction in enumerate(self.instructions)}
        self._handlers = list(getattr(bytecode, "exception_entries", ()))  # which typeshed does not know
        # contextlib's way to say that an error is none
        self._suppresses = "suppress" in code.co_names
        self._met: set[int] = set()

    def after(self, instruction: dis.Instruction) -> int:
        """Offset of the next instruction."""
        return self.instructions[self.places[instruction.offset] + 1].offset

    def lets_pass(self, offset: int) -> bool:
        """Whether an error at an instruction always leaves the function."""
        handlers = [entry.target for entry in self._handlers if entry.start <= offset < entry.end]
        return not handlers or (not self._suppresses and self.only_raises(handlers[-1]))

    def only_raises(self, offset: int) -> bool:
        """Whether all that can follow from an instruction on is an error that leaves the function."""
        in_with = False
        while offset not in self._met:  # else it comes here again, and is being looked at
            self._met.add(offset)
            instruction = self.instructions[self.places[offset]]
            name = instruction.opname
            if name in ("RAISE_VARARGS", "RERAISE"):
                return self.lets_pass(offset)
            if name.startswith(("RETURN_VALUE", "RETURN_CONST", "YIELD")):
                return False
            if instruction.opcode not in _JUMPS:
                in_with = name == "WITH_EXCEPT_START" or (in_with and name in _BEFORE_THE_JUMP)
                offset = self.after(instruction)
            elif name.startswith("JUMP") and "_IF_" not in name:
                offset = instruction.argval
            else:
                # what `with` jumps to when the error is to be forgotten: of all that are common, `suppress` alone does that
                if not in_with and not self.only_raises(instruction.argval):
                    return False
                in_with = False
                offset = self.after(instruction)
        return True
