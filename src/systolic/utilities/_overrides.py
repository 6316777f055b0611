"""Whether a user's class has its own version of a method."""

from __future__ import annotations


def overrides(owner: object, name: str, base: type) -> bool:
    """Whether an object has its own version of a method of `base`, in its class or set on itself.

    Args:
        owner: an instance of `base`, or of a class that only looks like it.
        name: the method; a name that `base` lacks counts as overridden where the object has it.
        base: the class whose methods are the defaults.

    Example:
        >>> class Base:
        ...     def hook(self): ...
        >>> class Own(Base):
        ...     def hook(self): return 1
        >>> overrides(Own(), "hook", Base), overrides(Base(), "hook", Base)
        (True, False)
    """
    return name in vars(owner) or getattr(type(owner), name, None) is not getattr(base, name, None)
