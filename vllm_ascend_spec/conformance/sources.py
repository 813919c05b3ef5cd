"""Read Python packages without importing them: names, classes with their bases, signatures."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from inspect import Parameter, Signature
from pathlib import Path

from vllm_ascend_spec.conformance.branches import ASKS, Branches

Function = ast.FunctionDef | ast.AsyncFunctionDef
# Decorators that leave a function's parameters alone but change what it is called on.
UNBOUND, OF_THE_CLASS = "staticmethod", "classmethod"


@dataclass(frozen=True)
class Symbol:
    """A name at the top of a module, or in a class.

    Attributes:
        module: where it is defined.
        node: its definition; None if the name exists only at run time.
        owner: the class it is in, if any.
        bound: whether its first parameter (``self`` or ``cls``) is already bound.
    """

    module: Module
    node: ast.AST | None
    owner: Class | None = None
    bound: bool = False


class Sources:
    """The source of several packages, by package name.

    Args:
        roots: folder of each package.
        texts: source to use instead of a module's file, by dotted name.
        ours: our package, whose annotations without a value define no attributes.
        otherwise: whether a base ``A if condition else B`` is read as B instead of A.
        installed: version by distribution; decides the version tests in our source.
    """

    def __init__(
        self,
        roots: Mapping[str, Path],
        texts: Mapping[str, str] | None = None,
        ours: str = "",
        *,
        otherwise: bool = False,
        installed: Mapping[str, str] | None = None,
    ) -> None:
        self.roots, self.ours, self.otherwise = dict(roots), ours, otherwise
        self._branches = Branches(installed or {})
        self.texts = dict(texts or {})
        self._modules: dict[str, Module | None] = {}
        self._following: set[str] = set()

    def knows(self, dotted: str) -> bool:
        """Tell whether a dotted name belongs to one of the packages, whether or not it exists."""
        return dotted.partition(".")[0] in self.roots

    def path_of(self, dotted: str) -> Path | None:
        """Return the file of a module."""
        head, *rest = dotted.split(".")
        base = self.roots[head].joinpath(*rest)
        candidates = (base / "__init__.py", base.with_name(base.name + ".py"))
        return next((path for path in candidates if path.is_file()), None)

    @property
    def read(self) -> list[Module]:
        """The modules read so far."""
        return [module for module in self._modules.values() if module is not None]

    def module(self, dotted: str) -> Module | None:
        """Return a module; None if there is none of that name."""
        if dotted not in self._modules:
            path = self.path_of(dotted) if self.knows(dotted) else None
            self._modules[dotted] = None
            if path is not None:
                text = self.texts.get(dotted) or path.read_text()
                is_ours = bool(self.ours) and dotted.partition(".")[0] == self.ours
                # Branches change the tree, so theirs is not shared.
                asks = is_ours and any(name in text for name in ASKS)
                tree = self._branches.visit(ast.parse(text)) if asks else parsed(text)
                self._modules[dotted] = Module(self, dotted, path, tree)
        return self._modules[dotted]

    def follow(self, dotted: str) -> Module | Class | Symbol | None:
        """Do as ``find``, but return None for a name that is imported in a circle."""
        if dotted in self._following:
            return None
        self._following.add(dotted)
        try:
            return self.find(dotted)
        finally:
            self._following.remove(dotted)

    def find(self, dotted: str) -> Module | Class | Symbol | None:
        """Follow a dotted name through modules, re-exports and classes; None if it does not exist.

        A name outside the packages gives a symbol without a node.
        """
        if not self.knows(dotted):
            return Symbol(Module(self, dotted, Path(), ast.Module([], [])), None)
        parts = dotted.split(".")
        found: Module | Class | Symbol | None = self.module(parts[0])
        for index, part in enumerate(parts[1:], start=1):
            if isinstance(found, Module):
                inside = found.get(part)
                if inside is None or (isinstance(inside, Symbol) and inside.node is None):
                    found = self.module(".".join(parts[: index + 1])) or inside
                else:
                    found = inside
            elif isinstance(found, Class):
                found = found.get(part)
            elif found is None or found.node is not None:
                return found  # an attribute of a value, known only at run time
        return found


@dataclass(frozen=True)
class Module:
    """One source file."""

    sources: Sources
    name: str
    path: Path
    tree: ast.Module
    _classes: dict[str, Class] = field(default_factory=dict)

    def __hash__(self) -> int:
        return hash(self.name)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Module) and other.name == self.name

    @cached_property
    def _names(self) -> dict[str, ast.AST | str]:
        """Top-level definitions; for an import, the dotted name that it imports."""
        names: dict[str, ast.AST | str] = {}
        for node in _top_level(self.tree.body):
            if isinstance(node, Function | ast.ClassDef):
                names[node.name] = node
            elif isinstance(node, ast.Import | ast.ImportFrom):
                for local, dotted in imports_of(node, self.name, self.path):
                    if local == "*":
                        module = self.sources.module(dotted)
                        names.update(module._names if module else {})
                    else:
                        names.setdefault(local, dotted)
            else:
                for target in targets(node):
                    if isinstance(target, ast.Name):
                        names.setdefault(target.id, node)
        return names

    def get(self, name: str) -> Module | Class | Symbol | None:
        """Return what a name stands for at the top level; None if it is not there."""
        entry = self._names.get(name)
        if entry is None:
            lazy = "__getattr__" in self._names
            return Symbol(self, None) if lazy else None
        if isinstance(entry, str):
            return self.sources.follow(entry)
        if isinstance(entry, ast.ClassDef):
            return self._classes.setdefault(name, Class(self, entry))
        return Symbol(self, entry)


@dataclass(frozen=True)
class Class:
    """One class statement."""

    module: Module
    node: ast.ClassDef

    def __hash__(self) -> int:
        return hash(self.dotted)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Class) and other.dotted == self.dotted

    @property
    def dotted(self) -> str:
        """The qualified name."""
        return f"{self.module.name}.{self.node.name}"

    @cached_property
    def bases(self) -> list[Class | None]:
        """The bases in order; None for one that cannot be read."""
        found = []
        for base in self.node.bases:
            expression = base.value if isinstance(base, ast.Subscript) else base
            target = _chosen(resolve(expression, self.module))
            found.append(target if isinstance(target, Class) else None)
        return found

    @cached_property
    def mro(self) -> list[Class]:
        """The readable part of the method resolution order."""
        sequences = [[*base.mro] for base in self.bases if base is not None]
        sequences.append([base for base in self.bases if base is not None])
        order = [self]
        while any(sequences):
            heads = (s[0] for s in sequences if s)
            tails = {c for s in sequences for c in s[1:]}
            head = next(c for c in heads if c not in tails)
            order.append(head)
            sequences = [[c for c in s if c != head] for s in sequences]
        return order

    @cached_property
    def is_open(self) -> bool:
        """Whether attributes may exist that these sources do not show."""
        return any(cls.has_unreadable_base or "__getattr__" in cls.members for cls in self.mro)

    @property
    def has_unreadable_base(self) -> bool:
        """Whether a base that may define something is outside the packages."""
        pairs = zip(self.bases, self.node.bases, strict=True)
        return any(base is None and not _is_plain(node) for base, node in pairs)

    @cached_property
    def members(self) -> dict[str, ast.AST]:
        """What the class body defines."""
        found: dict[str, ast.AST] = {}
        is_ours = self.module.name.partition(".")[0] == self.module.sources.ours
        for node in _top_level(self.node.body):
            if isinstance(node, Function | ast.ClassDef):
                if not _is_setter(node):
                    found[node.name] = node
            elif not (is_ours and isinstance(node, ast.AnnAssign) and node.value is None):
                found.update((t.id, node) for t in targets(node) if isinstance(t, ast.Name))
        return found

    @cached_property
    def declared(self) -> dict[str, ast.AnnAssign]:
        """Annotations in the class body."""
        return {
            node.target.id: node
            for node in self.node.body
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
        }

    @cached_property
    def attributes(self) -> dict[str, ast.AST]:
        """Attributes that methods assign on any object, with the assigning statement."""
        found: dict[str, ast.AST] = {}
        for node in ast.walk(self.node):
            for target in targets(node):
                if isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name):
                    found.setdefault(target.attr, node)
        return found

    def get(self, name: str) -> Symbol | None:
        """Return a member or attribute by the method resolution order; None if there is none."""
        for cls in self.mro:
            if name in cls.members:
                return Symbol(cls.module, cls.members[name], cls)
        for cls in self.mro:
            if name in cls.attributes:
                return Symbol(cls.module, cls.attributes[name], cls)
        return Symbol(self.module, None, self) if self.is_open else None

    def constructor(self) -> Signature | None:
        """Return the signature of the constructor; None if unknown."""
        for cls in self.mro:
            init = cls.members.get("__init__")
            if isinstance(init, Function):
                return signature(init, is_method=True)
            if cls.node.decorator_list or cls.has_unreadable_base:
                return None  # a dataclass or the like
        return None


def resolve(expression: ast.AST, module: Module) -> Module | Class | Symbol | None:
    """Return what a dotted expression stands for at the top level of a module."""
    dotted = dotted_name(expression)
    if dotted is None:
        return None
    head, _, rest = dotted.partition(".")
    found = module.get(head)
    for part in filter(None, rest.split(".")):
        if isinstance(found, Module):
            found = found.get(part) or found.sources.module(f"{found.name}.{part}")
        elif isinstance(found, Class):
            found = found.get(part)
        else:
            return found
    return found


def _chosen(thing: Module | Class | Symbol | None) -> Module | Class | Symbol | None:
    """Follow an alias of a class, including ``Name = A if condition else B``."""
    if not isinstance(thing, Symbol) or not isinstance(thing.node, ast.Assign):
        return thing
    value = thing.node.value
    if isinstance(value, ast.IfExp):
        value = value.orelse if thing.module.sources.otherwise else value.body
    return resolve(value, thing.module)


@cache
def parsed(text: str) -> ast.Module:
    """Return the syntax tree of a text; it is cached and shared, so do not change it."""
    return ast.parse(text)


def dotted_name(expression: ast.AST) -> str | None:
    """Return ``a.b.c`` of an expression of names and attributes."""
    if isinstance(expression, ast.Name):
        return expression.id
    if isinstance(expression, ast.Attribute):
        base = dotted_name(expression.value)
        return base and f"{base}.{expression.attr}"
    return None


def imports_of(
    node: ast.Import | ast.ImportFrom, module: str, path: Path
) -> Iterator[tuple[str, str]]:
    """Yield the local name and the dotted name of everything that a statement imports."""
    if isinstance(node, ast.Import):
        for alias in node.names:
            yield (
                (alias.asname or alias.name.partition(".")[0]),
                (alias.name if alias.asname else alias.name.partition(".")[0]),
            )
        return
    base = node.module or ""
    if node.level:
        package = module.split(".") if path.name == "__init__.py" else module.split(".")[:-1]
        above = package[: len(package) - node.level + 1]
        base = ".".join([*above, *filter(None, [node.module])])
    for alias in node.names:
        yield (alias.asname or alias.name), (base if alias.name == "*" else f"{base}.{alias.name}")


def decorators(node: Function) -> set[str]:
    """Return the names of a function's decorators."""
    names = (dotted_name(d.func if isinstance(d, ast.Call) else d) for d in node.decorator_list)
    return set(filter(None, names))


