"""``vllm-ascend-spec check`` with all flags of ``vllm serve``: what it prints, and how it ends."""

from __future__ import annotations

import argparse
import json
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.cli.test_help import words_of
from tests.zoo import ZOO
from tests.zoo import ZOO_SPECS as SPECS
from tests.zoo import ZOO_TARGET as TARGET
from vllm_ascend_spec import versions
from vllm_ascend_spec.cli import check_found, check_light
from vllm_ascend_spec.cli.check_command import device_here
from vllm_ascend_spec.cli.examples import EXAMPLES
from vllm_ascend_spec.cli.main import main
from vllm_ascend_spec.devices import select
from vllm_ascend_spec.devices.registry import all_devices
from vllm_ascend_spec.errors import PlatformError
from vllm_ascend_spec.hooks import serve_flags
from vllm_ascend_spec.legacy.names import BY_FLAG
from vllm_ascend_spec.ops import OPS
from vllm_ascend_spec.ops.registry import Op

EAGLE = ["--speculative-config", json.dumps(SPECS["eagle"])]
SMALL = ["--max-num-seqs", "8", "--max-model-len", "512"]


def check(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    """Run the command with ``--json``; return its record with its exit status."""
    status = main(["check", "--json", *words])
    return {**json.loads(capsys.readouterr().out), "exit": status}


@pytest.fixture(scope="module")
def serve() -> argparse.ArgumentParser:
    """Return vLLM's own parser of ``vllm serve``."""
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    from vllm_ascend_spec.upstream.server import make_arg_parser

    return make_arg_parser(FlexibleArgumentParser(prog="vllm serve"))


# Values of flags whose parser wants a certain form.
VALUES = {"--lora-modules": "a=b", "--attention-backend": "CPU_ATTN", "--config": None}


def example_of(action: argparse.Action) -> list[str] | None:
    """Return words for a flag of vLLM's; None where no value can be made up."""
    flag = action.option_strings[0]
    if action.nargs == 0:
        return [flag]
    if flag in VALUES:
        value = VALUES[flag]
        return None if value is None else [flag, value]
    if action.choices:
        return [flag, str(next(iter(action.choices)))]
    for value in ("1", "{}", "auto", '["x"]', "0.5", "x"):
        try:
            (action.type or str)(value)  # type: ignore[operator]
        except Exception:
            continue
        return [flag, value]
    return None


def test_every_flag_of_vllm_serve_is_taken(
    serve: argparse.ArgumentParser, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each reaches vLLM's parser as it was given; none of them is taken for one of ours."""
    parser = serve_flags.parser()
    monkeypatch.setattr(serve_flags, "parser", lambda: parser)
    flags = [action for action in serve._actions if action.option_strings]
    examples = {action.dest: words for action in flags if (words := example_of(action))}
    assert len(examples) > 300
    from vllm_ascend_spec.cli.main import build_parser

    ours = build_parser()
    missing = {action.dest for action in flags} - examples.keys()
    assert missing <= {"config", "help"}
    for dest, words in examples.items():
        if dest == "help":  # each command has its own
            continue
        given = words if dest == "model" else [TARGET, *words]
        handed = ours.parse_args(["check", *given]).arguments
        assert handed == given
        namespace = parser.parse_args(["serve", *handed])
        assert hasattr(namespace, dest), dest


def test_our_names_are_none_of_vllms(serve: argparse.ArgumentParser) -> None:
    ours = {"--json", "--strict", "--light", "--device"}
    assert not ours & serve._option_string_actions.keys()


def test_the_light_flags_are_vllms(serve: argparse.ArgumentParser) -> None:
    """With the same short names and defaults, so that both ways to read them agree."""
    parser = check_light.Parser(add_help=False)
    check_light.add_flags(parser)
    for flags in check_light.FLAGS:
        theirs = serve._option_string_actions[flags[0]]
        mine = parser._option_string_actions[flags[0]]
        assert set(theirs.option_strings) == set(mine.option_strings)
        assert theirs.dest == mine.dest
        assert (theirs.nargs == 0) == (mine.nargs == 0)
        if mine.default is not None:
            assert mine.default == theirs.default


def test_no_other_flag_of_vllm_is_taken_for_a_misspelt_light_one(
    serve: argparse.ArgumentParser,
) -> None:
    known = {flag for flags in check_light.FLAGS for flag in flags} | BY_FLAG.keys()
    others = {flag for flag in serve._option_string_actions if not flag.startswith("--no-")} - known
    assert len(others) > 250
    assert [flag for flag in others if check_light.near(flag)] == []
    assert check_light.near("--specualtive-config={}") == "did you mean '--speculative-config'? "


KEYS = {
    "": "status vllm device platform model speculative_config speculation lossless errors "
    "unchecked without_effect warnings notes backends engine capture memory",
    "engine": "dtype max_model_len quantization max_num_seqs max_num_batched_tokens "
    "async_scheduling tensor_parallel_size pipeline_parallel_size data_parallel_size block_size "
    "cache_dtype enable_prefix_caching",
    "capture": "mode sizes sizes_by_k expected_padding graphs note",
    "memory": "target_weights_bytes draft_weights_bytes kv_bytes_per_token "
    "kv_bytes_per_token_of_draft kv_space_bytes kv_space_from kv_tokens",
}


def test_keys_of_the_record_are_these(capsys: pytest.CaptureFixture[str]) -> None:
    """Programs read them: add some, but take none away."""
    record = check(capsys, TARGET, *EAGLE, *SMALL)
    assert record.pop("exit") == 0
    for part, names in KEYS.items():
        assert list(record[part] if part else record) == names.split(), part
    assert set(record["backends"]) == {op.name for op in OPS}
    for state in record["backends"].values():
        assert list(state) == ["backend", "passed_over"]
    named = check(capsys, TARGET, *EAGLE, "--max-num-seqs", "x")["errors"]
    assert list(named[0]) == ["option", "message", "remedy"]
    unused = check(capsys, TARGET, *EAGLE, "--async-scheduling")["without_effect"]
    assert list(unused[0]) == ["option", "why", "remedy"]
    documented = (Path(__file__).parents[2] / "docs" / "configuration.md").read_text()
    for names in KEYS.values():
        assert [name for name in names.split() if f"`{name}`" not in documented] == []


def test_what_it_comes_to(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VLLM_CPU_KVCACHE_SPACE", "1")
    record = check(capsys, TARGET, *EAGLE, *SMALL, "--dtype", "float32", "--enforce-eager")
    assert record["status"] == "right"
    assert record["engine"]["max_num_seqs"] == 8
    assert record["engine"]["dtype"] == "float32"
    assert record["backends"]["verify_greedy"]["backend"] in ("cpu", "reference")
    assert record["capture"]["mode"] == "NONE"
    memory = record["memory"]
    # 12 layers and one of the draft, keys and values of two heads of 64, in four bytes.
    assert memory["kv_bytes_per_token"] == 12 * 2 * 2 * 64 * 4
    assert memory["kv_bytes_per_token_of_draft"] == 2 * 2 * 64 * 4
    assert memory["kv_space_from"] == "VLLM_CPU_KVCACHE_SPACE"
    each = 13 * 2 * 2 * 64 * 4
    assert memory["kv_tokens"] == 2**30 // (each * 128) * 128
    size = (ZOO / "target" / "model.safetensors").stat().st_size
    assert 0 < size - memory["target_weights_bytes"] < 100_000
    assert 0 < memory["draft_weights_bytes"] < memory["target_weights_bytes"]


def test_a_text_is_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", TARGET, *EAGLE, *SMALL, "--async-scheduling"]) == 0
    printed = capsys.readouterr().out
    for words in (
        "K                       3  (speculative_config.num_speculative_tokens)",
        "--async-scheduling: vLLM has made False of True",
        "verify_sample ",
        "no graphs are captured on the CPU",
        "KV cache per token      6656 bytes  (draft: 512)",
    ):
        assert words in printed
    assert main(["check", "--strict", TARGET, *EAGLE, "--async-scheduling"]) == 1
    assert main(["check", "--strict", TARGET, *EAGLE]) == 0


def test_flags_that_the_light_checks_do_not_know(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "serve.yaml"
    file.write_text("max-num-seqs: 4\nspeculative-config: '" + json.dumps(SPECS["ngram"]) + "'\n")
    record = check(capsys, TARGET, "--config", str(file))
    assert record["speculation"]["method"]["value"] == "ngram"
    assert record["engine"]["max_num_seqs"] == 4
    dotted = ["--speculative-config.method", "ngram", "--speculative-config.num_speculative_tokens"]
    record = check(capsys, TARGET, *dotted, "2", "--max_model_len", "1k", "-O1")
    assert record["speculation"]["max_k"]["value"] == 2
    assert record["engine"]["max_model_len"] == 1000
    short = check(capsys, "--max-num-seqs", "4", "--model", TARGET, "--spec-method=ngram")
    assert short["errors"][0]["option"] == "speculative_config.num_speculative_tokens"


OLD = ["--speculative_model", "[ngram]", "--num-speculative-tokens=5", "--use-v2-block-manager"]


@pytest.mark.parametrize(
    "words",
    [
        ["--", "vllm", "serve", TARGET, "--port", "0", *OLD],
        ["--", "VLLM_CPU_KVCACHE_SPACE=2", "/opt/bin/vllm", "serve", TARGET, *OLD],
        ["--", "python", "-m", "vllm.entrypoints.openai.api_server", "--model", TARGET, *OLD],
        ["--", f"vllm serve {TARGET} \\\n --speculative_model '[ngram]' "
         "--num-speculative-tokens=5 --use-v2-block-manager"],
        ["--", "docker", "run", "-e", "A=b", "image", "vllm", "serve", TARGET, *OLD],
        [TARGET, *OLD],
    ],
)  # fmt: skip
def test_whole_commands_and_old_flags(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    record = check(capsys, *words)
    assert record["exit"] == 0
    assert record["speculative_config"]["method"] == "ngram"
    assert record["speculation"]["max_k"]["value"] == 5
    assert any("Today: --speculative-config" in note for note in record["notes"])
    assert [item["option"] for item in record["without_effect"]] == ["--use-v2-block-manager"]
    if "VLLM_CPU_KVCACHE_SPACE=2" in words:
        assert record["memory"]["kv_space_bytes"] == 2**31


def error_of(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """Return the one line with which the command refuses."""
    assert main(["check", *words]) == 2
    output = capsys.readouterr()
    assert output.out == ""
    (line,) = output.err.splitlines()
    assert len(line) <= 300
    return line.removeprefix("vllm-ascend-spec check: error: ")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "MODEL=None: is missing"),
        (["--max-num-seqs", "8"], "MODEL=None: is missing"),
        (["--", "ls", "-l"], "COMMAND='ls -l': starts no server; valid: "),
        ([TARGET, "--", "vllm", "serve", "x"], "MODEL="),
        (["--", "vllm serve 'x"], "COMMAND="),
        ([TARGET, "--no-such-flag", "3"], "unrecognized arguments: --no-such-flag 3"),
        ([TARGET, "--max-num-seqs", "many"], "argument --max-num-seqs: "),
        ([TARGET, "--device", "tpu"], "--device='tpu': did you mean 'npu'? valid: "),
        (
            [TARGET, "--max-num-seq=3", "--max-num-sqes", "4"],
            "unrecognized arguments: --max-num-sqes; did you mean '--max-num-seqs'? see ",
        ),
        (
            [TARGET, "--speculativ-modle", "x"],
            "unrecognized arguments: --speculativ-modle; did you mean '--speculative-model'? ",
        ),
        (
            [TARGET, "--light", "--speculativ-config", "{}"],
            "--speculativ-config cannot be checked with --light; did you mean '--speculative-con",
        ),
        ([TARGET, "--enable-auto-tool-choice"], "Error: --enable-auto-tool-choice requires"),
        (
            [TARGET, "--config", "/no/such/file.yaml"],
            "--config='/no/such/file.yaml': cannot be read: ",
        ),
        ([TARGET, "--config", __file__], f"--config={__file__!r}: cannot be read: "),
        ([TARGET, "--max-model-len", "999999"], "Value error, User-specified max_model_len"),
        ([TARGET, "--light", "--port", "1"], "--port cannot be checked with --light; leave out"),
        ([TARGET, "--light", "-O2"], "-O2 cannot be read without vLLM"),
    ],
)
def test_bad_flags_are_one_line(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert error_of(capsys, *words).startswith(said)


@pytest.mark.parametrize("spec", [None, "ngram", "eagle"])
@pytest.mark.parametrize("model", ["examples/zoo/targt", "./targt", "/models/targt", "my target"])
def test_a_folder_that_is_not_there_is_refused(
    model: str, spec: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [] if spec is None else ["--speculative-config", json.dumps(SPECS[spec])]
    said = error_of(capsys, "--light", model, *words)
    assert said.startswith(f"model={model!r}: there is no such folder (looked in ")


def test_a_command_needs_no_dashes(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--speculative-config", json.dumps(SPECS["ngram"])]
    assert check(capsys, "--light", "vllm", "serve", TARGET, *words)["exit"] == 0


@pytest.mark.parametrize("model", ["gpt2", "org/target-1.1B_v2", "s3://bucket/target", "org/a:Q4"])
def test_a_name_that_may_be_a_hubs_is_taken(
    model: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["--light", "--speculative-config", json.dumps(SPECS["ngram"])]
    record = check(capsys, model, *words)
    assert (record["exit"], record["warnings"]) == (0, [])
    # It may also be a misspelt folder, beside others of which the first part of the name is one.
    (tmp_path / "org").mkdir()
    warned = check(capsys, model, *words)
    assert warned["exit"] == 0
    said = [f"model={model!r}: there is no such folder (looked in {tmp_path}), so a hub's model is"]
    assert [line.removesuffix(" meant") for line in warned["warnings"]] == said * ("org/" in model)


def test_all_that_is_wrong_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    spec = {**SPECS["ngram"], "prompt_lookup_mix": 3, "num_speculative_tokens": 0}
    words = [
        *(TARGET, "--speculative-config", json.dumps(spec), "--async-scheduling"),
        *("--additional-config", '{"ascend_spec": {"verify_rule": "coin"}}'),
    ]
    record = check(capsys, *words)
    options = [error["option"].rpartition(".")[2] for error in record["errors"]]
    assert options == ["verify_rule", "num_speculative_tokens", "prompt_lookup_mix"]
    assert all(error["remedy"] for error in record["errors"])
    assert main(["check", *words]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert [line.partition("error: ")[2] for line in lines] == [
        error["message"] for error in record["errors"]
    ]


def test_a_bad_speculative_config_asks_nobody(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is told before vLLM is imported, whatever other flags there are."""
    monkeypatch.setattr(serve_flags, "load", lambda: pytest.fail("vLLM was asked"))
    spec = json.dumps({**SPECS["eagle"], "num_speculative_tokens": 99})
    words = ("--speculative-config", spec, "--no-such-flag", "x", "--seed", "1")
    assert "num_speculative_tokens=99: valid: " in error_of(capsys, TARGET, *words)


def test_another_device(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--device", "npu", TARGET, *EAGLE, "--max-num-seqs", "64"]
    record = check(capsys, *words)
    assert record["device"] == "npu"
    assert record["speculation"]["family"]["value"] == "ascend"
    assert record["capture"]["mode"] == "FULL_AND_PIECEWISE"
    assert record["capture"]["sizes"][-1] == 64 * 4
    assert record["capture"]["graphs"] >= len(record["capture"]["sizes"])
    for state in record["backends"].values():
        assert state["backend"] == "reference"
        assert {"ascendc", "triton"} == set(state["passed_over"])
    assert any("this machine's device, cpu" in note for note in record["notes"])
    wide = json.dumps({**SPECS["ngram"], "num_speculative_tokens": 16})
    refused = check(capsys, "--device", "npu", TARGET, "--speculative-config", wide)
    assert refused["exit"] == 2
    assert "on an Ascend NPU" in refused["errors"][0]["message"]
    assert check(capsys, TARGET, "--light", "--speculative-config", wide)["exit"] == 0


def test_k_that_changes_on_another_device(capsys: pytest.CaptureFixture[str]) -> None:
    spec = {**SPECS["eagle"], "num_speculative_tokens_per_batch_size": [[1, 4, 3], [5, 8, 1]]}
    words = [TARGET, "--speculative-config", json.dumps(spec), "--max-num-seqs", "8"]
    npu, cuda = (check(capsys, "--device", name, *words)["capture"] for name in ("npu", "cuda"))
    assert npu["mode"] == "FULL_AND_PIECEWISE"
    assert set(npu["sizes_by_k"]) == {"1", "3"}
    assert (cuda["mode"], cuda["sizes_by_k"]) == ("PIECEWISE", {})


def test_options_without_effect(capsys: pytest.CaptureFixture[str]) -> None:
    spec = {**SPECS["ngram"], "use_heterogeneous_vocab": False, "rejection_sample_method": "block"}
    words = ["--light", TARGET, "--speculative-config", json.dumps(spec)]
    record = check(capsys, *words, "--cudagraph-capture-sizes", "6", "12")
    found = {item["option"]: item["remedy"] for item in record["without_effect"]}
    assert set(found) == {
        "speculative_config.use_heterogeneous_vocab",
        "compilation_config.cudagraph_capture_sizes",
        "rejection_sample_method",
    }
    spec = {**SPECS["eagle"], "rejection_sample_method": "block"}
    words = ["--light", TARGET, "--speculative-config"]
    assert check(capsys, *words, json.dumps(spec))["without_effect"] == []
    spec["draft_sample_method"] = "greedy"
    (item,) = check(capsys, *words, json.dumps(spec))["without_effect"]
    assert "draft_sample_method" in item["remedy"]
    # Where drafts are greedy whatever is asked for.
    words = ["--device", "npu", *words]
    (item,) = check(capsys, *words, json.dumps({**spec, "draft_sample_method": "auto"}))[
        "without_effect"
    ]
    assert item["remedy"] == "leave it out"


def test_a_port_that_is_taken_is_a_warning(capsys: pytest.CaptureFixture[str]) -> None:
    """For what is running there may be this very server."""
    import socket

    with socket.socket() as taken:
        taken.bind(("", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        record = check(capsys, TARGET, *EAGLE, "--port", port)
    assert record["exit"] == 0
    assert any(f"--port={port}: another process" in text for text in record["warnings"])


def test_a_page_that_nobody_sees(capsys: pytest.CaptureFixture[str]) -> None:
    """It says what the parser of `vllm serve` does."""
    page = [*EAGLE, "--additional-config", '{"ascend_spec": {"spec_page": true}}']
    name = "additional_config.ascend_spec.spec_page=True"
    refused = check(capsys, TARGET, *page, "--grpc")
    assert refused["exit"] == 2
    assert [error["message"].partition(": ")[0] for error in refused["errors"]] == [name]
    warned = check(capsys, TARGET, *page, "--headless")
    assert warned["exit"] == 0
    assert any(text.startswith(f"{name} has no effect") for text in warned["warnings"])
    assert check(capsys, TARGET, *page)["warnings"] == []


@pytest.mark.parametrize("spec", [[], EAGLE])
def test_it_says_that_prompts_are_collected(
    spec: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """It warns of nothing: somebody asked for it."""
    (tmp_path / "file").touch()
    for folder, status in ((tmp_path / "prompts", 0), (tmp_path / "file", 2)):
        asked = {"ascend_spec": {"collect_folder": str(folder), "collect_max_bytes": 10**6}}
        record = check(capsys, TARGET, *spec, "--additional-config", json.dumps(asked))
        assert record["exit"] == status
        told = [text for text in record["notes"] if text.startswith("Prompts are collected: ")]
        assert len(told) == (status == 0)
        assert record["warnings"] == []
        names = [error["message"].partition("=")[0] for error in record["errors"]]
        assert names == ["additional_config.ascend_spec.collect_folder"] * (status == 2)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["file"]


def test_without_vllm_it_says_what_it_can(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(versions, "installed_vllm", lambda: None)
    record = check(capsys, TARGET, *EAGLE)
    assert (record["exit"], record["status"]) == (3, "unchecked")
    assert "vLLM is not installed" in record["unchecked"]
    assert record["speculation"]["max_k"]["value"] == 3
    assert check(capsys, TARGET, "--light", *EAGLE)["exit"] == 0
    assert check(capsys, TARGET, "--speculative-config", '{"method": "eagel"}')["exit"] == 2


def test_a_device_that_cannot_be_used_is_refused(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    why = "An Ascend NPU needs CANN. Remedy: source set_env.sh."

    def load() -> str:
        raise PlatformError(why)

    monkeypatch.setattr(check_found.serve_flags, "load", load)
    record = check(capsys, TARGET, *EAGLE)
    assert record["exit"] == 2
    assert record["errors"] == [
        {"option": None, "message": why, "remedy": "Remedy: source set_env.sh."}
    ]


@pytest.mark.parametrize("device", [[], ["--device", "npu"]])
def test_without_any_device_nothing_is_read_by_vllm(
    device: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """vLLM for a GPU on a machine without one: its parser would raise."""
    monkeypatch.setattr(check_found.serve_flags, "load", lambda: "")
    monkeypatch.setattr(check_found.serve_flags, "parser", lambda: pytest.fail("parsed"))
    record = check(capsys, *device, TARGET, *EAGLE)
    assert record["exit"] == 3
    assert "vLLM finds no usable device on this machine" in record["unchecked"]
    assert check(capsys, *device, TARGET, "--light", *EAGLE)["exit"] == 0


def test_a_device_of_the_environment_counts_where_it_can_be_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("VLLM_ASCEND_SPEC_DEVICE", "npu")
    for own, problem, here in (
        ("cuda", None, "cuda"),
        ("cuda", "it has no driver", "cpu"),
        (None, None, "cpu"),
        ("abacus", None, "cpu"),
    ):
        cuda = replace(all_devices()["cuda"], host_problem=lambda why=problem: why)
        devices = {**all_devices(), "cuda": cuda}
        monkeypatch.setattr(select.registry, "all_devices", lambda found=devices: found)
        device = device_here(own)
        assert device is not None
        assert device.name == here
        assert os.environ["VLLM_ASCEND_SPEC_DEVICE"] == "npu"


def test_a_broken_vllm_is_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def load() -> str:
        raise SystemExit("torch is built for another Python\nTraceback")

    monkeypatch.setattr(check_found.serve_flags, "load", load)
    assert main(["check", TARGET, *EAGLE]) == 3
    output = capsys.readouterr()
    assert "cannot be imported: torch is built for another Python" in output.out
    assert output.err == (
        "vllm-ascend-spec check: not checked: vLLM cannot be imported: "
        "torch is built for another Python\n"
    )


def test_backends_that_are_passed_over(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    why = "the C++ backend was not built: no compiler"
    from vllm_ascend_spec.ops import registry

    def problem(op: Op, name: str, device: str) -> str | None:
        return why if name == "cpu" else None

    monkeypatch.setattr(registry, "_problem_of", problem)
    for state in check(capsys, TARGET, *EAGLE)["backends"].values():
        assert state == {"backend": "reference", "passed_over": {"cpu": why}}


def test_nothing_secret_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    words = [TARGET, *EAGLE, "--api-key", "hunter22", "--hf-token", "hunter22"]
    for more in ([], ["--json"], ["--max-model-len", "hunter22"]):
        main(["check", *words, *more])
        output = capsys.readouterr()
        assert "hunter22" not in output.out + output.err


@pytest.mark.parametrize("example", EXAMPLES[("check",)], ids=lambda text: text[:60])
def test_an_example_of_the_help_runs(
    example: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(Path(__file__).parents[2])
    assert main(words_of(example)) == 0
    assert "ngram" in (printed := capsys.readouterr().out) or "eagle" in printed


def test_words_are_split_as_they_stand() -> None:
    from vllm_ascend_spec.cli.main import build_parser

    parser = build_parser()
    for words, handed, device in (
        (["m", "--a", "1", "--json"], ["m", "--a", "1"], None),
        (["--device", "npu", "--a", "1", "m"], ["--a", "1", "m"], "npu"),
        (["m", "--device=cpu", "-tp", "2"], ["m", "-tp", "2"], "cpu"),
        (["--json", "--", "vllm", "serve", "--json"], ["--", "vllm", "serve", "--json"], None),
    ):
        args = parser.parse_args(["check", *words])
        assert (args.arguments, args.device) == (handed, device)
    assert sys.argv  # untouched
