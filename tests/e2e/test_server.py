"""A real server: clients beside each other, aborts, oversized prompts, and the same answers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import openai
import psutil
import pytest

from tests.e2e.server_ends import long_answer, wait
from tests.e2e.soak import Soak, seconds_of
from tests.e2e.soaked import NO_KERNEL_CACHE, STEADY, assert_soaked, references_of
from tests.engines import MAX_TOKENS
from tests.zoo import SPECS, TARGET
from vllm_ascend_spec.bench.client import ClientLoad, run_load
from vllm_ascend_spec.bench.server import Server
from vllm_ascend_spec.metrics.acceptance import from_prometheus
from vllm_ascend_spec.metrics.rule import rule_from_prometheus

ARGUMENTS = ("--dtype", "float32", "--max-model-len", "512", "--max-num-seqs", "8")
ENVIRONMENT = {"VLLM_CPU_KVCACHE_SPACE": "1"}
SOAK_SECONDS = seconds_of(16)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server(
        TARGET,
        SPECS["eagle"],
        arguments=(*ARGUMENTS, *STEADY, "--enforce-eager", "--shutdown-timeout", "30"),
        environment={**ENVIRONMENT, **NO_KERNEL_CACHE, "VLLM_ENABLE_V1_MULTIPROCESSING": "1"},
    ) as running:
        yield running


@pytest.fixture(scope="module")
def client(server: Server) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="EMPTY", max_retries=0) as found:
        yield found


@pytest.mark.core
def test_our_platform_is_active_and_drafts_are_accepted(server: Server, prompts: list[str]) -> None:
    # Later versions than 0.30 do not log that a platform is activated.
    assert "scheduler class vllm_ascend_spec." in server.log_text()
    assert "Worker pid=" not in server.log_text(), "one worker, one thread: no process of its own"
    before = from_prometheus(server.metrics())
    run_load(server.url, TARGET, ClientLoad(prompts[:4], 32))
    accepted = from_prometheus(server.metrics()) - before
    assert accepted.num_drafts > 0
    assert accepted.tokens_per_step is not None
    assert accepted.tokens_per_step > 1.5
    assert len(accepted.per_position) == 3
    assert rule_from_prometheus(server.metrics()) == "token"


def test_a_request_without_drafts(
    server: Server, client: openai.OpenAI, prompts: list[str]
) -> None:
    def complete(value: Any) -> str:
        answer = client.completions.create(
            model=TARGET,
            prompt=prompts[0],
            temperature=0,
            max_tokens=24,
            extra_body={"vllm_xargs": {"speculation": value}},
        )
        return answer.choices[0].text

    before = from_prometheus(server.metrics())
    text = complete("off")
    assert (from_prometheus(server.metrics()) - before).num_drafts == 0
    assert complete(3) == text
    assert (from_prometheus(server.metrics()) - before).num_drafts > 0
    with pytest.raises(
        openai.BadRequestError, match="valid: 'off', or the maximum number of drafts"
    ):
        complete(4)
    assert 'vllm:spec_decode_draft_length_steps_total{engine="0",k="3",' in server.metrics()


def test_clients_beside_each_other_get_what_they_get_alone(
    server: Server, prompts: list[str]
) -> None:
    alone = run_load(server.url, TARGET, ClientLoad(prompts[:12], 32, concurrency=1))
    together = run_load(server.url, TARGET, ClientLoad(prompts[:12], 32, concurrency=12))
    assert [a.token_ids for a in together.answers] == [a.token_ids for a in alone.answers]
    assert all(len(answer.token_ids) == 32 for answer in together.answers)


def test_answers_equal_those_of_the_offline_engine(
    server: Server, prompts: list[str], expect: Any
) -> None:
    served = run_load(server.url, TARGET, ClientLoad(prompts[:8], MAX_TOKENS))
    offline = expect(prompts[:8])
    expected = [tuple(output.token_ids) for output in offline]
    assert [answer.token_ids for answer in served.answers] == expected


def test_aborted_requests_leave_the_others_alone(server: Server, prompts: list[str]) -> None:
    async def run() -> list[str]:
        async with openai.AsyncOpenAI(
            base_url=f"{server.url}/v1", api_key="EMPTY", max_retries=0
        ) as async_client:

            async def stream(index: int, leave_after: int | None) -> str:
                chunks = await async_client.completions.create(
                    model=TARGET,
                    prompt=prompts[index],
                    max_tokens=48,
                    temperature=0,
                    stream=True,
                    extra_body={"ignore_eos": True},
                )
                text, count = "", 0
                async for chunk in chunks:
                    text += chunk.choices[0].text
                    count += 1
                    if count == leave_after:
                        await chunks.close()
                        break
                return text

            return await asyncio.gather(
                *(stream(index, 3 if index % 2 else None) for index in range(8))
            )

    stayed = [text for index, text in enumerate(asyncio.run(run())) if index % 2 == 0]
    expected = run_load(server.url, TARGET, ClientLoad(prompts[:8:2], 48))
    assert stayed == [answer.text for answer in expected.answers]


@pytest.mark.parametrize(
    "bad",
    [
        {"prompt": "x = 1\n" * 2000},
        {"prompt": "x", "temperature": -1},
        {"prompt": "x", "logit_bias": {"999999": 1}},
    ],
    ids=["oversized prompt", "negative temperature", "token out of range"],
)
def test_a_bad_request_is_refused_and_the_server_goes_on(
    client: openai.OpenAI, prompts: list[str], bad: dict[str, object]
) -> None:
    with pytest.raises(openai.BadRequestError):
        client.completions.create(model=TARGET, **{"max_tokens": 8, **bad})
    good = client.completions.create(model=TARGET, prompt=prompts[0], max_tokens=8)
    assert good.usage is not None
    assert good.usage.completion_tokens > 0


# By day the README's server, which nobody gives a number of threads, in tests/docs/test_run.py.
@pytest.mark.nightly
def test_a_worker_in_a_process_of_its_own(prompts: list[str], expect: Any) -> None:
    """What vLLM does where the number of threads is not given."""
    with Server(
        TARGET,
        SPECS["eagle"],
        arguments=(*ARGUMENTS, "--enforce-eager"),
        environment={
            **ENVIRONMENT,
            "VLLM_ENABLE_V1_MULTIPROCESSING": "1",
            "OMP_NUM_THREADS": None,
        },
    ) as server:
        assert "Worker pid=" in server.log_text()
        served = run_load(server.url, TARGET, ClientLoad(prompts[:4], 32))
    offline = expect(prompts[:4], max_tokens=32)
    expected = [tuple(output.token_ids) for output in offline]
    assert [answer.token_ids for answer in served.answers] == expected


def test_chat(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(
        model=TARGET, messages=[{"role": "user", "content": "import"}], max_tokens=16
    )
    assert answer.choices[0].message.content


@pytest.mark.parametrize("stream", [False, True])
def test_a_stop_string_ends_what_is_billed(
    server: Server,
    client: openai.OpenAI,
    prompts: list[str],
    expect: Any,
    stream: bool,
) -> None:
    """Two answers to a prompt, of which each is billed."""
    offline = expect(prompts[:8], stop=["self"], ignore_eos=False, max_tokens=48)
    options = {"stream": True, "stream_options": {"include_usage": True}} if stream else {}
    before = generated(server)
    for prompt, expected in zip(prompts, offline, strict=False):
        answer = client.completions.create(
            model=TARGET,
            prompt=prompt,
            max_tokens=48,
            stop=["self"],
            # Greedy in effect; vLLM gives one answer only where temperature is 0.
            temperature=1,
            n=2,
            extra_body={"top_k": 1, "return_token_ids": True},
            **options,  # type: ignore[call-overload]
        )
        parts = list(answer) if stream else [answer]
        choices = [choice for part in parts for choice in part.choices]
        for index in range(2):
            own = [choice for choice in choices if choice.index == index]
            assert "".join(choice.text for choice in own) == expected.text
            tokens = [token for choice in own for token in choice.token_ids or []]
            assert tokens == list(expected.token_ids)
        assert parts[-1].usage.completion_tokens == 2 * len(expected.token_ids)
    assert any(output.finish_reason == "stop" for output in offline)
    assert generated(server) - before == 2 * sum(len(output.token_ids) for output in offline)


def generated(server: Server) -> float:
    """Return vLLM's count of the tokens that all requests have got."""
    lines = server.metrics().splitlines()
    return sum(float(s.split()[-1]) for s in lines if s.startswith("vllm:generation_tokens_total{"))


