"""``vllm-ascend-spec train``: what it refuses before it loads anything, and what it asks for."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.train.inputs import HEAD, TARGET, Run
from tests.zoo import ZOO
from vllm_ascend_spec.cli import check_found, train
from vllm_ascend_spec.cli.check_found import CheckResult, Problem
from vllm_ascend_spec.cli.main import main
from vllm_ascend_spec.training import requirements
from vllm_ascend_spec.training.measure import REQUESTS
from vllm_ascend_spec.training.methods import ADAPTED, SCRATCH
from vllm_ascend_spec.training.output import Output
from vllm_ascend_spec.training.settings import Settings


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--method", "egle3"], "--method='egle3': did you mean 'eagle3'? valid: eagle3, peagle"),
        (["--method", "ngram"], "--method='ngram': valid: eagle3"),
        (["--method", "eagle"], "--method='eagle': "),
        (["--method", "mtp"], "--method='mtp': "),
        (["--layers", "2,6,40"], "--layers='2,6,40': valid: 3 different ones from 0 to 12"),
        (["--layers", "6,2,9"], "--layers='6,2,9': valid: numbers in ascending order"),
        (["--layers", "many"], "--layers='many': valid: numbers in ascending order"),
        (["--draft-vocab-size", "9999"], "--draft-vocab-size=9999: valid: 1 to 4096"),
        (["--steps", "0"], "--steps=0: valid: a number above 0"),
        (["--learning-rate", "nan"], "--learning-rate=nan: valid: a number above 0"),
        (["--temperature", "-1"], "--temperature=-1.0: valid: 0 and more"),
        (["--seed", "-1"], "--seed=-1: valid: 0 and more"),
        (["--tensor-parallel-size", "0"], "--tensor-parallel-size=0: valid: a number above 0"),
        (["--gpu-memory-utilization", "2"], "--gpu-memory-utilization=2.0: valid: above 0, up to"),
        (["--hf-overrides", "{"], "--hf-overrides='{': is not JSON"),
        (["--hf-overrides", "[]"], "--hf-overrides='[]': valid: a JSON object"),
        (["--additional-config", '{"ascend_spce": {}}'], "valid: 'ascend_spec'"),
        (["--additional-config", '{"ascend_spec": {"draft_size": 1}}'], ".draft_size=1: "),
        (["--nproc-per-node", "4096"], "--nproc-per-node=4096: valid: 1 to "),
        (["--holdout", "0"], "--holdout=0.0: valid: a number of prompts, or a share"),
        (["--holdout", "40"], "--holdout=40.0: leaves nothing to train on: there are 40"),
        (["--from", str(ZOO / "nothing")], "nothing': "),
        (["--from", str(ZOO / "eagle")], "eagle': is a head of the first EAGLE"),
        (["--from", TARGET], "target': is not an EAGLE-3 head"),
        (["--from", HEAD, "--layers", "2,6,9"], "the head of --from reads 3,7,12; leave --layers"),
        (["--from", HEAD, "--draft-vocab-size", "8"], "the head of --from has 3072; leave"),
    ],
    ids=" ".join,
)
def test_a_wrong_option_is_one_line(
    words: list[str], told: str, run: Run, asked: list[Settings], tmp_path: Path
) -> None:
    status, out, err = run(*words)
    (line,) = err.splitlines()
    assert (status, out) == (2, "")
    assert line.startswith("vllm-ascend-spec train: error: ")
    assert told in line
    assert not (tmp_path / "out").exists()
    assert not asked


@pytest.mark.parametrize("missing", [0, 1, 3])
def test_what_is_needed_is_named(
    missing: int, prompts: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [TARGET, "--prompts", str(prompts)]
    assert main(["train", *words[:missing]]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    option = ("MODEL", "--prompts", "", "--output")[missing]
    assert f"{option}=None: is missing; give vllm-ascend-spec train MODEL" in line


def test_an_unknown_option_gets_a_suggestion(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        run("--lerning-rate", "1")
    assert end.value.code == 2
    assert "did you mean '--learning-rate'?" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("a.jsonl", '{"prompt": "a"}\n{"promt": "b"}\n', "line 2: has no"),
        ("a.jsonl", '{"prompt": "a"}\nnot JSON\n', "line 2: is not JSON"),
        ("a.jsonl", "", "has no prompts"),
        ("a.csv2", "a", "has none of the known endings"),
        ("a.txt", None, "cannot be read: No such file"),
    ],
)
def test_wrong_prompts_are_one_line(
    name: str, content: str | None, told: str, run: Run, asked: list[Settings], tmp_path: Path
) -> None:
    if content is not None:
        (tmp_path / name).write_text(content)
    status, _, err = run(file=tmp_path / name)
    (line,) = err.splitlines()
    assert (status, asked) == (2, [])
    assert told in line


@pytest.mark.parametrize("model", ["Qwen/Qwen3-8B", str(ZOO / "nothing"), str(ZOO / "report.py")])
def test_a_target_that_is_no_folder(model: str, run: Run, asked: list[Settings]) -> None:
    status, _, err = run(model=model)
    assert status == 2
    assert err.startswith(f"vllm-ascend-spec train: error: MODEL={model!r}: ")


def test_what_is_asked_for(run: Run, asked: list[Settings], tmp_path: Path) -> None:
    status, out, _ = run(
        "--max-tokens", "32", "--temperature", "0.5", "--seed", "3", "--holdout", "8", "-tp", "2",
        "--no-enforce-eager", "--hf-overrides", '{"a": 1}', "--dtype", "float32",
        "--", "--weight-decay", "0.1",
    )  # fmt: skip
    assert status == 0
    assert out == (
        "vllm-ascend-spec train: 32 prompts to train on, 8 to measure with; their states and those "
        "of the answers take up to 271.5 MB\n"
    )
    (settings,) = asked
    assert settings == Settings.load(Output(tmp_path / "out").settings)
    assert settings.engine == {
        "tensor_parallel_size": 2,
        "hf_overrides": {"a": 1},
        "enforce_eager": False,
    }
    assert (settings.sampling.max_tokens, settings.sampling.temperature) == (32, 0.5)
    assert settings.seed == settings.sampling.seed == 3
    assert settings.library == ("--weight-decay", "0.1")
    assert settings.layers == (2, 6, 9)
    assert train.serve_words(settings, {"method": "suffix"}) == [
        TARGET, "--dtype", "float32", "--tensor-parallel-size", "2",
        "--hf-overrides", '{"a": 1}', "--no-enforce-eager",
        "--speculative-config", '{"method": "suffix"}',
    ]  # fmt: skip


@pytest.mark.usefixtures("asked")
def test_the_folder_is_its_owners_alone(run: Run, tmp_path: Path) -> None:
    """It holds the prompts, which may be other people's."""
    assert run()[0] == 0
    assert (tmp_path / "out").stat().st_mode & 0o777 == 0o700


