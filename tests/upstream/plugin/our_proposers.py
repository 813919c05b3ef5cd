"""A pytest plugin: vllm-ascend's modules offer our proposers under its own names.

Loaded into a run of vllm-ascend's tests (see ../test_vllm_ascend_tests.py), where ``tests`` is
vllm-ascend's folder, so nothing of ours but the package can be imported here. What was put in is
noted in the outcome.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import outcomes

from vllm_ascend_spec.methods.registry import BUILT_IN as METHODS

THEIRS = "vllm_ascend."
swapped: dict[str, str] = {}
outcomes.notes["swapped"] = swapped


def replacements() -> Iterator[tuple[type, type]]:
    """Yield each class of vllm-ascend's and the one of ours that stands in for it.

    Several methods may draft with one class of theirs; the first in the registry is it.
    """
    from vllm_ascend.spec_decode.llm_base_proposer import AscendSpecDecodeBaseProposer

    from vllm_ascend_spec.methods.drafters import drafter_class
    from vllm_ascend_spec.methods.families.ascend.loop import AscendDraftLoop

    bases = (AscendDraftLoop, AscendSpecDecodeBaseProposer)
    yield AscendSpecDecodeBaseProposer, type(AscendSpecDecodeBaseProposer.__name__, bases, {})
    replaced = set()
    for method, record in METHODS.items():
        if "ascend" not in record.drafters:
            continue
        ours = drafter_class(method, "ascend", record.drafters["ascend"])
        theirs = (cls for cls in ours.__mro__ if cls.__module__.startswith(THEIRS))
        stock = next(theirs, None)
        if stock is not None and stock not in replaced:
            replaced.add(stock)
            yield stock, ours


def uses_own_loop(proposer: Any) -> bool:
    """Decide as create() does, for a proposer that a test has made by half, too."""
    try:
        return proposer.loop_problem() is None
    except (AttributeError, TypeError):
        return getattr(proposer, "dcp_size", 1) == 1


def pytest_collection(session: Any) -> None:
    """Put ours in, once vllm-ascend's conftest has mocked torch_npu and before tests import."""
    for stock, ours in list(replacements()):
        if hasattr(ours, "loop_problem"):
            ours.uses_own_loop = property(uses_own_loop)  # type: ignore[attr-defined]
        for name, module in list(sys.modules.items()):
            if name.startswith(THEIRS) and vars(module).get(stock.__name__) is stock:
                setattr(module, stock.__name__, ours)
        swapped[stock.__name__] = f"{ours.__module__}.{ours.__qualname__}"
