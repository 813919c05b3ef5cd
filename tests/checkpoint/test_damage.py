"""Damaged copies of a right draft: one message each, that names what is wrong."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.checkpoint.variants import in_order, with_head
from tests.config.checkpoints import WEIGHTS, write_checkpoint, write_eagle
from tests.config.damage import DAMAGE, EAGLE_DAMAGE, Damage, added, edit_config, reshaped, without
from tests.config.draft_checks import check_checkpoint
from vllm_ascend_spec.checkpoint.draft import Draft
from vllm_ascend_spec.errors import CheckpointError

OPTION = "speculative_config.model"
WRITE: dict[str, Callable[[Path], Path]] = {"eagle": write_eagle, "draft_model": write_checkpoint}


def refusal(method: str, folder: Path, target: Path | None = None) -> str:
    """Return the message of a check, which has to be one short line behind option and value."""
    with pytest.raises(CheckpointError) as raised:
        check_checkpoint(method, Draft(OPTION, str(folder), folder, target))
    error = raised.value
    assert (error.option, error.value) == (OPTION, str(folder))
    assert len(error.problem) <= 175
    assert error.problem.isprintable()
    return error.problem


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("method", WRITE)
def test_damage_is_named(tmp_path: Path, method: str, damage: str) -> None:
    folder = WRITE[method](tmp_path / "draft")
    damaged, words = DAMAGE[damage]
    damaged(folder)
    message = refusal(method, folder)
    assert [word for word in words if word not in message] == [], message


@pytest.mark.parametrize("damage", EAGLE_DAMAGE)
def test_damage_of_an_eagle_head_is_named(tmp_path: Path, damage: str) -> None:
    folder = write_eagle(tmp_path / "eagle")
    damaged, words = EAGLE_DAMAGE[damage]
    damaged(folder)
    message = refusal("eagle", folder)
    assert [word for word in words if word not in message] == [], message


UNTIED = {"tie_word_embeddings": False}


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (without("embed_tokens.weight"), ["no tensor model.embed_tokens.weight"]),
        (without("model.norm.weight"), ["no tensor model.norm.weight"]),
        (lambda folder: edit_config(folder, **UNTIED), ["no tensor lm_head.weight", "[16, 4]"]),
        (
            in_order(with_head, reshaped("lm_head.weight", lambda shape: [3, 3])),
            ["lm_head.weight", "[3, 3]", "[16, 4]"],
        ),
        (added("model.layers.1.mlp.up_proj.weight", "up_proj.weight"), ["2 layers", "is 1"]),
        (added("model.layers.2.mlp.up_proj.weight", "up_proj.weight"), ["layer 1", "layer 2"]),
    ],
    ids=["embedding", "norm", "head", "tied head", "a layer too many", "a layer skipped"],
)
def test_damage_of_a_draft_model_is_named(tmp_path: Path, damage: Damage, words: list[str]) -> None:
    folder = write_checkpoint(tmp_path / "draft")
    damage(folder)
    message = refusal("draft_model", folder)
    assert [word for word in words if word not in message] == [], message


@pytest.mark.parametrize("method", WRITE)
def test_file_that_may_not_be_read_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    """A test may run as root, who may read everything."""
    folder = WRITE[method](tmp_path / "draft")
    stock = Path.open

    def forbidden(path: Path, *args: object, **kwargs: object) -> object:
        if path.name == WEIGHTS:
            raise PermissionError(13, "Permission denied", str(path))
        return stock(path, *args, **kwargs)  # type: ignore[call-overload]

    monkeypatch.setattr(Path, "open", forbidden)
    assert refusal(method, folder) == f"{WEIGHTS} cannot be read: Permission denied"


@pytest.mark.parametrize("content", ["", "{", "[]"])
@pytest.mark.parametrize("method", WRITE)
def test_broken_config_of_the_target_is_laid_to_the_target(
    tmp_path: Path, method: str, content: str
) -> None:
    target = write_checkpoint(tmp_path / "target")
    (target / "config.json").write_text(content)
    folder = WRITE[method](tmp_path / "draft")
    with pytest.raises(CheckpointError) as raised:
        check_checkpoint(method, Draft(OPTION, str(folder), folder, target))
    assert (raised.value.option, raised.value.value) == ("model", str(target))


@pytest.mark.parametrize(
    ("method", "config", "message"),
    [
        ("eagle", {"vocab_size": 17}, "its vocab_size is 17, the target's is 16"),
        ("eagle", {"hidden_size": 6}, "its hidden_size is 6, the target's is 4"),
        ("draft_model", {"vocab_size": 17}, "its vocab_size is 17, the target's is 16"),
    ],
)
def test_draft_of_another_target_is_refused(
    tmp_path: Path, method: str, config: dict[str, int], message: str
) -> None:
    target = write_checkpoint(tmp_path / "target")
    folder = edit_config(WRITE[method](tmp_path / "draft"), **config)
    assert message in refusal(method, folder, target)


def test_draft_is_compared_with_the_text_part_of_a_multimodal_target(tmp_path: Path) -> None:
    text = {"vocab_size": 99, "hidden_size": 4}
    target = write_checkpoint(tmp_path / "target", text_config=text)
    assert "the target's is 99" in refusal("eagle", write_eagle(tmp_path / "eagle"), target)


@pytest.mark.parametrize(("method", "other"), [("eagle", "draft_model"), ("draft_model", "eagle")])
def test_checkpoint_of_the_other_method_is_refused_with_its_name(
    tmp_path: Path, method: str, other: str
) -> None:
    folder = WRITE[other](tmp_path / "draft")
    assert f"method '{other}'" in refusal(method, folder)
