"""Scripts and commands of guides run as they stand, with the zoo's models."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest
from vllm import SamplingParams
from vllm.v1.engine.llm_engine import LLMEngine

from tests.docs.person import ONE_THREAD, SMALL, environment, server, small, succeed
from tests.e2e.drafts import watch
from tests.e2e.guides import (
    COMMANDS,
    CURL,
    EXTRACT,
    MTP_ON_NPUS,
    SCRIPTS,
    deep_target,
    with_our_models,
)
from tests.marks import requires_hidden_states, requires_mla
from vllm_ascend_spec.config.resolved import speculation_of
from vllm_ascend_spec.config.string_values import with_texts_read
from vllm_ascend_spec.control.adaptive_k import PAYS, AdaptiveK, KChoice
from vllm_ascend_spec.devices import npu
from vllm_ascend_spec.hooks import preflight, quantized
from vllm_ascend_spec.legacy.rewrite import rewrite
from vllm_ascend_spec.metrics.acceptance import from_prometheus

# Four processes that compile take minutes on two cores.
LONG = ("vllm-zh, MLP speculator", "vllm-zh, EAGLE")
# By day the first test asks whether each is understood, and another script of the method runs.
ANOTHER_RUNS = ("article, draft model", "vllm-ascend, ngram", "article, EAGLE")
BY_NIGHT = LONG + ANOTHER_RUNS
# What a small machine is told beside the script: memory, and that no core is a worker's own.
MACHINE = {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind"}
PROMPT = "import os\n\ndef "
LONGER = SamplingParams(temperature=0, max_tokens=48, ignore_eos=True)


@pytest.fixture
def run_script(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Return a function that runs a script in this process and returns its names."""
    names: dict[str, Any] = {"__name__": "__main__"}
    for name, value in MACHINE.items():
        monkeypatch.setenv(name, value)

    def run(text: str) -> dict[str, Any]:
        exec(compile(text, "script.py", "exec"), names)
        return names

    yield run
    if hasattr(names.get("llm"), "llm_engine"):
        names.pop("llm").llm_engine.engine_core.shutdown()


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_asks_for_what_it_says(
    name: str, run_script: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    class BuiltError(Exception):
        """The engine would be built now."""

    def build(engine_args: Any, **_: Any) -> None:
        raise BuiltError(engine_args)

    monkeypatch.setattr(LLMEngine, "from_engine_args", build)
    with pytest.raises(BuiltError) as raised:
        run_script(SCRIPTS[name].text)
    (asked,) = raised.value.args
    assert asked.speculative_config == SCRIPTS[name].spec
    assert asked.tensor_parallel_size == SCRIPTS[name].devices


@pytest.mark.usefixtures("copied_workers")
@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.nightly if n in BY_NIGHT else ()) for n in SCRIPTS]
)
def test_a_script_runs(
    name: str,
    run_script: Any,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    script = SCRIPTS[name]
    for variable, value in SMALL.items():
        monkeypatch.setenv(variable, value)
    # Whether drafts pay is for the machine to say.
    monkeypatch.setattr(
        AdaptiveK, "choose", lambda self, requests: KChoice(self.k_values[-1], PAYS)
    )
    llm = run_script(script.text)["llm"]
    assert "Prompt: 'The future of AI is', Generated text: " in capfd.readouterr().out
    found = speculation_of(llm.llm_engine.vllm_config)
    assert found.method == script.spec["method"]
    assert found.max_k == script.spec["num_speculative_tokens"]
    with watch(llm) as seen:
        (output,) = llm.generate([PROMPT * 4], LONGER, use_tqdm=False)
    assert {num for step in seen.steps for num in step.drafts}
    # More than one token in some step.
    assert len(output.outputs[0].token_ids) > len(seen.steps)


@requires_hidden_states
@pytest.mark.nightly  # 36 layers are compiled; test_extract_hidden_states.py is there by day
def test_the_script_that_keeps_hidden_states(tmp_path: Path) -> None:
    """In a process of its own: it names layers of a model of 36, and has no guard."""
    script = tmp_path / "script.py"
    target = deep_target(tmp_path / "target")
    script.write_text(EXTRACT.replace("Qwen/Qwen3-8B", target))
    printed = succeed("python", str(script), **MACHINE, **ONE_THREAD)
    # Tokens, layers, and the hidden size.
    assert printed.count("3, 64])") == 2, printed


# By day the others, one of them with a draft model and one with EAGLE.
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(n, marks=pytest.mark.nightly if n == "article, draft model" else ())
        for n in COMMANDS
    ],
)
def test_a_command_serves(name: str) -> None:
    command = COMMANDS[name]
    text = command.ours
    if "\\   #" in text:  # which no shell takes as it is meant
        text = rewrite(text).text
    with (
        server(text.rstrip(), **MACHINE, **small()) as running,
        openai.OpenAI(base_url=f"{running.url}/v1", api_key="EMPTY", max_retries=0) as client,
    ):
        model = client.models.list().data[0].id
        assert model == command.name or command.name is None
        stream = False
        completion = client.completions.create(
            model=model,
            prompt="The future of AI is",
            echo=False,
            n=1,
            stream=stream,
        )
        assert completion.choices[0].text
        assert from_prometheus(running.metrics()).num_drafts > 0
        if command.name is not None:
            answer = ask_by_curl(running.port)
            assert answer["choices"][0]["message"]["role"] == "assistant"
            assert 0 < answer["usage"]["completion_tokens"] <= 100
        log = running.log_text()
        # Once: the engine's process is given today's.
        assert log.count("Old names of options") == (text == command.ours)


