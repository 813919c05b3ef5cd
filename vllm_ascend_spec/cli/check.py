"""``vllm-ascend-spec check``: is this configuration right? Loads no model."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from typing import Any

from vllm_ascend_spec import versions
from vllm_ascend_spec.config.additional import section_of
from vllm_ascend_spec.config.engine import Engine, cudagraph_mode_of
from vllm_ascend_spec.config.json_option import parse_json, parse_speculative
from vllm_ascend_spec.config.preflight import check_engine, check_method, with_underscores
from vllm_ascend_spec.config.rules import (
    GREEDY,
    STANDARD,
    SYNTHETIC,
    resolve_rule,
    rule_warnings,
)
from vllm_ascend_spec.config.schema import SECTION, SpecOptions
from vllm_ascend_spec.platform import select

HELP = "check a model and its speculative config without loading anything"


# Further options of `vllm serve` that say whether the two configs can be used.
ENGINE_OPTIONS: dict[str, dict[str, Any]] = {
    "--tensor-parallel-size": {"type": int, "default": 1, "metavar": "N"},
    "--max-model-len": {"type": int, "metavar": "N"},
    "--load-format": {"default": "auto", "metavar": "FORMAT"},
    "--enforce-eager": {"action": "store_true"},
    "--compilation-config": {"metavar": "JSON"},
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Take options of ``vllm serve`` under their own names."""
    parser.add_argument("model", help="the target: a folder or a hub's name")
    for name in ("--speculative-config", "--additional-config"):
        parser.add_argument(name, metavar="JSON", help="as for vllm serve")
    for name, details in ENGINE_OPTIONS.items():
        parser.add_argument(name, help="as for vllm serve, where it matters", **details)


def run(args: argparse.Namespace) -> int:
    """Check, and print the resolved configuration."""
    name, version = versions.require_vllm()
    spec = parse_speculative(args.speculative_config)
    additional = {}
    if args.additional_config is not None:
        additional = parse_json("--additional-config", args.additional_config)
    device = select.detect_device()
    check_engine(args.model, spec, additional, engine_of(args, device))
    choice = select.select_platform()
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


def engine_of(args: argparse.Namespace, device: str | None) -> Engine:
    """Return what the command line says about the engine."""
    compilation = None
    if args.compilation_config is not None:
        compilation = parse_json("--compilation-config", args.compilation_config)
    return Engine(
        device=device,
        load_format=args.load_format,
        tensor_parallel_size=args.tensor_parallel_size,
        max_model_len=args.max_model_len,
        enforce_eager=args.enforce_eager,
        cudagraph_mode=cudagraph_mode_of(compilation),
    )


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
