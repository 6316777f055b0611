"""Who has put a method of their own in the place of a base class's."""

from __future__ import annotations

import functools
from typing import Any
from unittest.mock import Mock

import pytest

from systolic.utilities._overrides import overrides


class Base:
    def hook(self) -> None:
        """Nothing."""


class Own(Base):
    def hook(self) -> None:
        """Something."""


class Wrapped(Base):
    hook = functools.wraps(Base.hook)(lambda self: None)


class Static(Base):
    hook = staticmethod(lambda: None)


class Proxy:
    def __getattr__(self, name: str) -> Any:
        return getattr(Own(), name)


def assigned() -> Base:
    instance = Base()
    instance.hook = lambda: None
    return instance


def partially_assigned() -> Base:
    instance = Base()
    instance.hook = functools.partial(print, "called")
    return instance


@pytest.mark.parametrize("instance", [Own(), Wrapped(), Static(), Proxy(), assigned(), partially_assigned(), Mock(spec=Base)])
def test_a_method_of_ones_own_is_found_wherever_it_is(instance: Any) -> None:
    assert overrides(instance, "hook", Base)


@pytest.mark.parametrize("instance", [Base(), type("Derived", (Base,), {})()])
def test_an_inherited_method_is_no_override(instance: Any) -> None:
    assert not overrides(instance, "hook", Base)


def test_a_method_that_the_base_class_lacks_is_an_override_where_it_exists() -> None:
    assert overrides(type("More", (Base,), {"more": lambda self: None})(), "more", Base)
    assert not overrides(Base(), "more", Base)
