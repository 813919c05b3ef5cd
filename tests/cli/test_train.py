"""``vllm-ascend-spec train``: what it refuses before it loads anything, and what it asks for."""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
import sys
from argparse import Namespace
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.zoo import ZOO
from vllm_ascend_spec.cli import check_found, serve, train, train_checks, train_head
from vllm_ascend_spec.cli.check_found import CheckResult, Problem
from vllm_ascend_spec.cli.main import main
from vllm_ascend_spec.hooks.preflight import examine_args, resolve_args
from vllm_ascend_spec.training import requirements, used_by
from vllm_ascend_spec.training.contenders import CONTENDERS, FROM, NONE, SUFFIX
from vllm_ascend_spec.training.engine import target_arguments
from vllm_ascend_spec.training.measure import REQUESTS, own_arguments
from vllm_ascend_spec.training.methods import METHODS
from vllm_ascend_spec.training.output import Output
from vllm_ascend_spec.training.phases import answers
from vllm_ascend_spec.training.sequence import owned
from vllm_ascend_spec.training.settings import Settings
from vllm_ascend_spec.training.speculation import OF_HEADS

TARGET, HEAD = str(ZOO / "target"), str(ZOO / "eagle3")
PROMPTS = [f"prompt {number}" for number in range(40)]
EAGLE3 = METHODS["eagle3"]
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def prompts(tmp_path: Path) -> Path:
    path = tmp_path / "prompts.jsonl"
    path.write_text("".join(json.dumps({"prompt": text}) + "\n" for text in PROMPTS))
    return path


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Settings]:
    """Take what the phases would be run with, instead of running them."""
    found: list[Settings] = []

    def run_phases(settings: Settings, *_: Any) -> int:
        found.append(settings)
        return 0

    monkeypatch.setattr(train, "run_phases", run_phases)
    monkeypatch.setattr(train, "conclude", lambda _: 0)
    monkeypatch.setattr(serve, "problem", lambda: None)
    monkeypatch.setattr(requirements, "missing", lambda: None)
    return found


