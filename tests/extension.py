"""A package of somebody else, installed as Python's packaging sees it: a folder with metadata."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent


def write_package(folder: Path, name: str, source: str, **entry_points: str) -> Path:
    """Write a package of one module, with entry points.

    Args:
        folder: where; it belongs on the import path.
        name: of the module and of the distribution.
        source: of the module.
        entry_points: ``name = "value"`` by group, whose dots are written as ``__``.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.py").write_text(dedent(source))
    lines = []
    for group, entry in entry_points.items():
        lines += [f"[{group.replace('__', '.')}]", entry]
    write_metadata(folder, name, "\n".join(lines) + "\n")
    return folder


def write_metadata(folder: Path, name: str, entry_points: str) -> None:
    """Write what makes a package in ``folder`` an installed distribution.

    Args:
        folder: which holds the package.
        name: of the distribution.
        entry_points: the text of ``entry_points.txt``.
    """
    info = folder / f"{name}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(entry_points)
