"""Checks of method ``suffix``: whether its options fit together and its library is installed."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from typing import Any

from vllm_ascend_spec.config.engine import SpecInput
from vllm_ascend_spec.config.options import OPTIONS
from vllm_ascend_spec.errors import ConfigError

LIBRARY = "arctic_inference.suffix_decoding"
# Its build works with any installed torch, but asks pip for one of its own, never a CPU build.
INSTALL = (
    "pip install cmake ninja nanobind==2.9.2 grpcio-tools && "
    "pip install --no-deps --no-build-isolation arctic-inference==0.1.1"
)
DEPTH, FACTOR = "suffix_decoding_max_tree_depth", "suffix_decoding_max_spec_factor"


def check_suffix(request: SpecInput) -> None:
    """Check that the options allow at least one draft, and that the library can be imported.

    Raises:
        ConfigError: naming the option and what is valid, or how to install the library.
    """
    if longest_draft(request.spec) < 1:
        longest_match = value_of(request.spec, DEPTH) - 1
        raise ConfigError(
            f"speculative_config.{FACTOR}",
            value_of(request.spec, FACTOR),
            f"never drafts; valid: from {1 / longest_match:.3g} on, one draft for the longest "
            f"match, {DEPTH} - 1 = {longest_match}",
        )
    if problem := library_problem():
        name = request.spec["method"]
        raise ConfigError("speculative_config.method", name, f"{problem}; install it by: {INSTALL}")


def library_problem() -> str | None:
    """Return why the suffix-tree library cannot be used, or None; torch is not imported."""
    try:
        importlib.import_module(LIBRARY)
    except ModuleNotFoundError as error:
        if LIBRARY.startswith(error.name or LIBRARY):
            return "needs arctic-inference, which is not installed"
        return f"arctic-inference needs {error.name}"
    except ImportError as error:
        return f"arctic-inference cannot be imported ({error})"
    return None


def warn_of_length(request: SpecInput) -> Iterator[str]:
    """Warn if no draft can ever have ``num_speculative_tokens`` tokens."""
    spec = request.spec
    longest, wanted = longest_draft(spec), spec["num_speculative_tokens"]
    if longest < wanted:
        yield (
            f"num_speculative_tokens={wanted} is never reached: with {DEPTH}="
            f"{value_of(spec, DEPTH)} and {FACTOR}={value_of(spec, FACTOR)} the longest draft of "
            f"the suffix trees has {longest} tokens."
        )


def longest_draft(spec: Mapping[str, Any]) -> int:
    """Return the maximum draft length: a match and its draft share the tree's depth."""
    depth, factor = value_of(spec, DEPTH), value_of(spec, FACTOR)
    return max(min(int(match * factor + 1e-6), depth - match) for match in range(1, depth))


def value_of(spec: Mapping[str, Any], name: str) -> Any:
    """Return the value of an option, or vLLM's default if it is not set."""
    value = spec.get(name)
    return OPTIONS[name].unset if value is None else value
