"""Caches of Hugging Face and ModelScope, made by hand; nothing is fetched."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.config.checkpoints import write_checkpoint
from vllm_ascend_spec.checkpoint.folder import find_folder, find_target
from vllm_ascend_spec.checkpoint.hub import current_hub
from vllm_ascend_spec.errors import CheckpointError

OPTION, MODEL, COMMIT = "speculative_config.model", "org/draft-1.5B", "0123abcd" * 5
VARIABLES = (
    *("HF_HOME", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "XDG_CACHE_HOME", "HF_HUB_OFFLINE"),
    *("TRANSFORMERS_OFFLINE", "VLLM_USE_MODELSCOPE", "MODELSCOPE_CACHE"),
)
# The variable that says where, and where the cache is below its folder.
PLACES = {
    "HF_HUB_CACHE": ".",
    "HUGGINGFACE_HUB_CACHE": ".",
    "HF_HOME": "hub",
    "XDG_CACHE_HOME": "huggingface/hub",
    "HOME": ".cache/huggingface/hub",
}
FIND = """
import sys
if {without}: sys.modules["huggingface_hub"] = None
from vllm_ascend_spec.checkpoint.folder import find_folder, find_target
try: print(find_folder("model", "org/draft-1.5B", {revision!r}))
except ValueError as error: print(error.problem)
"""


@pytest.fixture(autouse=True)
def _clean(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "cwd").mkdir()
    monkeypatch.chdir(tmp_path / "cwd")


def write_snapshot(cache: Path, branch: str = "main") -> Path:
    """Write a model as huggingface_hub keeps it, and return its snapshot."""
    root = cache / ("models--" + MODEL.replace("/", "--"))
    (root / "refs" / branch).parent.mkdir(parents=True)
    (root / "refs" / branch).write_text(COMMIT)
    return write_checkpoint(root / "snapshots" / COMMIT)


def found(revision: str | None = None, without: bool = False, **variables: str) -> str:
    """Return what a process with these variables finds, or the problem that it names."""
    root = Path(__file__).parents[2]
    result = subprocess.run(
        [sys.executable, "-c", FIND.format(without=without, revision=revision)],
        env={**os.environ, "PYTHONPATH": str(root), **variables},
        capture_output=True,
        text=True,
        check=True,
    )
    return result.stdout.strip()


@pytest.mark.parametrize("without", [False, True], ids=["with the package", "without it"])
@pytest.mark.parametrize("variable", PLACES)
def test_cache_is_where_the_variables_say(tmp_path: Path, variable: str, without: bool) -> None:
    snapshot = write_snapshot(tmp_path / "x" / PLACES[variable])
    variables = {variable: str(tmp_path / "x"), "HF_HUB_OFFLINE": "true"}
    assert found(without=without, **variables) == str(snapshot)


@pytest.mark.parametrize("without", [False, True], ids=["with the package", "without it"])
@pytest.mark.parametrize(
    ("variable", "value", "off"),
    [
        ("HF_HUB_OFFLINE", "1", True),
        ("HF_HUB_OFFLINE", "true", True),
        ("HF_HUB_OFFLINE", "Yes", True),
        ("HF_HUB_OFFLINE", "ON", True),
        ("TRANSFORMERS_OFFLINE", "1", True),
        ("HF_HUB_OFFLINE", "0", False),
        ("HF_HUB_OFFLINE", "", False),
    ],
)
def test_hub_is_off_where_huggingface_hub_says_so(
    variable: str, value: str, off: bool, without: bool
) -> None:
    problem = f"is neither a folder nor in Hugging Face's cache, and {variable} is set"
    assert found(without=without, **{variable: value}) == (problem if off else "None")


@pytest.fixture(params=[False, True], ids=["with the package", "without it"])
def cache(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an empty cache of Hugging Face's, in use and with the hub off."""
    folder = tmp_path / "cache"
    if request.param:
        monkeypatch.setitem(sys.modules, "huggingface_hub", None)
        monkeypatch.setenv("HF_HUB_CACHE", str(folder))
        monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    else:
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(folder))
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    return folder


@pytest.mark.parametrize(
    ("branch", "revision"),
    [("main", None), ("main", "main"), ("v2", "v2"), ("pr/1", "pr/1"), ("main", COMMIT)],
)
def test_revision_leads_to_its_snapshot(cache: Path, branch: str, revision: str | None) -> None:
    snapshot = write_snapshot(cache, branch)
    assert find_folder(OPTION, MODEL, revision) == snapshot


def test_revision_that_is_not_cached_is_refused_by_name(cache: Path) -> None:
    write_snapshot(cache)
    with pytest.raises(CheckpointError, match="at revision 'v3', and HF_HUB_OFFLINE is set"):
        find_folder(OPTION, MODEL, "v3")


