"""What no draft loop on an NPU can do, by the graphs that an engine uses."""

from __future__ import annotations

from typing import Any

from vllm_ascend_spec.config.ascend import GRAPH_REMEDY, check_full_graph
from vllm_ascend_spec.errors import ConfigError


def require_possible(drafter: Any) -> None:
    """Refuse what ``config/ascend.py`` refuses before anything is loaded, of the engine's own mode.

    Raises:
        ConfigError: naming the option and the reason.
    """
    mode = drafter.compilation_config.cudagraph_mode
    if not drafter.use_cuda_graph or not mode.has_full_cudagraphs():
        return
    check_full_graph(mode.name, samples_drafts=drafter._enable_probabilistic_draft_probs)
    schedule = drafter.speculative_config.num_speculative_tokens_per_batch_size
    if schedule:
        raise ConfigError(
            "speculative_config.num_speculative_tokens_per_batch_size",
            schedule,
            "not possible within a full graph on an NPU, which has all draft steps; "
            f"{GRAPH_REMEDY}",
        )
