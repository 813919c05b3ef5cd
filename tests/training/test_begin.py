"""The head to go on from, in the form that the library's trainer reads."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.eagle3 import HEAD, write_variant
from tests.zoo import ZOO
from vllm_ascend_spec.errors import ConfigError
from vllm_ascend_spec.training.settings import Settings

pytestmark = pytest.mark.skipif(find_spec("speculators") is None, reason="needs speculators")

EMBEDDING = "embed_tokens.weight"
LAYERS = (3, 7, 12)


def settings_of(head: Path | None, method: str = "eagle3") -> Settings:
    return Settings(ZOO / "target", method, (), Path(), begin_with=head, layers=LAYERS)


def begun(head: Path, folder: Path, method: str = "eagle3") -> dict[str, torch.Tensor]:
    from vllm_ascend_spec.training.library.begin import write_begin

    assert write_begin(settings_of(head, method), folder) == folder
    assert [each.name for each in folder.parent.glob("*.tmp")] == []
    config = json.loads((folder / "config.json").read_text())
    assert config["speculators_config"]["verifier"]["name_or_path"] == str(ZOO / "target")
    assert config["eagle_aux_hidden_state_layer_ids"] == list(LAYERS)
    assert config["dtype"] == "float32"
    return load_file(folder / "model.safetensors")


def test_a_head_is_converted_with_all_that_it_has(tmp_path: Path) -> None:
    found, own = begun(HEAD, tmp_path / "begin"), load_file(HEAD / "model.safetensors")
    for name, tensor in own.items():
        kept = found[name.replace("midlayer.", "layers.0.")]
        assert torch.equal(kept, tensor.to(kept.dtype))
        assert kept.dtype == (torch.float32 if tensor.is_floating_point() else tensor.dtype)


def test_it_gets_the_targets_embeddings_which_the_library_leaves_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from speculators.models.eagle3 import Eagle3DraftModel

    found = begun(HEAD, tmp_path / "begin")
    target = load_file(ZOO / "target" / "model.safetensors")["model.embed_tokens.weight"].float()
    assert torch.equal(found.pop(EMBEDDING), target)
    save_file(found, tmp_path / "begin" / "model.safetensors", {"format": "pt"})
    # It takes for missing what is not a number; transformers leaves memory as it was.
    monkeypatch.setattr(torch, "empty_like", torch.zeros_like)
    stock = Eagle3DraftModel.from_pretrained(tmp_path / "begin").embed_tokens.weight
    assert not torch.equal(stock, target), "the library reads them: the patch can go"


def test_a_head_in_the_librarys_form_is_taken_as_it_is(tmp_path: Path) -> None:
    head = write_variant("speculators", tmp_path / "head")
    found, own = begun(head, tmp_path / "begin"), load_file(head / "model.safetensors")
    assert set(found) == {*own, EMBEDDING}
    for name, tensor in own.items():
        assert torch.equal(found[name], tensor.to(found[name].dtype))


def test_there_may_be_none(tmp_path: Path) -> None:
    from vllm_ascend_spec.training.library.begin import write_begin

    assert write_begin(settings_of(None), tmp_path / "begin") is None
    assert not (tmp_path / "begin").exists()


@pytest.mark.parametrize(
    ("method", "about"), [("peagle", "no converter for peagle"), ("dflash", "block_size")]
)
def test_a_head_that_the_library_cannot_convert_is_refused(
    method: str, about: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=about) as raised:
        begun(ZOO / method, tmp_path / "begin", method)
    assert str(raised.value).startswith("--from")
    assert "\n" not in str(raised.value)
    assert not (tmp_path / "begin").exists()
