"""No record, report or error shows a secret of the environment or the command line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.ascend.bench import counts
from tests.bench.test_npu_sim import GOOD
from tests.benchmarks import __main__ as benchmarks
from tests.benchmarks import propose, step
from tests.benchmarks.interleaved import Clock
from tests.benchmarks.verify import overhead, timing
from vllm_ascend_spec.bench import serve, server
from vllm_ascend_spec.bench.client import ClientLoad
from vllm_ascend_spec.cli import elsewhere, info
from vllm_ascend_spec.cli.main import main

ROOT = Path(__file__).parents[2]
WORD = "Tr0ub4dor3"  # part of every secret
ENVIRONMENT = {
    "VLLM_API_KEY": WORD,
    "VLLM_DEBUG_DUMP_PATH": f"/home/{WORD}",
    "VLLM_S3_SECRET_ACCESS_KEY": WORD,
    "VLLM_ASCEND_ANYTHING": WORD,
    "VLLM_LORA_RESOLVER_HF_REPO_LIST": f"https://me:{WORD}@host/x",
    "VLLM_CPU_OMP_THREADS_BIND_X": WORD,
    "ASCEND_TOKEN": WORD,
    "ASCEND_HOME_PATH": f"/home/{WORD}/cann",
    "ASCEND_GLOBAL_RESOURCE_CONFIG": f'{{"password": "{WORD}"}}',
    "OMP_NUM_THREADS_X": WORD,
    "HF_TOKEN": WORD,
    "HUGGING_FACE_HUB_TOKEN": f"hf_{WORD}",
    "AWS_SECRET_ACCESS_KEY": WORD,
    "HTTPS_PROXY": f"http://me:{WORD}@proxy",
    "CUDA_VISIBLE_DEVICES_KEY": WORD,
}
# Only without a new process: the loader itself tells of a library that it cannot find.
PRELOAD = {"LD_PRELOAD": f"/home/{WORD}/libgomp.so.1:/opt/{WORD}/b.so"}
# Ways to give a secret on a command line.
ARGUMENTS = [
    *("--api-key", WORD, f"--api-key={WORD}", "--hf-token", WORD, f"--hf_token={WORD}"),
    *("--ssl-keyfile", f"/home/{WORD}/key.pem", f"--ssl-certfile={WORD}", f"-k{WORD}"),
    *("--ssl-keyfile-password", f"--{WORD}", WORD, f"--{WORD}", f"--{WORD}={WORD}"),
    *("--kv-transfer-config", f'{{"kv_connector_extra_config": {{"token": "{WORD}"}}}}'),
    *("--additional-config", f'{{"ascend_spec": {{"api_key": "{WORD}"}}}}'),
    *("--speculative-config", f'{{"method": "eagle", "hf_token": "{WORD}"}}'),
    *("--model", f"https://me:{WORD}@host/model", f"--model=s3://{WORD}:x@bucket/model"),
    *("--download-dir", f"/home/{WORD}/models"),
]
# Of these a text is told by their names, or by what they look like.
LOGGED = [argument for argument in ARGUMENTS if argument != f"-k{WORD}"]
SPEC = {
    "method": "eagle",
    "model": f"https://me:{WORD}@host/draft",
    "num_speculative_tokens": 3,
    "hf_token": WORD,
    "draft_load_config": {"model_loader_extra_config": {"token": WORD}},
}
MODEL = f"https://me:{WORD}@host/model"


def assert_hidden(text: str) -> None:
    place = text.find(WORD)
    assert place < 0, f"…{text[max(place - 100, 0) : place + 100]}…"


@pytest.fixture(autouse=True, scope="module")
def fonts_known() -> None:
    """Let matplotlib list the fonts: at first it calls a program, and PRELOAD is news to that."""
    import matplotlib.font_manager  # noqa: F401


@pytest.fixture(autouse=True)
def planted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Put secrets into this process's environment and command line."""
    for name, value in (ENVIRONMENT | PRELOAD).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "argv", ["vllm-ascend-spec", "bench", "serve", *ARGUMENTS])


def test_the_word_would_be_seen() -> None:
    with pytest.raises(AssertionError):
        assert_hidden(json.dumps(ENVIRONMENT))


