"""What a second start of ``train`` may change, and what it makes again then."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.cli.train.inputs import HEAD, PROMPTS, TARGET, Run
from tests.zoo import ZOO
from vllm_ascend_spec.cli import train
from vllm_ascend_spec.training import used_by
from vllm_ascend_spec.training.output import Output
from vllm_ascend_spec.training.phases import answers
from vllm_ascend_spec.training.sequence import owned
from vllm_ascend_spec.training.settings import Settings


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
        (["--steps", "7"], "--steps was none, now 7", DONE),
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
    assert f"--steps none, now 7; valid: a new folder, or remove {head} first" in err
    # How many devices there are for the training has no meaning after it.
    assert run("--nproc-per-node", "2")[1].count("\n") == 1
    assert all((tmp_path / "out" / name).exists() for name in PROVED)
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
