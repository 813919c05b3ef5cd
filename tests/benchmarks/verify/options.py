"""The options of ``python -m tests.benchmarks verify``."""

from __future__ import annotations

import argparse
import functools
import json
import os
import sys
from pathlib import Path
from typing import Any

from vllm_ascend_spec.cli.bench_engine import read_record
from vllm_ascend_spec.errors import ConfigError, did_you_mean

DTYPES = ("float32", "bfloat16", "float16")
DEVICES = ("cpu", "cuda")
BATCHES = {"cpu": (1, 8, 32), "cuda": (1, 8, 64, 256)}
VOCABS = {"cpu": (32_000, 151_936), "cuda": (151_936,)}
QUICK = {"vocab": (32_000,), "batch": (1, 8), "rounds": 3}
ROUNDS = 7
KIND_LIST = (
    "greedy,plain,top-p,top-k-top-p,sampled-drafts,block,block-sampled-drafts,seeded,"
    "seeded-top-p,seeded-top-k-top-p,seeded-spread,seeded-no-drafts"
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the benchmark."""
    parser.add_argument("--kinds", help=f"a list; default {KIND_LIST}")
    parser.add_argument("--vocab", help="a list; default 32000,151936 (cuda: 151936)")
    parser.add_argument("--batch", help="a list; default 1,8,32 (cuda: 1,8,64,256)")
    parser.add_argument("--backend", help="a list; default: all that are ready on the device")
    parser.add_argument(
        "--acceptance",
        help="all (every row is read), mixed, or both as a list; default all, and both for the "
        "block rule",
    )
    parser.add_argument("--rounds", type=int, help=f"samples of each call; default {ROUNDS}")
    parser.add_argument("--threads", type=int, default=1, help="PyTorch's threads")
    parser.add_argument("--dtype", default="float32", help=f"of the logits: {', '.join(DTYPES)}")
    parser.add_argument("--device", default="cpu", help=" or ".join(DEVICES))
    parser.add_argument(
        "--limit-s",
        type=float,
        default=120.0,
        help="a call whose samples would take longer is skipped, and the record says so",
    )
    parser.add_argument(
        "--cold",
        action="store_true",
        help="enough batches in turn that logits come from memory; on cuda they always do",
    )
    parser.add_argument("--quick", action="store_true", help="vocab 32000, batch 1,8, 3 rounds")
    parser.add_argument("--markdown", action="store_true", help="print tables, not the record")
    parser.add_argument(
        "--record", type=Path, metavar="FILE", help="measure nothing, report this earlier record"
    )
    parser.add_argument("--output", type=Path, metavar="FILE", help="for the record; .png beside")
    parser.set_defaults(benchmark_run=run)


def run(args: argparse.Namespace) -> int:
    """Run ``benchmarks verify``."""
    # All are read when torch or vLLM is loaded; Kineto is PyTorch's profiler.
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    os.environ.setdefault("OMP_NUM_THREADS", str(args.threads))
    from tests.benchmarks.verify import benchmark, report
    from vllm_ascend_spec.bench import progress

    if args.record:
        record = read_record(args.record, "verify")
    else:
        # Progress goes to stdout unless the record or the tables do.
        tell = functools.partial(progress.tell, to_stderr=args.markdown or not args.output)
        record = benchmark.run(make_plan(args), tell)
    if args.output:
        args.output.parent.mkdir(parents=True, exist_ok=True)
        if not args.record:
            args.output.write_text(json.dumps(record, indent=1) + "\n")
            sys.stderr.write(f"record: {args.output}\n")
        said = report.draw(record, args.output.with_suffix(".png"))
        sys.stderr.write(said + "\n")
    if args.markdown or args.record:
        sys.stdout.write(report.markdown(record) + "\n")
    elif not args.output:
        sys.stdout.write(json.dumps(record, indent=1) + "\n")
    return 0


def make_plan(args: argparse.Namespace) -> Any:
    """Check the options and return the plan.

    Raises:
        ConfigError: naming the option and what is valid.
    """
    from tests.benchmarks.verify import benchmark
    from tests.benchmarks.verify.cases import ACCEPTANCES, KINDS
    from vllm_ascend_spec.bench import provenance

    _check_device(args.device)
    if args.output and args.output.suffix == ".png":
        raise ConfigError("--output", str(args.output), "is for the record; valid: a .json file")
    one_of("--dtype", args.dtype, DTYPES)
    quick: dict[str, Any] = QUICK if args.quick else {}
    kinds = names("--kinds", args.kinds, tuple(KINDS)) or tuple(KINDS)
    acceptances = names("--acceptance", args.acceptance, ACCEPTANCES)
    rounds = args.rounds if args.rounds is not None else quick.get("rounds", ROUNDS)
    cpus = provenance.count_cpus() or args.threads
    if not 1 <= args.threads <= cpus:
        raise ConfigError("--threads", args.threads, f"valid: 1 to {cpus}, the CPUs there are")
    if rounds < 1:
        raise ConfigError("--rounds", rounds, "valid: 1 or more")
    if not args.limit_s > 0:
        raise ConfigError("--limit-s", args.limit_s, "valid: more than 0")
    return benchmark.VerifyBenchConfig(
        kinds=kinds,
        vocabs=_sizes("--vocab", args.vocab) or quick.get("vocab", VOCABS[args.device]),
        batches=_sizes("--batch", args.batch) or quick.get("batch", BATCHES[args.device]),
        acceptances=acceptances,
        backends=tuple(args.backend.split(",")) if args.backend else (),
        rounds=rounds,
        threads=args.threads,
        dtype=args.dtype,
        device=args.device,
        limit_s=args.limit_s,
        cold=args.cold,
    )


def _check_device(device: str) -> None:
    import torch

    one_of("--device", device, DEVICES)
    if device == "cuda" and not torch.cuda.is_available():
        raise ConfigError("--device", device, "PyTorch finds no CUDA device here; valid: cpu")


def one_of(option: str, value: str, valid: tuple[str, ...]) -> None:
    """Refuse a value that is not among ``valid``."""
    if value not in valid:
        raise ConfigError(option, value, f"{did_you_mean(value, valid)}valid: {', '.join(valid)}")


def names(option: str, text: str | None, valid: tuple[str, ...]) -> tuple[str, ...] | None:
    """Parse a comma-separated list of names; None if it was not given."""
    if text is None:
        return None
    given = tuple(text.split(","))
    for name in given:
        one_of(option, name, valid)
    return given


def _sizes(option: str, text: str | None) -> tuple[int, ...] | None:
    if text is None:
        return None
    try:
        sizes = tuple(int(item) for item in text.split(","))
    except ValueError:
        sizes = ()
    if not sizes or min(sizes) < 1:
        raise ConfigError(option, text, "valid: a comma-separated list of numbers of 1 or more")
    return sizes
