"""Compile the n-gram search at start, for the arrays that the engine hands over.

vLLM 0.30 means to do so in its constructor, but asks for no request's drafts there
(v1/spec_decode/ngram_proposer.py:59-64), so Numba compiles within the first request: more than a
second in which every other request of the batch waits, too.
"""

from __future__ import annotations

from typing import Any


def warm_up(proposer: Any, runner: Any) -> None:
    """Draft once for the first slot of the runner's batch; nothing of it is kept.

    Numba compiles by type, so the arrays have to be the very ones of later calls. One thread
    searches, whatever the number of cores or ``NUMBA_NUM_THREADS``: vLLM caps it so.

    Args:
        proposer: of vLLM's class or vllm-ascend's.
        runner: the model runner, whose batch is still empty.
    """
    batch = runner.input_batch
    proposer.propose(proposer.k, [[0]], batch.num_tokens_no_spec, batch.token_ids_cpu)
