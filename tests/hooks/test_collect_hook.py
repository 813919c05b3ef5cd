"""Which requests are collected, and which folders are refused before an engine starts."""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from transformers import AutoTokenizer
from vllm import SamplingParams
from vllm.v1.engine import EngineCoreOutput, EngineCoreRequest, FinishReason
from vllm.v1.engine.output_processor import OutputProcessor

from tests.zoo import TARGET
from vllm_ascend_spec.collect.record import Finished
from vllm_ascend_spec.config.collect import collecting_of
from vllm_ascend_spec.devices.registry import BUILT_IN as DEVICES
from vllm_ascend_spec.errors import ConfigError
from vllm_ascend_spec.hooks import collect_hook, preflight
from vllm_ascend_spec.hooks.collect_hook import Choice, add_texts, is_plain, target_of
from vllm_ascend_spec.hooks.writable_dirs import check_collect_folder
from vllm_ascend_spec.training.target import target_hash


def asked(folder: object, **more: Any) -> dict[str, Any]:
    return {"ascend_spec": {"collect_folder": str(folder), **more}}


@pytest.fixture(autouse=True)
def _hook() -> Iterator[None]:
    collect_hook.revert()
    yield
    collect_hook.revert()


class Traffic:
    """An output processor of vLLM's, and what is collected of it."""

    def __init__(self, rate: float = 1.0) -> None:
        collect_hook.prepare(asked("/unused"))
        self.processor = OutputProcessor(None, log_stats=False)
        self.collected: list[Finished] = []
        draw = random.Random(7).random
        collect_hook._choices[self.processor] = Choice(rate, self.collected.append, draw)

    def ask(self, name: str = "one", prompt: list[int] | None = None, **more: Any) -> None:
        given = {"sampling_params": SamplingParams(detokenize=False), **more}
        request = EngineCoreRequest(
            request_id=name,
            external_req_id=name,
            prompt_token_ids=[1, 2, 3] if prompt is None else prompt,
            **{
                **dict.fromkeys(("mm_features", "pooling_params", "lora_request", "cache_salt")),
                **{"arrival_time": 0.0, "data_parallel_rank": None},
                **given,
            },
        )
        self.processor.add_request(request, "what is asked")

    def answer(self, tokens: list[int], reason: Any = None, name: str = "one") -> None:
        output = EngineCoreOutput(request_id=name, new_token_ids=tokens, finish_reason=reason)
        self.processor.process_outputs([output])


@pytest.mark.parametrize("reason", [FinishReason.STOP, FinishReason.LENGTH])
def test_a_finished_request_is_collected_once(reason: FinishReason) -> None:
    traffic = Traffic()
    traffic.ask()
    traffic.answer([4, 5])
    assert traffic.collected == []
    traffic.answer([6], reason)
    wanted = Finished((1, 2, 3), (4, 5, 6), reason.name.lower(), "what is asked", "")
    assert traffic.collected == [wanted]
    assert not traffic.processor.request_states


@pytest.mark.parametrize("reason", [FinishReason.ABORT, FinishReason.ERROR])
def test_what_the_engine_ends_is_not_collected(reason: FinishReason) -> None:
    traffic = Traffic()
    traffic.ask()
    traffic.answer([4, 5], reason)
    assert traffic.collected == []


def test_an_aborted_request_is_not_collected_nor_kept() -> None:
    traffic = Traffic()
    traffic.ask()
    traffic.answer([4, 5])
    traffic.processor.abort_requests(["one"], internal=True)
    traffic.answer([6], FinishReason.STOP)
    assert traffic.collected == []
    assert len(collect_hook._choices[traffic.processor].chosen) == 0


@pytest.mark.parametrize(
    "more",
    [
        {"lora_request": object()},
        {"mm_features": [object()]},
        {"prompt_embeds": object()},
        {"prompt_token_ids": None},
        {"prompt_token_ids": []},
        {"sampling_params": None},
        {"sampling_params": SamplingParams(prompt_logprobs=1)},
        {"sampling_params": SamplingParams(max_tokens=1)},
        {"resumable": True},
    ],
)
def test_what_is_not_the_targets_alone_is_left_out(more: dict[str, Any]) -> None:
    plain = {
        "sampling_params": SamplingParams(),
        "prompt_token_ids": [1],
        **dict.fromkeys(("prompt_embeds", "mm_features", "lora_request")),
        "resumable": False,
    }
    assert is_plain(SimpleNamespace(**plain))
    assert not is_plain(SimpleNamespace(**{**plain, **more}))


def test_the_rate() -> None:
    traffic = Traffic(rate=0.25)
    for place in range(1000):
        traffic.ask(str(place))
        traffic.answer([4], FinishReason.STOP, name=str(place))
    # Four standard deviations are 55.
    assert 195 <= len(traffic.collected) <= 305


