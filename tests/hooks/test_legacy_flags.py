"""The parsers of ``vllm serve`` and of ``api_server`` take old flags, and say the new form."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import pytest

from tests.zoo import SPECS, TARGET
from vllm_ascend_spec.hooks import legacy_flags, parser_hook
from vllm_ascend_spec.legacy.names import LEGACY

NGRAM = {
    "method": "ngram",
    "num_speculative_tokens": 5,
    "prompt_lookup_max": 4,
    "prompt_lookup_min": 1,
}
OLD = [
    *("--speculative_model", "[ngram]", "--num_speculative_tokens", "5"),
    *("--ngram-prompt-lookup-max=4", "--use-v2-block-manager"),
]


@pytest.fixture
def parser() -> Any:
    """vLLM's own parser of both commands, with our hook."""
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    from vllm_ascend_spec.upstream.server import make_arg_parser

    made = make_arg_parser(FlexibleArgumentParser())
    # vLLM calls it as the platform's; a second time changes nothing.
    parser_hook.apply(made)
    return made


@pytest.fixture(autouse=True)
def told(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is logged, which is each line once in a process."""
    lines: list[str] = []
    monkeypatch.setattr(legacy_flags, "log_once", lambda _level, text: lines.append(text))
    return lines


def test_old_flags_are_the_new_option(parser: Any) -> None:
    args = parser.parse_args(["--model", TARGET, *OLD, "--port", "0"])
    assert args.speculative_config == NGRAM
    assert not LEGACY.keys() & vars(args).keys()
    new = ["--model", TARGET, "--speculative-config", json.dumps(NGRAM), "--port", "0"]
    assert vars(parser.parse_args(new)) == vars(args)


def test_every_old_flag_is_taken(parser: Any) -> None:
    draft = SPECS["draft_model"]["model"]
    words = ["--speculative-method", "draft_model", f"--speculative-model={draft}"]
    for option in LEGACY.values():
        if option.name in ("speculative_model", "speculative_method"):
            continue
        if option.name.startswith("ngram") or option.key == "quantization":
            continue
        value = {int: ["1"], float: ["0.1"], str: ["rejection_sampler"]}.get(option.parse or bool)
        words += [option.flags[-1], *(value or [])]
    args = parser.parse_args(["--model", TARGET, *words, "--port", "0"])
    assert args.speculative_config == {
        "method": "draft_model",
        "model": draft,
        "num_speculative_tokens": 1,
        "draft_tensor_parallel_size": 1,
        "disable_by_batch_size": 1,
        "max_model_len": 1,
    }


def test_a_config_file_of_vllm(parser: Any, tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(f"model: {TARGET}\nspeculative-model: ngram\nnum-speculative-tokens: 5\n")
    args = parser.parse_args(["--config", str(file), "--port", "0"])
    assert args.speculative_config == {"method": "ngram", "num_speculative_tokens": 5}


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--speculative-config", '{"method": "ngram"}'], "--speculative-model='[ngram]': contra"),
        (["--spec-method", "ngram"], "--speculative-model='[ngram]': contradicts"),
        (["--speculative-method", "eagle"], "--speculative-method='eagle': contradicts"),
        (["--ngram-prompt-lookup-min", "x"], "invalid int value: 'x'"),
    ],
)
def test_contradictions_are_refused(
    parser: Any, more: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as raised:
        parser.parse_args(["--model", TARGET, *OLD, *more])
    assert raised.value.code == 2
    assert message in capsys.readouterr().err


def test_nothing_is_said_where_nothing_is_old(told: list[str]) -> None:
    namespace = argparse.Namespace(speculative_config=dict(NGRAM), model=TARGET)
    legacy_flags.translate(namespace)
    assert vars(namespace) == {"speculative_config": NGRAM, "model": TARGET}
    assert told == []


def test_one_line_has_the_new_form(told: list[str]) -> None:
    namespace = argparse.Namespace(
        speculative_model="[ngram]", num_speculative_tokens=5, use_v2_block_manager=True
    )
    legacy_flags.translate(namespace)
    (line,) = told
    assert '--speculative-config \'{"method": "ngram", "num_speculative_tokens": 5}\'' in line
    assert "leave out: --use-v2-block-manager" in line


def test_help_does_not_show_them(parser: Any) -> None:
    assert "--speculative-model" not in parser.format_help()
