"""What ``check`` says for a device is what an engine's start on that device does."""

from __future__ import annotations

import json

import pytest

from tests.hooks.same_answer import DEVICES, EAGLE, ROWS, require_same_answer
from tests.hooks.test_attach import ENGINE
from tests.zoo import TARGET
from vllm_ascend_spec.cli.check_report import ENGINE as ENGINE_VALUES
from vllm_ascend_spec.cli.main import main
from vllm_ascend_spec.config.resolved import speculation_of


def test_the_table_is_of_some_size() -> None:
    for device in DEVICES:
        refused = [row for row in ROWS.values() if row.refused_on(device) is not None]
        assert len(refused) >= 15
        assert len(ROWS) - len(refused) >= 15


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("name", ROWS)
def test_check_and_an_engine_say_the_same(
    name: str,
    device: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    # The rules of that device; what vLLM builds is for the CPU either way.
    monkeypatch.setenv("VLLM_ASCEND_SPEC_DEVICE", device)
    base = {name: value for name, value in ENGINE.items() if name != "enforce_eager"}
    require_same_answer(name, device, base, capsys)


def test_an_engine_that_differs_is_found_out(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Negative control: the engine's start without our hook."""
    from vllm_ascend_spec.hooks import engine_hook

    monkeypatch.setattr(engine_hook, "resolve_args", lambda args, **_: None)
    with pytest.raises(AssertionError):
        require_same_answer("lookup with eagle", "cpu", ENGINE, capsys)


COMMANDS: dict[str, list[str]] = {
    "defaults": ["--speculative-config", json.dumps(EAGLE)],
    "flags of vLLM's own kinds": [
        *("--speculative-config", json.dumps(EAGLE), "--max-model-len", "1k", "-O1"),
        *("--dtype", "float32", "--block-size", "64", "--seed", "3", "--no-enable-prefix-caching"),
        *("--max-num-batched-tokens", "1K", "--max_num_seqs=4"),
    ],
    "short and dotted": [
        *("--speculative-config.method", "ngram", "-cc.cudagraph_mode", "NONE"),
        *("--speculative-config.num_speculative_tokens", "4"),
    ],
    "old": ["--speculative-model", "[ngram]", "--num-speculative-tokens", "5"],
    "by parts": ["--spec-method", "eagle", "--spec-model", EAGLE["model"], "--spec-tokens", "2"],
    "none": ["--max-num-seqs", "4"],
}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_is_read_as_vllm_serve_reads_it(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The same words through ``check``, and through vLLM's parser into a server's engine."""
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.usage.usage_lib import UsageContext
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    from vllm_ascend_spec.upstream.server import make_arg_parser

    assert main(["check", "--json", TARGET, *COMMANDS[name]]) == 0
    record = json.loads(capsys.readouterr().out)
    parser = make_arg_parser(FlexibleArgumentParser(prog="vllm serve"))
    args = parser.parse_args([TARGET, *COMMANDS[name], "--port", "0"])
    args.model = args.model_tag
    config = AsyncEngineArgs.from_cli_args(args).create_engine_config(
        usage_context=UsageContext.OPENAI_API_SERVER
    )
    values = {name: getattr(getattr(config, part), name) for part in ENGINE_VALUES for name in
              ENGINE_VALUES[part]}  # fmt: skip
    shown = {key: str(value).removeprefix("torch.") for key, value in values.items()}
    assert {key: str(value) for key, value in record["engine"].items()} == shown
    spec = config.speculative_config
    wanted = None if spec is None else json.loads(json.dumps(speculation_of(config).as_json()))
    assert record.get("speculation") == wanted
