"""The sources that test_surface.py reads are those of vLLM for CUDA, byte by byte.

Nothing is downloaded: the CUDA wheel's checksums are recorded (wheel.py), and what is installed
here, vLLM for the CPU, is compared with them.
"""

from __future__ import annotations

import base64
import hashlib
import zipfile
from pathlib import Path, PurePosixPath

import pytest

from tests.marks import requires_cpu_build
from tests.upstream import wheel
from vllm_ascend_spec import versions

AGAIN = "python -m tests.upstream.wheel WHEEL records the wheel anew"

pytestmark = requires_cpu_build


@pytest.fixture(scope="module")
def installed() -> dict[str, str]:
    return wheel.read_installed()


def test_the_record_is_of_the_version_that_is_installed() -> None:
    found = versions.installed_vllm()
    assert found is not None
    assert wheel.read_record().name.startswith(f"vllm-{found[1].partition('+')[0]}-"), AGAIN


def test_every_folder_is_the_cuda_wheels_but_for_the_files_named(installed: dict[str, str]) -> None:
    here, recorded = wheel.by_folder(installed), wheel.read_record().folders
    assert {name for name in here | recorded if here.get(name) != recorded.get(name)} == set()
    assert set(installed) >= wheel.DIFFERENT


def test_what_we_rely_on_is_among_them() -> None:
    files = wheel.touched()
    assert {"vllm/platforms/cuda.py", "vllm/v1/worker/gpu_worker.py"} <= files
    folders = {PurePosixPath(name).parent.as_posix() for name in files}
    assert folders <= set(wheel.read_record().folders)
    # Its choice of a platform is the one thing of ours that differs between the builds.
    assert files & wheel.DIFFERENT <= {"vllm/platforms/__init__.py"}


@pytest.mark.parametrize("change", ["another byte", "another file", "a file less"])
def test_a_change_of_one_file_is_another_folder(change: str, installed: dict[str, str]) -> None:
    """Negative control."""
    files, name = dict(installed), "vllm/platforms/cuda.py"
    if change == "another byte":
        files[name] = hashlib.sha256(b"another byte").hexdigest()
    elif change == "another file":
        files["vllm/platforms/another.py"] = files[name]
    else:
        del files[name]
    here, recorded = wheel.by_folder(files), wheel.read_record().folders
    assert {folder for folder in recorded if here[folder] != recorded[folder]} == {"vllm/platforms"}


def test_a_wheels_own_list_is_read(tmp_path: Path) -> None:
    text = b"print()"
    path = tmp_path / "a-1-py3-none-any.whl"
    digest = hashlib.sha256(text)
    encoded = base64.urlsafe_b64encode(digest.digest()).decode().rstrip("=")
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a/b.py", text)
        archive.writestr("a-1.dist-info/RECORD", f"a/b.py,sha256={encoded},7\na/c.so,,\n")
    assert wheel.read_wheel(path) == {"a/b.py": digest.hexdigest()}