def signature(node: Function, *, is_method: bool = False) -> Signature:
    """Return a function's parameters, without the first one of a bound method."""
    arguments = node.args
    positional = [*arguments.posonlyargs, *arguments.args]
    required = len(positional) - len(arguments.defaults)
    parameters = [
        Parameter(
            argument.arg,
            Parameter.POSITIONAL_ONLY
            if index < len(arguments.posonlyargs)
            else Parameter.POSITIONAL_OR_KEYWORD,
            default=Parameter.empty if index < required else None,
        )
        for index, argument in enumerate(positional)
    ]
    if is_method and UNBOUND not in decorators(node):
        parameters = parameters[1:]
    if arguments.vararg:
        parameters.append(Parameter(arguments.vararg.arg, Parameter.VAR_POSITIONAL))
    for argument, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        given = Parameter.empty if default is None else None
        parameters.append(Parameter(argument.arg, Parameter.KEYWORD_ONLY, default=given))
    if arguments.kwarg:
        parameters.append(Parameter(arguments.kwarg.arg, Parameter.VAR_KEYWORD))
    return Signature(parameters)


def _top_level(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield the statements of a body, also those in ``if``, ``try``, ``with`` and ``for``."""
    for node in body:
        if isinstance(node, ast.If | ast.Try | ast.With | ast.For):
            for part in ("body", "orelse", "finalbody"):
                yield from _top_level(getattr(node, part, []))
            for handler in getattr(node, "handlers", []):
                yield from _top_level(handler.body)
        else:
            yield node


def targets(node: ast.AST) -> Iterator[ast.expr]:
    """Yield the targets that a statement assigns to, with tuples unpacked."""
    if isinstance(node, ast.Assign):
        todo = [*node.targets]
    elif isinstance(node, ast.AnnAssign | ast.AugAssign | ast.NamedExpr | ast.For):
        todo = [node.target]
    elif isinstance(node, ast.withitem) and node.optional_vars is not None:
        todo = [node.optional_vars]
    else:
        return
    while todo:
        target = todo.pop()
        if isinstance(target, ast.Tuple | ast.List):
            todo += target.elts
        else:
            yield target


def _is_plain(base: ast.expr) -> bool:
    """Tell whether a base adds no attributes of its own."""
    name = dotted_name(base.value if isinstance(base, ast.Subscript) else base) or ""
    return name.rpartition(".")[2] in {"object", "ABC", "Protocol", "Generic"}


def _is_setter(node: Function | ast.ClassDef) -> bool:
    return isinstance(node, Function) and any(
        name.endswith((".setter", ".deleter")) for name in decorators(node)
    )
