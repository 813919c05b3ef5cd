"""Where a checkpoint is: a folder, a hub's cache, or nowhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.config.checkpoints import write_checkpoint
from vllm_ascend_spec.checkpoint.folder import find_folder, find_target
from vllm_ascend_spec.errors import CheckpointError
from vllm_ascend_spec.hooks.preflight import resolve_engine

OPTION = "speculative_config.model"


def refusal(model: str) -> str:
    """Return the message with which a model is refused, behind option and value."""
    with pytest.raises(CheckpointError) as raised:
        find_folder(OPTION, model)
    assert str(raised.value).startswith(f"{OPTION}={model!r}: "[:80])
    assert raised.value.value == model
    return raised.value.problem


@pytest.fixture(autouse=True)
def _nowhere_special(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run in an empty folder, with the hub reachable."""
    (tmp_path / "cwd").mkdir()
    monkeypatch.chdir(tmp_path / "cwd")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)


def test_folder_with_a_config_is_found(tmp_path: Path) -> None:
    draft = write_checkpoint(tmp_path / "draft")
    assert find_folder(OPTION, str(draft)) == draft


def test_folder_is_found_relative_to_the_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    draft = write_checkpoint(tmp_path / "draft")
    assert find_folder(OPTION, "~/draft") == draft


def test_folder_without_a_config_is_refused(tmp_path: Path) -> None:
    assert refusal(str(tmp_path)) == "the folder has no config.json"


def test_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    path.touch()
    assert "give the checkpoint's folder" in refusal(str(path))


@pytest.mark.parametrize(
    "model", ["/no/such/folder", "./draft", "../draft", "~/no-such-draft", "a/b/c", "draft dir"]
)
def test_path_that_leads_nowhere_is_refused_with_where_it_was_looked_for(model: str) -> None:
    message = refusal(model)
    assert message == f"there is no such folder (looked in {Path.cwd()})"


def test_a_hubs_name_beside_a_folder_of_the_organization_is_warned_of() -> None:
    """Somebody has ``Qwen/Qwen3-8B`` in a folder, and the draft in a hub."""
    Path("org").mkdir()
    assert find_folder(OPTION, "org/draft") is None
    assert find_target("org/target") is None
    where = f"there is no such folder (looked in {Path.cwd()}), so a hub's model is meant"
    spec = {"method": "eagle", "model": "org/draft", "num_speculative_tokens": 2}
    speculation = resolve_engine("other/target", spec)
    assert speculation is not None
    assert speculation.warnings == (f"{OPTION}='org/draft': {where}",)


@pytest.mark.parametrize("model", ["draft", "org/draft", "org/draft-1.1B_v2", "s3://bucket/draft"])
def test_hub_name_or_url_is_left_to_vllm(model: str) -> None:
    assert find_folder(OPTION, model) is None


def test_user_without_a_home_is_refused() -> None:
    assert refusal("~nosuchuser/draft") == "there is no such user's home"


def test_name_that_no_file_can_have_is_refused() -> None:
    assert "File name too long" in refusal("x" * 300)


def test_config_that_is_a_dangling_link_is_there(tmp_path: Path) -> None:
    """It is refused with its reason when it is read."""
    (tmp_path / "config.json").symlink_to("gone")
    assert find_folder(OPTION, str(tmp_path)) == tmp_path


def test_target_is_found_as_a_draft_is(tmp_path: Path) -> None:
    target = write_checkpoint(tmp_path / "target")
    assert find_target(str(target)) == target
    assert find_target("org/target") is None
    assert find_target("s3://bucket/target") is None
    with pytest.raises(CheckpointError, match=r"^model='\./target': there is no such folder"):
        find_target("./target")
