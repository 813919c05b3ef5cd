"""Measure what W8A8 costs and gives: perplexity, accepted drafts, and speed on a CPU.

    python examples/zoo/quantized.py            # measures, and writes the record and the documents
    python examples/zoo/quantized.py --report   # writes the documents from the record

Times are those of the process's work, with one thread, and not of the clock, so that a busy machine
changes little, and what is compared takes turns. docs/quantization.md quotes the record.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ZOO = Path(__file__).parent
ROOT = ZOO.parents[1]
RECORD = ROOT / "docs" / "records" / "quantized-cpu.json"
PAGES = (ROOT / "docs" / "quantization.md", ROOT / "docs" / "quantization.zh.md")
BEGIN, END = "<!-- w8a8: python examples/zoo/quantized.py -->", "<!-- end of w8a8 -->"
FLOAT, STATIC, DYNAMIC = "float", "W8A8", "W8A8_DYNAMIC"
# Target, its type, method, and the draft's type; None where the draft is in the target.
DRAFTED = [
    *(
        ("target", kind, method, draft)
        for draft, kinds in ((FLOAT, (FLOAT, STATIC, DYNAMIC)), (DYNAMIC, (FLOAT, STATIC)))
        for method in ("eagle", "eagle3")
        for kind in kinds
    ),
    *(
        (target, kind, "mtp", None)
        for target in ("target-mimo", "target-deepseek")
        for kind in (FLOAT, DYNAMIC)
    ),
]
# Rows, inputs and outputs: a step of one request, of eight with drafts, a prompt; two widths.
SHAPES = [(rows, *size) for size in ((256, 704), (2048, 2048)) for rows in (1, 32, 512)]
ROUNDS = 7
SECONDS = 0.05


def seconds_of(run: Callable[[], Any]) -> float:
    """Return how long one call takes of the process's time."""
    run()
    calls, began = 0, time.process_time()
    while (took := time.process_time() - began) < SECONDS:
        run()
        calls += 1
    return took / calls


def in_turns(runs: dict[str, Callable[[], Any]]) -> dict[str, float]:
    """Return the median time of each, taken in turns."""
    times: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(ROUNDS):
        for name, run in runs.items():
            times[name].append(seconds_of(run))
    return {name: statistics.median(found) for name, found in times.items()}


def products() -> list[dict[str, Any]]:
    """Return how long a layer takes, in microseconds, by shape and dtype."""
    import torch

    from vllm_ascend_spec.quantization import matmul, reference

    found = []
    for rows, size, outputs in SHAPES:
        for dtype in (torch.float32, torch.bfloat16):
            x = torch.randn(rows, size).to(dtype)
            weight = torch.randn(outputs, size) * 0.05
            scale, offset = reference.input_range(-4.0, 4.0)
            static = matmul.static(
                reference.quantize_static(weight, None, scale, offset), adds_bias=True, dtype=dtype
            )
            dynamic = matmul.dynamic(*reference.quantize_weight(weight), dtype=dtype)
            plain = weight.to(dtype)
            times = in_turns(
                {
                    FLOAT: lambda x=x, w=plain: torch.nn.functional.linear(x, w),
                    STATIC: lambda x=x, f=static: f(x),
                    DYNAMIC: lambda x=x, f=dynamic: f(x),
                }
            )
            shape = {"rows": rows, "inputs": size, "outputs": outputs}
            micro = {name: round(taken * 1e6, 1) for name, taken in times.items()}
            found.append({**shape, "dtype": str(dtype).removeprefix("torch."), **micro})
            print(found[-1], flush=True)
    return found


def perplexity(llm: Any, prompts: list[str]) -> float:
    """Return the perplexity of texts."""
    from vllm import SamplingParams

    outputs = llm.generate(prompts, SamplingParams(max_tokens=1, prompt_logprobs=0), use_tqdm=False)
    logs = [
        entry.logprob
        for output in outputs
        for place in output.prompt_logprobs[1:]
        for entry in place.values()
    ]
    return math.exp(-sum(logs) / len(logs))


def folders(work: Path) -> dict[tuple[str, str], str]:
    """Return folders by name in the zoo and type; quantize those that the zoo does not have."""
    from training import modelslim

    found = {("target", STATIC): str(ZOO / "target-w8a8")}
    for name in ("target", "target-mimo", "target-deepseek", "eagle", "eagle3"):
        found[name, FLOAT] = str(ZOO / name)
        found[name, DYNAMIC] = str(work / name)
        modelslim.quantize_dynamic(ZOO / name, work / name)
    return found


def engine(places: dict[tuple[str, str], str], target: str, kind: str, spec: Any) -> Any:
    """Make an engine."""
    from evaluate import ENGINE
    from vllm import LLM

    option = {} if kind == FLOAT else {"quantization": "ascend"}
    model = places[target, kind]
    return LLM(model=model, speculative_config=spec, **option, **ENGINE)


