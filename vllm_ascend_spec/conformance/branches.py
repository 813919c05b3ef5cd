"""Reduce our source to the branches that given versions of vLLM and vllm-ascend take."""

from __future__ import annotations

import ast
from collections.abc import Mapping

from vllm_ascend_spec import versions

# Functions of upstream/ranges.py, and the distribution whose version each tests.
ASKS = {"vllm_is": "vllm", "vllm_ascend_is": "vllm-ascend"}


class Branches(ast.NodeTransformer):
    """Removes the branches that are not taken from a module's syntax tree.

    Args:
        installed: version by distribution; an absent distribution is in no version range.
    """

    def __init__(self, installed: Mapping[str, str]) -> None:
        self.installed = installed

    def visit_If(self, node: ast.If) -> ast.AST | list[ast.stmt]:
        """Replace an ``if`` that tests a version by the statements of the branch taken."""
        taken = self._taken(node.test)
        self.generic_visit(node)
        if taken is None:
            return node
        return (node.body if taken else node.orelse) or [ast.Pass()]

    def visit_IfExp(self, node: ast.IfExp) -> ast.AST:
        """Replace a conditional expression that tests a version by the operand taken."""
        taken = self._taken(node.test)
        self.generic_visit(node)
        if taken is None:
            return node
        return node.body if taken else node.orelse

    def _taken(self, test: ast.expr) -> bool | None:
        """Return the result of a version test; None for any other test."""
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            inner = self._taken(test.operand)
            return None if inner is None else not inner
        if isinstance(test, ast.Call) and isinstance(test.func, ast.Name) and test.args:
            distribution, wanted = ASKS.get(test.func.id), test.args[0]
            if distribution is not None and isinstance(wanted, ast.Constant):
                found = self.installed.get(distribution)
                return versions.is_in_range(found, str(wanted.value))
        return None
