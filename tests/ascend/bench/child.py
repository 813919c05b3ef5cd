"""One of the two configurations: serve the plan's requests and print what was counted.

Runs as ``python -m tests.ascend.bench.child`` with the plan on its standard input; the
environment decides whether this package or vllm-ascend alone is used.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch  # noqa: F401 - brings the simulated NPU up, which the next lines need
from npu_sim import counters
from npu_sim.launch import as_device_op

from tests.ascend.bench.counts import MARK
from tests.ascend.engine import garbage_stays

# Ops that this file adds, to count the draft model's rows where graphs replay them.
OWN = "bench::draft_rows "
# Ops that the simulator counts as if they read and wrote a layer's whole KV cache.
ON_CACHE = (
    "npu::npu_scatter_pa_kv_cache",
    "npu::npu_fused_infer_attention_score",
    "npu::npu_fused_infer_attention_score.out",
)


class Meter:
    """Adds up what the device was asked to do between two moments, again and again."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forget everything."""
        self.sum = counters.Snapshot()
        self._before = counters.Snapshot()

    def start(self) -> None:
        """Begin to count."""
        self._before = counters.snapshot()

    def stop(self) -> counters.Snapshot:
        """Return what was counted since :meth:`start`."""
        return counters.snapshot() - self._before


def count_draft_rows() -> None:
    """Make every run of a draft model count its rows, also in graphs; before an engine exists."""
    from vllm_ascend.spec_decode.llm_base_proposer import AscendSpecDecodeBaseProposer

    stock = AscendSpecDecodeBaseProposer.load_model

    def load_model(self: Any, *args: Any, **kwargs: Any) -> None:
        stock(self, *args, **kwargs)
        # Hooks of a module do not see calls of one that vLLM compiles as a whole.
        self.model.__class__ = counting(type(self.model))

    AscendSpecDecodeBaseProposer.load_model = load_model


def counting(kind: type) -> type:
    """Return a model's class whose calls count their rows."""

    def call(self: Any, *args: Any, **inputs: Any) -> Any:
        rows = next(
            inputs[name] for name in ("input_ids", "positions") if inputs.get(name) is not None
        )
        as_device_op(f"{OWN}{rows.shape[0]}", lambda tensor: None, lambda: (0, 0))(rows)
        return kind.__call__(self, *args, **inputs)

    return type(kind.__name__, (kind,), {"__call__": call})


