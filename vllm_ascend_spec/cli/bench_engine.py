"""Options of the benchmarks that compare whole configurations, and their checks."""

from __future__ import annotations

import argparse
import json
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from vllm_ascend_spec.config.engine import EngineOptions
from vllm_ascend_spec.config.json_option import parse_speculative
from vllm_ascend_spec.devices import select
from vllm_ascend_spec.errors import ConfigError
from vllm_ascend_spec.hooks.preflight import resolve_engine

DTYPES = ("float32", "bfloat16", "float16")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options for the target's engines."""
    parser.add_argument("--model", default="examples/zoo/target", help="the target model")
    parser.add_argument("--dtype", default="float32", choices=DTYPES, help="dtype of the weights")
    parser.add_argument("--max-model-len", type=int, default=512, help="as for vllm serve")
    parser.add_argument(
        "--kv-cache-mib", type=int, help="KV cache of each engine; default: as vLLM's variables say"
    )
    parser.add_argument("--compiled", action="store_true", help="use torch.compile")
    parser.add_argument(
        "--output", type=Path, help="file for the JSON record; default: standard output"
    )


def read_specs(texts: Sequence[str]) -> list[dict[str, Any]]:
    """Read speculative configs, each a JSON object.

    Raises:
        ConfigError: one is not a JSON object.
    """
    specs = [parse_speculative(text) for text in texts]
    for spec in specs:
        if not isinstance(spec, dict):
            raise ConfigError("--speculative-config", spec, "valid: a JSON object")
    return specs


def engine_arguments(args: argparse.Namespace) -> dict[str, Any]:
    """Return the arguments of ``LLM`` that the options name."""
    found = {"dtype": args.dtype, "max_model_len": args.max_model_len}
    if args.kv_cache_mib is not None:
        found["kv_cache_memory_bytes"] = args.kv_cache_mib << 20
    return found


def resolve(
    args: argparse.Namespace, specs: Sequence[Mapping[str, Any]], most_requests: int
) -> str:
    """Check every speculative config as its engine would, and return the device's name.

    Raises:
        ConfigError: one cannot be used.
    """
    for option, value in (
        ("--max-model-len", args.max_model_len),
        ("--kv-cache-mib", 1 if args.kv_cache_mib is None else args.kv_cache_mib),
    ):
        if value < 1:
            raise ConfigError(option, value, "valid: 1 and more")
    device = select.find_device()
    engine = EngineOptions(
        device=device,
        max_model_len=args.max_model_len,
        max_num_seqs=most_requests,
        enforce_eager=not args.compiled,
    )
    for spec in specs:
        resolve_engine(args.model, dict(spec), engine=engine)
    return "none found" if device is None else device.name


def check_prompts(
    args: argparse.Namespace,
    prompts: Sequence[str],
    option: str,
    max_tokens: int,
    limits: Sequence[int | None] | None = None,
) -> None:
    """Check that prompts and their answers fit, with the target's tokenizer.

    Args:
        args: arguments of the command.
        prompts: texts.
        option: the option that names their file.
        max_tokens: maximum number of tokens in an answer.
        limits: maximum for each prompt's answer, used instead where it is not None.

    Raises:
        ConfigError: one does not fit, or there is no tokenizer.
    """
    from transformers import AutoTokenizer

    from vllm_ascend_spec.bench.jsonl import check_lengths

    try:
        tokenizer = AutoTokenizer.from_pretrained(args.model)
    except (OSError, ValueError) as error:
        raise ConfigError("--model", args.model, f"has no tokenizer: {error}") from None
    check_lengths(
        option,
        prompts,
        args.max_model_len,
        max_tokens,
        lambda text: len(tokenizer(text).input_ids),
        limits,
    )


def numbers(option: str, text: str, kind: type, least: float) -> list[Any]:
    """Parse a comma-separated list of numbers, each once.

    Raises:
        ConfigError: it is not such a list.
    """
    try:
        found = [kind(item) for item in text.split(",")]
    except ValueError:
        found = []
    is_fine = found and all(math.isfinite(n) and n >= least for n in found)
    if not is_fine or len(set(found)) < len(found):
        raise ConfigError(
            option, text, f"valid: a comma-separated list of numbers of {least} and more, each once"
        )
    return found


def check_can_be_written(option: str, path: Path | None) -> None:
    """Make a file's folder and check it before measuring, so that no result is lost.

    Raises:
        ConfigError: it cannot be made or written.
    """
    if path is None:
        return
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(option, str(path), f"cannot be written: {error.strerror}") from None
    if path.is_dir() or not os.access(path if path.exists() else path.parent, os.W_OK):
        raise ConfigError(
            option, str(path), "cannot be written; valid: a file in a folder of yours"
        )


def read_record(path: Path, benchmark: str) -> dict[str, Any]:
    """Read an earlier record, the value of ``--record``.

    Raises:
        ConfigError: it cannot be read, or another benchmark wrote it.
    """
    try:
        record = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise ConfigError("--record", str(path), f"cannot be read: {error}") from None
    if not isinstance(record, dict) or record.get("benchmark") != benchmark:
        raise ConfigError("--record", str(path), f"is not a record of bench {benchmark}")
    return record
