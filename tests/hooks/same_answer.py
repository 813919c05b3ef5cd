"""Configurations, right and wrong, and what each device has to say of them.

``check`` and an engine's start are asked both; an engine is started as far as vLLM's whole
configuration, in which every check of ours has had its say.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.zoo import SPECS, TARGET
from vllm_ascend_spec.config.resolved import speculation_of
from vllm_ascend_spec.errors import ConfigError

EAGLE, DRAFT, NGRAM, CUSTOM = (
    SPECS[name] for name in ("eagle", "draft_model", "ngram", "custom_class")
)
K = "num_speculative_tokens"
SCHEDULE = "num_speculative_tokens_per_batch_size"
LIMIT = "disable_by_batch_size"
RULE = "rejection_sample_method"
SAMPLED = {**EAGLE, "draft_sample_method": "probabilistic"}
EAGER = {"enforce_eager": True}
DEVICES = ("cpu", "cuda", "npu")


@dataclass(frozen=True, kw_only=True)
class Row:
    """A configuration.

    Attributes:
        spec: the speculative config.
        ours: our section of ``--additional-config``.
        theirs: what else is in that.
        engine: other options.
        refused: the option that is refused, on every device, or on those that are named.
    """

    spec: Any
    ours: dict[str, Any] = field(default_factory=dict)
    theirs: dict[str, Any] = field(default_factory=dict)
    engine: dict[str, Any] = field(default_factory=lambda: dict(EAGER))
    refused: str | dict[str, str] | None = None

    def refused_on(self, device: str) -> str | None:
        """Return the option that a device refuses, or None."""
        return self.refused.get(device) if isinstance(self.refused, dict) else self.refused


def on(*devices: str, option: str) -> dict[str, str]:
    """Say that these devices refuse ``option``."""
    return dict.fromkeys(devices, option)


def graphs(mode: str, *sizes: int) -> dict[str, Any]:
    """Return an engine's options for a mode of graphs, of sizes for K=3 if none are given."""
    own = list(sizes or (4, 16, 32))
    return {"compilation_config": {"cudagraph_mode": mode, "cudagraph_capture_sizes": own}}


