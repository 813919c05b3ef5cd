"""A server and an engine that collect what they are asked and what they answer."""

from __future__ import annotations

import asyncio
import json
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

from tests.docs.person import small_server
from tests.engines import ENGINE, MakeEngine
from tests.marks import unless
from tests.zoo import SPECS, TARGET
from vllm_ascend_spec.bench.server import Server
from vllm_ascend_spec.collect.folder import collected_files, size_of
from vllm_ascend_spec.hooks import collect_hook
from vllm_ascend_spec.metrics.prometheus import read_samples
from vllm_ascend_spec.training.prompt_files import read_prompts
from vllm_ascend_spec.training.target import target_hash
from vllm_ascend_spec.upstream import limits

# Where none of them may be found.
KEY, PROXY_KEY = "a-key-of-this-test", "another-key-of-this-test"
USER, REQUEST_ID, SALT, ADDRESS = "user-4711", "id-of-a-request", "salt-of-a-tenant", "10.9.8.7"
HEADERS = {"X-Request-Id": REQUEST_ID, "X-Forwarded-For": ADDRESS, "X-Api-Key": PROXY_KEY}
PRIVATE = (KEY, PROXY_KEY, USER, REQUEST_ID, SALT, ADDRESS, "127.0.0.1")
ACCESS_KEY = "hf_abcdefghijklmnopqrstuvwxyz0123"
RECORD = {
    *("target", "prompt_token_ids", "token_ids", "finish_reason"),
    *("prompt_text", "answer_text"),
}
ARGUMENTS = (
    *("--dtype", "float32", "--max-model-len", "512", "--max-num-seqs", "8", "--enforce-eager"),
    *("--kv-cache-memory-bytes", str(ENGINE["kv_cache_memory_bytes"])),
    "--enable-request-id-headers",
)


def section(folder: Path, **given: Any) -> dict[str, Any]:
    return {"collect_folder": str(folder), "collect_rate": 1, "collect_max_bytes": 10**6, **given}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("live") / "prompts"


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[Server]:
    ours = section(folder, collect_what="text")
    if limits.NO_PAGE is None:
        ours["spec_page"] = True
    given = ("--additional-config", json.dumps({"ascend_spec": ours}))
    with small_server(TARGET, SPECS["eagle"], (*ARGUMENTS, *given), VLLM_API_KEY=KEY) as running:
        yield running


def records(folder: Path) -> list[dict[str, Any]]:
    """Return all records, the latest file's last."""
    texts = [path.read_bytes() for path in sorted(collected_files(folder))]
    assert all(text.endswith(b"\n") for text in texts)
    return [json.loads(line) for text in texts for line in text.split(b"\n")[:-1]]


def new_records(
    folder: Path, do: Callable[[], Any], count: int
) -> tuple[Any, list[dict[str, Any]]]:
    """Return what something returns, and the records that it adds, of which there are ``count``."""
    before = len(records(folder)) if folder.exists() else 0
    done, end = do(), time.monotonic() + 30
    while len(records(folder)) < before + count and time.monotonic() < end:
        time.sleep(0.01)
    time.sleep(0.1)  # none comes after them
    found = records(folder)[before:]
    assert len(found) == count
    return done, found


def complete(server: Server, prompt: Any, **more: Any) -> Any:
    given = {"temperature": 0, "max_tokens": 12, "user": USER, "extra_headers": HEADERS, **more}
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key=KEY, max_retries=0) as client:
        made = client.completions.create(model=TARGET, prompt=prompt, **given)
        return list(made) if given.get("stream") else made


WITH_TOKENS = {"extra_body": {"return_token_ids": True, "ignore_eos": True, "cache_salt": SALT}}


def test_a_request_is_written_as_it_was(server: Server, folder: Path, prompts: list[str]) -> None:
    answer, (found,) = new_records(folder, lambda: complete(server, prompts[0], **WITH_TOKENS), 1)
    choice = answer.choices[0].model_dump()
    assert found == {
        "target": target_hash(Path(TARGET)),
        "prompt_token_ids": choice["prompt_token_ids"],
        "token_ids": choice["token_ids"],
        "finish_reason": "length",
        "prompt_text": prompts[0],
        "answer_text": choice["text"],
    }
    assert len(found["token_ids"]) == 12


