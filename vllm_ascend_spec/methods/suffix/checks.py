"""Checks of method ``suffix``: its options together, and whether its library is there."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from typing import Any

from vllm_ascend_spec.config.engine import Request
from vllm_ascend_spec.config.options import OPTIONS
from vllm_ascend_spec.errors import ConfigError

LIBRARY = "arctic_inference.suffix_decoding"
# Its build takes whatever torch it finds, but asks pip for one of its own, which no CPU build is.
INSTALL = (
    "pip install cmake ninja nanobind==2.9.2 grpcio-tools && "
    "pip install --no-deps --no-build-isolation arctic-inference==0.1.1"
)
DEPTH, FACTOR = "suffix_decoding_max_tree_depth", "suffix_decoding_max_spec_factor"


def check_suffix(request: Request) -> None:
    """Check that some match is long enough for a draft, and that the trees can be built.

    Raises:
        ConfigError: naming the option and what is valid, or how to install the library.
    """
    if longest_draft(request.spec) < 1:
        longest_match = value_of(request.spec, DEPTH) - 1
        raise ConfigError(
            f"speculative_config.{FACTOR}",
            value_of(request.spec, FACTOR),
            f"never drafts: valid is from {1 / longest_match:.3g} on, one draft for the longest "
            f"match, which is {DEPTH} - 1 = {longest_match}",
        )
    if problem := library_problem():
        name = request.spec["method"]
        raise ConfigError("speculative_config.method", name, f"{problem}; install it by: {INSTALL}")


def library_problem() -> str | None:
    """Return why the library of the suffix trees cannot be used, or None. It imports no torch."""
    try:
        importlib.import_module(LIBRARY)
    except ModuleNotFoundError as error:
        if LIBRARY.startswith(error.name or LIBRARY):
            return "needs arctic-inference, which is not installed"
        return f"arctic-inference needs {error.name}"
    except ImportError as error:
        return f"arctic-inference cannot be imported ({error})"
    return None


def warn_of_length(request: Request) -> Iterator[str]:
    """Say so where no draft can be as long as the engine makes room for."""
    spec = request.spec
    longest, wanted = longest_draft(spec), spec["num_speculative_tokens"]
    if longest < wanted:
        yield (
            f"num_speculative_tokens={wanted} is never reached: with {DEPTH}="
            f"{value_of(spec, DEPTH)} and {FACTOR}={value_of(spec, FACTOR)} the longest draft of "
            f"the suffix trees has {longest} tokens."
        )


def longest_draft(spec: Mapping[str, Any]) -> int:
    """Return how long drafts can be: a match and its draft share a tree's depth."""
    depth, factor = value_of(spec, DEPTH), value_of(spec, FACTOR)
    return max(min(int(match * factor + 1e-6), depth - match) for match in range(1, depth))


def value_of(spec: Mapping[str, Any], name: str) -> Any:
    """Return what an option is set to; vLLM's default if to nothing."""
    value = spec.get(name)
    return OPTIONS[name].unset if value is None else value
