"""Build a drafter from the bases in its method's record, which are imported on first use."""

from __future__ import annotations

import functools
import importlib
from typing import TYPE_CHECKING, Any

from vllm_ascend_spec.upstream.draft_loops import bases_of
from vllm_ascend_spec.versions import installed_version

if TYPE_CHECKING:
    from vllm_ascend_spec.methods.drafter import Drafter, DrafterContext


def create_drafter(engine: DrafterContext) -> Drafter:
    """Build the drafter of an engine."""
    asked = engine.speculation
    assert asked.family is not None
    return drafter_class(asked.method, asked.family, asked.drafter).create(engine)


@functools.cache
def drafter_class(method: str, family: str, bases: tuple[str, ...]) -> Any:
    """Import and return a method's drafter class.

    A single base is the drafter itself. Several bases are joined in a new class, so that joining a
    draft loop to a stock proposer needs no file. Stock proposers are among the bases because
    vLLM's and vllm-ascend's runners check for their own classes with ``isinstance``.

    Args:
        method: name of the method.
        family: ``vllm`` or ``ascend``, see ``devices/``.
        bases: one or more base classes as ``module:Class``; see ``Method.drafters``.
    """
    bases = bases_of(bases, installed_version("vllm-ascend"))
    classes = tuple(_imported(path) for path in bases)
    if len(classes) == 1:
        return classes[0]
    name = "".join(part.title() for part in (*method.split("_"), family)) + "Drafter"
    about = f"Joins {', '.join(bases)}."
    return type(name, classes, {"__module__": __name__, "__doc__": about})


def _imported(path: str) -> Any:
    module, _, name = path.partition(":")
    return getattr(importlib.import_module(module), name)
