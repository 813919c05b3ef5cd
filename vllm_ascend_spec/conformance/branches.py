"""The branches of our source that a version takes, where ``upstream`` chooses by the version."""

from __future__ import annotations

import ast
from collections.abc import Mapping

from vllm_ascend_spec import versions

# Functions of upstream/ranges.py, and the distribution that each is about.
ASKS = {"vllm_is": "vllm", "vllm_ascend_is": "vllm-ascend"}


class Branches(ast.NodeTransformer):
    """Leaves the branches that are not taken out of a module.

    Args:
        installed: version by distribution; what is not there is in no range.
    """

    def __init__(self, installed: Mapping[str, str]) -> None:
        self.installed = installed

    def visit_If(self, node: ast.If) -> ast.AST | list[ast.stmt]:
        """Put the statements of the branch that is taken in the place of a choice."""
        taken = self._taken(node.test)
        self.generic_visit(node)
        if taken is None:
            return node
        return (node.body if taken else node.orelse) or [ast.Pass()]

    def visit_IfExp(self, node: ast.IfExp) -> ast.AST:
        """Put the expression that is taken in the place of a choice."""
        taken = self._taken(node.test)
        self.generic_visit(node)
        if taken is None:
            return node
        return node.body if taken else node.orelse

    def _taken(self, test: ast.expr) -> bool | None:
        """Return what a test comes to; None where it asks for no version."""
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            inner = self._taken(test.operand)
            return None if inner is None else not inner
        if isinstance(test, ast.Call) and isinstance(test.func, ast.Name) and test.args:
            distribution, wanted = ASKS.get(test.func.id), test.args[0]
            if distribution is not None and isinstance(wanted, ast.Constant):
                found = self.installed.get(distribution)
                return versions.is_in_range(found, str(wanted.value))
        return None
