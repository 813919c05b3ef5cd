"""Registry of the methods of this and other packages. Imports neither torch nor vLLM."""

from __future__ import annotations

import functools
from collections.abc import Mapping

from vllm_ascend_spec.config.entry_points import records_of
from vllm_ascend_spec.config.method import Method
from vllm_ascend_spec.methods import (
    custom_class,
    dflash,
    draft_model,
    dspark,
    eagle,
    eagle3,
    extract_hidden_states,
    hybrid,
    medusa,
    mlp_speculator,
    mtp,
    ngram,
    suffix,
)

GROUP = "vllm_ascend_spec.methods"
BUILT_IN: Mapping[str, Method] = {
    module.METHOD.name: module.METHOD
    for module in (
        eagle,
        eagle3,
        mtp,
        dflash,
        dspark,
        draft_model,
        hybrid,
        medusa,
        mlp_speculator,
        ngram,
        suffix,
        custom_class,
        extract_hidden_states,
    )
}


@functools.cache
def all_methods() -> Mapping[str, Method]:
    """Return every method by its name.

    Raises:
        ExtensionError: a method of another package cannot be used.
    """
    return records_of(GROUP, Method, BUILT_IN.values())
