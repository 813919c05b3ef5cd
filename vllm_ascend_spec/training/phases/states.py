"""The second phase: the target's hidden states of prompts and answers, as its engine reads them.

The layers are those that the head reads and the last one, before the target's final norm, which
tells what the target would have said. A batch is asked, its files are read into a shard of the
store and deleted, so of one batch at most the disk holds everything twice.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vllm_ascend_spec.errors import ConfigError
from vllm_ascend_spec.training.answer_file import Answer, read_answers
from vllm_ascend_spec.training.answers import BATCH
from vllm_ascend_spec.training.atomic import write_whole
from vllm_ascend_spec.training.engine import read_model, start_engine
from vllm_ascend_spec.training.output import OPTION, Output
from vllm_ascend_spec.training.progress import Progress
from vllm_ascend_spec.training.samples import make_sample
from vllm_ascend_spec.training.settings import Settings
from vllm_ascend_spec.training.shard_layout import Layout, require_room
from vllm_ascend_spec.training.shards import SHARD_BYTES, Sample, ShardWriter, open_writer

NAME = "states"
# Says of which answers all states are there.
COMPLETE = "complete.json"


@dataclass(frozen=True)
class Work:
    """What the store is to hold, and what it does not hold yet.

    Attributes:
        prompts: all of them.
        tokens: all of theirs.
        missing_prompts: those that are missing.
        missing_tokens: theirs.
        largest_batch: most missing tokens of a batch.
    """

    prompts: int = 0
    tokens: int = 0
    missing_prompts: int = 0
    missing_tokens: int = 0
    largest_batch: int = 0

    @property
    def stored(self) -> int:
        """Prompts that are not missing."""
        return self.prompts - self.missing_prompts

    def with_batch(self, batch: list[Answer], missing: list[Answer]) -> Work:
        """Return it with another batch."""
        num_missing = sum(map(num_states, missing))
        return Work(
            self.prompts + len(batch),
            self.tokens + sum(map(num_states, batch)),
            self.missing_prompts + len(missing),
            self.missing_tokens + num_missing,
            max(self.largest_batch, num_missing),
        )


def is_done(settings: Settings) -> bool:
    """Tell whether the states of all answers are there."""
    output = Output(settings.output)
    try:
        found = json.loads((output.states / COMPLETE).read_text())
    except (OSError, ValueError):
        return False
    return bool(found == _describe_answers(output))


def run(settings: Settings, show: Callable[[str], object]) -> None:
    """Store the hidden states that are missing.

    Args:
        settings: what was asked for.
        show: takes a line for the person who waits.

    Raises:
        ConfigError: the disk is too small, the folder holds other states, or a state is not finite.
    """
    output = Output(settings.output)
    if is_done(settings):
        show(f"{NAME}: all were stored in an earlier start")
        return
    model = read_model(settings)
    layers = tuple(sorted({*settings.layers, model.num_layers}))
    layout = Layout(model.hash, layers, model.hidden_size, model.dtype)
    with open_writer(OPTION, output.states, layout) as writer:
        work = Work()
        for batch in batches_of(output, layout):
            work = work.with_batch(batch, missing_in(batch, writer))
        show(layout.describe(work.tokens))
        # The files of a batch are there until its shard is.
        needed = work.missing_tokens + work.largest_batch
        require_room(OPTION, output.states, layout, needed)
        show(f"{NAME}: those of {work.stored:,} of {work.prompts:,} prompts are stored")
        if work.missing_prompts:
            _store(settings, layout, writer, work, show)
    text = json.dumps(_describe_answers(output))
    write_whole(output.states / COMPLETE, lambda temporary: temporary.write_text(text))


def num_states(answer: Answer) -> int:
    """Return how many tokens have a state: the target never read the last one."""
    return len(answer.prompt_token_ids) + len(answer.token_ids) - 1


def batches_of(output: Output, layout: Layout) -> Iterator[list[Answer]]:
    """Yield the answers in batches of a shard's size, the same ones in each start.

    An answer of one token is left out: no head could have drafted any of it.
    """
    most_tokens = max(1, SHARD_BYTES // layout.bytes_per_token)
    batch, tokens = list[Answer](), 0
    for answer in read_answers(OPTION, output.answers):
        if len(answer.token_ids) == 1:
            continue
        batch.append(answer)
        tokens += num_states(answer)
        if len(batch) == BATCH or tokens >= most_tokens:
            yield batch
            batch, tokens = [], 0
    if batch:
        yield batch


def missing_in(batch: list[Answer], writer: ShardWriter) -> list[Answer]:
    """Return those answers of a batch that the store has no states of."""
    return [answer for answer in batch if answer.id not in writer]


def engine_arguments(layout: Layout, folder: Path) -> dict[str, Any]:
    """Return the arguments of an engine that keeps hidden states.

    Args:
        layout: says which layers.
        folder: gets a file for each request.
    """
    return {
        "speculative_config": {
            "method": "extract_hidden_states",
            "num_speculative_tokens": 1,
            "draft_model_config": {
                "hf_config": {"eagle_aux_hidden_state_layer_ids": list(layout.layers)}
            },
        },
        "kv_transfer_config": {
            "kv_connector": "ExampleHiddenStatesConnector",
            "kv_role": "kv_producer",
            "kv_connector_extra_config": {"shared_storage_path": str(folder)},
        },
        # States do not depend on which requests came before.
        "enable_prefix_caching": False,
    }


def _store(
    settings: Settings,
    layout: Layout,
    writer: ShardWriter,
    work: Work,
    show: Callable[[str], object],
) -> None:
    output = Output(settings.output)
    folder = output.states.with_name("states-of-a-batch")
    shutil.rmtree(folder, ignore_errors=True)  # what a killed process left
    engine = start_engine(settings, {}, engine_arguments(layout, folder))
    progress = Progress(NAME, work.prompts, work.stored)
    for batch in batches_of(output, layout):
        if not (missing := missing_in(batch, writer)):
            continue
        for sample in _ask(engine, missing):
            if not sample.hidden_states.isfinite().all():
                problem = "a hidden state is infinite or not a number; valid: bfloat16, float32"
                raise ConfigError("--dtype", layout.dtype, problem)
            writer.add(sample)
        writer.flush()
        show(progress.add(len(missing), sum(map(num_states, missing))))
    shutil.rmtree(folder, ignore_errors=True)


def _ask(engine: Any, answers: list[Answer]) -> Iterator[Sample]:
    """Let the target read prompts and answers; yield their samples and delete the files."""
    from vllm import SamplingParams
    from vllm.distributed.kv_transfer.kv_connector.v1.example_hidden_states_connector import (
        cleanup_hidden_states,
        load_hidden_states,
    )

    outputs = engine.generate(
        [{"prompt_token_ids": answer.all_token_ids()[:-1]} for answer in answers],
        SamplingParams(max_tokens=1, temperature=0, detokenize=False),
        use_tqdm=False,
    )
    for answer, output in zip(answers, outputs, strict=True):
        path = output.kv_transfer_params["hidden_states_path"]
        states = load_hidden_states(path)
        cleanup_hidden_states(path)
        yield make_sample(answer, states["token_ids"], states["hidden_states"])


def _describe_answers(output: Output) -> dict[str, int]:
    """Return what differs when answers are added."""
    return {"answers_bytes": output.answers.stat().st_size}