def test_a_head_to_adapt_decides_what_it_reads(run: Run, asked: list[Settings]) -> None:
    assert run("--from", HEAD)[0] == 0
    (settings,) = asked
    assert (settings.layers, settings.draft_vocab_size) == ((3, 7, 12), 3072)
    assert settings.begin_with == Path(HEAD)
    assert settings.steps is None
    assert settings.learning_rate == ADAPTED.learning_rate < SCRATCH.learning_rate


def test_options_of_a_file_stand_behind_the_command_line(
    run: Run, asked: list[Settings], tmp_path: Path
) -> None:
    file = tmp_path / "train.yaml"
    file.write_text(
        "max_tokens: 32\nsteps: 5\nenforce-eager: true\nlayers: [1, 2, 3]\n"
        "additional-config: {ascend_spec: {}}\nmodel: elsewhere\n"
    )
    assert run("--config", str(file), "--steps", "6")[0] == 0
    (settings,) = asked
    assert (settings.sampling.max_tokens, settings.steps, settings.layers) == (32, 6, (1, 2, 3))
    assert settings.engine == {"additional_config": {"ascend_spec": {}}, "enforce_eager": True}
    assert settings.model == Path(TARGET)


@pytest.mark.parametrize(
    ("given", "number"), [("67108864", 64 << 20), ("64M", 64 << 20), ("64m", 64_000_000)]
)
def test_sizes_are_written_as_for_vllm(
    given: str, number: int, run: Run, asked: list[Settings]
) -> None:
    assert run("--kv-cache-memory-bytes", given, "--max-num-batched-tokens", "8K")[0] == 0
    (settings,) = asked
    assert settings.engine["kv_cache_memory_bytes"] == number
    assert settings.engine["max_num_batched_tokens"] == 8192


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("stps: 5", "has 'stps', which is no option; did you mean 'steps'?"),
        ("config: more.yaml", "has 'config', which is no option"),
        ("- steps", "valid: a YAML file of options"),
        ("a: [", "cannot be read: "),
        ("steps: many", "invalid int value"),
        ("dtype: int3", "invalid choice"),
    ],
)
def test_a_wrong_file_of_options(
    text: str, told: str, run: Run, asked: list[Settings], tmp_path: Path
) -> None:
    file = tmp_path / "train.yaml"
    file.write_text(text)
    status, _, err = run("--config", str(file))
    (line,) = err.splitlines()
    assert status == 2
    assert line.startswith(f"vllm-ascend-spec train: error: --config={str(file)!r}: ")
    assert told in line


