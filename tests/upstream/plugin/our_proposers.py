"""A pytest plugin: vllm-ascend's modules offer our proposers under its own names.

Loaded into a run of vllm-ascend's tests (see ../test_vllm_ascend_tests.py), where ``tests`` is
vllm-ascend's folder, so nothing of ours but the package can be imported here. What was put in is
noted in the outcome.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any
from unittest import mock

import outcomes

from vllm_ascend_spec.methods.loops.window import DraftWindow
from vllm_ascend_spec.methods.registry import BUILT_IN as METHODS

THEIRS = "vllm_ascend."
# Their tests replace __init__ of the class's __base__, which is a mixin of ours.
LEFT = ("AscendDSparkProposer",)
swapped: dict[str, str] = {}
outcomes.notes["swapped"] = swapped


def replacements() -> Iterator[tuple[type, type]]:
    """Yield each class of vllm-ascend's and the one of ours that stands in for it.

    Several methods may draft with one class of theirs; the first in the registry is it.
    """
    from vllm_ascend.spec_decode.llm_base_proposer import AscendSpecDecodeBaseProposer

    from vllm_ascend_spec.methods.drafter import drafter_class
    from vllm_ascend_spec.methods.loops.ascend.loop import AscendDraftLoop

    bases = (AscendDraftLoop, AscendSpecDecodeBaseProposer)
    yield AscendSpecDecodeBaseProposer, type(AscendSpecDecodeBaseProposer.__name__, bases, {})
    replaced = set()
    for method, record in METHODS.items():
        if "ascend" not in record.drafters:
            continue
        ours = drafter_class(method, "ascend", record.drafters["ascend"])
        theirs = (cls for cls in ours.__mro__ if cls.__module__.startswith(THEIRS))
        stock = next(theirs, None)
        if stock is not None and stock.__name__ not in LEFT and stock not in replaced:
            replaced.add(stock)
            yield stock, ours


def uses_own_loop(proposer: Any) -> bool:
    """Decide as create() does; a mock for a runner would say yes to every feature we lack."""
    try:
        if not isinstance(proposer.runner, mock.Mock):
            return proposer.loop_problem() is None
    except (AttributeError, TypeError):
        pass  # made by half
    return getattr(proposer, "dcp_size", 1) == 1


def complete(ours: Any) -> None:
    """Give a class what create() and a runner give a proposer; tests make some by half."""
    ours.uses_own_loop = property(uses_own_loop)
    ours.draft_context = 2**31 - 1
    ours.draft_model_config = mock.MagicMock()
    ours.window = DraftWindow(None, most_rows=1, max_k=1)
    ours.chooses_window = False
    ours.kernel_block_size = 16
    if not hasattr(ours, "_without_rest"):
        return
    without_rest = ours._without_rest

    def _without_rest(self: Any, batch: Any) -> Any:
        return batch if isinstance(self.runner, mock.Mock) else without_rest(self, batch)

    ours._without_rest = _without_rest


def pytest_collection(session: Any) -> None:
    """Put ours in, once vllm-ascend's conftest has mocked torch_npu and before tests import."""
    for stock, ours in list(replacements()):
        if hasattr(ours, "loop_problem"):
            complete(ours)
        for name, module in list(sys.modules.items()):
            if name.startswith(THEIRS) and vars(module).get(stock.__name__) is stock:
                setattr(module, stock.__name__, ours)
        swapped[stock.__name__] = f"{ours.__module__}.{ours.__qualname__}"
