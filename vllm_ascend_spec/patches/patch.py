"""Describe a patch without importing its module."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from packaging.specifiers import SpecifierSet
from packaging.version import InvalidVersion, Version

from vllm_ascend_spec import versions


@dataclass(frozen=True)
class Patch:
    """A fault in other people's code, and the module here that patches it.

    Attributes:
        name: the module below ``patches``, whose docstring says why, how and until when.
        distribution: distribution with the fault; ``vllm`` stands for every build of vLLM.
        versions: versions of the distribution that have the fault.
        stage: when the patch is needed; see ``registry.py``.
    """

    name: str
    distribution: str
    versions: SpecifierSet
    stage: str

    @property
    def about(self) -> str:
        """The fault in one line."""
        place = Path(__file__).parent / f"{self.name.replace('.', '/')}.py"
        source = place.read_text(encoding="utf-8")
        docstring = ast.get_docstring(ast.parse(source)) or ""
        return docstring.partition("\n")[0].rstrip(".").replace("``", "")

    def reason_not_needed(
        self, version_of: Callable[[str], str | None] | None = None
    ) -> str | None:
        """Return why this patch is not applied here, or None if it is.

        Args:
            version_of: returns the version of a distribution, or None; by default it is looked up,
                which takes some milliseconds.
        """
        installed = (version_of or versions.installed_version)(self.distribution)
        if installed is None:
            return f"{self.distribution} is not installed"
        try:
            has_fault = self.versions.contains(Version(installed), prereleases=True)
        except InvalidVersion:
            has_fault = False
        return None if has_fault else f"{self.distribution} {installed} is not {self.versions}"