ROWS: dict[str, Row] = {
    # methods
    "none": Row(spec=None),
    "eagle": Row(spec=EAGLE),
    "hybrid": Row(spec=SPECS["hybrid"]),
    "suffix": Row(spec=SPECS["suffix"]),
    "draft_model": Row(spec=DRAFT),
    "ngram": Row(spec=NGRAM),
    "custom_class": Row(spec=CUSTOM),
    "unknown method": Row(spec={**EAGLE, "method": "telepathy"}, refused="method"),
    "method of a later release": Row(spec={**EAGLE, "method": "ngram_gpu"}, refused="method"),
    "no method": Row(spec={"model": EAGLE["model"], K: 3}),
    "no method and no draft": Row(spec={K: 3}, refused="method"),
    "an old name": Row(
        spec={**NGRAM, "ngram_prompt_lookup_max": 4}, refused="ngram_prompt_lookup_max"
    ),
    "not an object": Row(spec=["eagle"], refused="speculative_config"),
    "dashes": Row(spec={name.replace("_", "-"): value for name, value in NGRAM.items()}),
    # K
    "no K": Row(spec={"method": "ngram"}, refused=K),
    "K=0": Row(spec={**NGRAM, K: 0}, refused=K),
    "K=1": Row(spec={**EAGLE, K: 1}),
    "K=15": Row(spec={**NGRAM, K: 15}),
    "K=16": Row(spec={**NGRAM, K: 16}, refused=on("npu", option=K)),
    "K=64": Row(spec={**EAGLE, K: 64}, refused=on("npu", option=K)),
    "K=65": Row(spec={**NGRAM, K: 65}, refused=K),
    "K as text": Row(spec={**NGRAM, K: "3"}),
    "K as another text": Row(spec={**NGRAM, K: "three"}, refused=K),
    # schedules
    "schedule": Row(spec={**EAGLE, SCHEDULE: [[1, 4, 3], [5, 8, 1]]}),
    "schedule down to none": Row(spec={**NGRAM, SCHEDULE: [[1, 4, 5], [5, 8, 0]]}),
    "schedule with a gap": Row(spec={**EAGLE, SCHEDULE: [[1, 4, 3], [6, 8, 1]]}, refused=SCHEDULE),
    "schedule above K": Row(spec={**EAGLE, SCHEDULE: [[1, 4, 4]]}, refused=SCHEDULE),
    "empty schedule": Row(spec={**EAGLE, SCHEDULE: []}, refused=SCHEDULE),
    "limit": Row(spec={**EAGLE, LIMIT: 4}),
    "limit beside a schedule": Row(spec={**EAGLE, LIMIT: 4, SCHEDULE: [[1, 4, 3]]}, refused=LIMIT),
    # rules
    "block": Row(spec=SAMPLED, ours={"verify_rule": "block"}),
    "seeded": Row(spec=SAMPLED, ours={"verify_rule": "seeded"}),
    "block by vLLM's name": Row(spec={**SAMPLED, RULE: "block"}),
    "block twice": Row(spec={**SAMPLED, RULE: "block"}, ours={"verify_rule": "block"}),
    "two rules": Row(
        spec={**SAMPLED, RULE: "block"}, ours={"verify_rule": "token"}, refused="verify_rule"
    ),
    "block by vLLM's name, seeded by ours": Row(
        spec={**SAMPLED, RULE: "block"}, ours={"verify_rule": "seeded"}, refused="verify_rule"
    ),
    "synthetic": Row(spec={**NGRAM, RULE: "synthetic", "synthetic_acceptance_length": 2.5}),
    "synthetic without rates": Row(spec={**NGRAM, RULE: "synthetic"}, refused=RULE),
    "rates without synthetic": Row(
        spec={**NGRAM, "synthetic_acceptance_length": 2.5}, refused="synthetic_acceptance_length"
    ),
    "unknown rule": Row(spec=EAGLE, ours={"verify_rule": "coin"}, refused="verify_rule"),
    # draft loops
    "our loop": Row(spec=EAGLE, ours={"draft_loop": "ours"}),
    "stock loop": Row(spec=DRAFT, ours={"draft_loop": "stock"}),
    "loop of another name": Row(spec=EAGLE, ours={"draft_loop": "fused"}, refused="draft_loop"),
    "loop without a model": Row(spec=NGRAM, ours={"draft_loop": "auto"}, refused="draft_loop"),
    "our loop, another vocabulary": Row(
        spec={**DRAFT, "use_heterogeneous_vocab": True},
        ours={"draft_loop": "ours"},
        refused="draft_loop",
    ),
    "our loop, data parallelism": Row(
        spec=EAGLE,
        ours={"draft_loop": "ours"},
        engine={**EAGER, "data_parallel_size": 2},
    ),
    "two pipeline stages": Row(
        spec=NGRAM,
        engine={**EAGER, "pipeline_parallel_size": 2},
        refused="--pipeline-parallel-size",
    ),
    # graphs
    "sampled, eager": Row(spec=SAMPLED),
    "sampled, graphs": Row(
        spec=SAMPLED, engine={}, refused=on("npu", option="draft_sample_method")
    ),
    "sampled, draft eager": Row(spec={**SAMPLED, **EAGER}, engine={}),
    "sampled, piecewise": Row(spec=SAMPLED, engine=graphs("PIECEWISE")),
    "sampled, full decode": Row(
        spec=SAMPLED,
        engine=graphs("FULL_DECODE_ONLY"),
        refused=on("npu", option="draft_sample_method"),
    ),
    "full": Row(spec=EAGLE, engine=graphs("FULL"), refused=on("npu", option="cudagraph_mode")),
    "full without a draft model": Row(spec=NGRAM, engine=graphs("FULL", 6, 24, 48)),
    "graphs of another K": Row(
        spec=NGRAM,
        engine=graphs("FULL_DECODE_ONLY"),
        refused=on("cuda", "npu", option="cudagraph_capture_sizes"),
    ),
    "pieces of any size": Row(spec=NGRAM, engine=graphs("PIECEWISE")),
    "graphs for too many": Row(
        spec=EAGLE,
        engine={**graphs("FULL_DECODE_ONLY", 4, 36), "max_num_seqs": 8},
        refused=on("cuda", "npu", option="cudagraph_capture_sizes"),
    ),
    "planned graphs": Row(
        spec=EAGLE, ours={"capture_graphs": 3, "capture_load": "normal:4,2"}, engine={}
    ),
    "planned graphs, eager": Row(spec=EAGLE, ours={"capture_graphs": 3}),
    "stock's graphs": Row(spec=EAGLE, ours={"capture": "stock"}, engine={}),
    "planned graphs of stock's": Row(
        spec=EAGLE, ours={"capture": "stock", "capture_graphs": 3}, refused="capture_graphs"
    ),
    "planned and given graphs": Row(
        spec=EAGLE,
        ours={"capture_graphs": 3},
        engine=graphs("FULL_DECODE_ONLY"),
        refused="capture_graphs",
    ),
    "load of nothing": Row(
        spec=EAGLE, ours={"capture_load": "no such file"}, refused="capture_load"
    ),
    # K that changes
    "adaptive": Row(spec=EAGLE, ours={"draft_length": "adaptive"}),
    "adaptive, graphs": Row(spec=EAGLE, ours={"draft_length": "adaptive"}, engine={}),
    "adaptive of some": Row(
        spec=NGRAM, ours={"draft_length": "adaptive", "draft_lengths": [0, 2, 5]}
    ),
    "adaptive beyond K": Row(
        spec=EAGLE,
        ours={"draft_length": "adaptive", "draft_lengths": [0, 4]},
        refused="draft_lengths",
    ),
    "adaptive of nothing": Row(
        spec=EAGLE, ours={"draft_length": "adaptive", "draft_lengths": [0]}, refused="draft_lengths"
    ),
    "lengths of a fixed K": Row(
        spec=EAGLE, ours={"draft_lengths": [0, 1]}, refused="draft_lengths"
    ),
    "adaptive with a schedule": Row(
        spec={**EAGLE, LIMIT: 4}, ours={"draft_length": "adaptive"}, refused="draft_length"
    ),
    "adaptive, data parallelism": Row(
        spec=EAGLE,
        ours={"draft_length": "adaptive"},
        engine={**EAGER, "data_parallel_size": 2},
    ),
    # options of other methods and devices
    "lookup with eagle": Row(spec={**EAGLE, "prompt_lookup_max": 3}, refused="prompt_lookup_max"),
    "lookup reversed": Row(
        spec={**NGRAM, "prompt_lookup_min": 5, "prompt_lookup_max": 2}, refused="prompt_lookup_min"
    ),
    "attention of a GPU": Row(
        spec={**EAGLE, "attention_backend": "FLASH_ATTN"},
        refused=on("cpu", "npu", option="attention_backend"),
    ),
    "lossy block of vllm-ascend": Row(
        spec=NGRAM,
        theirs={"rejection_sampler_config": {"enable_block_verify": True}},
        refused=on("npu", option="enable_block_verify"),
    ),
    "unknown option of ours": Row(spec=EAGLE, ours={"draft_lop": "ours"}, refused="draft_lop"),
    "ours without speculation": Row(
        spec=None, ours={"verify_rule": "block"}, refused="ascend_spec"
    ),
    "no such backend": Row(spec=NGRAM, ours={"verify_backend": "abacus"}, refused="verify_backend"),
    "no such class": Row(spec={**CUSTOM, "model": "examples.no_such.Class"}, refused="model"),
    "no such draft": Row(spec={**EAGLE, "model": "/no/such/folder"}, refused="model"),
    "head as a draft model": Row(spec={**DRAFT, "model": EAGLE["model"]}, refused="model"),
}