@pytest.fixture
def run(prompts: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    """Return a function that runs the command with good options and those given."""

    def call(*words: str, model: str = TARGET, file: Path = prompts) -> tuple[int, str, str]:
        status = main(
            ["train", model, "--prompts", str(file), "--output", str(tmp_path / "out"), *words]
        )
        output = capsys.readouterr()
        return status, output.out, output.err

    return call


def variant(folder: Path, **changes: Any) -> Path:
    """Make a target of another config; None takes a key out."""
    folder.mkdir()
    for path in (ZOO / "target").iterdir():
        if path.name != "config.json":
            (folder / path.name).symlink_to(path)
    config = {**json.loads((ZOO / "target" / "config.json").read_text()), **changes}
    text = json.dumps({key: value for key, value in config.items() if value is not None})
    (folder / "config.json").write_text(text)
    return folder


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


def test_conversations_need_a_chat_template(
    run: Run, asked: list[Settings], tmp_path: Path
) -> None:
    bare = tmp_path / "bare"
    bare.mkdir()
    for path in (ZOO / "target").iterdir():
        if path.name != "chat_template.jinja":
            (bare / path.name).symlink_to(path)
    talk = tmp_path / "talk.jsonl"
    turn = {"messages": [{"role": "user", "content": "hello"}]}
    talk.write_text(json.dumps(turn) + "\n" + json.dumps({"prompt": "more"}) + "\n")
    for words, model in ((), bare), (("--tokenizer", str(bare)), ZOO / "target"):
        status, _, err = run("--holdout", "1", *words, model=str(model), file=talk)
        assert status == 2
        assert "line 1: is a conversation, and the target's tokenizer has no chat template" in err
    assert run("--holdout", "1", "--tokenizer", TARGET, model=str(bare), file=talk)[0] == 0
    shutil.rmtree(tmp_path / "out")
    assert run("--holdout", "1", file=talk)[0] == 0


@pytest.mark.parametrize("model", ["Qwen/Qwen3-8B", str(ZOO / "nothing"), str(ZOO / "report.py")])
def test_a_target_that_is_no_folder(model: str, run: Run, asked: list[Settings]) -> None:
    status, _, err = run(model=model)
    assert status == 2
    assert err.startswith(f"vllm-ascend-spec train: error: MODEL={model!r}: ")


def test_a_target_that_does_not_give_its_states(
    run: Run, asked: list[Settings], tmp_path: Path
) -> None:
    bloom = variant(tmp_path / "bloom", architectures=["BloomForCausalLM"])
    status, _, err = run(model=str(bloom))
    assert (status, asked) == (2, [])
    assert f"MODEL={str(bloom)!r}: vLLM's BloomForCausalLM does not give the states" in err


@pytest.mark.parametrize(
    ("method", "layers"), [("dflash", (3, 7, 12)), ("peagle", None), ("dspark", None)]
)
def test_heads_of_other_methods_to_adapt(
    method: str, layers: tuple[int, ...] | None, run: Run, asked: list[Settings]
) -> None:
    status, _, err = run("--method", method, "--from", str(ZOO / method))
    if layers is None:
        assert status == 2
        assert f"speculators has no converter for {method}; valid: a head in the form" in err
    else:
        assert (status, asked[0].layers) == (0, layers)


def test_an_output_folder_that_holds_something_else(
    run: Run, asked: list[Settings], tmp_path: Path
) -> None:
    (tmp_path / "out").mkdir()
    assert run()[0] == 0  # an empty one is fine, and what a start leaves that was killed early
    (tmp_path / "out" / "settings.json").rename(tmp_path / "out" / "settings.json.tmp")
    assert run()[0] == 0
    for path in (tmp_path / "out").iterdir():
        path.unlink()
    (tmp_path / "out" / "thesis.tex").touch()
    status, _, err = run()
    assert status == 2
    assert "holds something else; valid: a new or empty folder, or one of train's own" in err
    (tmp_path / "out" / "settings.json").write_text("{}")
    status, _, err = run()
    assert status == 2
    assert "settings.json cannot be read; valid: a new folder" in err


def leave(tmp_path: Path, *names: str) -> None:
    """Leave what phases do, as far as it is looked at."""
    for name in names:
        path = tmp_path / "out" / name
        if path.suffix:
            path.write_text("how they were made\n" + "an answer\n" * 3)
        else:
            path.mkdir(parents=True)


DONE = ("answers.jsonl", "held-out.json", "states", "vocabulary")
TRAINED = (*DONE, "dataset", "checkpoints", "metrics.jsonl")
PROVED = (*TRAINED, "head", "proof", "report.json")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--max-tokens", "9"], "--max-tokens 512, now 9"),
        (["--layers", "1,2,3"], "--layers 2,6,9, now 1,2,3"),
        (["--quantization", "fp8"], "--quantization none, now fp8"),
        (["--holdout", "3"], "--holdout 0.05, now 3.0"),
    ],
    ids=" ".join,
)
def test_what_the_answers_and_states_depend_on_stays(
    words: list[str], told: str, run: Run, asked: list[Settings], tmp_path: Path
) -> None:
    assert run()[0] == 0
    # Nothing depends on it before there is an answer.
    (tmp_path / "out" / "answers.jsonl").write_text("how they were made\n")
    assert run(*words)[0] == run()[0] == 0
    leave(tmp_path, *DONE)
    status, _, err = run(*words)
    assert status == 2
    assert f"was begun with {told}; valid: a new folder, or the same" in err
    assert run("--max-num-seqs", "4", "--tensor-parallel-size", "2")[0] == 0


@pytest.mark.parametrize(
    ("words", "told", "kept"),
    [
        (["--steps", "7"], f"--steps was {EAGLE3.scratch.steps}, now 7", DONE),
        (["--", "--weight-decay", "0"], "-- was none, now --weight-decay,0", DONE),
        (["--nproc-per-node", "2"], "--nproc-per-node was 1, now 2", DONE),
        (["--draft-vocab-size", "9"], "--draft-vocab-size was none, now 9", DONE[:-1]),
    ],
    ids=str,
)
def test_a_training_without_a_head_may_begin_again(
    words: list[str], told: str, kept: tuple[str, ...], run: Run, asked: list[Settings],
    tmp_path: Path,
) -> None:  # fmt: skip
    assert run()[0] == 0
    before = {path.name for path in (tmp_path / "out").iterdir()}
    leave(tmp_path, *TRAINED)
    assert run()[1].count("\n") == 1
    status, out, _ = run(*words)
    assert status == 0
    assert f"{told}: what depends on it is made again (" in out.splitlines()[1]
    assert {path.name for path in (tmp_path / "out").iterdir()} == {*before, *kept}
    # That one is what a third start asks for again.
    assert run(*words)[1].count("\n") == 1


def test_a_head_is_not_removed_by_the_way(run: Run, asked: list[Settings], tmp_path: Path) -> None:
    assert run()[0] == 0
    leave(tmp_path, *PROVED)
    head = tmp_path / "out" / "head"
    status, _, err = run("--steps", "7")
    assert status == 2
    assert f"--steps 400, now 7; valid: a new folder, or remove {head} first" in err
    head.rmdir()
    assert run("--steps", "7")[0] == 0
    assert not (tmp_path / "out" / "report.json").exists()


