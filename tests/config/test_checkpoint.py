"""Checks of a draft's checkpoint: JSON and headers only, one clear message each."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.config.checkpoints import HIDDEN, VOCAB, write_checkpoint, write_eagle
from vllm_ascend_spec.config.checkpoint import (
    CHECKS,
    check_draft_model,
    check_eagle,
    find_folder,
    read_config,
    require_safetensors,
    tensor_shapes,
)
from vllm_ascend_spec.errors import CheckpointError

OPTION = "speculative_config.model"


def refusal(check: object, *arguments: object) -> str:
    """Return the message with which ``check`` refuses, which must begin with option and value."""
    with pytest.raises(CheckpointError) as raised:
        check(*arguments)  # type: ignore[operator]
    assert str(raised.value).startswith(f"{arguments[0]}={arguments[1]!r}: ")
    return raised.value.problem


@pytest.fixture(autouse=True)
def _nowhere_special(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run in an empty folder, with an empty hub cache and the hub reachable."""
    (tmp_path / "cwd").mkdir()
    monkeypatch.chdir(tmp_path / "cwd")
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)


def test_folder_with_a_config_is_found(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "draft")
    assert find_folder(OPTION, str(folder)) == folder


def test_folder_is_found_relative_to_the_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    folder = write_checkpoint(tmp_path / "draft")
    assert find_folder(OPTION, "~/draft") == folder


def test_folder_without_a_config_is_refused(tmp_path: Path) -> None:
    assert refusal(find_folder, OPTION, str(tmp_path)) == "the folder has no config.json"


def test_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    path.touch()
    assert "give the checkpoint's folder" in refusal(find_folder, OPTION, str(path))


@pytest.mark.parametrize(
    "model", ["/no/such/folder", "./draft", "../draft", "~/no-such-draft", "a/b/c", "draft dir"]
)
def test_path_that_leads_nowhere_is_refused_with_where_it_was_looked_for(model: str) -> None:
    message = refusal(find_folder, OPTION, model)
    assert message == f"there is no such folder (looked in {Path.cwd()})"


def test_path_into_a_folder_that_exists_is_no_hub_name() -> None:
    Path("models").mkdir()
    assert "there is no such folder" in refusal(find_folder, OPTION, "models/draft")


@pytest.mark.parametrize("model", ["draft", "org/draft", "org/draft-1.1B_v2", "s3://bucket/draft"])
def test_hub_name_or_url_is_left_to_vllm(model: str) -> None:
    assert find_folder(OPTION, model) is None


def test_hub_name_is_refused_where_the_hub_is_off_and_it_is_not_cached(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert "HF_HUB_OFFLINE is 1" in refusal(find_folder, OPTION, "org/draft")
    (tmp_path / "hub" / "models--org--draft").mkdir(parents=True)
    assert find_folder(OPTION, "org/draft") is None


def test_hub_cache_is_found_below_hf_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.delenv("HF_HUB_CACHE")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
    (tmp_path / "home" / "hub" / "models--org--draft").mkdir(parents=True)
    assert find_folder(OPTION, "org/draft") is None


def test_config_of_a_multimodal_checkpoint_is_that_of_its_text(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "draft", text_config={"vocab_size": 7})
    assert read_config(OPTION, "x", folder) == {"vocab_size": 7}


def test_shapes_are_read_from_every_file_and_metadata_is_no_tensor(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "draft", {"b.weight": [2, 3]})
    (folder / "model.safetensors").rename(folder / "model-00001-of-00002.safetensors")
    other = write_checkpoint(tmp_path / "other", {"a.weight": [5]})
    (other / "model.safetensors").rename(folder / "model-00002-of-00002.safetensors")
    assert tensor_shapes(OPTION, "x", folder) == {"a.weight": [5], "b.weight": [2, 3]}


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pt", "model.pth", "last.ckpt"])
def test_pickled_weights_are_refused_with_the_way_out(tmp_path: Path, name: str) -> None:
    folder = write_checkpoint(tmp_path / "draft", {})
    (folder / name).touch()
    message = refusal(require_safetensors, OPTION, str(folder), folder)
    assert f"pickled ({name})" in message
    assert "*.safetensors" in message
    assert "save_pretrained" in message


def test_folder_without_weights_is_refused(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "draft", {})
    message = refusal(require_safetensors, OPTION, str(folder), folder)
    assert message == "the folder has no weights; valid: *.safetensors"


def test_pickled_weights_beside_safetensors_do_not_matter(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "draft")
    (folder / "pytorch_model.bin").touch()
    require_safetensors(OPTION, str(folder), folder)


def test_right_eagle_head_and_right_draft_model_pass(tmp_path: Path) -> None:
    target = write_checkpoint(tmp_path / "target")
    check_eagle(OPTION, "x", write_eagle(tmp_path / "eagle"), target)
    check_draft_model(OPTION, "x", write_checkpoint(tmp_path / "draft", hidden_size=2), target)


def test_draft_is_not_compared_where_the_target_is_not_a_folder(tmp_path: Path) -> None:
    check_eagle(OPTION, "x", write_eagle(tmp_path / "eagle", vocab_size=3), None)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"vocab_size": 17}, f"its vocab_size is 17, the target's is {VOCAB}"),
        ({"hidden": 6}, f"its hidden_size is 6, the target's is {HIDDEN}"),
    ],
)
def test_eagle_head_of_another_target_is_refused(
    tmp_path: Path, config: dict[str, int], message: str
) -> None:
    target = write_checkpoint(tmp_path / "target")
    folder = write_eagle(tmp_path / "eagle", **config)
    assert message in refusal(check_eagle, OPTION, "x", folder, target)


