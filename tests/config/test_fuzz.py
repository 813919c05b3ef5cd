"""``check`` says what the start does: over a thousand configurations, three ways to give them.

By day every third of them is given in all three ways, and the others to an ``LLM()`` alone.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import huggingface_hub
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from vllm.config import ParallelConfig, SpeculativeConfig
from vllm.engine.arg_utils import EngineArgs

import examples.custom_proposer  # noqa: F401 - looked at in this process, where it is imported
from tests.config import fuzz
from tests.engines import ENGINE, inspect_models_here
from tests.zoo import SPECS, TARGET
from vllm_ascend_spec import versions
from vllm_ascend_spec.bench.privacy import redact
from vllm_ascend_spec.checkpoint import draft as draft_module
from vllm_ascend_spec.cli import main as main_module
from vllm_ascend_spec.cli.main import main
from vllm_ascend_spec.config.resolved import speculation_of
from vllm_ascend_spec.devices import plugins
from vllm_ascend_spec.errors import ConfigError
from vllm_ascend_spec.hooks import parser_hook
from vllm_ascend_spec.hooks.method_alias import for_vllm
from vllm_ascend_spec.hooks.preflight import resolve_args, resolve_engine
from vllm_ascend_spec.methods.mtp.names import NAMES

LONGEST = 300
# Of over seven thousand.
EVERY_NTH = 1 if "TESTS_COMPILE_ALL" in os.environ else 3
MTP = {"mtp", *NAMES}
PREFIX = "vllm-ascend-spec check: error: "


def be_on_a_cpu(patch: pytest.MonkeyPatch) -> None:
    """Choose the device; ask nothing of a hub, and only once for what is installed or on disk."""
    patch.setenv("VLLM_ASCEND_SPEC_DEVICE", "cpu")
    patch.setenv("HF_HUB_OFFLINE", "1")
    patch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    patch.setattr(versions, "installed_vllm", functools.cache(versions.installed_vllm))
    patch.setattr(draft_module, "read_checkpoint", functools.cache(draft_module.read_checkpoint))
    patch.setattr(plugins, "has_vllm_ascend", functools.cache(plugins.has_vllm_ascend))


@pytest.fixture(autouse=True)
def on_a_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run every test so."""
    be_on_a_cpu(monkeypatch)


def by_check(case: fuzz.Case, capsys: pytest.CaptureFixture[str]) -> str | None:
    """Return what ``check`` says against a case; None if nothing."""
    arguments = ["check", "--light", "--json", TARGET]
    for name, value in (("speculative", case.spec), ("additional", case.additional)):
        arguments.append(f"--{name}-config={json.dumps(value)}")
    status = main(arguments)
    output = capsys.readouterr()
    if status == 0:
        assert json.loads(output.out)["model"] == TARGET
        assert not output.err
        return None
    assert status == 2
    assert output.err.startswith(PREFIX)
    (line,) = output.err.splitlines()
    assert len(line) <= LONGEST
    return line.removeprefix(PREFIX)


def shown(verdict: str | None) -> str | None:
    """Return what the command prints of a message."""
    return None if verdict is None else redact(verdict)


def by_engine(case: fuzz.Case) -> str | None:
    """Return what an ``LLM()`` says against a case, before it asks vLLM."""
    args = SimpleNamespace(
        model=TARGET,
        speculative_config=case.spec,
        additional_config=case.additional,
        load_format="auto",
    )
    try:
        resolve_args(args)
    except ConfigError as error:
        return str(error)
    return None


@functools.cache
def server_parser() -> argparse.ArgumentParser:
    """Return a parser as the hook leaves that of ``vllm serve``."""
    parser = argparse.ArgumentParser(prog="vllm serve", usage="")
    parser.add_argument("--speculative-config", type=json.loads)
    parser.add_argument("--additional-config", type=json.loads)
    parser.set_defaults(model=TARGET, load_format="auto")
    parser_hook.apply(parser)
    return parser


def by_server(case: fuzz.Case, capsys: pytest.CaptureFixture[str]) -> str | None:
    """Return what ``vllm serve`` says against a case, in its one line."""
    arguments = [f"--speculative-config={json.dumps(case.spec)}"]
    arguments.append(f"--additional-config={json.dumps(case.additional)}")
    status = 0
    try:
        server_parser().parse_args(arguments)
    except SystemExit as end:
        status = end.code
    printed = capsys.readouterr().err.splitlines()
    if status == 0:
        return None
    assert status == 2
    assert len(printed[-1]) <= LONGEST
    return printed[-1].partition("error: ")[2]


@pytest.fixture(scope="module")
def verdicts() -> list[tuple[fuzz.Case, str | None]]:
    """Return every case with what an ``LLM()`` says against it."""
    with pytest.MonkeyPatch.context() as patch:
        be_on_a_cpu(patch)
        return [(case, by_engine(case)) for case in fuzz.cases()]


Verdicts = list[tuple[fuzz.Case, str | None]]


def test_there_are_enough_of_both_kinds(verdicts: Verdicts) -> None:
    num_right = sum(verdict is None for _, verdict in verdicts)
    assert num_right >= 200
    assert len(verdicts) - num_right >= 700


