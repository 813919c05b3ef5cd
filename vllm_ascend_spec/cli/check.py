"""``vllm-ascend-spec check``: is this configuration right? Loads no model."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from typing import Any

from vllm_ascend_spec import versions
from vllm_ascend_spec.config.preflight import check_engine, check_method, with_underscores
from vllm_ascend_spec.config.resolve import section_of
from vllm_ascend_spec.config.rules import (
    GREEDY,
    STANDARD,
    SYNTHETIC,
    resolve_rule,
    rule_warnings,
)
from vllm_ascend_spec.config.schema import SECTION, SpecOptions
from vllm_ascend_spec.errors import ConfigError
from vllm_ascend_spec.platform import select

HELP = "check a model and its speculative config without loading anything"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Take the same options as ``vllm serve``."""
    parser.add_argument("model", help="the target: a folder or a hub's name")
    parser.add_argument("--speculative-config", metavar="JSON", help="as for vllm serve")
    parser.add_argument("--additional-config", metavar="JSON", help="as for vllm serve")


def parse_json(option: str, text: str | None) -> Any:
    """Parse the JSON of an option."""
    if text is None:
        return None
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise ConfigError(option, text, f"is not JSON: {error}") from None


def run(args: argparse.Namespace) -> int:
    """Check, and print the resolved configuration."""
    name, version = versions.require_vllm()
    spec = parse_json("--speculative-config", args.speculative_config)
    additional = parse_json("--additional-config", args.additional_config)
    check_engine(args.model, spec, additional)
    choice, device = select.select_platform(), select.detect_device()
    resolved = {
        "vllm": f"{name} {version}",
        "device": device,
        "platform": choice.platform or choice.note or "vLLM's own",
        "model": args.model,
        "speculative_config": spec,
        **(resolve(spec, section_of(additional), device) if spec else {}),
    }
    sys.stdout.write(json.dumps(resolved, indent=2) + "\n")
    return 0


def resolve(
    speculative_config: Mapping[str, Any], section: Mapping[str, Any], device: str | None
) -> dict[str, Any]:
    """Return our options as they will be used; both arguments have been checked."""
    spec, options = with_underscores(speculative_config), SpecOptions.from_mapping(section)
    if options.verify_backend is not None:
        from vllm_ascend_spec.verification.backend import require_backend

        require_backend(options.verify_backend, device or "cpu")
    rule = resolve_rule(spec.get("rejection_sample_method", STANDARD), section)
    used = {**vars(options), "verify_rule": rule}
    if not check_method(spec).has_draft_loop:
        del used["draft_loop"]
    return {
        SECTION: used,
        "lossless": rule != SYNTHETIC,
        "warnings": rule_warnings(rule, spec["method"], spec.get("draft_sample_method", GREEDY)),
    }