def test_a_streamed_one_is_written_whole(server: Server, folder: Path, prompts: list[str]) -> None:
    chunks, (found,) = new_records(
        folder, lambda: complete(server, prompts[1], stream=True, **WITH_TOKENS), 1
    )
    tokens = [token for chunk in chunks for token in chunk.choices[0].model_dump()["token_ids"]]
    assert found["token_ids"] == tokens
    assert found["answer_text"] == "".join(chunk.choices[0].text for chunk in chunks)
    assert found["prompt_text"] == prompts[1]


def test_each_answer_of_a_request_is_written(
    server: Server, folder: Path, prompts: list[str]
) -> None:
    given = {"n": 2, "temperature": 1, "seed": 7}
    answer, found = new_records(
        folder, lambda: complete(server, prompts[2], **given, **WITH_TOKENS), 2
    )
    told = [choice.model_dump()["token_ids"] for choice in answer.choices]
    assert sorted(record["token_ids"] for record in found) == sorted(told)
    assert told[0] != told[1]


def test_a_prompt_of_tokens_has_its_text(server: Server, folder: Path) -> None:
    _, (found,) = new_records(folder, lambda: complete(server, [11, 12, 13]), 1)
    assert found["prompt_token_ids"] == [11, 12, 13]
    assert found["prompt_text"]


def test_clients_beside_each_other(server: Server, folder: Path, prompts: list[str]) -> None:
    async def ask_all() -> list[str]:
        async with openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key=KEY) as client:
            answers = await asyncio.gather(
                *(
                    client.completions.create(
                        model=TARGET, prompt=prompt, temperature=0, max_tokens=4 + place
                    )
                    for place, prompt in enumerate(prompts[:16])
                )
            )
        return [answer.choices[0].text for answer in answers]

    texts, found = new_records(folder, lambda: asyncio.run(ask_all()), 16)
    pairs = {(record["prompt_text"], record["answer_text"]) for record in found}
    assert pairs == set(zip(prompts[:16], texts, strict=True))


def test_what_is_left_out(server: Server, folder: Path, prompts: list[str]) -> None:
    """Aborted requests, prompts for their logprobs, beams, and texts with an access key."""

    async def leave() -> None:
        async with openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key=KEY) as client:
            stream = await client.completions.create(
                model=TARGET,
                prompt=prompts[3],
                max_tokens=300,
                stream=True,
                extra_body={"ignore_eos": True},
            )
            await anext(aiter(stream))
            await stream.close()

    def ask() -> None:
        asyncio.run(leave())
        complete(server, prompts[4], extra_body={"prompt_logprobs": 1})
        beams = complete(server, prompts[4], n=2, extra_body={"use_beam_search": True})
        assert len(beams.choices) == 2
        complete(server, f"use {ACCESS_KEY} for it")
        complete(server, prompts[5])

    _, (found,) = new_records(folder, ask, 1)
    assert found["prompt_text"] == prompts[5]
    assert counted(server)["key"] >= 1


def test_nothing_private_is_in_the_folder(server: Server, folder: Path, prompts: list[str]) -> None:
    new_records(folder, lambda: complete(server, prompts[6], **WITH_TOKENS), 1)
    written = b"".join(path.read_bytes() for path in folder.iterdir())
    assert [text for text in (*PRIVATE, ACCESS_KEY) if text.encode() in written] == []
    there = json.dumps(prompts[6], ensure_ascii=False)
    assert there.encode() in written, "the search finds what is there"
    assert {frozenset(record) for record in records(folder)} == {frozenset(RECORD)}
    assert folder.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o600}


def test_training_takes_prompts_and_answers(
    server: Server, folder: Path, prompts: list[str]
) -> None:
    answer, _ = new_records(folder, lambda: complete(server, prompts[20], **WITH_TOKENS), 1)
    choice = answer.choices[0].model_dump()
    found = {prompt.token_ids: prompt.recorded for prompt in read_prompts("--prompts", folder)}
    recorded = found[tuple(choice["prompt_token_ids"])]
    assert recorded is not None
    assert recorded.target == target_hash(Path(TARGET))
    assert recorded.token_ids == tuple(choice["token_ids"])


