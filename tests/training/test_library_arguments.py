"""The command line that the library's trainer gets, and further options of it."""

from __future__ import annotations

from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.zoo import SHALLOW
from vllm_ascend_spec.errors import ConfigError
from vllm_ascend_spec.training.library.arguments import arguments
from vllm_ascend_spec.training.library.option_words import OURS, check_library_options
from vllm_ascend_spec.training.output import Output
from vllm_ascend_spec.training.settings import Settings

SETTINGS = Settings(
    model=SHALLOW / "target",
    method="eagle3",
    prompts=(),
    output=Path("output"),
    layers=(1, 2, 3),
    library=("--total-seq-len", "300"),
)
needs_library = pytest.mark.skipif(find_spec("speculators") is None, reason="needs speculators")


@pytest.fixture
def resolved(tmp_path: Path) -> Any:
    """Return ``resolved(device, settings)``, the library's configuration by name."""

    def resolve(device: str, settings: Settings = SETTINGS, **more: Any) -> dict[str, Any]:
        from speculators.train.config.schema import TrainConfig

        from vllm_ascend_spec.training.library import backend

        backend.register(Path("states"), (1, 2, 3))
        words = arguments(settings, Output(tmp_path), device, 700, 0.9, **more)
        flat: dict[str, Any] = TrainConfig.resolve(words).flatten()
        return flat

    return resolve


@needs_library
def test_plain_attention_where_there_is_no_compiler(resolved: Any) -> None:
    for device in ("cpu", "npu"):
        found = resolved(device)
        assert (found["draft_attn_impl"], found["loss_implementation"]) == ("sdpa", "eager")
    assert resolved("cpu")["hidden_states_dtype"] == "float32"
    assert resolved("npu")["hidden_states_dtype"] == "bfloat16"


@needs_library
def test_what_was_asked_for_is_what_the_library_gets(resolved: Any, tmp_path: Path) -> None:
    found = resolved("cpu", replace(SETTINGS, learning_rate=0.5, seed=3))
    assert (found["lr"], found["seed"]) == (0.5, 3)
    assert found["target_layer_ids"] == [1, 2, 3]
    assert found["ttt_steps"] == 3
    assert found["save_path"] == str(tmp_path / "checkpoints")
    assert found["d2t_path"] is None


@needs_library
def test_further_options_win(resolved: Any) -> None:
    assert resolved("cpu")["total_seq_len"] == 300
    assert resolved("cpu", replace(SETTINGS, library=()))["total_seq_len"] == 700


@needs_library
def test_a_batch_on_an_npu_is_as_large_as_on_a_gpu(resolved: Any) -> None:
    for device in ("cuda", "npu"):
        assert resolved(device, replace(SETTINGS, library=()))["total_seq_len"] == 8192


@needs_library
def test_a_head_to_go_on_from_has_its_own_layers(resolved: Any, tmp_path: Path) -> None:
    found = resolved("cpu", begin=tmp_path)
    assert found["from_pretrained"] == str(tmp_path)
    assert found["target_layer_ids"] is None


@needs_library
@pytest.mark.parametrize(
    ("method", "name", "value"),
    [("peagle", "num_depths", 5), ("dflash", "block_size", 6), ("dspark", "block_size", 5)],
)
def test_a_head_is_trained_for_the_drafts_of_a_step(
    resolved: Any, method: str, name: str, value: int
) -> None:
    found = resolved("cpu", replace(SETTINGS, method=method, num_speculative_tokens=5))
    assert found[name] == value


@needs_library
def test_a_small_vocabulary_is_named(resolved: Any, tmp_path: Path) -> None:
    Output(tmp_path).vocabulary.mkdir()
    assert resolved("cpu")["d2t_path"] == str(tmp_path / "vocabulary" / "d2t.npy")


@needs_library
@pytest.mark.parametrize(
    ("words", "about"),
    [
        (["--nonsense", "3"], "unrecognized arguments: --nonsense 3"),
        (["--ttt-steps", "many"], "argument --ttt-steps: invalid int value: 'many'"),
        (["--lr", "0.1"], "train sets --lr itself"),
        (["--seed", "0"], "train sets --seed itself"),
        # The library's parser takes beginnings of names, too.
        (["--max-step", "3"], "train sets --max-steps itself"),
        (["--dump-config"], "train sets --dump-config itself"),
        (["--dpace-alpha", "2", "--per-position-loss-weight", "dpace", "--loss-fn", "ce"], "dpace"),
        (["--help"], "is no option"),
    ],
)
def test_a_wrong_option_is_refused_in_one_line(words: list[str], about: str) -> None:
    with pytest.raises(ConfigError) as raised:
        check_library_options("--trainer-options", words)
    assert about in str(raised.value)
    assert "\n" not in str(raised.value)
    assert str(raised.value).startswith("--trainer-options")


@needs_library
def test_other_options_are_the_librarys() -> None:
    check_library_options("--trainer-options", ["--logger", "tensorboard", "--num-layers", "2"])
    check_library_options("--trainer-options", [])


@needs_library
def test_the_names_of_ours_are_the_librarys() -> None:
    from speculators.train.config.resolution import build_parser

    known = {action.dest for action in build_parser()._actions}
    assert known >= OURS
