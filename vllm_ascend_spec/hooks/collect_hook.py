"""Collect finished requests of live traffic, if ``collect_folder`` asks for it.

Why: a draft is best trained on the prompts that it will be used for, and on the target's own
answers. vLLM has no hook where both are known.
How: where an engine's front end is made, its output processor gets a collector. It chooses requests
as they come, and is given the chosen ones when they are finished. Nothing is hooked in before an
engine asks for it.
Until: never; this is our own feature, hooked in where vLLM has no hook.
"""

from __future__ import annotations

import logging
import random
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial, wraps
from pathlib import Path
from typing import Any

from vllm_ascend_spec.checkpoint.hub import current_hub
from vllm_ascend_spec.collect.collector import Collector
from vllm_ascend_spec.collect.record import Finished
from vllm_ascend_spec.config.collect import OPTION, Collecting, collecting_of, wants_collecting
from vllm_ascend_spec.errors import ConfigError
from vllm_ascend_spec.log import log_once
from vllm_ascend_spec.metrics.collected import collected
from vllm_ascend_spec.patches.patching import Patches
from vllm_ascend_spec.training.target import target_hash

_patches = Patches()
# vLLM's names of reasons after which an answer is not only a part.
WHOLE = ("STOP", "LENGTH")


def revert() -> None:
    """Undo the hook."""
    _patches.revert()


def prepare(additional_config: Any) -> None:
    """Install the hook once, if an engine is to collect.

    Args:
        additional_config: the engine's ``additional_config``.
    """
    if _patches or not wants_collecting(additional_config):
        return
    from vllm.v1.engine.async_llm import AsyncLLM
    from vllm.v1.engine.llm_engine import LLMEngine
    from vllm.v1.engine.output_processor import OutputProcessor

    for owner in (AsyncLLM, LLMEngine):
        _patches.set(owner, "__init__", _starting(owner.__init__))
    add, finish = OutputProcessor.add_request, OutputProcessor._update_stats_from_finished

    def add_request(self: Any, request: Any, *args: Any, **kwargs: Any) -> None:
        add(self, request, *args, **kwargs)
        if (choice := _choices.get(self)) is not None:
            choice.see(request, self.request_states.get(request.request_id))

    def _update_stats_from_finished(
        self: Any, req_state: Any, finish_reason: Any, *args: Any, **kwargs: Any
    ) -> None:
        finish(self, req_state, finish_reason, *args, **kwargs)
        if (choice := _choices.get(self)) is not None:
            choice.take(req_state, finish_reason)

    _patches.set(OutputProcessor, "add_request", add_request)
    _patches.set(OutputProcessor, "_update_stats_from_finished", _update_stats_from_finished)


@dataclass(eq=False)
class Choice:
    """Which requests of an output processor are collected.

    Attributes:
        rate: share of them.
        offer: gets those that are finished.
        draw: draws a number from 0 to 1; not by the generators that vLLM seeds.
        chosen: states of the chosen requests that are not finished.
    """

    rate: float
    offer: Callable[[Finished], None]
    draw: Callable[[], float] = field(default_factory=lambda: random.SystemRandom().random)
    chosen: weakref.WeakSet[Any] = field(default_factory=weakref.WeakSet)

    def see(self, request: Any, state: Any) -> None:
        """Choose a new request, or do not.

        Args:
            request: vLLM's ``EngineCoreRequest``.
            state: its ``RequestState``; None if it has ended.
        """
        if state is not None and is_plain(request) and self.draw() < self.rate:
            self.chosen.add(state)

    def take(self, state: Any, finish_reason: Any) -> None:
        """Collect a finished request if it was chosen.

        Args:
            state: its ``RequestState``.
            finish_reason: vLLM's ``FinishReason``.
        """
        if state not in self.chosen or finish_reason.name not in WHOLE:
            return
        tokens = tuple(state.detokenizer.output_token_ids)
        if tokens:
            prompt, text = state.prompt, getattr(state.detokenizer, "output_text", "")
            reason = finish_reason.name.lower()
            self.offer(Finished(tuple(state.prompt_token_ids), tokens, reason, prompt, text))


_choices: weakref.WeakKeyDictionary[Any, Choice] = weakref.WeakKeyDictionary()


def is_plain(request: Any) -> bool:
    """Tell whether a request is worth training on, and the target's alone.

    That is a prompt of nothing but tokens, no adapter, and room for more than one token.

    Args:
        request: vLLM's ``EngineCoreRequest``.
    """
    params = request.sampling_params
    return (
        params is not None
        and params.prompt_logprobs is None
        # Beam search asks for each token of each beam alone. One token is little to train on.
        and params.max_tokens != 1
        and bool(request.prompt_token_ids)
        and request.prompt_embeds is None
        and not request.mm_features
        and request.lora_request is None
        and not request.resumable
    )


def _starting(stock: Callable[..., None]) -> Callable[..., None]:
    @wraps(stock)
    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        stock(self, *args, **kwargs)
        config = self.vllm_config
        if (collecting := collecting_of(config.additional_config)) is not None:
            collect(self.output_processor, collecting, config.model_config)

    return init


def collect(processor: Any, collecting: Collecting, model: Any) -> None:
    """Collect what an output processor finishes.

    Args:
        processor: vLLM's ``OutputProcessor``.
        collecting: what is asked for.
        model: the engine's ``ModelConfig``.

    Raises:
        ConfigError: the folder cannot be used.
    """
    with_text = partial(add_texts, processor.tokenizer)
    collector = Collector(collecting, target_of(model.model, model.revision), with_text)
    try:
        collector.start()
    except OSError as error:
        problem = f"cannot be used: {error.strerror}"
        raise ConfigError(OPTION, str(collecting.folder), problem) from error
    log_once(logging.WARNING, collecting.describe())
    collected()
    _choices[processor] = Choice(collecting.rate, collector.offer)
    # Also when the process ends.
    weakref.finalize(processor, collector.close)


def add_texts(tokenizer: Any, finished: Finished) -> Finished:
    """Return a finished request with the texts that it lacks, as far as there is a tokenizer.

    A prompt of tokens has no text, an answer with ``detokenize=False`` an empty one.

    Args:
        tokenizer: vLLM's, or None.
        finished: the request.
    """
    if tokenizer is None:
        return finished
    prompt, answer = finished.prompt_text, finished.answer_text
    if prompt is None:
        prompt = tokenizer.decode(list(finished.prompt_token_ids))
    answer = answer or tokenizer.decode(list(finished.token_ids), skip_special_tokens=True)
    return replace(finished, prompt_text=prompt, answer_text=answer)


def target_of(model: str, revision: str | None) -> str | None:
    """Return the name of an engine's checkpoint; None where its files are not on this disk."""
    folder = Path(model) if Path(model).is_dir() else current_hub().cached(model, revision)
    return None if folder is None else target_hash(folder)
