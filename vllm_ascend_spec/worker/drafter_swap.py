"""Our drafter in the place where a stock runner builds its own.

vLLM chooses the drafter in the middle of ``GPUModelRunner.__init__``, by ifs over the method that
end in an error, and offers no way in. The first of them asks a function of the module for a
person's own class: while our drafter is wanted, every method looks like that one, and the function
is ours. So no stock drafter is built only to be thrown away, and a method that vLLM's runner does
not know gets through.
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
def drafter_built_by(build: Callable[[], Any], vllm_config: VllmConfig) -> Iterator[None]:
    """Let the stock ``__init__`` within take what ``build`` returns for its drafter.

    The speculative config names its method again when ``build`` is called, and afterwards. Of a
    pipeline's ranks the last alone drafts.
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
