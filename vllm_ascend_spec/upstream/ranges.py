"""Tell whether the installed version is in a range.

``conformance`` recognizes these two functions: where ``if vllm_is(">=0.33")`` chooses between two
branches, it checks only the branch for the version in question.
"""

from __future__ import annotations

import functools

from vllm_ascend_spec import versions


@functools.cache
def vllm_is(wanted: str) -> bool:
    """Tell whether the installed vLLM is in a range such as ``>=0.30,<0.33``."""
    return versions.is_in_range(versions.installed_version("vllm"), wanted)


@functools.cache
def vllm_ascend_is(wanted: str) -> bool:
    """Tell whether the installed vllm-ascend is in a range."""
    return versions.is_in_range(versions.installed_version("vllm-ascend"), wanted)
