"""Whether somebody has put a method of their own in the place of a base class's."""

from __future__ import annotations


def overrides(instance: object, name: str, base: type) -> bool:
    """Whether calling `instance.name` runs something else than the method of `base`.

    The instance is asked, not its class: a hook may be an attribute of one instance (`callback.on_fit_start = f`), and an
    object that only passes for one of `base` (a mock, a proxy) has its methods nowhere else.

    Args:
        instance: the object.
        name: the method.
        base: the class whose method counts as none; where it has no such method, any is an override.
    """
    method = getattr(instance, name, None)
    return method is not None and getattr(method, "__func__", method) is not getattr(base, name, None)
