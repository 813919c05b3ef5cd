"""``benchmarks verify``: time the verification kernels and their peers in turn, in this process."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import torch

from tests.benchmarks.verify import peers, stock
from tests.benchmarks.verify.cases import (
    KINDS,
    NUM_DRAFTS,
    VerifyBatch,
    VerifyCase,
    count_batches,
    describe,
    make_batch,
    plan_cases,
)
from tests.benchmarks.verify.memory import memory_record, peak_bytes
from tests.benchmarks.verify.overhead import OVERHEAD_KINDS, measure_overhead
from tests.benchmarks.verify.peers import ARGMAX, BY_TOKEN_RULE, READS, TORCH, VLLM
from tests.benchmarks.verify.summary import format_row, format_summary, summarise
from tests.benchmarks.verify.timing import (
    Call,
    Calls,
    Samples,
    Timer,
    make_timer,
    measure,
)
from vllm_ascend_spec.bench import provenance
from vllm_ascend_spec.bench.progress import Progress
from vllm_ascend_spec.bench.stats import Summary, paired_ratio

METHOD = (
    "Each figure is the median, lowest and highest over the rounds; a round's figure is the median "
    "of calls back to back for at least 20 ms. All calls of a case take turns, in another order "
    "each round, and have the same input tensors. Where a case has several batches, calls go "
    "through them in turn, and the figure is the mean of their medians: as many as have 32 "
    "requests together where uniforms decide what is accepted, and where the plan says cold as "
    "many as have 128 MiB of logits together, so that those of a call come from memory. On a CPU "
    "each runs once untimed before its turn, from its own caches. On CUDA 256 MiB are written "
    "before every call. Ratios are formed round by round. Ours and torch are given uniforms, or "
    "seeds where the kind says seeded (torch: uniforms); vllm draws its own, without seeds. "
    "Figures of ours include the checks of arguments."
)


@dataclass(frozen=True)
class VerifyBenchConfig:
    """What ``benchmarks verify`` measures; see the command's options."""

    kinds: tuple[str, ...] = tuple(KINDS)
    vocabs: tuple[int, ...] = (32_000, 151_936)
    batches: tuple[int, ...] = (1, 8, 32)
    acceptances: tuple[str, ...] | None = None
    backends: tuple[str, ...] = ()
    rounds: int = 7
    threads: int = 1
    dtype: str = "float32"
    device: str = "cpu"
    limit_s: float = 120.0
    cold: bool = False

    @property
    def cases(self) -> list[VerifyCase]:
        """The cases in the order they run."""
        return plan_cases(self.kinds, self.vocabs, self.batches, self.acceptances)


def run(
    plan: VerifyBenchConfig, tell: Callable[[str], None], timer: Timer | None = None
) -> dict[str, Any]:
    """Run the plan and return its record.

    Args:
        plan: what is measured.
        tell: prints a line for each case, as soon as it is measured.
        timer: None for the device's default timer.
    """
    device = torch.device(plan.device)
    states = peers.find_backends(plan.backends, device)
    backends = tuple(name for name, state in states.items() if state == "ready")
    timer = timer or make_timer(device)
    record: dict[str, Any] = {
        "benchmark": "verify",
        "provenance": provenance.collect(),
        "device": _describe_device(device),
        "plan": {**asdict(plan), "num_drafts": NUM_DRAFTS},
        "method": METHOD,
        "peer_note": stock.prepare(device),
        "backends": states,
        "judged": backends[0],
        "results": [],
        "overhead": [],
    }
    # Only now, because loading vLLM sets the threads, too.
    threads_before = torch.get_num_threads()
    torch.set_num_threads(plan.threads)
    try:
        with Progress(len(plan.cases)) as progress:
            for case in plan.cases:
                progress.next(str(case))
                row = run_case(case, plan, backends, timer)
                record["results"].append(row)
                tell(format_row(row, record["judged"]))
        record["overhead"] = _overheads(plan, backends[0], timer)
    finally:
        torch.set_num_threads(threads_before)
    record["summary"] = summarise(record)
    tell(format_summary(record))
    return record


