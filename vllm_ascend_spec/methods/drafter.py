"""What a drafter is: the part of an engine that makes drafts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import torch
    from torch import nn
    from typing_extensions import Self
    from vllm.config import VllmConfig

    from vllm_ascend_spec.config.resolved import Speculation
    from vllm_ascend_spec.methods.step import Drafts, DraftStep


class Runner(Protocol):
    """The part of a model runner that drafters read.

    Attributes:
        requests: vLLM's cached states of requests, by id.
        input_batch: the requests of this step, in order.
        cudagraph_dispatcher: tells which graph a number of tokens runs in.
        uniform_decode_query_len: rows of each request in a decode batch.
        optimistic_seq_lens_cpu: int32 [max_num_reqs], how far each request is computed by a step
            whose drafts are all accepted.
    """

    requests: dict[str, Any]
    input_batch: Any
    cudagraph_dispatcher: Any
    uniform_decode_query_len: int
    optimistic_seq_lens_cpu: torch.Tensor


@dataclass(frozen=True, kw_only=True)
class Engine:
    """What a drafter is made from.

    Attributes:
        vllm_config: the engine's configuration.
        device: where the target runs.
        runner: the target's runner. Its ``__init__`` is under way when ``create`` is called:
            ``input_batch`` and the KV cache are not there yet.
        speculation: what was asked for, resolved.
    """

    vllm_config: VllmConfig
    device: torch.device
    runner: Runner
    speculation: Speculation


class Drafter(Protocol):
    """Makes the drafts of an engine. The runner calls the methods in this order.

    A drafter with a draft model extends vLLM's or vllm-ascend's own proposer, whose further hooks
    (KV cache, capture and replay of graphs) their runners call: ``initialize_attn_backend``,
    ``initialize_cudagraph_keys``, ``dummy_run``. Others extend :class:`HostDrafter`.

    Attributes:
        drafts_to_the_end: whether a request near ``max_model_len`` may be drafted for. vLLM drafts
            for nobody while one request is near its end, because its own loop would leave tables.
        wants_aux_hidden_states: whether the target is to return the states of inner layers.
    """

    drafts_to_the_end: bool
    wants_aux_hidden_states: bool

    @classmethod
    def create(cls, engine: Engine) -> Self:
        """Build the drafter of an engine.

        Raises:
            ConfigError: an option asks for what the method cannot do here.
        """

    def load_model(self, target_model: nn.Module) -> None:
        """Load weights; the target has been loaded."""

    def warm_up(self) -> None:
        """Do what costs time once; the runner is complete, no request has come."""

    def dummy_run(self, num_tokens: int, *args: Any, **kwargs: Any) -> None:
        """Run the draft on made-up input, to measure memory, to warm up or to capture a graph.

        The further arguments are those of vLLM's or vllm-ascend's runner.
        """

    def draft(self, step: DraftStep) -> Drafts:
        """Return drafts for every request of the batch."""

    def take_last_draft_probs(self) -> torch.Tensor | None:
        """Return the distributions of the last drafts, once; None where drafts are certain.

        Returns:
            float32 [num_reqs, K, vocab_size].
        """


class HostDrafter:
    """Base of drafters without a draft model that the runner would know of."""

    # The scheduler cuts off the drafts that do not fit, for each request by itself.
    drafts_to_the_end = True
    wants_aux_hidden_states = False

    def load_model(self, target_model: nn.Module) -> None:
        """Do nothing: there are no weights."""

    def warm_up(self) -> None:
        """Do nothing."""

    def dummy_run(self, num_tokens: int, *args: Any, **kwargs: Any) -> None:
        """Do nothing: there is no model to run."""

    def take_last_draft_probs(self) -> torch.Tensor | None:
        """Return None: drafts that are looked up are certain."""
        return None