def test_check_and_start_say_the_same_in_one_line(
    verdicts: Verdicts, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Built two thousand times it takes as long as all the rest.
    monkeypatch.setattr(main_module, "build_parser", functools.cache(main_module.build_parser))
    for case, verdict in verdicts[::EVERY_NTH]:
        assert by_check(case, capsys) == shown(verdict), case
        assert by_server(case, capsys) == verdict, case


def test_message_names_the_option_or_one_that_goes_with_it(verdicts: Verdicts) -> None:
    for case, verdict in verdicts:
        if verdict is not None and case.option.startswith("speculative_config."):
            options = r"(speculative|additional)_config[^=]*"
            if str(case.spec.get("method")) in MTP:
                # Its layers are the target's, so what goes with them is the model itself.
                options = f"({options}|model)"
            assert re.match(options + r"=.+: .*\w", verdict), verdict


@pytest.fixture(scope="module")
def build() -> Callable[[dict[str, Any]], Any]:
    """Return vLLM's own config class with the target that it asks for."""
    inspect_models_here()
    target = EngineArgs(**{**ENGINE, "max_model_len": 2048}).create_model_config()
    parallel = ParallelConfig()

    def build(spec: dict[str, Any]) -> Any:
        speculation = resolve_engine(TARGET, spec)
        assert speculation is not None
        shown = for_vllm(spec, speculation)
        return SpeculativeConfig(
            **shown, target_model_config=target, target_parallel_config=parallel
        )

    return build


def test_vllm_builds_what_check_accepts(
    verdicts: Verdicts, build: Callable[[dict[str, Any]], Any]
) -> None:
    wrong = []
    for case, verdict in verdicts:
        if verdict is None and case.spec is not None:
            try:
                build(case.spec)
            except Exception as error:
                wrong.append(f"{case}: {error}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("method", SPECS)
def test_whole_engine_config_is_built(method: str) -> None:
    spec = {**SPECS[method], "num_speculative_tokens_per_batch_size": [[1, 4, 2], [5, 9, 0]]}
    args = EngineArgs(**ENGINE, speculative_config=spec, additional_config={"other": {"x": 1}})
    config = args.create_engine_config()
    assert speculation_of(config).method == method


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=8,
)


@settings(max_examples=300)
@given(method=st.sampled_from(sorted(SPECS)), key=st.sampled_from(sorted(fuzz.OPTIONS)), value=JSON)
def test_any_json_at_any_option_is_right_or_one_line(method: str, key: str, value: Any) -> None:
    verdict = by_engine(fuzz.Case(key, {**SPECS[method], key: value}))
    assert verdict is None or (len(verdict) <= LONGEST - len(PREFIX) and "\n" not in verdict)


@settings(max_examples=200)
@given(spec=JSON, additional=JSON)
def test_any_json_at_all_is_right_or_one_line(spec: Any, additional: Any) -> None:
    verdict = by_engine(fuzz.Case("all", spec, additional))
    assert verdict is None or (len(verdict) <= LONGEST - len(PREFIX) and "\n" not in verdict)


TEXTS = {
    "deep list": "[" * 100_000,
    "deep object": '{"a":' * 100_000,
    "closed": "[" * 100_000 + "]" * 100_000,
    "long number": "1" * 10_000,
    "long text": '{"method": "' + "x" * 10_000 + '"}',
    "not JSON": "{oops",
    "lines": "{\n\n'a': 1}",
    "half a sign": '{"method": "\\ud800"}',
}


@pytest.mark.parametrize("option", ["--speculative-config", "--additional-config"])
@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_text_that_is_no_json_is_one_line(
    option: str, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    if (option, text) == ("--additional-config", TEXTS["half a sign"]):
        text = "[" + text + "]"
    if option == "--additional-config" and text == TEXTS["long text"]:
        text = "3"
    assert main(["check", TARGET, option, text]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert len(line) <= LONGEST
    parser = argparse.ArgumentParser(prog="vllm serve", usage="")
    parser.add_argument("--speculative-config", type=json.loads)
    parser.add_argument("--additional-config", type=json.loads, default={})
    parser.set_defaults(model=TARGET, load_format="auto")
    parser_hook.apply(parser)
    with pytest.raises(SystemExit) as end:
        parser.parse_args([option, text])
    assert end.value.code == 2
    served = capsys.readouterr().err.splitlines()[-1]
    assert served.partition("error: ")[2] == line.removeprefix(PREFIX)


@pytest.mark.parametrize("text", ["", "None", "null"])
def test_no_speculation_is_said_as_to_vllm(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--light", "--json", TARGET, "--speculative-config", text]) == 0
    assert json.loads(capsys.readouterr().out)["speculative_config"] is None


@pytest.mark.parametrize("model", ["x" * 300, "~nosuchuser/x", "~/x", "a/" * 3000])
def test_names_that_nothing_can_look_up(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    for target, draft in ((model, SPECS["eagle"]["model"]), (TARGET, model)):
        spec = json.dumps({**SPECS["eagle"], "model": draft})
        assert main(["check", target, "--speculative-config", spec]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith(f"{PREFIX}{'' if target == model else 'speculative_config.'}model=")
        assert len(line) <= LONGEST


def test_command_ends_in_one_line_and_imports_nothing() -> None:
    """As a person runs it: what is refused costs no import of torch or vLLM."""
    code = (
        "import sys; from vllm_ascend_spec.cli.main import main\n"
        "status = main(sys.argv[1:])\n"
        "assert not {'torch', 'vllm'} & sys.modules.keys()\n"
        "sys.exit(status)"
    )
    spec = json.dumps({**SPECS["eagle"], "max_model_len": -1})
    done = subprocess.run(
        [sys.executable, "-c", code, "check", TARGET, "--speculative-config", spec],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parents[2],
    )
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith(f"{PREFIX}speculative_config.max_model_len=-1: valid: a whole")
    assert done.stderr.count("\n") == 1
