"""Infer from imports and annotations what names stand for at a place in our source."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from vllm_ascend_spec.conformance.sources import (
    OF_THE_CLASS,
    UNBOUND,
    Class,
    Function,
    Module,
    Symbol,
    decorators,
    resolve,
    targets,
)

PROPERTIES = {"property", "cached_property", "functools.cached_property"}


@dataclass(frozen=True)
class Instance:
    """An object of a class."""

    cls: Class


Thing = Module | Class | Symbol | Instance | None


@dataclass
class Scope:
    """The names visible at one place.

    Attributes:
        module: module that contains the place.
        names: known names besides the module's top level; None shadows a top-level name.
        above: in a method, the classes that ``super()`` looks through.
    """

    module: Module
    names: dict[str, Thing] = field(default_factory=dict)
    above: list[Class] | None = None

    def within(self, function: Function, me: Class | None = None) -> Scope:
        """Return the scope of a function's body.

        Args:
            function: its definition.
            me: class that ``self`` stands for in a method, even if a base class defines it.
        """
        inner = Scope(self.module, dict(self.names), self.above)
        for node in ast.walk(function):
            for target in targets(node):
                if isinstance(target, ast.Name):
                    inner.names[target.id] = None
        arguments = function.args
        for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs):
            inner.names[argument.arg] = annotated(argument.annotation, self.module)
        for node in function.body:
            if isinstance(node, Function):
                inner.names[node.name] = Symbol(self.module, node)
        given = decorators(function)
        if me is not None and arguments.args and UNBOUND not in given:
            is_class = OF_THE_CLASS in given or function.name == "__new__"
            inner.names[arguments.args[0].arg] = me if is_class else Instance(me)
        return inner

    def assign(self, node: ast.Assign) -> None:
        """Record what names stand for after ``name = value``."""
        for target in node.targets:
            if isinstance(target, ast.Name):
                self.names[target.id] = self.infer(node.value)

    def infer(self, node: ast.AST) -> Thing:
        """Return what an expression stands for; None if unknown."""
        if isinstance(node, ast.Name):
            return self.names[node.id] if node.id in self.names else self.module.get(node.id)
        if isinstance(node, ast.Attribute):
            return attribute(self.infer(node.value), node.attr)
        if isinstance(node, ast.Call):
            made = self.infer(node.func)
            if isinstance(made, Class):
                return Instance(made)
            if isinstance(made, Symbol) and isinstance(made.node, Function):
                return annotated(made.node.returns, made.module)
        return None


def attribute(base: Thing, name: str) -> Thing:
    """Return what an attribute of ``base`` stands for; None if unknown."""
    if isinstance(base, Module):
        return base.sources.find(f"{base.name}.{name}")
    if not isinstance(base, Class | Instance):
        return None
    cls = base if isinstance(base, Class) else base.cls
    found = cls.get(name)
    if found is not None and isinstance(found.node, Function):
        given = decorators(found.node)
        if given & PROPERTIES and isinstance(base, Instance):
            return annotated(found.node.returns, found.module)
        return replace(found, bound=isinstance(base, Instance) or OF_THE_CLASS in given)
    if isinstance(base, Class):
        return found
    return next(_declared(base.cls, name), None)


def _declared(cls: Class, name: str) -> Iterator[Instance]:
    for owner in cls.mro:
        for node in (owner.attributes.get(name), owner.declared.get(name)):
            if isinstance(node, ast.AnnAssign):
                typed = annotated(node.annotation, owner.module)
                if typed is not None:
                    yield typed


def annotated(annotation: ast.AST | None, module: Module) -> Instance | None:
    """Return the instance that an annotation describes, ignoring ``| None``; None if unknown."""
    if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
        annotation = ast.parse(annotation.value, mode="eval").body
    if isinstance(annotation, ast.BinOp):
        sides = [annotated(side, module) for side in (annotation.left, annotation.right)]
        is_none = [
            isinstance(side, ast.Constant) and side.value is None
            for side in (annotation.left, annotation.right)
        ]
        return next((s for s, other in zip(sides, reversed(is_none), strict=True) if other), None)
    if annotation is None or isinstance(annotation, ast.Constant | ast.Subscript):
        return None
    found = resolve(annotation, module)
    return Instance(found) if isinstance(found, Class) else None
