"""Check a command line or an ``LLM()`` call before anything expensive starts."""

from __future__ import annotations

import errno
import socket
from collections.abc import Callable, Mapping
from typing import Any

from vllm_ascend_spec.config.checkpoint import check_draft, find_folder, find_target
from vllm_ascend_spec.config.custom_class import check_custom_class
from vllm_ascend_spec.config.methods import MAX_DRAFT_TOKENS, METHODS, Method
from vllm_ascend_spec.config.ngram import check_ngram
from vllm_ascend_spec.config.resolve import require_speculation, section_of
from vllm_ascend_spec.config.rules import STANDARD, check_synthetic, resolve_rule
from vllm_ascend_spec.config.schema import SECTION, SpecOptions
from vllm_ascend_spec.errors import CheckpointError, ConfigError

SPEC = "speculative_config"
# Values that say "not set" and are therefore never an option without effect.
UNSET = (None, False)
DRAFT_SAMPLE_METHODS = ("greedy", "probabilistic")
# What a method's own options have to be, where the rules for all methods do not tell.
OPTION_CHECKS: dict[str, Callable[[Mapping[str, Any]], None]] = {
    "ngram": check_ngram,
    "custom_class": check_custom_class,
}
# Filled in by vLLM when it builds the config, not by a person.
INTERNAL = ("target_model_config", "target_parallel_config")


def check_engine(
    model: str | None,
    speculative_config: Any,
    additional_config: Any = None,
    *,
    load_format: str = "auto",
) -> None:
    """Check everything that can be checked without loading a model.

    Args:
        model: the target, a folder or a hub's name.
        speculative_config: as given by the person, or None.
        additional_config: as given by the person, or None.
        load_format: with ``dummy`` no weights are read, so none are looked for.

    Raises:
        ConfigError: naming the option, its value and what is valid.
    """
    section = section_of(additional_config)
    options = SpecOptions.from_mapping(section)
    if not speculative_config:
        require_speculation(section)
        return
    if not isinstance(speculative_config, Mapping):
        raise ConfigError(SPEC, speculative_config, "must be a JSON object")
    spec = with_underscores(speculative_config)
    method = check_method(spec)
    check_options(method, spec)
    check_draft_length(spec)
    check_draft_sampling(spec)
    resolve_rule(spec.get("rejection_sample_method", STANDARD), section)
    check_synthetic(spec)
    if "draft_loop" in section and not method.has_draft_loop:
        raise ConfigError(
            f"additional_config.{SECTION}.draft_loop",
            options.draft_loop,
            f"has no effect with method {method.name!r}, which has no draft model",
        )
    if method.name in OPTION_CHECKS:
        OPTION_CHECKS[method.name](spec)
    if method.needs_checkpoint and load_format != "dummy":
        check_checkpoint(spec, model, load_format)


def with_underscores(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``spec`` with its keys as vLLM names them; dashes are fine, too."""
    return {str(key).replace("-", "_"): value for key, value in spec.items()}


def check_method(spec: Mapping[str, Any]) -> Method:
    """Return the method that ``spec`` names."""
    name = spec.get("method")
    valid = ", ".join(repr(known) for known in METHODS)
    if name is None:
        raise ConfigError(f"{SPEC}.method", None, f"name the method; valid: {valid}")
    if name not in METHODS:
        raise ConfigError(f"{SPEC}.method", name, f"not supported by this release; valid: {valid}")
    return METHODS[name]


def check_options(method: Method, spec: Mapping[str, Any]) -> None:
    """Refuse options that are unknown or would have no effect, and ask for those that miss."""
    for key, value in spec.items():
        if key in method.options or key in INTERNAL or any(value is unset for unset in UNSET):
            continue
        raise ConfigError(
            f"{SPEC}.{key}",
            value,
            f"has no effect with method {method.name!r}; valid: "
            + ", ".join(sorted(method.options)),
        )
    for key in method.required:
        if spec.get(key) is None:
            raise ConfigError(f"{SPEC}.{key}", None, f"method {method.name!r} needs it")


def check_draft_length(spec: Mapping[str, Any]) -> None:
    """Check the number of draft tokens per step."""
    length = spec.get("num_speculative_tokens")
    is_whole = isinstance(length, int) and not isinstance(length, bool)
    if not is_whole or not 1 <= int(length or 0) <= MAX_DRAFT_TOKENS:
        raise ConfigError(
            f"{SPEC}.num_speculative_tokens",
            length,
            f"valid: a whole number from 1 to {MAX_DRAFT_TOKENS}",
        )


def check_draft_sampling(spec: Mapping[str, Any]) -> None:
    """Check how drafts are to be picked."""
    method = spec.get("draft_sample_method", DRAFT_SAMPLE_METHODS[0])
    if method not in DRAFT_SAMPLE_METHODS:
        valid = ", ".join(map(repr, DRAFT_SAMPLE_METHODS))
        raise ConfigError(f"{SPEC}.draft_sample_method", method, f"valid: {valid}")


def check_checkpoint(spec: Mapping[str, Any], target: str | None, load_format: str) -> None:
    """Check the draft's checkpoint, against the target's where both are folders."""
    option, model = f"{SPEC}.model", spec["model"]
    if not isinstance(model, str):
        raise CheckpointError(option, model, "must be a folder or a hub's name")
    folder = find_folder(option, model, spec.get("revision"))
    if folder is None:
        return
    target_folder = find_target(target) if target else None
    if spec.get("use_heterogeneous_vocab"):
        target_folder = None
    check_draft(option, spec, folder, target_folder, load_format)


def check_port(host: str | None, port: int) -> None:
    """Raise if another process listens on the port.

    Raises:
        ConfigError: the port is taken.
    """
    family = socket.AF_INET6 if host and ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host or "", port))
        except OSError as error:
            # Anything else (no such interface, no permission) is vLLM's to report.
            if error.errno == errno.EADDRINUSE:
                raise ConfigError(
                    "--port", port, "another process listens on it; choose a free port"
                ) from None
