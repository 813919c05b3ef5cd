"""The interface of a drafter, which is the part of an engine that makes drafts.

Its class is made of the bases in its method's record, which are imported on first use.
"""

from __future__ import annotations

import functools
import importlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from vllm_ascend_spec.upstream.draft_loops import bases_of
from vllm_ascend_spec.versions import installed_version

if TYPE_CHECKING:
    import torch
    from torch import nn
    from typing_extensions import Self
    from vllm.config import VllmConfig

    from vllm_ascend_spec.config.resolved import SpecConfig
    from vllm_ascend_spec.methods.step import Drafts, DraftStep
    from vllm_ascend_spec.ops.row_noise import RowNoise


class Runner(Protocol):
    """The part of a model runner that drafters read.

    Attributes:
        requests: vLLM's cached request states, by id.
        input_batch: the requests of this step, in order.
        cudagraph_dispatcher: selects the graph for a number of tokens.
        uniform_decode_query_len: number of rows per request in a decode batch.
        optimistic_seq_lens_cpu: int32 [max_num_reqs], computed length of each request after a step
            whose drafts are all accepted.
        kv_cache_config: vLLM's layout of the KV cache; set before the first step.
        noise_of_drafts: noise of the first drafts that follow this step's tokens; None if no
            request that samples has a seed.
    """

    requests: dict[str, Any]
    input_batch: Any
    cudagraph_dispatcher: Any
    uniform_decode_query_len: int
    optimistic_seq_lens_cpu: torch.Tensor
    kv_cache_config: Any
    noise_of_drafts: RowNoise | None


@dataclass(frozen=True, kw_only=True)
class DrafterContext:
    """The parts of an engine that a drafter is created from.

    Attributes:
        vllm_config: the engine's configuration.
        device: the device on which the target runs.
        runner: the target's runner. Its ``__init__`` is still running when ``create`` is called:
            ``input_batch`` and the KV cache do not exist yet.
        speculation: the user's options, resolved.
    """

    vllm_config: VllmConfig
    device: torch.device
    runner: Runner
    speculation: SpecConfig


class Drafter(Protocol):
    """Makes the drafts of an engine. The runner calls the methods in this order.

    A drafter with a draft model extends vLLM's or vllm-ascend's own proposer. Their runners also
    call its hooks for the KV cache and for graph capture and replay: ``initialize_attn_backend``,
    ``initialize_cudagraph_keys``, ``dummy_run``. Other drafters extend :class:`HostDrafter`.

    A drafter may have a method ``take_confidences()``, which returns float32 [num_reqs, K] once, or
    None: the probability of each of the last drafts to be accepted if all before it are. It must
    not depend on that draft or later ones (``control/confidence.py``). One that learns from what is
    accepted may have a method ``forget()``; it is called after steps of dummy requests.

    Attributes:
        drafts_to_the_end: whether drafting goes on while a request is near ``max_model_len``. vLLM
            stops it for all requests, because its own loop would index tables out of bounds.
        wants_aux_hidden_states: whether the target has to return the states of inner layers.
        shares_noise: whether drafts of requests with a seed are sampled with the verifier's noise,
            see ``loops/sampling.py``.
    """

    drafts_to_the_end: bool
    wants_aux_hidden_states: bool
    shares_noise: bool

    @classmethod
    def create(cls, engine: DrafterContext) -> Self:
        """Build the drafter of an engine.

        Raises:
            ConfigError: an option is not supported by the method here.
        """

    def warm_up(self) -> None:
        """Do one-time work; the runner is complete, weights are not loaded yet."""

    def load_model(self, target_model: nn.Module) -> None:
        """Load weights; the target is already loaded."""

    def dummy_run(self, num_tokens: int, *args: Any, **kwargs: Any) -> None:
        """Run the draft on dummy input, to measure memory, to warm up or to capture a graph.

        The other arguments are those of vLLM's or vllm-ascend's runner.
        """

    def draft(self, step: DraftStep) -> Drafts:
        """Return drafts for every request of the batch."""

    def take_last_draft_probs(self) -> torch.Tensor | None:
        """Return the distributions of the last drafts once; None if the drafts are greedy.

        Returns:
            float32 [num_reqs, K, vocab_size].
        """


class HostDrafter:
    """Base class of drafters without a draft model that the runner has to know about."""

    # The scheduler cuts off drafts that do not fit, separately for each request.
    drafts_to_the_end = True
    wants_aux_hidden_states = False
    shares_noise = False

    def load_model(self, target_model: nn.Module) -> None:
        """Do nothing: there are no weights."""

    def warm_up(self) -> None:
        """Do nothing."""

    def dummy_run(self, num_tokens: int, *args: Any, **kwargs: Any) -> None:
        """Do nothing: there is no model to run."""

    def take_last_draft_probs(self) -> torch.Tensor | None:
        """Return None: drafts that are looked up are one-hot."""
        return None


def create_drafter(engine: DrafterContext) -> Drafter:
    """Build the drafter of an engine."""
    asked = engine.speculation
    assert asked.family is not None
    bases = asked.drafter
    if asked.drafters_by_type:
        bases = asked.drafters_by_type.get(model_type_of_draft(engine.vllm_config), bases)
    return drafter_class(asked.method, asked.family, bases).create(engine)


def model_type_of_draft(vllm_config: VllmConfig) -> str:
    """Return the model type that vLLM gives the draft; empty without a draft model."""
    draft = getattr(vllm_config.speculative_config, "draft_model_config", None)
    return str(getattr(getattr(draft, "hf_config", None), "model_type", ""))


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