def test_a_trainer_that_is_missing_is_told(
    run: Run, asked: list[Settings], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requirements, "missing", lambda: "speculators missing; valid: pip install")
    status, _, err = run()
    assert (status, asked) == (2, [])
    assert "speculators missing; valid: pip install" in err


@pytest.mark.parametrize("problems", [[], [Problem(None, "no such head", "train one")]])
def test_the_end_is_a_command_as_check_finds_it(
    problems: list[Problem],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    spec = {"method": "eagle3", "model": "a head", "num_speculative_tokens": 2}
    figures = {"tokens_per_step": 1.0, "tokens_per_second": 9.0, "per_position": []}
    report = {
        "kept": "head",
        "speedup": 2.0,
        "requests_at_once": 8,
        "prompts": 1,
        "left_out": {},
        "same_texts": {"head": dict.fromkeys(REQUESTS, 1)},
        "results": dict.fromkeys(("none", "head"), dict.fromkeys(REQUESTS, figures)),
        "speculative_config": spec,
    }
    settings = Settings(Path(TARGET), "eagle3", (), tmp_path, engine={"block_size": 16})
    Output(tmp_path).report.write_text(json.dumps(report))
    checked: list[list[str]] = []

    def find(words: list[str]) -> CheckResult:
        checked.append(words)
        return CheckResult(problems=problems)

    monkeypatch.setattr(check_found, "find", find)
    assert train.conclude(settings) == (3 if problems else 0)
    (words,) = checked
    assert words == [TARGET, "--block-size", "16", "--speculative-config", json.dumps(spec)]
    output = capsys.readouterr()
    if problems:
        assert output.err == "vllm-ascend-spec train: error: no such head\n"
    else:
        *_, said, command = output.out.splitlines()
        assert said == "serve it with this command; `check` passes it:"
        assert shlex.split(command) == ["vllm", "serve", *words]


def test_checks_load_nothing(prompts: Path, tmp_path: Path) -> None:
    """All checks are made in a process that has neither torch nor vLLM."""
    words = ["train", TARGET, "--prompts", str(prompts), "--from", HEAD, "--output"]
    words.append(str(tmp_path / "out"))
    code = f"""
import sys
from vllm_ascend_spec.cli import train_checks
from vllm_ascend_spec.cli.main import build_parser
train_checks.checked(build_parser().parse_args({words}))
sys.stdout.write(" ".join({{"torch", "vllm", "transformers"}} & {{*sys.modules}}))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
