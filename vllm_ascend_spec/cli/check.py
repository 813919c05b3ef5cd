"""``vllm-ascend-spec check``: is this configuration right? Loads no model."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from vllm_ascend_spec import versions
from vllm_ascend_spec.config.preflight import check_engine
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
    choice = select.select_platform()
    section = additional.get(SECTION, {}) if additional else {}
    resolved = {
        "vllm": f"{name} {version}",
        "device": select.detect_device(),
        "platform": choice.platform or choice.note or "vLLM's own",
        "model": args.model,
        "speculative_config": spec,
        SECTION: vars(SpecOptions.from_mapping(section)),
    }
    sys.stdout.write(json.dumps(resolved, indent=2) + "\n")
    return 0