class Engine:
    """The engine of this process, with its runner's steps metered."""

    def __init__(self, plan: Mapping[str, Any]) -> None:
        from vllm import LLM

        self.plan = plan
        self.batch = len(plan["prompts"])
        eager = plan["graph_mode"] == "eager"
        arguments: dict[str, Any] = {
            "model": plan["model"],
            "dtype": "float32",
            "max_model_len": 256,
            "max_num_seqs": self.batch,
            # A dummy run of vLLM's default, 8192 tokens, takes minutes on a simulated NPU.
            "max_num_batched_tokens": 256,
            "block_size": 128,
            "kv_cache_memory_bytes": 1 << 28,
            "enforce_eager": eager,
            "compilation_config": {} if eager else {"cudagraph_mode": plan["graph_mode"]},
            "enable_prefix_caching": False,
            "async_scheduling": False,
            "speculative_config": dict(plan["speculative_config"]),
            "additional_config": {"ascend_spec": section}
            if (section := plan.get("section"))
            else {},
            "seed": 0,
        }
        with garbage_stays():
            self.llm = LLM(**(arguments | plan.get("engine", {})))
        self.num_drafts = plan["speculative_config"]["num_speculative_tokens"]
        worker = self.llm.llm_engine.model_executor.driver_worker
        self.runner = getattr(worker, "worker", worker).model_runner
        self.verification, self.step, self.target = Meter(), Meter(), Meter()
        self.workload = ""
        self.is_full_step = False
        self.num_steps = 0
        self._watch()

    def _watch(self) -> None:
        runner = self.runner
        sample_tokens, sample = runner.sample_tokens, runner._sample
        forward = runner._model_forward
        of_target = counters.Snapshot()

        def watched_forward(*args: Any, **kwargs: Any) -> Any:
            nonlocal of_target
            self.target.start()
            hidden = forward(*args, **kwargs)
            of_target = self.target.stop()
            return hidden

        def watched_sample_tokens(*args: Any, **kwargs: Any) -> Any:
            self.verification.start()
            return sample_tokens(*args, **kwargs)

        def watched_sample(logits: Any, metadata: Any, *args: Any, **kwargs: Any) -> Any:
            result = sample(logits, metadata, *args, **kwargs)
            counted = self.verification.stop()
            self.is_full_step = (
                self._decodes_alone()
                if metadata is None
                else self._is_full(metadata.num_draft_tokens)
            )
            if self.is_full_step:
                self.verification.sum += counted
                self.target.sum += of_target
            return result

        runner._model_forward = watched_forward
        runner.sample_tokens, runner._sample = watched_sample_tokens, watched_sample

    def _is_full(self, num_draft_tokens: list[int]) -> bool:
        """Tell whether a step counts: with all requests, all with all their drafts.

        The scheduler drops drafts that a grammar does not allow; so with structured output it is
        enough that every request is there.
        """
        if self.workload == "structured":
            return len(num_draft_tokens) == self.batch
        return sum(num_draft_tokens) == self.batch * self.num_drafts

    def _decodes_alone(self) -> bool:
        """Tell whether a step without drafts counts: all requests are there, and no prompts."""
        batch = self.runner.input_batch
        computed = batch.num_computed_tokens_cpu[: batch.num_reqs]
        has_prompts = (computed < batch.num_prompt_tokens[: batch.num_reqs]).any()
        return self.num_drafts == 0 and batch.num_reqs == self.batch and not has_prompts

    def keep_to(self, num_drafts: int) -> None:
        """Draft as many from now on, in an engine whose K changes."""
        scheduler = self.llm.llm_engine.engine_core.engine_core.scheduler
        scheduler.choose_k = lambda requests: (num_drafts, "fixed")
        self.num_drafts = num_drafts

    def count(self, workload: str) -> dict[str, Any]:
        """Serve one workload twice, the second time counting; return counts per step."""
        self.workload = workload
        self._serve(workload)
        for meter in (self.target, self.verification, self.step):
            meter.reset()
        self.num_steps = 0
        tokens = self._serve(workload)
        steps = max(self.num_steps, 1)
        return {
            "steps": self.num_steps,
            "target": _per_step(self.target.sum, steps),
            "verification": _per_step(self.verification.sum, steps),
            "step": _per_step(self.step.sum, steps),
            "draft_rows": {
                name.removeprefix(OWN): op.executed / steps
                for name, op in self.step.sum.ops.items()
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
                self.step.sum += self.step.stop()
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


def _per_step(counted: counters.Snapshot, steps: int) -> dict[str, Any]:
    ops = {name: op for name, op in counted.ops.items() if not name.startswith(OWN)}
    d2h, h2d = counted.device_to_host, counted.host_to_device
    on_cache = [ops[name] for name in ON_CACHE if name in ops]
    return {
        "device_ops": sum(op.executed for op in ops.values()) / steps,
        # A copy moves its bytes in the device's memory, too.
        "bytes": (counted.bytes_read + counted.bytes_written + d2h[1] + h2d[1]) / steps,
        "cache_bytes": sum(op.bytes_read + op.bytes_written for op in on_cache) / steps,
        "syncs": counted.syncs_total / steps,
        "d2h_copies": d2h[0] / steps,
        "d2h_bytes": d2h[1] / steps,
        "h2d_copies": h2d[0] / steps,
        "h2d_bytes": h2d[1] / steps,
        "replays": counted.replays / steps,
        "waits": {name: amount / steps for name, amount in counted.syncs.items()},
        "ops": {name: op.executed / steps for name, op in ops.items() if op.executed},
    }


def main(plan: dict[str, Any]) -> None:
    """Count, and print or write to the plan's ``output``."""
    count_draft_rows()
    engine = Engine(plan)
    counts = {}
    for workload in plan["workloads"]:
        for drafts in plan.get("lengths") or [None]:
            if drafts is not None:
                engine.keep_to(drafts)
            name = workload if drafts is None else f"{workload}, K={drafts}"
            counts[name] = engine.count(workload)
    if "output" in plan:
        Path(plan["output"]).write_text(json.dumps(counts))
    else:
        sys.stdout.write(f"\n{MARK}{json.dumps(counts)}\n")


if __name__ == "__main__":
    main(json.load(sys.stdin))
