"""Find what our package overrides, calls and reads of vLLM and vllm-ascend.

No upstream method is named here: our source leads to each, through the classes we subclass, the
names we import, the arguments we annotate with upstream types and the attributes we replace.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from vllm_ascend_spec.conformance.scope import Instance, Scope, Thing, attribute
from vllm_ascend_spec.conformance.signatures import incompatible, misfit
from vllm_ascend_spec.conformance.sources import (
    Class,
    Function,
    Module,
    Sources,
    Symbol,
    dotted_name,
    imports_of,
    signature,
)


@dataclass(frozen=True, order=True)
class Use:
    """One place where we rely on something upstream.

    Attributes:
        package: upstream package that we rely on.
        where: our module and line.
        what: what we rely on.
        problem: why that does not hold; empty if it does.
    """

    package: str
    where: str
    what: str
    problem: str = ""

    def __str__(self) -> str:
        return f"{self.where} {self.what}: {self.problem or 'fine'}"


class Surface:
    """Checks our package against the upstream packages.

    Args:
        sources: source of all packages, including ours.
        ours: our package's name.
        unused: names of our modules that are not in use and are skipped.
    """

    def __init__(self, sources: Sources, ours: str, unused: Collection[str] = ()) -> None:
        self.sources, self.ours, self.unused = sources, ours, unused
        root = sources.roots[ours]
        names = (module_name(ours, path.relative_to(root)) for path in sorted(root.rglob("*.py")))
        self.modules = [module for name in names if (module := sources.module(name))]

    def package_of(self, dotted: str) -> str | None:
        """Return the upstream package of a dotted name; None if it is in none."""
        head = dotted.partition(".")[0]
        return head if head != self.ours and head in self.sources.roots else None

    def uses(self) -> list[Use]:
        """Return everything that we rely on, without duplicates."""
        found: set[Use] = set()
        for module in self.modules:
            if module.name in self.unused:
                continue
            found.update(self.walk(module.tree, Scope(module)))
            for node in module.tree.body:
                cls = module.get(node.name) if isinstance(node, ast.ClassDef) else None
                if isinstance(cls, Class):
                    found.update(self._class(cls))
        return sorted(found)

    @cached_property
    def read_by_us(self) -> set[str]:
        """Names of attributes that our package reads, except on ``super()``."""
        return {
            node.attr
            for module in self.modules
            for node in ast.walk(module.tree)
            if isinstance(node, ast.Attribute) and not is_super(node.value)
        }

    @cached_property
    def read_by_others(self) -> set[str]:
        """Names of our protocols' methods, which are called by whoever holds such an object."""
        return {
            member.name
            for module in self.modules
            for node in module.tree.body
            if isinstance(node, ast.ClassDef)
            and any(dotted_name(base) == "Protocol" for base in node.bases)
            for member in node.body
            if isinstance(member, Function)
        }

    def _class(self, cls: Class) -> Iterator[Use]:
        """Check the methods of a class with an upstream base, including those of its mixins."""
        theirs = [base for base in cls.mro if self.package_of(base.module.name)]
        if not theirs:
            return
        for place, owner in enumerate(cls.mro):
            if owner in theirs:
                continue
            yield from self._listed(cls, owner, theirs)
            for name, node in owner.members.items():
                if not isinstance(node, Function):
                    continue
                yield from self._override(cls, owner, name, node, theirs)
                scope = Scope(owner.module, above=cls.mro[place + 1 :])
                yield from self.walk(node, scope.within(node, cls))

    def _listed(self, cls: Class, owner: Class, theirs: list[Class]) -> Iterator[Use]:
        """Check the attributes that a class without code lists, as ``StockProposer`` does."""
        _, *body = owner.node.body  # without the docstring
        if not all(isinstance(node, ast.AnnAssign) and node.value is None for node in body):
            return
        for node in body:
            name = ast.unparse(node.target)  # type: ignore[attr-defined]
            problem = "" if cls.get(name) else "there is no such attribute"
            what = f"uses {name_of(cls)}.{name}"
            yield from self._use(owner.module, node, theirs[0].dotted, what, problem)

    def _override(
        self, cls: Class, owner: Class, name: str, node: Function, theirs: list[Class]
    ) -> Iterator[Use]:
        what = f"{cls.node.name} overrides {name}"
        base = next((c for c in theirs if isinstance(c.members.get(name), Function)), None)
        if base is not None:
            stock = base.members[name]
            assert isinstance(stock, Function)
            ours, its = (signature(function, is_method=True) for function in (node, stock))
            problem = incompatible(ours, its) if name != "__init__" else ""
            yield from self._use(owner.module, node, base.dotted, what, problem)
        elif not name.startswith("__") and name not in self.read_by_us | self.read_by_others:
            problem = "they have no such method, and nothing of ours calls it"
            yield from self._use(owner.module, node, theirs[0].dotted, what, problem)

    def _use(
        self, module: Module, node: ast.AST, dotted: str, what: str, problem: str
    ) -> Iterator[Use]:
        package = self.package_of(dotted)
        if package:
            yield Use(package, f"{module.name}:{getattr(node, 'lineno', 0)}", what, problem)

    def walk(self, node: ast.AST, scope: Scope) -> Iterator[Use]:
        """Check everything below a node, in source order."""
        for child in ast.iter_child_nodes(node):
            inner = scope
            if isinstance(child, ast.Import | ast.ImportFrom):
                yield from self._imports(child, scope)
            elif isinstance(child, Function):
                inner = scope.within(child)
            elif isinstance(child, ast.Attribute):
                yield from self._attribute(child, scope)
            elif isinstance(child, ast.Call):
                yield from self._call(child, scope)
                yield from self._replacement(child, scope)
            yield from self.walk(child, inner)
            if isinstance(child, ast.Assign):
                scope.assign(child)

    def _imports(self, node: ast.Import | ast.ImportFrom, scope: Scope) -> Iterator[Use]:
        for local, dotted in imports_of(node, scope.module.name, scope.module.path):
            if not self.sources.knows(dotted):
                scope.names[local] = None
                continue
            scope.names[local] = found = self.sources.find(dotted)
            problem = "" if found else "there is no such name"
            yield from self._use(scope.module, node, dotted, f"imports {dotted}", problem)

    def _attribute(self, node: ast.Attribute, scope: Scope) -> Iterator[Use]:
        base = scope.infer(node.value)
        if isinstance(base, Instance):
            known: Thing = base.cls.get(node.attr)
        elif isinstance(base, Module | Class):
            known = attribute(base, node.attr)
        else:
            return
        cls = base.cls if isinstance(base, Instance) else base
        holder = known.owner if isinstance(known, Symbol) and known.owner else cls
        for dotted in (name_of(holder), *(c.dotted for c in getattr(cls, "mro", []))):
            if known is None or dotted == name_of(holder):
                what = f"uses {name_of(cls)}.{node.attr}"
                problem = "" if known else "there is no such attribute"
                found = list(self._use(scope.module, node, dotted, what, problem))
                yield from found
                if found:
                    return

    def _call(self, node: ast.Call, scope: Scope) -> Iterator[Use]:
        if isinstance(node.func, ast.Attribute) and is_super(node.func.value):
            yield from self._super_call(node, node.func.attr, scope)
            return
        target = scope.infer(node.func)
        if isinstance(target, Class):
            holder = next((c for c in target.mro if "__init__" in c.members), target)
            dotted, takes = holder.dotted, target.constructor()
        elif isinstance(target, Symbol) and isinstance(target.node, Function):
            takes = signature(target.node, is_method=target.bound)
            dotted = f"{name_of(target.owner or target.module)}.{target.node.name}"
        else:
            return
        if takes is not None:
            problem = misfit(node, takes)
            yield from self._use(scope.module, node, dotted, f"calls {dotted}", problem)

    def _super_call(self, node: ast.Call, name: str, scope: Scope) -> Iterator[Use]:
        if scope.above is None:
            return
        owner = next((cls for cls in scope.above if name in cls.members), None)
        what = f"calls super().{name}"
        if owner is not None:
            stock = owner.members[name]
            takes = signature(stock, is_method=True) if isinstance(stock, Function) else None
            problem = misfit(node, takes) if takes else ""
            yield from self._use(scope.module, node, owner.dotted, what, problem)
        elif not any(cls.is_open for cls in scope.above):
            for cls in scope.above:
                problem = "they have no such method"
                found = list(self._use(scope.module, node, cls.dotted, what, problem))
                yield from found
                if found:
                    return

    def _replacement(self, node: ast.Call, scope: Scope) -> Iterator[Use]:
        """Check an attribute that ``patches`` replaces: ``_patches.set(owner, "name", value)``."""
        function = dotted_name(node.func) or ""
        if not function.lower().endswith("patches.set") or len(node.args) != 3:
            return
        owner, name = scope.infer(node.args[0]), node.args[1]
        if not isinstance(owner, Class | Module) or not isinstance(name, ast.Constant):
            return
        stock, ours = owner.get(str(name.value)), scope.infer(node.args[2])
        # A builtin's name can be set on a module, where it shadows the builtin.
        is_there = stock or (isinstance(owner, Module) and hasattr(builtins, str(name.value)))
        problem = "" if is_there else "there is no such attribute"
        pair = [
            thing.node
            for thing, is_ours in ((ours, True), (stock, False))
            if isinstance(thing, Symbol) and is_ours is (thing.module is scope.module)
        ]
        functions = [signature(node) for node in pair if isinstance(node, Function)]
        if len(functions) == 2:
            problem = incompatible(*functions)
        what = f"replaces {name_of(owner)}.{name.value!s}"
        yield from self._use(scope.module, node, name_of(owner), what, problem)


def name_of(thing: Module | Class) -> str:
    """Return a dotted name."""
    return thing.dotted if isinstance(thing, Class) else thing.name


def module_name(package: str, relative: Path) -> str:
    """Return the dotted module name of a file in a package."""
    parts = relative.with_suffix("").parts
    return ".".join([package, *(parts[:-1] if parts[-1] == "__init__" else parts)])


def is_super(node: ast.AST) -> bool:
    """Tell whether an expression is ``super()``."""
    return isinstance(node, ast.Call) and dotted_name(node.func) == "super"