def test_report_of_info(monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    def fail(*_: Any) -> None:
        raise OSError(f"https://me:{WORD}@host: HF_TOKEN={WORD}")

    monkeypatch.setattr(info, "call_elsewhere", fail)
    monkeypatch.setattr(info.select, "select_platform", fail)
    assert main(["info"]) == 0
    assert_hidden("".join(capsys.readouterr()))
    assert main(["info", "--json"]) == 0
    output = "".join(capsys.readouterr())
    assert_hidden(output)
    report = json.loads(output)
    assert set(report["failed"]) >= {"op_backends", "platform"}
    assert report["environment"]["ASCEND_HOME_PATH"] == "…"
    assert report["environment"]["LD_PRELOAD"] == "libgomp.so.1:b.so"


def test_info_as_a_command() -> None:
    variables = {name: value for name, value in os.environ.items() if name not in PRELOAD}
    done = subprocess.run(
        [sys.executable, "-m", "vllm_ascend_spec.cli.main", "info", "--json"],
        env={**variables, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert_hidden(done.stdout + done.stderr)
    assert "ready" in done.stdout


def test_record_of_verification(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(timing, "MIN_SAMPLE_S", 0.0)
    monkeypatch.setattr(overhead, "REPEATS", 2)
    monkeypatch.setattr(server, "stop_servers_on_sigterm", lambda: None)
    record = tmp_path / "record.json"
    small = ["--kinds", "greedy", "--vocab", "64", "--batch", "1", "--rounds", "1"]
    arguments = ["verify", *small, "--backend", "reference", "--output", str(record)]
    monkeypatch.setattr(sys, "argv", ["vllm-ascend-spec", *arguments, *ARGUMENTS])
    assert benchmarks.main(arguments) == 0
    assert_hidden("".join(capfd.readouterr()) + record.read_text())
    argv = json.loads(record.read_text())["provenance"]["argv"]
    assert argv[1 : len(arguments)] == arguments[:-1]
    assert argv[len(arguments)] == "…/record.json"


class FakeServer:
    """A server that has nothing to tell."""

    url = "http://127.0.0.1:0"

    def metrics(self) -> str:
        return ""


def test_record_of_bench_serve(monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    @contextmanager
    def servers(
        plan: serve.ServeBenchConfig, mode: str, index: int
    ) -> Iterator[dict[str, FakeServer]]:
        yield {serve.CANDIDATE: FakeServer(), serve.NONE: FakeServer()}

    monkeypatch.setattr(serve, "_servers", servers)
    monkeypatch.setattr(serve, "_pass", lambda *arguments: None)
    monkeypatch.setattr(serve, "_row", lambda plan, load, found: {"load": load.name})
    monkeypatch.setattr(serve, "format_row", str)
    plan = serve.ServeBenchConfig(
        MODEL, SPEC, (ClientLoad(["a"], 1),), arguments=tuple(ARGUMENTS), environment=ENVIRONMENT
    )
    record = serve.run(plan, print)
    assert_hidden(json.dumps(record) + "".join(capsys.readouterr()))
    assert record["speculative_config"]["num_speculative_tokens"] == 3


@pytest.mark.parametrize("benchmark", [step, propose], ids=["step", "propose"])
def test_record_of_benchmarks_in_this_process(
    benchmark: Any, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    engine = SimpleNamespace(
        start=lambda: None,
        generate=lambda record: None,
        load=SimpleNamespace(batch=1),
        clock=Clock(),
        rule=None,
        tokens_per_s=[1.0],
        ms_per_step=[1.0],
        ms_of=lambda part: 0.1,
        tokens_per_engine_step=1.0,
    )
    monkeypatch.setattr(benchmark, "TimedEngine", lambda *_, **__: engine)
    monkeypatch.setattr(benchmarks, "resolve_engine", lambda *_, **__: None)
    name = benchmark.__name__.rpartition(".")[2]
    arguments = [name, "--model", MODEL, "--speculative-config", json.dumps(SPEC)]
    assert benchmarks.main(arguments) == 0
    output = "".join(capsys.readouterr())
    assert_hidden(output)
    assert '"num_speculative_tokens": 3' in output


def test_record_and_error_of_the_counts_on_the_simulated_npu(
    monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    plan = counts.Plan(MODEL, SPEC, ["a"] * 8, 16, f"{MODEL}", ("greedy",))
    with monkeypatch.context() as patch:
        patch.setattr(counts, "_count", lambda plan, name, plugins: GOOD[name])
        record = counts.run(plan, "ascend_spec", print)
    printed = capsys.readouterr()
    assert_hidden(json.dumps(record) + printed.out)

    failed = SimpleNamespace(returncode=1, stdout=f"{ENVIRONMENT}\n", stderr=f"{LOGGED}\n")
    monkeypatch.setattr(counts, "subprocess", SimpleNamespace(run=lambda *_, **__: failed))
    with pytest.raises(RuntimeError) as raised:
        counts.run(plan, "ascend_spec", print)
    assert_hidden(str(raised.value))


def test_a_server_that_does_not_start(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """vLLM logs its arguments."""
    executable = tmp_path / "vllm"
    executable.write_text(
        f"#!{sys.executable}\nimport os, sys\n"
        "print('args:', sys.argv)\nprint(dict(os.environ))\nsys.exit(1)\n"
    )
    executable.chmod(0o755)
    monkeypatch.setattr(server, "vllm_program", lambda: str(executable))
    monkeypatch.delenv("LD_PRELOAD")
    monkeypatch.delenv("HUGGING_FACE_HUB_TOKEN")
    with pytest.raises(server.ServerError) as raised:
        server.Server(MODEL, SPEC, arguments=LOGGED).__enter__()
    assert "args: " in str(raised.value)
    assert_hidden(str(raised.value))


@pytest.mark.parametrize(
    "arguments",
    [
        ["info", "--api-key", WORD],
        ["info", f"--api-key={WORD}"],
        ["info", WORD, f"-k{WORD}"],
        ["bench", "verify", "--hf-token", WORD],
        ["bench", "sweep", "--hf-token", WORD],
        ["check", "model", "--speculative-config", f'{{"method": "eagle", "hf_token": "{WORD}"}}'],
        ["check", "model", "--speculative-config", f'{{"hf_token": "{WORD}"'],
        ["bench", "serve", "--speculative-config", f'{{"method": "eagle", "api_key": "{WORD}"}}'],
        ["bench", "serve", "--additional-config", f'{{"ascend_spec": {{"token": "{WORD}"}}}}'],
        ["check", f"https://me:{WORD}@host/m", "--speculative-config", '{"method": "eagle"}'],
        ["check", "--light", "--", f"vllm serv M --api-key {WORD}"],
        ["check", "--light", "--", f"vllm serve M 'x --api-key {WORD}"],
    ],
)
def test_errors_of_the_command(arguments: list[str], capsys) -> None:
    try:
        status = main(arguments)
    except SystemExit as end:
        status = end.code
    assert status == 2
    assert_hidden("".join(capsys.readouterr()))


def test_errors_of_the_developers_benchmarks(capsys) -> None:
    with pytest.raises(SystemExit) as ended:
        benchmarks.main(["verify", "--hf-token", WORD])
    assert ended.value.code == 2
    assert_hidden("".join(capsys.readouterr()))


@pytest.mark.parametrize("quote", ["", "'"])
def test_a_secret_that_a_long_command_cuts_in_two(
    quote: str, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    """For there is no environment that names it, and what is left of it is another word."""
    for name in ENVIRONMENT:
        monkeypatch.delenv(name)
    secret = 40 * "0123456789"
    assert main(["check", "--", f"vllm serv M --api-key {secret} {quote}{300 * 'x'}"]) == 2
    printed = "".join(capsys.readouterr())
    assert "0123" not in printed
    assert "vllm serv M --api-key …" in printed


def test_a_process_that_ends_instead_of_answering(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LD_PRELOAD")
    code = f"import os; os.write(2, b'first\\nlast: {WORD}\\n'); os._exit(3)"
    monkeypatch.setattr(elsewhere, "CODE", code)
    report = info.report()
    assert report["op_backends"] == "cannot be told"
    assert report["failed"]["op_backends"] == (
        "RuntimeError: the process that checked ended with status 3: last: …"
    )


@pytest.mark.parametrize("path", sorted((ROOT / "docs" / "records").glob("*.json")), ids=str)
def test_committed_records(path: Path) -> None:
    """They show nothing that the present form would hide, but for random names of vLLM's."""
    from vllm_ascend_spec.bench import privacy

    record = json.loads(path.read_text())
    # That of versions was made once for each.
    for found in [made["provenance"] for made in (record.get("versions") or {"": record}).values()]:
        assert privacy.arguments(found["argv"][1:]) == found["argv"][1:]
        random = {"VLLM_DIST_IDENT", "VLLM_OBJECT_STORAGE_SHM_BUFFER_NAME"}
        shown = {name: value for name, value in found["environment"].items() if name not in random}
        assert privacy.environment(shown) == shown
    for part in (record, record.get("plan", {})):
        if "speculative_config" in part:
            assert privacy.options(part["speculative_config"]) == part["speculative_config"]
            assert privacy.path(part["model"]) == part["model"]
