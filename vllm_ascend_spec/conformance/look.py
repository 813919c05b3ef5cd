"""Look up everything that we rely on in the sources of vLLM and vllm-ascend."""

from __future__ import annotations

import ast
import importlib.util
from collections.abc import Iterator, Mapping
from pathlib import Path

from packaging.version import Version

from vllm_ascend_spec import versions
from vllm_ascend_spec.config.method import Method
from vllm_ascend_spec.config.options import ABSENT, INTERNAL, OPTIONS
from vllm_ascend_spec.config.options import OURS as OURS_ALONE
from vllm_ascend_spec.conformance.sources import Class, Sources, imports_of, parsed
from vllm_ascend_spec.conformance.surface import Surface, Use, module_name
from vllm_ascend_spec.methods.registry import all_methods
from vllm_ascend_spec.patches.registry import PATCHES
from vllm_ascend_spec.upstream.draft_loops import bases_of, modules_without_use
from vllm_ascend_spec.upstream.limits import FIRST_WITH

OURS = "vllm_ascend_spec"
OUR_FOLDER = Path(__file__).parents[1]
RECORDS = f"{OURS}.config.options"
JOINING = f"{OURS}.methods.drafter"
# Upstream packages: import name -> distribution.
PACKAGES = {"vllm": "vllm", "vllm_ascend": "vllm-ascend"}


def installed_folders() -> dict[str, Path]:
    """Return the folder of each installed upstream package, without importing it."""
    found = {}
    for package in PACKAGES:
        spec = importlib.util.find_spec(package)
        if spec is not None and spec.submodule_search_locations:
            found[package] = Path(next(iter(spec.submodule_search_locations)))
    return found


def installed_versions() -> dict[str, str]:
    """Return the version of each installed upstream distribution."""
    found = {name: versions.installed_version(name) for name in PACKAGES.values()}
    return {name: version for name, version in found.items() if version is not None}


def uses(
    folders: Mapping[str, Path],
    installed: Mapping[str, str],
    texts: Mapping[str, str] | None = None,
    *,
    otherwise: bool = False,
) -> list[Use]:
    """Return everything in vLLM and vllm-ascend that we rely on.

    Args:
        folders: folder of each upstream package.
        installed: version by distribution.
        texts: source to use instead of a module's file, by dotted name.
        otherwise: see :class:`Sources`.
    """
    roots = {OURS: OUR_FOLDER, **folders}
    every = {JOINING: with_joined_classes(roots, installed), **(texts or {})}
    sources = Sources(roots, every, ours=OURS, otherwise=otherwise, installed=installed)
    unused = {*patches_without_fault(installed), *needing_what_is_absent(folders)}
    unused |= modules_without_use(installed.get("vllm-ascend"))
    return [*Surface(sources, OURS, unused).uses(), *options(sources, installed)]


def options(sources: Sources, installed: Mapping[str, str]) -> Iterator[Use]:
    """Yield the ``SpeculativeConfig`` options that this version has, and those that we expect."""
    module = sources.module("vllm.config.speculative")
    config = None if module is None else module.get("SpeculativeConfig")
    if not isinstance(config, Class):
        yield Use("vllm", RECORDS, "uses vllm.config.speculative.SpeculativeConfig", "is not there")
        return
    known = {
        node.target.id
        for node in config.node.body
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    }
    for name in sorted(known):
        has_record = name in {*OPTIONS, *ABSENT, *INTERNAL}
        yield Use("vllm", RECORDS, f"option {name}", "" if has_record else "has no record")
    for name in sorted(OPTIONS.keys() - OURS_ALONE - known):
        first = FIRST_WITH.get(name)
        is_later = first is not None and versions.is_in_range(installed.get("vllm"), f"<{first}")
        yield Use("vllm", RECORDS, f"option {name}", "" if is_later else "this version lacks it")


def with_joined_classes(roots: Mapping[str, Path], installed: Mapping[str, str]) -> str:
    """Return the source of methods/drafter.py, followed by the classes that it makes."""
    lines = [(roots[OURS] / "methods" / "drafter.py").read_text(encoding="utf-8")]
    empty = set(patches_without_fault(installed))
    for method in all_methods().values():
        for kind, family, named in drafters_of(method):
            chosen = bases_of(named, installed.get("vllm-ascend"))
            # A base from a patch that these versions do not need is empty.
            bases = [base for base in chosen if base.partition(":")[0] not in empty]
            if len(bases) == 1 or any(base.partition(".")[0] not in roots for base in bases):
                continue
            name = f"{kind}_{family}"
            lines += [
                f"from {module} import {base} as {name}_{place}"
                for place, (module, _, base) in enumerate(path.partition(":") for path in bases)
            ]
            names = ", ".join(f"{name}_{place}" for place in range(len(bases)))
            lines.append(f"class Joined_{name}({names}): ...")
    return "\n".join(lines)


def drafters_of(method: Method) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """Yield what each drafter of a method is for, its family, and the bases of its class."""
    kinds = {method.name: method.drafters, **method.drafters_by_type}
    for kind, drafters in kinds.items():
        for family, named in drafters.items():
            yield kind, family, named


def patches_without_fault(installed: Mapping[str, str]) -> Iterator[str]:
    """Yield the modules of patches that these versions do not need."""
    for patch in PATCHES:
        found = installed.get(patch.distribution)
        if found is None or not patch.versions.contains(Version(found), prereleases=True):
            yield f"{OURS}.patches.{patch.name}"


def needing_what_is_absent(folders: Mapping[str, Path]) -> Iterator[str]:
    """Yield our modules that import an upstream package missing from ``folders``."""
    absent = PACKAGES.keys() - folders.keys()
    for path in OUR_FOLDER.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        if not any(package in text for package in absent):
            continue
        name = module_name(OURS, path.relative_to(OUR_FOLDER))
        for node in ast.walk(parsed(text)):
            if isinstance(node, ast.Import | ast.ImportFrom):
                heads = {d.partition(".")[0] for _, d in imports_of(node, name, path)}
                if heads & absent:
                    yield name
                    break