def test_a_proof_by_other_engines_is_made_again(
    run: Run, asked: list[Settings], tmp_path: Path
) -> None:
    assert run()[0] == 0
    before = {path.name for path in (tmp_path / "out").iterdir()}
    leave(tmp_path, *PROVED)
    assert run("--checkpoint-minutes", "3")[1].count("\n") == 1
    status, out, _ = run("--gpu-memory-utilization", "0.5")
    told = "--gpu-memory-utilization was none, now 0.5: what depends on it is made again (proof)"
    assert (status, out.splitlines()[1]) == (0, f"vllm-ascend-spec train: {told}")
    assert {path.name for path in (tmp_path / "out").iterdir()} == {*before, *TRAINED, "head"}


def test_a_start_that_is_refused_removes_nothing(
    run: Run, asked: list[Settings], tmp_path: Path
) -> None:
    assert run()[0] == 0
    leave(tmp_path, *TRAINED)
    assert run("--steps", "7", "--max-tokens", "9")[0] == 2
    with owned(Output(tmp_path / "out")):
        status, _, err = run("--steps", "7")
    assert (status, "another train writes there" in err) == (2, True)
    assert all((tmp_path / "out" / name).exists() for name in TRAINED)


def test_a_folder_of_prompts_may_grow(
    run: Run, asked: list[Settings], prompts: Path, tmp_path: Path
) -> None:
    def used() -> set[str]:
        return {prompt.id for prompt in answers.read_all(asked[-1])}

    assert run()[0] == 0
    first = used()
    leave(tmp_path, *DONE)
    lines = prompts.read_text().splitlines(keepends=True)
    more = json.dumps({"prompt": "one more"}) + "\n"
    prompts.write_text(more + "".join(reversed(lines)))
    status, out, _ = run()
    assert status == 0
    assert "37 prompts to train on, 3 to measure" in out
    assert used() == first
    assert len(first) == len(PROMPTS)
    prompts.write_text("".join(lines[1:]) + more)
    status, _, err = run()
    assert status == 2
    assert "was begun with 40 prompts, and 1 of them are not in --prompts; valid: all of" in err


def test_prompts_that_are_not_answered_yet_may_change(
    run: Run, asked: list[Settings], prompts: Path
) -> None:
    assert run()[0] == 0
    prompts.write_text("".join(json.dumps({"prompt": str(n)}) + "\n" for n in range(9)))
    assert run()[0] == 0
    assert len(list(answers.read_all(asked[-1]))) == 9