def test_requests_are_not_chosen_by_a_generator_that_others_seed() -> None:
    """vLLM seeds it, so each start would choose the same requests; scripts draw by it, too."""
    random.seed(0)
    wanted = random.getstate()
    Choice(0.5, print).draw()
    assert random.getstate() == wanted


def test_other_processors_of_the_process_are_left_alone() -> None:
    traffic = Traffic()
    others = OutputProcessor(None, log_stats=False)
    collected, traffic.processor = traffic.collected, others
    traffic.ask()
    traffic.answer([4], FinishReason.STOP)
    assert collected == []


@pytest.mark.parametrize("additional", [None, {}, {"ascend_spec": {}}, asked("/x")["ascend_spec"]])
def test_nothing_is_hooked_in_unless_it_is_asked_for(additional: Any) -> None:
    before = dict(vars(OutputProcessor))
    collect_hook.prepare(additional)
    assert dict(vars(OutputProcessor)) == before
    collect_hook.prepare(asked("/x"))
    assert dict(vars(OutputProcessor)) != before, "the comparison would have seen it"


def test_the_texts_of_a_request_that_has_tokens_alone() -> None:
    tokenizer = AutoTokenizer.from_pretrained(TARGET)
    key = "hf_abcdefghijklmnopqrstuvwxyz"
    asked, answered = (tuple(tokenizer(text)["input_ids"]) for text in ("the key?", f"It is {key}"))
    tokens = Finished(asked, (*answered, tokenizer.eos_token_id), "stop")
    found = add_texts(tokenizer, tokens)
    assert (found.prompt_text, found.answer_text) == ("the key?", f"It is {key}")
    assert found.has_key
    assert not tokens.has_key
    assert add_texts(None, tokens) is tokens
    told = Finished(asked, answered, "stop", "told", "answered")
    assert add_texts(tokenizer, told) == told


def test_the_name_of_the_target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert target_of(TARGET, None) == target_hash(Path(TARGET))
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    assert target_of("nobody/has-this", None) is None


def test_a_folder_that_need_not_be_there(tmp_path: Path) -> None:
    check_collect_folder(asked(tmp_path / "a" / "b", collect_max_bytes=10**6))
    assert list(tmp_path.iterdir()) == []
    check_collect_folder({})


def test_a_folder_that_cannot_be_used(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError) as raised:
        check_collect_folder(asked(tmp_path / "file"))
    message = str(raised.value)
    assert message.startswith("additional_config.ascend_spec.collect_folder=")
    assert f"cannot be used ({os.strerror(errno.ENOTDIR)}); valid: a folder" in message
    assert "\n" not in message


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become somebody else")
@pytest.mark.parametrize("mode", [0o700, 0o733])
def test_another_persons_folder(mode: int, tmp_path: Path) -> None:
    """One that nobody else can write to, and one that they can only write to."""
    folder = tmp_path / "prompts"
    folder.mkdir()
    folder.chmod(mode)
    for parent in (tmp_path, *tmp_path.parents[:2]):
        parent.chmod(0o755)
    if (child := os.fork()) == 0:
        os.setgid(65534)
        os.setuid(65534)
        try:
            check_collect_folder(asked(folder, collect_max_bytes=1))
        except ConfigError as error:
            os._exit(os.strerror(errno.EACCES) not in str(error))
        os._exit(2)
    assert os.waitpid(child, 0)[1] == 0


def test_more_than_the_disk_has(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"collect_max_bytes=10{20}: .* bytes may be collected"):
        check_collect_folder(asked(tmp_path, collect_max_bytes=10**20))


@pytest.mark.parametrize("spec", [None, {"method": "ngram", "num_speculative_tokens": 3}])
def test_every_engine_is_checked_before_it_starts(spec: Any, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    wrong = asked(tmp_path / "file" / "prompts")
    args = SimpleNamespace(
        model=TARGET, speculative_config=spec, additional_config=wrong, load_format="auto"
    )
    if DEVICES["cpu"].find():
        with pytest.raises(ConfigError, match=r"collect_folder=.* cannot be used"):
            preflight.resolve_args(args)
    # All nodes of a group have the same options, but not the same disks.
    preflight.resolve_args(args, is_headless=True)
    preflight.resolve_args(SimpleNamespace(**vars(args), headless=True))


def test_what_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    found = collecting_of(asked("~/prompts"))
    assert found is not None
    assert (found.folder, found.rate, found.max_bytes) == (tmp_path / "prompts", 0.1, 10**9)
    assert not found.has_text
    assert "token ids of 0.1 of all finished requests" in found.describe()
    assert collecting_of({"ascend_spec": {"collect_folder": None}}) is None
