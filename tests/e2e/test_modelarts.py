"""The start scripts of examples/modelarts: each setting, each mistake, and servers that answer."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from vllm.utils.argparse_utils import FlexibleArgumentParser

from tests.docs.person import ONE_THREAD, environment, run
from tests.e2e.guides import CURL
from tests.zoo import MODELS, TARGET
from vllm_ascend_spec.bench.server import Server
from vllm_ascend_spec.metrics.acceptance import from_prometheus
from vllm_ascend_spec.upstream.server import make_arg_parser, validate_parsed_serve_args

FOLDER = Path(__file__).parents[2] / "examples" / "modelarts"
PREFIX = "ASCEND_SPEC_"
PRINT_ONLY = {"PRINT_ONLY": "true", "MODEL": TARGET}
MTP = str(MODELS / "target-mimo")
EAGLE = {"DRAFT": str(MODELS / "eagle")}
# What each script needs beside its defaults.
SCRIPTS: dict[str, dict[str, str]] = {
    "eagle": EAGLE,
    "draft_model": {"DRAFT": str(MODELS / "draft")},
    "mtp": {"MODEL": MTP, "DRAFT": MTP},
    "suffix": {},
}


def variables(settings: Mapping[str, str]) -> dict[str, str]:
    return {PREFIX + name: value for name, value in settings.items()}


def start(script: str, **settings: str) -> subprocess.CompletedProcess[str]:
    """Run a script with settings."""
    given = variables({**PRINT_ONLY, **settings})
    return run("sh", str(FOLDER / script), **given, PYTHON=sys.executable)


def printed(script: str, **settings: str) -> Any:
    """Return what vLLM's parser makes of the command that a script prints."""
    result = start(script, **settings)
    assert result.returncode == 0, result.stderr
    words = shlex.split(result.stdout)
    assert words[:2] == ["vllm", "serve"]
    parser = make_arg_parser(FlexibleArgumentParser())
    args = parser.parse_args(words[2:])
    validate_parsed_serve_args(args)
    return args


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_script_prints_what_it_starts(script: str) -> None:
    args = printed(f"{script}.sh", **SCRIPTS[script])
    assert args.speculative_config["method"] == script
    assert args.speculative_config["num_speculative_tokens"] >= 1
    assert (args.host, args.port) == ("0.0.0.0", 8080)


@pytest.mark.parametrize(
    "settings",
    [
        {**EAGLE, "SPECULATIVE": '{"suffix_decoding_max_spec_factor": 2.0}'},
        {"MODEL": MTP, "SPECULATIVE": '{"hybrid_model_method": "mtp"}'},
    ],
    ids=["eagle", "mtp"],
)
def test_hybrid_is_taken_with_either_model(settings: dict[str, str]) -> None:
    """vLLM's parser has our checks in it."""
    args = printed("suffix.sh", **settings, METHOD="hybrid", TOKENS="4")
    assert args.speculative_config["method"] == "hybrid"


