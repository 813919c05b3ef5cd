"""``vllm-ascend-spec check``: is this configuration right? Loads no model."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from vllm_ascend_spec import versions
from vllm_ascend_spec.config.device import Device
from vllm_ascend_spec.config.engine import (
    Engine,
    capture_sizes_of,
    cudagraph_mode_of,
    kv_connector_of,
)
from vllm_ascend_spec.config.json_option import parse_json, parse_speculative
from vllm_ascend_spec.config.resolved import Speculation
from vllm_ascend_spec.devices import select
from vllm_ascend_spec.entry.preflight import resolve_engine

HELP = "check a model and its speculative config without loading anything"


# Further options of `vllm serve` that say whether the two configs can be used.
ENGINE_OPTIONS: dict[str, dict[str, Any]] = {
    "--tensor-parallel-size": {"type": int, "default": 1, "metavar": "N"},
    "--data-parallel-size": {"type": int, "default": 1, "metavar": "N"},
    "--pipeline-parallel-size": {"type": int, "default": 1, "metavar": "N"},
    "--enable-eplb": {"action": "store_true"},
    "--max-model-len": {"type": int, "metavar": "N"},
    "--max-num-seqs": {"type": int, "metavar": "N"},
    "--load-format": {"default": "auto", "metavar": "FORMAT"},
    "--enforce-eager": {"action": "store_true"},
    "--async-scheduling": {"action": argparse.BooleanOptionalAction, "default": None},
    "--compilation-config": {"metavar": "JSON"},
    "--cudagraph-capture-sizes": {"type": int, "nargs": "+", "metavar": "N"},
    "--kv-transfer-config": {"metavar": "JSON"},
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
    device = select.find_device()
    speculation = resolve_engine(args.model, spec, additional, engine_of(args, device))
    choice = select.select_platform()
    resolved = {
        "vllm": f"{name} {version}",
        "device": device.name if device is not None else None,
        "platform": choice.platform or choice.note or "vLLM's own",
        "model": args.model,
        "speculative_config": spec,
        **(report(speculation) if speculation is not None else {}),
    }
    sys.stdout.write(json.dumps(resolved, indent=2) + "\n")
    return 0


def engine_of(args: argparse.Namespace, device: Device | None) -> Engine:
    """Return what the command line says about the engine."""
    compilation = None
    if args.compilation_config is not None:
        compilation = parse_json("--compilation-config", args.compilation_config)
    sizes = args.cudagraph_capture_sizes
    transfer = None
    if args.kv_transfer_config is not None:
        transfer = parse_json("--kv-transfer-config", args.kv_transfer_config)
    return Engine(
        device=device,
        load_format=args.load_format,
        tensor_parallel_size=args.tensor_parallel_size,
        data_parallel_size=args.data_parallel_size,
        pipeline_parallel_size=args.pipeline_parallel_size,
        enable_eplb=args.enable_eplb,
        max_model_len=args.max_model_len,
        enforce_eager=args.enforce_eager,
        async_scheduling=args.async_scheduling,
        cudagraph_mode=cudagraph_mode_of(compilation),
        kv_connector=kv_connector_of(transfer),
        max_num_seqs=args.max_num_seqs,
        capture_sizes=capture_sizes_of(compilation) if sizes is None else tuple(sizes),
    )


def report(speculation: Speculation) -> dict[str, Any]:
    """Return the speculation as an engine will use it, and where each value came from."""
    return {
        "speculation": speculation.as_json(),
        "lossless": speculation.is_lossless,
        "warnings": list(speculation.warnings),
    }