def acceptance(places: dict[tuple[str, str], str]) -> list[dict[str, Any]]:
    """Return what drafts are worth, by target and draft."""
    from evaluate import NUM_DRAFTS, REQUESTS, measure

    found = []
    for target, kind, method, draft in DRAFTED:
        spec: dict[str, Any] = {"method": method, "num_speculative_tokens": NUM_DRAFTS}
        if draft is not None:
            spec["model"] = places[method, draft]
        if draft == DYNAMIC:
            spec["quantization"] = "ascend"
        llm = engine(places, target, kind, spec)
        result = measure(llm, REQUESTS["greedy"])
        llm.llm_engine.engine_core.shutdown()
        rate = sum(result["per_position"]) / NUM_DRAFTS
        row = {"target": target, "type": kind, "method": method, "draft": draft}
        row |= {"rate": round(rate, 4), "tokens_per_step": result["tokens_per_step"]}
        found.append(row)
        print(row, flush=True)
    return found


def speed(places: dict[tuple[str, str], str]) -> dict[str, dict[str, float]]:
    """Return perplexity, and tokens per second of the process's time, by type of the target."""
    from evaluate import NUM_DRAFTS, PROMPTS
    from vllm import SamplingParams

    spec = {"method": "eagle", "model": places["eagle", FLOAT]}
    spec["num_speculative_tokens"] = NUM_DRAFTS
    greedy = SamplingParams(temperature=0, max_tokens=64, ignore_eos=True)
    engines = {
        (kind, name): engine(places, "target", kind, asked)
        for kind in (FLOAT, STATIC, DYNAMIC)
        for name, asked in (("alone", None), ("eagle", spec))
    }
    times: dict[tuple[str, str, int], list[float]] = {}
    for round_number in range(ROUNDS):
        for (kind, name), llm in engines.items():
            for batch in (1, 8):
                began = time.process_time()
                llm.generate(PROMPTS[:batch], greedy, use_tqdm=False)
                took = time.process_time() - began
                if round_number:  # the first one warms
                    times.setdefault((kind, name, batch), []).append(took)
    found: dict[str, dict[str, float]] = {}
    for kind in (FLOAT, STATIC, DYNAMIC):
        row = {"perplexity": round(perplexity(engines[kind, "alone"], PROMPTS), 4)}
        for name in ("alone", "eagle"):
            for batch in (1, 8):
                rate = batch * 64 / statistics.median(times[kind, name, batch])
                row[f"{name}, {batch}"] = round(rate, 1)
        found[kind] = row
        print(kind, row, flush=True)
    return found


def table(record: dict[str, Any], language: str) -> list[str]:
    """Return the lines of the documents' table."""
    rates = {
        (row["target"], row["type"], row["method"], row["draft"]): row for row in record["drafts"]
    }
    head = HEADS[language]
    lines = [f"| {head} |", "|---" * (head.count("|") + 1) + "|"]
    for kind, row in record["targets"].items():
        drafted = (rates["target", kind, method, FLOAT] for method in ("eagle", "eagle3"))
        cells = [f"{found['rate']:.3f}, {found['tokens_per_step']:.2f}" for found in drafted]
        speeds = [f"{row[name]:.0f}" for name in row if name != "perplexity"]
        lines.append(f"| `{kind}` | {row['perplexity']:.4f} | {' | '.join([*cells, *speeds])} |")
    return lines


HEADS = {
    "en": "target | perplexity | eagle: accepted, tokens per step | eagle3: the same | tokens per "
    "second: alone, 1 request | 8 requests | with eagle, 1 | 8",
    "zh": "目标模型 | 困惑度 | eagle：接受率、每步 token 数 | eagle3：同左 | "
    "每秒 token 数：不投机，1 个请求 | 8 个请求 | eagle，1 个 | 8 个",
}


def with_table(page: str, lines: list[str]) -> str:
    """Return a page with its table replaced."""
    before, _, rest = page.partition(f"{BEGIN}\n")
    _, _, after = rest.partition(f"{END}\n")
    return "\n".join([f"{before}{BEGIN}", *lines, f"{END}\n{after}"])


def language_of(page: Path) -> str:
    """Return the key of a page's headings."""
    return "zh" if page.name.endswith(".zh.md") else "en"


def measured() -> dict[str, Any]:
    """Measure everything."""
    from evaluate import ENVIRONMENT

    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    from vllm.config import VllmConfig, set_current_vllm_config

    from vllm_ascend_spec.bench.provenance import collect

    record: dict[str, Any] = {"provenance": collect(), "rounds": ROUNDS}
    with set_current_vllm_config(VllmConfig()):
        record["products"] = products()
    with tempfile.TemporaryDirectory() as work:
        places = folders(Path(work))
        record["targets"] = speed(places)
        record["drafts"] = acceptance(places)
    return record


def main() -> None:
    """Measure, or only report."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--report", action="store_true", help="measure nothing")
    if not parser.parse_args().report:
        RECORD.write_text(json.dumps(measured(), indent=1) + "\n")
    record = json.loads(RECORD.read_text())
    for page in PAGES:
        page.write_text(with_table(page.read_text(), table(record, language_of(page))))


if __name__ == "__main__":
    main()