def ask_by_curl(port: int) -> dict[str, Any]:
    """Ask as the guide does, with the server's own port."""
    text = CURL.replace("9999", str(port))
    words = ["bash", "-c", text]
    result = subprocess.run(
        words, env=environment(), cwd=os.getcwd(), capture_output=True, text=True, check=True
    )
    return dict(json.loads(result.stdout))


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_is_migrated(name: str) -> None:
    """A shell hands the new option on with what the guide asks for."""
    text = rewrite(COMMANDS[name].ours).text
    show = 'show() { for word in "$@"; do printf \'%s\\0\' "$word"; done; }\n'
    shown = succeed(
        "bash", "-c", show + text.replace("vllm serve", "show").replace("python", "show")
    )
    words = shown.split("\0")
    assert json.loads(words[words.index("--speculative-config") + 1]) == COMMANDS[name].spec
    assert not [word for word in words if word.startswith("--speculative") and "config" not in word]


NPUS, HERE = "--tensor-parallel-size 16", "--tensor-parallel-size {}"
TEXTS = ["import os\n\ndef ", "class Queue:\n    def ", "The future of AI is"]


@requires_mla
def test_mtp_with_quantized_experts_is_asked_for_on_npus(monkeypatch: pytest.MonkeyPatch) -> None:
    """Word by word, with the rules of sixteen NPUs."""
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    from vllm_ascend_spec.upstream.server import make_arg_parser

    words = shlex.split(with_our_models(MTP_ON_NPUS).replace("\\\n", ""))
    args = make_arg_parser(FlexibleArgumentParser()).parse_args(["--model", *words[2:]])
    monkeypatch.setattr(preflight, "find_device", lambda: npu.DEVICE)
    monkeypatch.setattr(quantized, "find_device", lambda: npu.DEVICE)
    found = preflight.resolve_args(args)
    assert found is not None
    assert (found.method, found.max_k) == ("mtp", 2)
    assert args.tensor_parallel_size == 16
    assert args.quantization == "ascend"
    # A text that is false, by the engine too, with its warning.
    spec, (warning,) = with_texts_read(args.speculative_config)
    assert spec["disable_padded_drafter_batch"] is False
    assert "'False' is text; it is read as false" in warning


@requires_mla
@pytest.mark.parametrize("devices", [1, pytest.param(2, marks=pytest.mark.nightly)])
def test_mtp_with_quantized_experts_serves(devices: int) -> None:
    """As it is, but for the zoo's model and for as many devices as there are."""
    text = with_our_models(MTP_ON_NPUS).replace(NPUS, HERE.format(devices))
    assert NPUS not in text
    with (
        server(text.rstrip(), **MACHINE, **small()) as running,
        openai.OpenAI(base_url=f"{running.url}/v1", api_key="EMPTY", max_retries=0) as client,
    ):
        for prompt in TEXTS:
            answer = client.completions.create(
                model="dsv3", prompt=prompt, max_tokens=32, temperature=0
            )
            assert answer.choices[0].text
        found = from_prometheus(running.metrics())
    assert found.num_drafts > 0
    assert found.num_accepted_tokens > 0