def test_every_setting_reaches_the_command(tmp_path: Path) -> None:
    for name in ("cert.pem", "key.pem"):
        (tmp_path / name).touch()
    result = start(
        "eagle.sh",
        **EAGLE,
        NAME="a name",
        HOST="127.0.0.1",
        PORT="9000",
        CERT=str(tmp_path / "cert.pem"),
        KEY=str(tmp_path / "key.pem"),
        TOKENS="5",
        DRAFT_TP="1",
        DISABLE_BY_BATCH_SIZE="4",
        SPECULATIVE='{"max_model_len": 256}',
        OPTIONS='{"verify_rule": "block"}',
        EXTRA="--max-num-seqs 12 --seed '7'",
        ARG_TENSOR_PARALLEL_SIZE="2",
        ARG_QUANTIZATION="ascend",
        ARG_ENFORCE_EAGER="true",
        ARG_ENABLE_PREFIX_CACHING="false",
        ARG_COMPILATION_CONFIG='{"cudagraph_mode": "FULL_DECODE_ONLY"}',
        ARG_DTYPE="",
    )
    spec = {
        "method": "eagle",
        "model": EAGLE["DRAFT"],
        "num_speculative_tokens": 5,
        "draft_tensor_parallel_size": 1,
        "disable_by_batch_size": 4,
        "max_model_len": 256,
    }
    assert shlex.split(result.stdout) == [
        *("vllm", "serve", TARGET, "--host", "127.0.0.1", "--port", "9000"),
        *("--served-model-name", "a name"),
        *("--ssl-certfile", str(tmp_path / "cert.pem"), "--ssl-keyfile", str(tmp_path / "key.pem")),
        *("--speculative-config", json.dumps(spec)),
        *("--additional-config", '{"ascend_spec": {"verify_rule": "block"}}'),
        *("--compilation-config", '{"cudagraph_mode": "FULL_DECODE_ONLY"}'),
        *("--no-enable-prefix-caching", "--enforce-eager", "--quantization", "ascend"),
        *("--tensor-parallel-size", "2", "--max-num-seqs", "12", "--seed", "7"),
    ]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, "ASCEND_SPEC_DRAFT is not set; ASCEND_SPEC_METHOD=eagle needs the draft's"),
        ({"MODEL": "/nowhere"}, "ASCEND_SPEC_MODEL='/nowhere'; valid: a folder with a config.json"),
        ({**EAGLE, "TOKENS": "three"}, "ASCEND_SPEC_TOKENS='three'; valid: a number from 1 on"),
        ({**EAGLE, "PORT": "80800"}, "ASCEND_SPEC_PORT='80800'; valid: a port, 1 to 65535"),
        ({**EAGLE, "METHOD": "egale"}, "ASCEND_SPEC_METHOD='egale'; valid: draft_model, eagle, "),
        ({**EAGLE, "METHOD": "suffix"}, "ASCEND_SPEC_METHOD=suffix has no draft model"),
        ({**EAGLE, "METHOD": "none"}, "ASCEND_SPEC_DRAFT="),
        ({"METHOD": "none"}, "ASCEND_SPEC_TOKENS has no effect without ASCEND_SPEC_METHOD"),
        ({**EAGLE, "TOKEN": "3"}, "ASCEND_SPEC_TOKEN is no setting; valid: ASCEND_SPEC_TOKENS"),
        ({**EAGLE, "CERT": __file__}, "ASCEND_SPEC_CERT and ASCEND_SPEC_KEY go together"),
        ({**EAGLE, "KEY": "/none"}, "ASCEND_SPEC_KEY='/none'; valid: a file that is there"),
        ({**EAGLE, "OPTIONS": "[1]"}, "ASCEND_SPEC_OPTIONS='[1]'; valid: a JSON object"),
        ({**EAGLE, "EXTRA": "'a"}, 'ASCEND_SPEC_EXTRA="\'a"; valid: words with whole quotations'),
        ({**EAGLE, "PRINT_ONLY": "maybe"}, "ASCEND_SPEC_PRINT_ONLY='maybe'; valid: true or false"),
        (
            {**EAGLE, "SPECULATIVE": '{"num_speculative_tokens": 4}'},
            "ASCEND_SPEC_TOKENS and 'num_speculative_tokens' in ASCEND_SPEC_SPECULATIVE differ",
        ),
    ],
)
def test_a_mistake_is_one_line(settings: dict[str, str], message: str) -> None:
    result = start("eagle.sh", **settings)
    assert result.returncode == 2
    assert result.stdout == ""
    assert len(result.stderr.splitlines()) == 1
    assert message in result.stderr


def test_a_key_is_not_shown(tmp_path: Path) -> None:
    """It reaches the server in the variable that vLLM has for it.

    The server is started by our own command, which names our plugin beside vllm-ascend.
    """
    ours = tmp_path / "vllm-ascend-spec"
    ours.write_text(
        '#!/bin/sh\necho "$1 $VLLM_API_KEY"; env | grep -c ^ASCEND_SPEC_; printf "%s\\n" "$@"\n'
    )
    ours.chmod(0o755)
    given = variables({**EAGLE, "MODEL": TARGET, "API_KEY": "SECRET"})
    plain = environment(**given, PYTHON=sys.executable)
    result = subprocess.run(
        ["sh", str(FOLDER / "eagle.sh")],
        env={**plain, "PATH": f"{tmp_path}{os.pathsep}{plain['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
    )
    shown, key, others, *words = result.stdout.splitlines()
    assert "SECRET" not in shown
    assert (key, others) == ("serve SECRET", "0")
    assert shlex.split(shown) == ["vllm", *words]


# Servers of one kind start alike; one of them is tried by day. What each starts is printed above.
@pytest.mark.parametrize(
    "script",
    [pytest.param(s, marks=() if s == "eagle" else pytest.mark.nightly) for s in SCRIPTS],
)
def test_a_script_serves(script: str) -> None:
    settings = {
        "MODEL": TARGET,
        **SCRIPTS[script],
        "NAME": "test_server_demo",
        "ARG_ENFORCE_EAGER": "true",
        "ARG_KV_CACHE_MEMORY_BYTES": "128M",
        "ARG_MAX_MODEL_LEN": "512",
    }
    plain = environment(**variables(settings), **ONE_THREAD, PYTHON=sys.executable)
    unset = dict.fromkeys(name for name in os.environ if name not in plain)
    server = Server("", environment={**unset, **plain})
    server.environment[f"{PREFIX}PORT"] = str(server.port)
    server.command = ["sh", str(FOLDER / f"{script}.sh")]
    with server:
        text = CURL.replace("9999", str(server.port))
        asked = subprocess.run(["bash", "-c", text], capture_output=True, text=True, check=True)
        assert json.loads(asked.stdout)["choices"][0]["message"]["role"] == "assistant"
        assert from_prometheus(server.metrics()).num_draft_tokens > 0
        # The shell has become the server: a signal to it is one to the server.
        os.kill(server.pid, signal.SIGTERM)
        assert server._process is not None
        assert server._process.wait(30) == 0
    assert server.log_text().startswith("vllm serve ")