def test_folder_of_a_model_without_its_files_is_not_the_model(cache: Path) -> None:
    (cache / "models--org--draft-1.5B").mkdir(parents=True)
    with pytest.raises(CheckpointError, match="nor in Hugging Face's cache"):
        find_folder(OPTION, MODEL)


def test_weights_that_are_elsewhere_are_left_to_vllm(cache: Path) -> None:
    """--download-dir keeps weights apart from the config."""
    (write_snapshot(cache) / "model.safetensors").unlink()
    assert find_folder(OPTION, MODEL) is None


def test_cached_model_is_left_to_vllm_where_the_hub_may_have_a_newer_one(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_snapshot(cache)
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    if sys.modules["huggingface_hub"]:
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    assert find_folder(OPTION, MODEL) is None


@pytest.mark.parametrize("model", ["a--b", "org/a..b", "-a", "x" * 97])
def test_name_that_no_hub_has_is_refused(cache: Path, model: str) -> None:
    with pytest.raises(CheckpointError, match="nor in Hugging Face's cache"):
        find_folder(OPTION, model)


def test_target_of_any_revision_is_left_to_vllm(cache: Path) -> None:
    """Which revision of it is asked for is not known to the checks."""
    with pytest.raises(CheckpointError, match=r"model='org/draft-1\.5B': is neither"):
        find_target(MODEL)
    write_snapshot(cache, "v2")
    assert find_target(MODEL) is None


# Where releases of modelscope have kept org/draft-1.5B, below ~/.cache/modelscope.
LAYOUTS = {
    "1.38": "models/org--draft-1.5B/snapshots/master",
    "1.38, one revision": "models/org--draft-1.5B/snapshots/v1",
    "1.20": "hub/models/org/draft-1___5B",
    "1.20 with MODELSCOPE_CACHE": "models/org/draft-1___5B",
    "1.9": "hub/org/draft-1___5B",
    "1.0": "hub/org/draft-1.5B",
    "1.0 with MODELSCOPE_CACHE": "org/draft-1.5B",
}


@pytest.fixture
def modelscope(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Return a function that sets ``VLLM_USE_MODELSCOPE``, with the hub off."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    return lambda value: monkeypatch.setenv("VLLM_USE_MODELSCOPE", value)


@pytest.mark.parametrize("moved", [False, True], ids=["at home", "moved"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_modelscope_is_looked_up_in_every_layout(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    modelscope: Callable[[str], None],
    layout: str,
    moved: bool,
) -> None:
    modelscope("True")
    base = tmp_path / "home" / ".cache" / "modelscope"
    if moved:
        base = tmp_path / "elsewhere"
        monkeypatch.setenv("MODELSCOPE_CACHE", str(base))
    with pytest.raises(CheckpointError, match="nor in ModelScope's cache"):
        find_folder(OPTION, MODEL)
    with pytest.raises(CheckpointError, match="nor in ModelScope's cache"):
        find_target(MODEL)
    folder = write_checkpoint(base / LAYOUTS[layout])
    assert find_folder(OPTION, MODEL) == folder
    assert find_target(MODEL) is None


def test_modelscope_revision_is_looked_up(
    tmp_path: Path, modelscope: Callable[[str], None]
) -> None:
    modelscope("1")
    snapshots = tmp_path / "home/.cache/modelscope/models/org--draft-1.5B/snapshots"
    folder = write_checkpoint(snapshots / "v1")
    write_checkpoint(snapshots / "v2")
    assert find_folder(OPTION, MODEL, "v1") == folder
    for revision in (None, "v3"):  # none of two is the right one
        with pytest.raises(CheckpointError, match="ModelScope"):
            find_folder(OPTION, MODEL, revision)
    assert find_target(MODEL) is None


@pytest.mark.parametrize(
    ("value", "name"),
    [(" TRUE ", "ModelScope"), ("1", "ModelScope"), ("yes", "Hugging Face"), ("", "Hugging Face")],
)
def test_modelscope_is_on_where_vllm_says_so(
    modelscope: Callable[[str], None], value: str, name: str
) -> None:
    from vllm import envs

    modelscope(value)
    assert current_hub().name == name
    assert envs.environment_variables["VLLM_USE_MODELSCOPE"]() == (name == "ModelScope")


def test_nothing_of_a_hub_is_imported_until_a_name_is_looked_up() -> None:
    code = (
        "import sys, json, vllm_ascend_spec.config.examine\n"
        "from vllm_ascend_spec.checkpoint import folder as p\n"
        "before = 'huggingface_hub' in sys.modules\n"
        "p.find_folder('model', 'org/draft')\n"
        "print(json.dumps([before, sorted({m.partition('.')[0] for m in sys.modules})]))"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    before, modules = json.loads(result.stdout)
    assert not before
    assert not {"torch", "vllm", "transformers", "httpx", "requests", "tqdm"} & set(modules)
