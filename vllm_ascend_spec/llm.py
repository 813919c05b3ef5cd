"""vLLM's ``LLM`` for scripts that call the options of speculation by their old names."""

from __future__ import annotations

import logging
from typing import Any

import vllm

from vllm_ascend_spec.legacy.names import LEGACY, given_of, modern, told
from vllm_ascend_spec.log import log_once


class LLM(vllm.LLM):
    """``vllm.LLM``, which also takes ``speculative_model`` and the other old names.

    They are translated to ``speculative_config``; one line in the log has the new form. Everything
    else is vLLM's.

    Args:
        model: the target.
        **kwargs: of ``vllm.LLM``, and any name of
            :data:`vllm_ascend_spec.legacy.names.LEGACY`.

    Raises:
        ConfigError: old names contradict each other or ``speculative_config``, or say too little.
    """

    def __init__(self, model: str, **kwargs: Any) -> None:
        given = given_of(kwargs)
        for name in LEGACY:
            kwargs.pop(name, None)
        if given:
            found = modern(given, kwargs.get("speculative_config"), model, as_flags=False)
            kwargs["speculative_config"] = found.spec
            log_once(logging.WARNING, told(given, found, as_flags=False))
        super().__init__(model, **kwargs)