def test_paths_are_compared_by_what_is_there(
    run: Run, asked: list[Settings], prompts: Path, tmp_path: Path
) -> None:
    model = shutil.copytree(ZOO / "target", tmp_path / "model")
    head = shutil.copytree(HEAD, tmp_path / "a head")
    assert run("--from", HEAD)[0] == 0
    leave(tmp_path, *PROVED)
    moved = shutil.copy(prompts, tmp_path / "moved.jsonl")
    assert run("--from", str(head), model=str(model), file=Path(moved))[0] == 0
    assert asked[-1].model == model
    weights = next(model.glob("*.safetensors"))
    content = bytearray(weights.read_bytes())
    content[len(content) // 2] ^= 1
    weights.write_bytes(content)
    status, _, err = run("--from", str(head), model=str(model))
    assert status == 2
    assert "was begun with MODEL whose hash is " in err


def test_every_setting_says_which_phase_uses_it() -> None:
    settings = Settings(Path(TARGET), "eagle3", (), Path("out"))
    names = {*used_by.by_name(settings), *train.train_options.ENGINE}
    assert names - {"sampling", "engine"} == set(used_by.FIRST_USED)


def test_nobody_else_reads_the_folder(run: Run, asked: list[Settings], tmp_path: Path) -> None:
    assert run()[0] == 0
    assert (tmp_path / "out").stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--bogus", "1"], "speculators train: unrecognized arguments: --bogus 1"),
        (["--lr", "0.5", "--max-steps", "2"], "train sets --lr, --max-steps itself"),
        (["--save-path", "elsewhere"], "train sets --save-path itself; valid: other options"),
    ],
)
def test_wrong_options_of_the_trainer_are_refused_before_prompts_are_read(
    words: list[str], told: str, run: Run, asked: list[Settings], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("speculators")
    monkeypatch.setattr(train_checks, "prompts_of", lambda _: pytest.fail("prompts were read"))
    status, _, err = run("--", *words)
    (line,) = err.splitlines()
    assert (status, asked) == (2, [])
    assert told in line


def test_a_head_to_adapt_may_read_any_number_of_layers(
    run: Run, asked: list[Settings], tmp_path: Path
) -> None:
    words = ["--method", "dflash", "--from", str(tmp_path / "head")]
    (tmp_path / "head").mkdir()
    config = json.loads((ZOO / "dflash" / "config.json").read_text())
    fine = {**config["dflash_config"], "target_layer_ids": [1, 3, 5, 8, 11]}
    for path in (ZOO / "dflash").iterdir():
        if path.name != "config.json":
            (tmp_path / "head" / path.name).symlink_to(path)
    config_of_head = tmp_path / "head" / "config.json"
    config_of_head.write_text(json.dumps({**config, "dflash_config": fine}))
    find_layers = train_head.find_layers
    assert find_layers(None, "dflash", ZOO / "target", tmp_path / "head") == (2, 4, 6, 9, 12)
    far = {**fine, "target_layer_ids": [1, 30]}
    config_of_head.write_text(json.dumps({**config, "dflash_config": far}))
    status, _, err = run(*words)
    assert (status, asked) == (2, [])
    assert "head': it reads the layers 2,31; valid: a head for a target of 12 layers" in err


def test_a_vocabulary_holds_the_special_tokens(
    run: Run, asked: list[Settings], tmp_path: Path
) -> None:
    model = variant(tmp_path / "model", eos_token_id=[1, 2, 3, 4])
    status, _, err = run("--draft-vocab-size", "4", model=str(model))
    assert (status, asked) == (2, [])
    assert "--draft-vocab-size=4: valid: 5 or more, as many as there are special tokens" in err


def test_the_size_of_the_states_counts_prompts_and_their_own_type(
    run: Run, asked: list[Settings], tmp_path: Path
) -> None:
    def told(*words: str, model: str = TARGET) -> str:
        return run("--max-model-len", "100", *words, model=model)[1].split("take up to ")[1]

    old = variant(tmp_path / "model", dtype=None, torch_dtype="bfloat16")
    most = 37 * 100 * (4 * 256 * 2 + 5) * 1.01 / 1e6
    assert told("--max-tokens", "2") == told("--max-tokens", "99") == f"{most:.1f} MB\n"
    shutil.rmtree(tmp_path / "out")
    assert told(model=str(old)) == f"{most:.1f} MB\n"


@pytest.mark.parametrize(
    ("name", "value"), [("draft_length", "fixed"), ("draft_window", 64), ("draft_loop", "stock")]
)
def test_our_section_is_for_engines_that_draft(
    name: str, value: Any, run: Run, asked: list[Settings]
) -> None:
    """Each engine of the command gets as much of it as it takes."""
    section = {name: value, "collect_folder": "/collected"}
    additional = {"ascend_spec": section, "other": 1}
    given = {"ascend_spec": {name: value}, "other": 1}
    assert run("--from", HEAD, "--additional-config", json.dumps(given))[0] == 0
    settings = replace(asked[0], engine={"additional_config": additional})
    assert target_arguments(settings)["additional_config"] == {"other": 1}
    for contender in (NONE, SUFFIX, FROM):
        spec = CONTENDERS[contender].spec(settings)
        arguments = {**target_arguments(settings), **own_arguments(settings, spec)}
        resolve_args(Namespace(**arguments, load_format="auto"))
        found = arguments["additional_config"].get("ascend_spec", {})
        assert "collect_folder" not in found
        assert (name in found) == (
            contender == FROM or (contender, name) == (SUFFIX, "draft_length")
        )
        words = train.serve_words(settings, spec) if spec else []
        assert not spec or "collect_folder" in " ".join(words)
        assert not spec or name in " ".join(words) or (contender, value) == (SUFFIX, section[name])


def test_the_table_of_options_that_only_heads_take_is_right() -> None:
    values = {
        "capture": "stock", "draft_length": "fixed", "draft_loop": "stock", "draft_window": 64,
        "spec_page": True, "verify_rule": "block",
    }  # fmt: skip
    refused = set()
    for name, value in values.items():
        spec = {"method": "suffix", "num_speculative_tokens": 3}
        asked = {"model": TARGET, "speculative_config": spec, "load_format": "auto"}
        found = examine_args(Namespace(**asked, additional_config={"ascend_spec": {name: value}}))
        refused |= {name for problem in found.problems if name in str(problem)}
    assert refused == OF_HEADS


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


def test_a_head_to_adapt_decides_what_it_reads(run: Run, asked: list[Settings]) -> None:
    assert run("--from", HEAD)[0] == 0
    (settings,) = asked
    assert (settings.layers, settings.draft_vocab_size) == ((3, 7, 12), 3072)
    assert settings.begin_with == Path(HEAD)
    assert settings.steps == EAGLE3.adapted.steps < EAGLE3.scratch.steps


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
