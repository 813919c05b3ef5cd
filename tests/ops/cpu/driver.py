"""Build ``driver.cpp`` with the sources of ``ops/cpu`` and run cases on it, without PyTorch."""

from __future__ import annotations

import os
import struct
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from ops.build import ARITHMETIC, COMMON, PORTABLE, X86_LEVELS
from tests.ops.batches import Arguments

ROOT = Path(__file__).parents[3]
SOURCES = sorted((ROOT / "ops" / "cpu").glob("*.cpp"))
# As in ops/cpu/logits.h, verify.h and driver.cpp.
DTYPES = {torch.float32: 0, torch.bfloat16: 1, torch.float16: 2}
RULES = {"token": 0, "block": 1}
GREEDY, SAMPLE, MASK, SEEDED, TREE = range(5)
UNIFORMS, SEEDS = ("accept_uniform", "sample_uniform"), ("seeds", "positions")
# gcc 12 warns of its own header of AVX-512's intrinsics (its bug 105593).
ARITHMETIC_FLAGS = (
    "-Wno-unknown-warning-option", "-Wno-maybe-uninitialized", "-Wno-uninitialized",
)  # fmt: skip


@dataclass(frozen=True)
class Job:
    """One call: what ``driver.cpp`` reads, and the form of what it writes."""

    payload: bytes
    dtype: torch.dtype
    shapes: tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Results:
    """What a driver wrote.

    Attributes:
        outputs: tensors of each job.
        most_held: bytes that one call held at most, besides its arguments.
    """

    outputs: list[tuple[torch.Tensor, ...]]
    most_held: int


def build(folder: Path, compiler: str, *flags: str, x86_levels: bool = True) -> Path:
    """Compile everything that does not need PyTorch; return the program.

    Raises:
        RuntimeError: with what the compiler says, if it cannot.
    """
    program = folder / "driver"
    levels = {**PORTABLE, **(X86_LEVELS if x86_levels else {})}
    common = [*COMMON, *flags, "-Wall", "-Wextra", "-Werror", f"-I{ROOT / 'ops' / 'cpu'}"]
    common += ["-DSPEC_HAVE_X86_LEVELS"] if x86_levels else []
    objects, commands = [], []
    for source in (*SOURCES, Path(__file__).with_name("driver.cpp")):
        if source.name == "library.cpp":
            continue
        builds = levels if source.name == ARITHMETIC else {"once": []}
        for name, march in builds.items():
            objects.append(str(folder / f"{source.stem}.{name}.o"))
            own = [*common, *march, f"-DSPEC_ISA={name}"]
            own += ARITHMETIC_FLAGS if source.name == ARITHMETIC else ()
            commands.append([compiler, *own, "-c", str(source), "-o", objects[-1]])
    _run_all(commands)
    _run_all([[compiler, *flags, *objects, "-o", str(program)]])
    return program


def _run_all(commands: Sequence[list[str]]) -> None:
    """Run commands, as many at a time as there are processors."""
    waiting, running = list(commands), []
    while waiting or running:
        while waiting and len(running) < (os.cpu_count() or 1):
            process = subprocess.Popen(
                waiting.pop(0), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
            )
            running.append(process)
        output, _ = running[0].communicate()
        if running.pop(0).returncode:
            for process in running:
                process.communicate()
            raise RuntimeError(output)


def run(command: Sequence[str], folder: Path, jobs: Iterable[Job], **environment: str) -> Results:
    """Run jobs on a program that :func:`build` made."""
    source, destination = folder / "jobs", folder / "results"
    jobs = list(jobs)
    source.write_bytes(b"".join(job.payload for job in jobs))
    # vLLM, once imported, has libraries preloaded; the sanitizers must come first.
    inherited = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    with source.open("rb") as stdin, destination.open("wb") as stdout:
        done = subprocess.run(
            command,
            stdin=stdin,
            stdout=stdout,
            stderr=subprocess.PIPE,
            text=True,
            env={**inherited, **environment},
            check=False,
        )
    assert done.returncode == 0, done.stderr[-4000:]
    data, start, outputs = bytearray(destination.read_bytes()), 0, []
    for job in jobs:
        tensors = []
        for shape in job.shapes:
            count = torch.Size(shape).numel()
            end = start + count * job.dtype.itemsize
            tensor = torch.frombuffer(data[start:end], dtype=job.dtype) if count else torch.empty(0)
            tensors.append(tensor.reshape(shape).to(job.dtype))
            start = end
        outputs.append(tuple(tensors))
    assert start == len(data)
    return Results(outputs, most_held=int(done.stderr.split()[-1]))


