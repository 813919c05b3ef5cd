"""Build our drafter where a stock runner builds its own.

vLLM chooses the drafter in the middle of ``GPUModelRunner.__init__``, by an if-chain over the
method that ends in an error, and offers no hook. Its first branch, for a user's own class, calls a
function of the module: while our drafter is built, every method poses as that one, and the function
is ours. So no stock drafter is built only to be thrown away, and a method that vLLM's runner does
not know works.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from vllm.v1.worker import gpu_model_runner as stock

if TYPE_CHECKING:
    from vllm.config import VllmConfig

FIRST_ASKED = "custom_class"


@contextmanager
def inject_drafter(build: Callable[[], Any], vllm_config: VllmConfig) -> Iterator[None]:
    """Let a stock ``__init__`` that runs in this context take its drafter from ``build``.

    The speculative config names its own method again when ``build`` is called, and afterwards. Only
    the last pipeline rank drafts.
    """
    spec = vllm_config.speculative_config
    if spec is None or not stock.get_pp_group().is_last_rank:
        yield
        return
    method, create = spec.method, stock.create_custom_proposer

    def build_as_method(_: VllmConfig) -> Any:
        spec.method = method
        return build()

    stock.create_custom_proposer = build_as_method
    spec.method = FIRST_ASKED
    try:
        yield
    finally:
        spec.method = method
        stock.create_custom_proposer = create
