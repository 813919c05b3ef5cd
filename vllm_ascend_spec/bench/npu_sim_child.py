"""One configuration of ``bench npu-sim``: serve the plan's requests and print what was counted.

Runs as ``python -m vllm_ascend_spec.bench.npu_sim_child`` with the plan on its standard input; the
environment decides whether this package or vllm-ascend alone is used.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Mapping
from typing import Any

from vllm_ascend_spec.bench.npu_sim import MARK

# Ops that this file adds, to count the draft model's rows where graphs replay them.
OWN = "bench::draft_rows "


class Meter:
    """Adds up counts of the device between two moments, again and again."""

    def __init__(self) -> None:
        self.sums: Counter[str] = Counter()
        self._start: Counter[str] = Counter()

    def start(self) -> None:
        """Begin to count."""
        self._start = read_counters()

    def stop(self) -> Counter[str]:
        """Return what was counted since :meth:`start`."""
        return read_counters() - self._start


def read_counters() -> Counter[str]:
    """Return the device's counts so far, flat."""
    from npu_sim.native_parts import native

    counters = native().counters()
    flat: Counter[str] = Counter()
    for name, (launched, replayed, _, read, written) in counters["ops"].items():
        if name.startswith(OWN):
            flat[name] += launched + replayed
            continue
        flat["device_ops"] += launched + replayed
        flat["bytes"] += read + written
        flat[f"op {name}"] += launched + replayed
    for name, amount in counters["events"].items():
        kind, _, what = name.partition(":")
        if kind == "sync":
            flat["syncs"] += amount
            flat[name] += amount
        elif what == "bytes":
            flat[f"{kind}_bytes"] += amount
        elif what == "copies":
            flat[f"{kind}_copies"] += amount
        else:
            flat[name] += amount
    return flat


def count_draft_rows() -> None:
    """Make every run of a draft model count its rows, also in graphs; before an engine exists."""
    import torch  # noqa: F401 - brings the simulated NPU up, which the next line needs
    from npu_sim.launch import as_device_op
    from vllm_ascend.spec_decode.llm_base_proposer import AscendSpecDecodeBaseProposer

    stock = AscendSpecDecodeBaseProposer.load_model

    def hook(_module: Any, _args: Any, inputs: Mapping[str, Any]) -> None:
        rows = next(
            inputs[name] for name in ("input_ids", "positions") if inputs.get(name) is not None
        )
        as_device_op(f"{OWN}{rows.shape[0]}", lambda tensor: None, lambda: (0, 0))(rows)

    def load_model(self: Any, *args: Any, **kwargs: Any) -> None:
        stock(self, *args, **kwargs)
        self.model.register_forward_pre_hook(hook, with_kwargs=True)

    AscendSpecDecodeBaseProposer.load_model = load_model


class Engine:
    """The engine of this process, with its runner's steps metered."""

    def __init__(self, plan: Mapping[str, Any]) -> None:
        from vllm import LLM

        self.plan = plan
        self.batch = len(plan["prompts"])
        eager = plan["graph_mode"] == "eager"
        self.llm = LLM(
            model=plan["model"],
            dtype="float32",
            max_model_len=256,
            max_num_seqs=self.batch,
            # A dummy run of vLLM's default, 8192 tokens, takes minutes on a simulated NPU.
            max_num_batched_tokens=256,
            block_size=128,
            kv_cache_memory_bytes=1 << 28,
            enforce_eager=eager,
            compilation_config={} if eager else {"cudagraph_mode": plan["graph_mode"]},
            enable_prefix_caching=False,
            async_scheduling=False,
            speculative_config=dict(plan["speculative_config"]),
            seed=0,
        )
        worker = self.llm.llm_engine.model_executor.driver_worker
        self.runner = getattr(worker, "worker", worker).model_runner
        self.verification, self.step = Meter(), Meter()
        self.is_full_step = False
        self.num_steps = 0
        self._watch()

    def _watch(self) -> None:
        runner = self.runner
        sample_tokens, sample = runner.sample_tokens, runner._sample

        def watched_sample_tokens(*args: Any, **kwargs: Any) -> Any:
            self.verification.start()
            return sample_tokens(*args, **kwargs)

        def watched_sample(logits: Any, metadata: Any, *args: Any, **kwargs: Any) -> Any:
            result = sample(logits, metadata, *args, **kwargs)
            counted = self.verification.stop()
            most = self.batch * self.plan["speculative_config"]["num_speculative_tokens"]
            # Steps of all requests with all their drafts: the others differ by chance.
            self.is_full_step = metadata is not None and sum(metadata.num_draft_tokens) == most
            if self.is_full_step:
                self.verification.sums += counted
            return result

        runner.sample_tokens, runner._sample = watched_sample_tokens, watched_sample

    def count(self, workload: str) -> dict[str, Any]:
        """Serve one workload twice, the second time counting; return counts per step."""
        self._serve(workload)
        self.verification.sums.clear()
        self.step.sums.clear()
        self.num_steps = 0
        tokens = self._serve(workload)
        steps = max(self.num_steps, 1)
        step = {name: amount / steps for name, amount in self.step.sums.items()}
        return {
            "steps": self.num_steps,
            "verification": _per_step(self.verification.sums, steps),
            "step": _per_step(self.step.sums, steps),
            "draft_rows": {
                name.removeprefix(OWN): amount
                for name, amount in step.items()
                if name.startswith(OWN)
            },
            "tokens": tokens,
        }

    def _serve(self, workload: str) -> list[list[int]]:
        core = self.llm.llm_engine
        for index, prompt in enumerate(self.plan["prompts"]):
            core.add_request(f"{workload}-{index}", prompt, self._parameters(workload, index))
        tokens: dict[str, list[int]] = {}
        while core.has_unfinished_requests():
            self.step.start()
            self.is_full_step = False
            outputs = core.step()
            if self.is_full_step:
                self.step.sums += self.step.stop()
                self.num_steps += 1
            for output in outputs:
                tokens[output.request_id] = list(output.outputs[0].token_ids)
        return [tokens[name] for name in sorted(tokens)]

    def _parameters(self, workload: str, index: int) -> Any:
        from vllm import SamplingParams
        from vllm.sampling_params import StructuredOutputsParams

        sampled = workload == "sampled"
        return SamplingParams(
            temperature=0.8 if sampled else 0.0,
            top_p=0.95 if sampled else 1.0,
            seed=index if sampled else None,
            max_tokens=self.plan["max_tokens"],
            ignore_eos=workload != "structured",
            structured_outputs=StructuredOutputsParams(regex="[a-z ]{200}")
            if workload == "structured"
            else None,
        )


def _per_step(sums: Mapping[str, int], steps: int) -> dict[str, Any]:
    names = ("device_ops", "bytes", "syncs", "d2h_copies", "d2h_bytes", "h2d_copies", "h2d_bytes")
    ops = {name: amount / steps for name, amount in sorted(sums.items()) if name.startswith("op ")}
    waits = {name: amount / steps for name, amount in sums.items() if name.startswith("sync:")}
    return {**{name: sums[name] / steps for name in names}, "waits": waits, "ops": ops}


def main() -> None:
    """Read the plan, count, print."""
    plan = json.load(sys.stdin)
    count_draft_rows()
    engine = Engine(plan)
    counts = {workload: engine.count(workload) for workload in plan["workloads"]}
    sys.stdout.write(f"\n{MARK}{json.dumps(counts)}\n")


if __name__ == "__main__":
    main()
