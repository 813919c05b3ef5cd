"""Hidden states on disk are those that transformers works out."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from vllm.distributed.kv_transfer import ensure_kv_transfer_shutdown
from vllm.distributed.kv_transfer.kv_connector.v1.example_hidden_states_connector import (
    load_hidden_states,
)

from tests.e2e.states import LAYERS, SPEC, WITH_ANSWER, check_states, expected_states, keep_in
from tests.engines import assert_same, token_ids
from tests.patches.cases import TakeOut, taking_out
from tests.zoo import WIDTH
from vllm_ascend_spec.patches import hidden_states_file
from vllm_ascend_spec.training.answer_file import Answer, open_answers, read_answers
from vllm_ascend_spec.training.answers import Sampling, Target, answer_prompts
from vllm_ascend_spec.training.prompts import Place, text_prompt
from vllm_ascend_spec.training.samples import make_sample
from vllm_ascend_spec.training.shard_layout import Layout
from vllm_ascend_spec.training.shards import ShardReader, open_writer

END = 120


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("states")


@pytest.fixture(scope="module")
def answers(expect: Any, prompts: list[str]) -> list[list[int]]:
    """What the engine without speculation answers."""
    return token_ids(expect(prompts[:6]))


@pytest.fixture(scope="module")
def llm(make_engine: Any, answers: Any, folder: Path) -> Iterator[Any]:
    """An engine that reads prompts in pieces, and from its cache where they came before.

    Others have to be done by then: a process has one connector, for every engine in it.
    """
    yield make_engine(
        SPEC,
        kv_transfer_config=keep_in(folder),
        max_num_batched_tokens=48,
        max_num_seqs=4,
        max_model_len=END,
        enable_prefix_caching=True,
        block_size=32,
    )
    ensure_kv_transfer_shutdown()


@pytest.fixture
def take_out() -> Iterator[TakeOut]:
    with taking_out() as take:
        yield take


def ask(llm: Any, prompts: list[str], **sampling: Any) -> list[Any]:
    from vllm import SamplingParams

    parameters = SamplingParams(temperature=0, ignore_eos=True, **sampling)
    return llm.generate(prompts, parameters, use_tqdm=False)


@pytest.mark.parametrize("time", ["first", "from the cache"])
def test_states_of_prompts(time: str, llm: Any, folder: Path, prompts: list[str]) -> None:
    for output in ask(llm, prompts[:6], max_tokens=1):
        path = output.kv_transfer_params["hidden_states_path"]
        assert Path(path).parent == folder
        check_states(path, output.prompt_token_ids)


def test_answers_and_their_states_become_samples_for_training(
    llm: Any, answers: list[list[int]], prompts: list[str], tmp_path: Path
) -> None:
    given = [
        text_prompt(text, Place("--prompts", tmp_path, n)) for n, text in enumerate(prompts[:6])
    ]
    path, lines = tmp_path / "answers.jsonl", list[str]()
    target = Target(lambda: llm, llm.get_tokenizer(), END)
    for count in (4, 6):  # the second start answers two more
        with open_answers("--output", path, {}) as file:
            answer_prompts(target, given[:count], file, Sampling(), 6, lines.append, batch=3)
    made = list(read_answers("--output", path))
    assert [each.id for each in made] == [each.id for each in given]
    assert [line.partition(" prompts")[0] for line in lines] == [
        f"answers: {count} of 6" for count in (3, 4, 6)
    ]
    for found, expected in zip(made, answers, strict=True):
        assert list(found.token_ids) == expected[: len(found.token_ids)]
    layout = Layout("zoo", tuple(LAYERS), WIDTH, "float32")
    with open_writer("--output", tmp_path / "states", layout) as writer:
        for output, answer in zip(
            ask(llm, [*map(as_input, made)], max_tokens=1), made, strict=True
        ):
            states = load_hidden_states(output.kv_transfer_params["hidden_states_path"])
            writer.add(make_sample(answer, states["token_ids"], states["hidden_states"]))
    reader = ShardReader(tmp_path / "states")
    for sample in map(reader.read, reader.lengths):
        expected = expected_states(sample.token_ids)
        scale = expected.abs().amax(dim=(0, 2), keepdim=True)
        assert ((sample.hidden_states - expected).abs() / scale).max() < 1e-5
    assert len(reader) == 6


def as_input(answer: Answer) -> dict[str, Any]:
    """Return prompt and answer, without its last token, as an engine's input."""
    return {"prompt_token_ids": answer.all_token_ids()[:-1]}


def test_states_of_answers_up_to_the_end_of_the_context(
    llm: Any, answers: list[list[int]], prompts: list[str]
) -> None:
    """The last token of an answer was never read, so it has no state."""
    outputs = ask(llm, prompts[:6], max_tokens=END, extra_args=WITH_ANSWER)
    for output in outputs:
        tokens = [*output.prompt_token_ids, *output.outputs[0].token_ids]
        assert len(tokens) == END
        check_states(output.kv_transfer_params["hidden_states_path"], tokens[:-1])
    found = token_ids([output.outputs[0] for output in outputs])
    assert_same(found, [a[: len(f)] for a, f in zip(answers, found, strict=True)])


def test_files_are_whole_when_answers_are_there(
    llm: Any, prompts: list[str], take_out: TakeOut
) -> None:
    """Without the patch an engine of this process has not written the last ones."""
    take_out(hidden_states_file)
    (output,) = ask(llm, prompts[:1], max_tokens=1)
    path = Path(output.kv_transfer_params["hidden_states_path"])
    assert not path.exists()
    hidden_states_file.take_last_steps(llm.llm_engine.engine_core)
    hidden_states_file.wait_for(str(path))
    check_states(str(path), output.prompt_token_ids)