def run_case(
    case: VerifyCase, plan: VerifyBenchConfig, backends: tuple[str, ...], timer: Timer
) -> dict[str, Any]:
    """Measure one case and return its row of the record."""
    dtype, device = getattr(torch, plan.dtype), torch.device(plan.device)
    # On CUDA the timer empties the caches.
    cold = plan.cold and device.type == "cpu"
    num_batches = count_batches(case, dtype.itemsize, cold=cold)
    batches = [make_batch(case, dtype, device, index) for index in range(num_batches)]
    batch = batches[0]
    by_batch = [peers.make_calls(case, batch, backends) for batch in batches]
    calls = {name: [calls[name] for calls in by_batch] for name in by_batch[0]}
    samples = measure(calls, timer, rounds=plan.rounds, limit_s=plan.limit_s)
    verifiers = [name for name in samples.seconds if name not in (ARGMAX, *READS)]
    read = fastest_read(samples)
    return {
        **case.as_dict(),
        "dtype": plan.dtype,
        "logits_bytes": batch.logits.nbytes,
        "batches": num_batches,
        "inputs": describe(batch),
        "skipped": samples.skipped,
        # On CUDA the host only waits, so its share says nothing.
        "cpu_share": round(samples.cpu_share, 3) if device.type == "cpu" else None,
        "milliseconds": {
            name: Summary.of([1e3 * value for value in values]).as_dict()
            for name, values in samples.seconds.items()
        },
        "tokens_per_request": {
            name: _tokens_per_request(name, calls[name], batches) for name in verifiers
        },
        "ratios": {name: ratios(name, samples) for name in backends if name in samples.seconds},
        "read": {"by": read, "gb_per_s": _gb_per_s(batch, samples.seconds[read])},
        # Only a case that reads all rows has a bandwidth.
        "bandwidth": _bandwidth(case, batch, backends, samples, read),
        "memory": _memory(case, batch, {name: calls[name][0] for name in verifiers}, device),
    }


def _tokens_per_request(name: str, calls: Calls, batches: list[VerifyBatch]) -> float:
    pairs = zip(calls, batches, strict=True)
    counts = [peers.check_tokens(name, call(), batch) for call, batch in pairs]
    return round(statistics.fmean(counts), 3)


def fastest_read(samples: Samples) -> str:
    """Return the reading pass with the lowest median."""
    return min(READS, key=lambda name: Summary.of(samples.seconds[name], digits=12).median)


def ratios(backend: str, samples: Samples) -> dict[str, Any]:
    """Return the ratios between the times of a backend and of its peers.

    ``"vllm"`` and ``"torch"`` are the peer's time / ours; ``"argmax"`` and ``"token rule"`` are our
    time / theirs.
    """
    ours = samples.seconds[backend]
    found = {
        peer: paired_ratio(samples.seconds[peer], ours).as_dict()
        for peer in (VLLM, TORCH)
        if peer in samples.seconds
    }
    for title, name in ((ARGMAX, ARGMAX), ("token rule", backend + BY_TOKEN_RULE)):
        if name in samples.seconds:
            found[title] = paired_ratio(ours, samples.seconds[name]).as_dict()
    return found


def _gb_per_s(batch: VerifyBatch, seconds: list[float]) -> dict[str, float]:
    return Summary.of([batch.logits.nbytes / value / 1e9 for value in seconds], 2).as_dict()


def _bandwidth(
    case: VerifyCase, batch: VerifyBatch, backends: tuple[str, ...], samples: Samples, read: str
) -> dict[str, Any] | None:
    if case.acceptance != "all":
        return None
    return {
        name: {
            "gb_per_s": _gb_per_s(batch, samples.seconds[name]),
            "share_of_read": paired_ratio(samples.seconds[read], samples.seconds[name]).as_dict(),
        }
        for name in backends
        if name in samples.seconds
    }


def _memory(
    case: VerifyCase, batch: VerifyBatch, calls: Mapping[str, Call], device: torch.device
) -> dict[str, Any]:
    rows = len(batch.draft_token_ids)
    return {
        name: memory_record(peak_bytes(call, device), rows, case.vocab, name)
        for name, call in calls.items()
        if not name.endswith(BY_TOKEN_RULE)
    }


def _overheads(plan: VerifyBenchConfig, backend: str, timer: Timer) -> list[dict[str, Any]]:
    dtype, device = getattr(torch, plan.dtype), torch.device(plan.device)
    return [
        measure_overhead(
            VerifyCase(kind, vocab, 1), backend, dtype, device, rounds=plan.rounds, timer=timer
        )
        for kind in OVERHEAD_KINDS
        if kind in plan.kinds
        for vocab in plan.vocabs
    ]


def _describe_device(device: torch.device) -> dict[str, Any]:
    if device.type == "cuda":
        properties = torch.cuda.get_device_properties(device)
        return {
            "type": "cuda",
            "name": properties.name,
            "memory_bytes": properties.total_memory,
            "cuda": torch.version.cuda,
        }
    from vllm_ascend_spec.ops import cpu_library

    built = cpu_library.library_problem() is None
    return {
        "type": "cpu",
        "name": provenance.cpu_model(),
        "instruction_set": cpu_library.instruction_set() if built else None,
        "torch_capability": torch.backends.cpu.get_cpu_capability(),
    }
