"""A head in the format of the speculators library, given as the model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.config.checkpoints import edit_config, to_speculators, write_checkpoint, write_eagle3
from vllm_ascend_spec.config.engine import EngineOptions
from vllm_ascend_spec.config.examine import examine
from vllm_ascend_spec.config.resolved import SpecConfig
from vllm_ascend_spec.config.speculators_format import SOURCE, read_head
from vllm_ascend_spec.devices.cpu import DEVICE
from vllm_ascend_spec.errors import CheckpointError, ConfigError
from vllm_ascend_spec.methods.registry import BUILT_IN


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return write_checkpoint(tmp_path / "target", num_hidden_layers=12)


@pytest.fixture
def head(tmp_path: Path, target: Path) -> Path:
    return to_speculators(write_eagle3(tmp_path / "head"), str(target), num_drafts=4)


def resolve(model: Path | str, spec: Any = None) -> SpecConfig:
    engine = EngineOptions(device=DEVICE)
    found = examine(str(model), spec, engine=engine, methods=BUILT_IN).resolved()
    assert found is not None
    return found


def test_head_says_method_and_number_of_drafts(head: Path, target: Path) -> None:
    assert read_head(str(head), None).model == str(target)
    speculation = resolve(head)
    assert (speculation.method, speculation.max_k) == ("eagle3", 4)
    assert speculation.options["model"] == str(head)
    assert [speculation.sources[name] for name in ("method", "max_k")] == [SOURCE, SOURCE]


def test_options_beside_it_count(head: Path) -> None:
    given = {"num-speculative-tokens": 2, "draft_sample_method": "probabilistic"}
    speculation = resolve(head, given)
    assert (speculation.max_k, speculation.draft_sample_method) == (2, "probabilistic")
    assert speculation.sources["max_k"] == "speculative_config.num_speculative_tokens"
    assert speculation.sources["method"] == SOURCE


def test_vllm_makes_the_same_of_it(head: Path, target: Path) -> None:
    from vllm.transformers_utils.config import maybe_override_with_speculators

    for given in (None, {"num_speculative_tokens": 2, "draft_sample_method": "probabilistic"}):
        theirs = maybe_override_with_speculators(
            str(head), None, False, vllm_speculative_config=given
        )
        asked = read_head(str(head), given)
        assert (theirs[0], theirs[2]) == (asked.model, asked.spec)


def test_head_is_checked_against_its_target(head: Path, tmp_path: Path) -> None:
    small = write_checkpoint(tmp_path / "small", num_hidden_layers=2)
    to_speculators(write_eagle3(tmp_path / "other"), str(small))
    with pytest.raises(CheckpointError, match="target of 2 layers"):
        resolve(tmp_path / "other")


@pytest.mark.parametrize("option", ["method", "model"])
def test_what_the_head_decides_may_not_be_given(option: str, head: Path) -> None:
    with pytest.raises(ConfigError, match="leave it out") as error:
        resolve(head, {option: "eagle"})
    assert error.value.option == f"speculative_config.{option}"


@pytest.mark.parametrize(
    ("part", "words"),
    [
        ({}, "verifier.name_or_path and"),
        ({"verifier": {"name_or_path": "x"}, "proposal_methods": []}, "proposal_methods"),
        (
            {"verifier": {"name_or_path": None}, "proposal_methods": [{"speculative_tokens": 1}]},
            "name_or_path of .* is None",
        ),
        ("text", "'text'"),
    ],
)
def test_config_that_is_not_whole_is_refused(part: Any, words: str, head: Path) -> None:
    edit_config(head, speculators_config=part)
    with pytest.raises(CheckpointError, match=words) as error:
        resolve(head)
    assert error.value.option == "model"


def test_method_that_is_not_there_is_refused(head: Path) -> None:
    edit_config(head, speculators_model_type="other")
    with pytest.raises(ConfigError, match="not supported by this release"):
        resolve(head)


def test_ordinary_models_and_what_is_no_model_are_left_alone(target: Path, tmp_path: Path) -> None:
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "config.json").write_text("{")
    for model in (str(target), "some/name", None, str(tmp_path / "broken"), 3, "\0"):
        for spec in (None, {"method": "ngram"}, "text"):
            asked = read_head(model, spec)  # type: ignore[arg-type]
            assert (asked.model, asked.spec, asked.from_head) == (model, spec, frozenset())


def test_check_prints_where_it_came_from(head: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from vllm_ascend_spec.cli.main import main

    assert main(["check", "--light", "--json", str(head)]) == 0
    printed = json.loads(capsys.readouterr().out)["speculation"]
    assert printed["max_k"] == {"value": 4, "from": SOURCE}