def additional_of(row: Row) -> dict[str, Any]:
    """Return all of ``--additional-config``."""
    return {**row.theirs, **({"ascend_spec": row.ours} if row.ours else {})}


# What of every engine's options the answer depends on: how many graphs there are to capture.
ASKED = "max_num_seqs"


def answer_of_check(row: Row, base: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> Any:
    """Return the resolved speculation, or the name of the option that ``check`` refuses."""
    from vllm_ascend_spec.cli.main import main

    arguments = ["check", "--json", TARGET, "--additional-config", json.dumps(additional_of(row))]
    if row.spec is not None:
        arguments += ["--speculative-config", json.dumps(row.spec)]
    asked = {ASKED: base[ASKED]} if ASKED in base else {}
    for option, value in (asked | row.engine).items():
        arguments.append("--" + option.replace("_", "-"))
        arguments += [] if value is True else [json.dumps(value)]
    capsys.readouterr()
    status = main(arguments)
    output = capsys.readouterr()
    if status == 0:
        return json.loads(output.out).get("speculation")
    option = output.err.partition("error: ")[2].partition("=")[0]
    return option.rpartition(".")[2]


def answer_of_an_engine(row: Row, base: dict[str, Any]) -> Any:
    """Return the same of an engine's start.

    Args:
        row: the configuration.
        base: options of every engine.
    """
    from vllm.engine.arg_utils import EngineArgs

    values = {
        **base,
        **row.engine,
        "speculative_config": row.spec,
        "additional_config": additional_of(row),
    }
    values.setdefault("enforce_eager", False)
    try:
        config = EngineArgs(**values).create_engine_config()
    except ConfigError as error:
        return error.option.rpartition(".")[2]
    if config.speculative_config is None:
        return None
    return json.loads(json.dumps(speculation_of(config).as_json()))


def require_same_answer(
    name: str,
    device: str,
    base: dict[str, Any],
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Ask ``check`` and an engine about a row, on the device that the environment names."""
    row = ROWS[name]
    checked = answer_of_check(row, base, capsys)
    started = answer_of_an_engine(row, base)
    assert checked == started
    wanted = row.refused_on(device)
    if wanted is not None or row.spec is None:
        assert checked == wanted
    else:
        assert isinstance(checked, dict)
        assert checked["device"]["value"] == device
