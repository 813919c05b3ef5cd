"""Serve the zoo's target with EAGLE and without, ask both the same, and compare.

    python examples/demo_serve.py            # or: make demo

Starts real ``vllm serve`` processes on free ports, talks to them through the official openai
client, and ends with status 1 if the greedy answers differ in a single token.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path

from openai import OpenAI

from vllm_ascend_spec.bench.client import ClientLoad, LoadResult, run_load
from vllm_ascend_spec.bench.server import Server, ServerError, stop_servers_on_sigterm
from vllm_ascend_spec.bench.start_timeout import add_start_timeout
from vllm_ascend_spec.metrics.acceptance import AcceptanceCounts, from_prometheus

ZOO = Path(os.path.relpath(Path(__file__).parent / "zoo"))
TARGET = str(ZOO / "target")
EAGLE = {"method": "eagle", "model": str(ZOO / "eagle"), "num_speculative_tokens": 3}
PROMPTS: list[str] = json.loads((ZOO / "prompts.json").read_text())
CHAT = [{"role": "user", "content": "Write a function that reads a file and counts its lines."}]
# float32, because two bfloat16 forward passes of different widths round differently and greedy
# decoding then diverges at near-ties, with or without speculation.
ARGUMENTS = ("--dtype", "float32", "--max-model-len", "512", "--max-num-seqs", "8")
ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",  # the models are tiny
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_LOGGING_LEVEL": "WARNING",
}


@dataclass
class Report:
    """What one server answered and how fast."""

    name: str
    texts: dict[str, str]
    greedy: LoadResult
    sampled: LoadResult
    acceptance: dict[str, AcceptanceCounts]


def ask_every_way(server: Server) -> dict[str, str]:
    """Use completions and chat, whole and streamed."""
    client = OpenAI(base_url=f"{server.url}/v1", api_key="EMPTY")
    greedy = {"model": TARGET, "max_tokens": 48, "temperature": 0}
    prompt = PROMPTS[0]
    whole = client.completions.create(prompt=prompt, **greedy)
    pieces = client.completions.create(prompt=prompt, stream=True, **greedy)
    chat = client.chat.completions.create(messages=CHAT, **greedy)
    chat_pieces = client.chat.completions.create(messages=CHAT, stream=True, **greedy)
    return {
        "completion": whole.choices[0].text,
        "completion, streamed": "".join(c.choices[0].text for c in pieces if c.choices),
        "chat": chat.choices[0].message.content or "",
        "chat, streamed": "".join(
            c.choices[0].delta.content or "" for c in chat_pieces if c.choices
        ),
    }


def measure(
    name: str, spec: dict[str, object] | None, num_prompts: int, start_timeout_s: float
) -> Report:
    """Start a server, ask it everything, stop it."""
    server = Server(
        TARGET,
        spec,
        arguments=(*ARGUMENTS, "--enforce-eager"),
        environment=ENVIRONMENT,
        title=name,
        start_timeout_s=start_timeout_s,
    )
    with server:
        print(f"  {name}: ready after {server.start_seconds:.0f} s on {server.url}", flush=True)
        texts = ask_every_way(server)
        prompts = PROMPTS[:num_prompts]
        results, acceptance = {}, {}
        for kind, temperature in (("greedy", 0.0), ("T=0.8", 0.8)):
            load = ClientLoad(prompts, max_tokens=64, temperature=temperature)
            before = from_prometheus(server.metrics())
            print(f"  {name}: {len(prompts)} prompts x 64 tokens, {kind}", flush=True)
            results[kind] = run_load(server.url, TARGET, load)
            acceptance[kind] = from_prometheus(server.metrics()) - before
    return Report(name, texts, results["greedy"], results["T=0.8"], acceptance)


def print_table(reports: list[Report]) -> None:
    """Print speed and acceptance, one line a server and kind of request."""
    header = ("", "requests", "tokens/s", "ms/token", "tokens/step", "accepted at 1, 2, 3")
    rows = [header]
    for kind in ("greedy", "T=0.8"):
        for report in reports:
            result = report.greedy if kind == "greedy" else report.sampled
            accepted = report.acceptance[kind]
            tokens = accepted.tokens_per_step
            rows.append(
                (
                    report.name,
                    kind,
                    f"{result.tokens_per_s:.1f}",
                    f"{result.time_per_output_token_ms:.2f}",
                    "1.00" if tokens is None else f"{tokens:.2f}",
                    ", ".join(f"{share:.0%}" for share in accepted.per_position) or "-",
                )
            )
    widths = [max(len(row[column]) for row in rows) for column in range(len(header))]
    for row in rows:
        cells = zip(row, widths, strict=True)
        print("  " + "  ".join(cell.ljust(width) for cell, width in cells))


def count_differences(ours: Report, theirs: Report) -> int:
    """Print which greedy answers differ and return how many."""
    different = [f"{kind!r}" for kind in ours.texts if ours.texts[kind] != theirs.texts[kind]]
    pairs = zip(ours.greedy.answers, theirs.greedy.answers, strict=True)
    for index, (a, b) in enumerate(pairs):
        if a.token_ids != b.token_ids or not a.token_ids:
            different.append(f"prompt {index}")
    total = len(ours.texts) + len(ours.greedy.answers)
    if different:
        print(f"  NOT identical: {len(different)} of {total} differ: {', '.join(different)}")
    else:
        print(f"  identical: all {total} greedy answers, token by token")
    return len(different)


def main() -> int:
    """Run the demo and return its exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--num-prompts", type=int, default=8, choices=range(1, len(PROMPTS) + 1))
    add_start_timeout(parser)
    args = parser.parse_args()
    stop_servers_on_sigterm()
    try:
        print("1. vllm serve with --speculative-config", json.dumps(EAGLE), flush=True)
        eagle = measure("EAGLE", dict(EAGLE), args.num_prompts, args.start_timeout)
        print("2. vllm serve without speculation", flush=True)
        plain = measure("none", None, args.num_prompts, args.start_timeout)
    except ServerError as error:
        print(f"\n{error}")
        return 1
    print("3. what it wrote")
    for kind, text in eagle.texts.items():
        print(f"  [{kind}]")
        print("\n".join(f"    {line}" for line in text.splitlines()))
    print("4. speed")
    print_table([eagle, plain])
    ratio = eagle.greedy.tokens_per_s / plain.greedy.tokens_per_s
    print(f"  greedy speed-up in this one run: {ratio:.2f} times")
    print("5. is it lossless?")
    return 1 if count_differences(eagle, plain) else 0


if __name__ == "__main__":
    sys.exit(main())
