"""What has to fit together: target, head, trainer and engines."""

from __future__ import annotations

import json
import shutil
from argparse import Namespace
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.cli.train.inputs import HEAD, TARGET, Run, variant
from tests.zoo import ZOO
from vllm_ascend_spec.cli import train, train_checks, train_head
from vllm_ascend_spec.hooks.preflight import examine_args, resolve_args
from vllm_ascend_spec.training.contenders import CONTENDERS, FROM, NONE, SUFFIX
from vllm_ascend_spec.training.engine import target_arguments
from vllm_ascend_spec.training.measure import own_arguments
from vllm_ascend_spec.training.settings import Settings
from vllm_ascend_spec.training.speculation import OF_HEADS


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