def counted(server: Server) -> dict[str, float]:
    found = read_samples(server.metrics(), "vllm:collected_")
    return {s.labels.get("outcome", s.name): s.value for s in found if s.name.endswith("_total")}


def test_it_is_said_in_the_log_and_counted(
    server: Server, folder: Path, prompts: list[str]
) -> None:
    new_records(folder, lambda: complete(server, prompts[7]), 1)
    counts = counted(server)
    assert counts["written"] == len(records(folder))
    assert counts["vllm:collected_bytes_total"] == size_of(folder)
    assert (counts["full"], counts["busy"], counts["failed"]) == (0, 0, 0)
    lines = [line for line in server.log_text().splitlines() if "Prompts are collected" in line]
    assert len(lines) == 1
    assert "WARNING" in lines[0]
    assert f"token ids and texts of 1 of all finished requests are written to {folder}" in lines[0]


@unless(limits.NO_PAGE)
def test_the_page_says_so(server: Server, folder: Path, prompts: list[str]) -> None:
    new_records(folder, lambda: complete(server, prompts[8]), 1)
    asked = urllib.request.Request(
        f"{server.url}/spec/data", headers={"Authorization": f"Bearer {KEY}"}
    )
    with urllib.request.urlopen(asked, timeout=30) as answer:
        text = answer.read().decode()
    told = json.loads(text)
    wanted = {"folder": "prompts", "rate": 1, "max_bytes": 10**6, "text": True}
    assert told["collecting"] == wanted
    assert str(folder.parent) not in text, "the log says where; not everybody who sees the page"
    shown = {row["outcome"]: row["value"] for row in told["figures"]["collected"]}
    assert shown["written"] == len(records(folder))
    assert told["figures"]["collected_bytes"] == size_of(folder)


def greedy(max_tokens: int) -> Any:
    from vllm import SamplingParams

    return SamplingParams(temperature=0, max_tokens=max_tokens, ignore_eos=True)


def test_an_engine_without_speculation_collects_a_share(
    make_engine: MakeEngine, tmp_path_factory: pytest.TempPathFactory, prompts: list[str]
) -> None:
    path = tmp_path_factory.mktemp("share")
    llm = make_engine(additional_config={"ascend_spec": section(path, collect_rate=0.5)})
    asked = [prompt[: 20 + place] for place in range(8) for prompt in prompts[:16]]
    answers = llm.generate(asked, greedy(2), use_tqdm=False)
    time.sleep(0.5)
    found = records(path)
    # Five standard deviations of 128 draws are 28.
    assert 36 <= len(found) <= 92
    pairs = {(*answer.prompt_token_ids, *answer.outputs[0].token_ids) for answer in answers}
    assert {(*each["prompt_token_ids"], *each["token_ids"]) for each in found} <= pairs
    assert {frozenset(record) for record in found} == {
        frozenset(RECORD - {"prompt_text", "answer_text"})
    }


def test_the_bound_holds(
    make_engine: MakeEngine, tmp_path_factory: pytest.TempPathFactory, prompts: list[str]
) -> None:
    path, most = tmp_path_factory.mktemp("bound"), 5000
    ours = section(path, collect_max_bytes=most)
    llm = make_engine(additional_config={"ascend_spec": ours})
    answers = llm.generate(prompts[:32], greedy(2), use_tqdm=False)
    time.sleep(0.5)
    assert len(answers) == 32, "serving goes on"
    assert most // 2 < size_of(path) <= most
    assert 0 < len(records(path)) < 32


def test_nothing_is_hooked_in_without_a_folder(make_engine: MakeEngine) -> None:
    from vllm.v1.engine.async_llm import AsyncLLM
    from vllm.v1.engine.llm_engine import LLMEngine
    from vllm.v1.engine.output_processor import OutputProcessor

    collect_hook.revert()
    make_engine(additional_config={"other": {}})
    for method in (
        *(AsyncLLM.__init__, LLMEngine.__init__),
        *(OutputProcessor.add_request, OutputProcessor._update_stats_from_finished),
    ):
        assert method.__globals__["__name__"].startswith("vllm.v1.engine."), method
