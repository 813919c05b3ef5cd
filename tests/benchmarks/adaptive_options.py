"""``python -m tests.benchmarks adaptive``: its options, and what is run with them."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from vllm_ascend_spec.errors import ConfigError


def add_arguments(parser: argparse.ArgumentParser, add_common: Callable[..., None]) -> None:
    """Add the options for the loads.

    Args:
        parser: parser of the benchmark.
        add_common: adds the options that all benchmarks of an engine share.
    """
    add_common(parser)
    parser.add_argument("--repetitive", type=Path, default=Path("examples/zoo/edits.json"))
    parser.add_argument("--clients", default="1,2,4,8,16", help="that each wait, a list")
    parser.add_argument("--temperatures", default="0,0.8", help="a list; 0 is greedy")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--draft-length",
        choices=("adaptive", "auto"),
        default="adaptive",
        help="what is compared: with every fixed K, or K or none with that K",
    )
    parser.add_argument("--compiled", action="store_true", help="with torch.compile")
    parser.add_argument(
        "--cells-only", action="store_true", help="leave out the load that alternates"
    )
    parser.add_argument(
        "--control", action="store_true", help="one more engine with the longest K, for the noise"
    )
    parser.add_argument("--png", type=Path, metavar="FILE", help="draw speed and K over time")


def measure(
    args: argparse.Namespace,
    spec: dict[str, Any],
    prompts: Sequence[str],
    repetitive: Sequence[str],
    clients: Sequence[int],
    temperatures: Sequence[float],
    tell: Callable[[str], None],
) -> dict[str, Any]:
    """Run the benchmark and draw the picture, if one is wanted; ``tell`` prints the table.

    Raises:
        ConfigError: an option is out of range.
    """
    from tests.benchmarks import adaptive, adaptive_picture

    if args.rounds < 1:
        raise ConfigError("--rounds", args.rounds, "valid: 1 and more")
    if args.cells_only and args.png is not None:
        raise ConfigError("--png", str(args.png), "draws the load that --cells-only leaves out")
    record = adaptive.run(
        adaptive.AdaptiveBenchConfig(
            model=args.model,
            speculative_config=spec,
            prompts={adaptive.PLAIN: prompts, adaptive.REPETITIVE: repetitive},
            clients=clients,
            temperatures=temperatures,
            max_tokens=args.max_tokens,
            rounds=args.rounds,
            compiled=args.compiled,
            alternates=not args.cells_only,
            trace=args.png is not None,
            has_control=args.control,
            draft_length=args.draft_length,
        ),
        tell,
    )
    if args.png is not None:
        sys.stderr.write(adaptive_picture.draw(record, args.png) + "\n")
        # Only the picture needs single steps; the record has their totals.
        record.pop("traces")
    return record