def verification(arguments: Arguments, *, greedily: bool = False) -> Job:
    """Return a job with the arguments of ``verify_sample``, or of ``verify_greedy`` among them.

    With those of ``verify_seeded`` or ``verify_tree`` it is one of that.
    """
    seeded, parents = "seeds" in arguments, arguments.get("parents")
    counts, probs = arguments["cu_num_draft_tokens"], arguments.get("draft_probs")
    if probs is not None and probs.stride(1) != 1:
        probs = probs.contiguous()  # as verify_sample/cpu.py does
    num_reqs, width = counts.shape[0], arguments["max_draft_len"] + 1
    with_seeds = SEEDED if parents is None else TREE
    header = {
        "op": GREEDY if greedily else with_seeds if seeded else SAMPLE,
        "num_drafts": arguments["draft_token_ids"].shape[0],
        "num_reqs": num_reqs,
        "max_draft_len": width - 1,
        "rule": RULES[arguments.get("rule", "token")],
        **{f"has_{name}": name in arguments for name in ("top_k", "top_p", "min_p")},
        "draft_probs_stride": 0 if probs is None else probs.stride(0),
    }
    names = ("temperature", "top_k", "top_p", "min_p")
    arrays = [
        arguments["draft_token_ids"],
        counts,
        *(arguments[name] for name in names if name in arguments),
        *([] if probs is None else [memory_of(probs)]),
        *(arguments[name] for name in (SEEDS if seeded else UNIFORMS)),
        *([] if parents is None else [parents]),
    ]
    payload = _payload(arguments["logits"], header, arrays)
    paths = () if parents is None else ((num_reqs, width),)
    return Job(payload, torch.int32, ((num_reqs, width), (num_reqs,), *paths))


def mask(
    logits: torch.Tensor,  # [num_rows, vocab_size]
    bitmask: torch.Tensor,  # [num_masked, num_words]
    row_indices: torch.Tensor,  # [num_masked]
) -> Job:
    """Return a job with the arguments of ``grammar_mask``; it gives the logits' memory back."""
    header = {"op": MASK, "num_masked": bitmask.shape[0], "num_words": bitmask.shape[1]}
    payload = _payload(logits, header, [bitmask, row_indices])
    return Job(payload, logits.dtype, (tuple(memory_of(logits).shape),))


def memory_of(rows: torch.Tensor) -> torch.Tensor:  # [num_rows, width]
    """Return all that lies from the first to the last element, what is between rows included."""
    num_rows, width = rows.shape
    return rows.as_strided(((num_rows - 1) * rows.stride(0) + width if num_rows else 0,), (1,))


def _payload(
    logits: torch.Tensor,  # [num_rows, vocab_size]
    header: Mapping[str, int],
    arrays: Sequence[torch.Tensor],
) -> bytes:
    fields = {
        "dtype": DTYPES[logits.dtype],
        "num_rows": logits.shape[0],
        "vocab": logits.shape[1],
        "row_stride": logits.stride(0),
        **header,
    }
    start = struct.pack(f"{len(HEADER)}q", *(int(fields.get(name, 0)) for name in HEADER))
    return b"".join([start, *(_bytes_of(array) for array in (memory_of(logits), *arrays))])


# The fields of driver.cpp's header, in its order.
HEADER = (
    *("op", "dtype", "num_rows", "vocab", "row_stride"),
    *("num_drafts", "num_reqs", "max_draft_len", "rule"),
    *("has_top_k", "has_top_p", "has_min_p", "draft_probs_stride"),
    *("num_masked", "num_words"),
)


def _bytes_of(array: torch.Tensor) -> bytes:
    # A copy, because a tensor of one element may have any stride.
    array = array.clone(memory_format=torch.contiguous_format).flatten()
    return array.view(torch.uint8).numpy().tobytes()