@pytest.mark.timeout(900 + SOAK_SECONDS)
def test_a_soak(server: Server, prompts: list[str], expect: Any) -> None:
    """Everything at once for a while: no error, no wrong answer, nothing left behind.

    It has a clock in it: ``SOAK_SECONDS`` sets it. ``test_soak.py`` does so for longer, by method.
    """
    references = references_of(expect, prompts[:24])
    accepted_before = accepted_alone(server, prompts)
    before = from_prometheus(server.metrics())
    drafts = SPECS["eagle"]["num_speculative_tokens"]
    soak = Soak(server.url, TARGET, references, drafts)
    assert_soaked(server, soak, SOAK_SECONDS / 2, SOAK_SECONDS / 2)
    accepted = from_prometheus(server.metrics()) - before
    assert accepted.tokens_per_step is not None
    assert accepted.tokens_per_step > 1.3
    assert accepted_alone(server, prompts) == pytest.approx(accepted_before, rel=0.02)


def accepted_alone(server: Server, prompts: list[str]) -> float:
    """Return the tokens per verification of requests, one after the other.

    K is 0 in some steps, to see whether drafting pays: with fewer requests that shows.
    """
    before = from_prometheus(server.metrics())
    run_load(server.url, TARGET, ClientLoad(prompts[:24], 48))
    tokens = (from_prometheus(server.metrics()) - before).tokens_per_step
    assert tokens is not None
    return tokens


# The last one: nothing can be asked of the server after it.
def test_it_is_asked_to_end_while_it_answers(server: Server) -> None:
    """It has time to end what it has begun."""
    already = len(server.log_text())
    with long_answer(server) as chunks:
        psutil.Process(server.pid).terminate()
        reasons = [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices]
    status, _ = wait(server)
    assert reasons[-1] == "length"
    assert status == 0
    assert "Traceback" not in server.log_text()[already:]