def test_draft_model_of_another_vocabulary_is_refused(tmp_path: Path) -> None:
    target = write_checkpoint(tmp_path / "target")
    folder = write_checkpoint(tmp_path / "draft", vocab_size=17)
    assert "vocab_size is 17" in refusal(check_draft_model, OPTION, "x", folder, target)


def test_draft_is_compared_with_the_text_part_of_a_multimodal_target(tmp_path: Path) -> None:
    text = {"vocab_size": 99, "hidden_size": HIDDEN}
    target = write_checkpoint(tmp_path / "target", text_config=text)
    folder = write_eagle(tmp_path / "eagle")
    assert "the target's is 99" in refusal(check_eagle, OPTION, "x", folder, target)


def test_ordinary_model_as_an_eagle_head_is_refused_with_the_right_method(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "draft")
    message = refusal(check_eagle, OPTION, "x", folder, None)
    assert "no tensor fc.weight" in message
    assert "'draft_model'" in message


def test_eagle_head_as_a_draft_model_is_refused_with_the_right_method(tmp_path: Path) -> None:
    folder = write_eagle(tmp_path / "eagle")
    assert "method 'eagle'" in refusal(check_draft_model, OPTION, "x", folder, None)


def test_eagle_head_of_another_shape_is_refused_with_both_shapes(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "eagle3", {"fc.weight": [4, 12]})
    message = refusal(check_eagle, OPTION, "x", folder, None)
    assert "[4, 12]" in message
    assert "[4, 8]" in message


def test_eagle_head_whose_config_names_no_hidden_size_is_refused(tmp_path: Path) -> None:
    folder = write_eagle(tmp_path / "eagle", hidden_size=None)
    assert "hidden_size" in refusal(check_eagle, OPTION, "x", folder, None)


LFS_POINTER = (
    b"version https://git-lfs.github.com/spec/v1\n"
    b"oid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\nsize 12345\n"
)


@pytest.mark.parametrize(
    "content", [b"", b"\x00" * 4, b"\xff" * 8, LFS_POINTER, b"\x05" + b"\x00" * 7 + b"{bad}"]
)
@pytest.mark.parametrize("method", CHECKS)
def test_weights_that_are_not_safetensors_inside_are_refused(
    tmp_path: Path, method: str, content: bytes
) -> None:
    folder = write_checkpoint(tmp_path / "draft")
    (folder / "model.safetensors").write_bytes(content)
    message = refusal(CHECKS[method], OPTION, str(folder), folder, None)
    assert "model.safetensors" in message


@pytest.mark.parametrize("content", ["", "{", "[]", '"llama"', "null"])
@pytest.mark.parametrize("method", CHECKS)
def test_config_that_is_not_a_json_object_is_refused(
    tmp_path: Path, method: str, content: str
) -> None:
    target = write_checkpoint(tmp_path / "target")
    folder = write_eagle(tmp_path / "draft")
    if method == "draft_model":
        folder = write_checkpoint(tmp_path / "ordinary")
    (folder / "config.json").write_text(content)
    message = refusal(CHECKS[method], OPTION, str(folder), folder, target)
    assert "config.json" in message


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe{}", b"[1]", b"3", b"null"])
def test_broken_config_is_named_in_one_line(tmp_path: Path, content: bytes) -> None:
    folder = write_checkpoint(tmp_path / "draft")
    (folder / "config.json").write_bytes(content)
    message = refusal(read_config, OPTION, "x", folder)
    assert message.startswith("config.json is not ")
    assert "\n" not in message


@pytest.mark.parametrize("method", CHECKS)
def test_broken_config_of_the_target_is_laid_to_the_target(tmp_path: Path, method: str) -> None:
    target = write_checkpoint(tmp_path / "target")
    (target / "config.json").write_text("{")
    folder = write_eagle(tmp_path / "draft")
    with pytest.raises(CheckpointError) as raised:
        CHECKS[method](OPTION, "x", folder, target)
    assert (raised.value.option, raised.value.value) == ("model", str(target))


@pytest.mark.parametrize(
    "header", ["[]", "3", "null", '{"w": []}', '{"w": {}}', '{"w": {"shape": 3}}', '{"w": null}']
)
def test_header_that_is_not_a_table_of_tensors_is_refused(tmp_path: Path, header: str) -> None:
    folder = write_checkpoint(tmp_path / "draft", {"a.weight": [2]})
    broken = len(header).to_bytes(8, "little") + header.encode()
    (folder / "second.safetensors").write_bytes(broken)
    message = refusal(tensor_shapes, OPTION, "x", folder)
    assert message.startswith("second.safetensors is not a safetensors file")


def test_weights_cut_short_inside_the_header_are_refused(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "draft")
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:20])
    assert "fetched whole" in refusal(tensor_shapes, OPTION, "x", folder)


def test_headers_are_read_without_the_tensors(tmp_path: Path) -> None:
    folder = tmp_path / "draft"
    folder.mkdir()
    header = json.dumps({"w": {"dtype": "F32", "shape": [10**6, 10**6], "data_offsets": [0, 4]}})
    content = len(header).to_bytes(8, "little") + header.encode()
    (folder / "model.safetensors").write_bytes(content)
    assert tensor_shapes(OPTION, "x", folder) == {"w": [10**6, 10**6]}


def test_every_message_is_one_line(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "draft")
    assert not re.search(r"\n", refusal(check_eagle, OPTION, "x", folder, None))
