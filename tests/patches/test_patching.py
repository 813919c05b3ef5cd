"""Attributes are replaced and put back exactly."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from vllm_ascend_spec.patches.patching import Patches


class Base:
    def inherited(self) -> str:
        return "stock"


class Owner(Base):
    @staticmethod
    def static() -> str:
        return "stock"

    @classmethod
    def of_class(cls) -> str:
        return cls.__name__


def test_set_and_revert() -> None:
    owner, patches = SimpleNamespace(a=1), Patches()
    assert not patches
    patches.set(owner, "a", 2)
    patches.set(owner, "a", 3)
    assert patches
    assert owner.a == 3
    patches.revert()
    assert owner.a == 1
    assert not patches


def test_revert_twice_changes_nothing() -> None:
    owner, patches = SimpleNamespace(a=1), Patches()
    patches.set(owner, "a", 2)
    patches.revert()
    owner.a = 5
    patches.revert()
    assert owner.a == 5


def test_attribute_that_was_not_there_is_removed_again() -> None:
    owner, patches = SimpleNamespace(), Patches()
    patches.set(owner, "a", 2)
    patches.revert()
    assert not hasattr(owner, "a")


def test_inherited_method_is_inherited_again() -> None:
    patches = Patches()
    patches.set(Owner, "inherited", lambda self: "ours")
    assert Owner().inherited() == "ours"
    patches.revert()
    assert Owner().inherited() == "stock"
    assert "inherited" not in vars(Owner)


def test_static_and_class_methods_stay_what_they_are() -> None:
    before, patches = dict(vars(Owner)), Patches()
    patches.set(Owner, "static", lambda: "ours")
    patches.set(Owner, "of_class", lambda: "ours")
    patches.revert()
    assert vars(Owner)["static"] is before["static"]
    assert vars(Owner)["of_class"] is before["of_class"]
    assert (Owner.static(), Owner.of_class()) == ("stock", "Owner")


def test_kernel_forgets_the_argument_names_of_the_one_before() -> None:
    dispatcher: Any = SimpleNamespace(kernel="stock", _kernel_arg_names=("a",))
    patches = Patches()
    patches.set_kernel(dispatcher, "ours")
    assert vars(dispatcher) == {"kernel": "ours"}
    dispatcher._kernel_arg_names = ("b",)
    patches.revert()
    assert vars(dispatcher) == {"kernel": "stock"}
