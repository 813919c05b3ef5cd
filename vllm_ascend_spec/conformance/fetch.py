"""Fetch the Python files of a package's version from the index, without installing it."""

from __future__ import annotations

import hashlib
import json
import os
import tarfile
import tempfile
import urllib.request
import zipfile
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from packaging.utils import (
    InvalidSdistFilename,
    InvalidWheelFilename,
    parse_sdist_filename,
    parse_wheel_filename,
)
from packaging.version import Version

# PEP 691: an index's list of a project's files, as JSON.
SIMPLE_API = "application/vnd.pypi.simple.v1+json"
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "vllm-ascend-spec"


def files_of(distribution: str) -> Iterator[tuple[Version, Mapping[str, Any]]]:
    """Yield the version and the description of each sdist and wheel that the index has."""
    index = os.environ.get("PIP_INDEX_URL", "https://pypi.org/simple").rstrip("/")
    request = urllib.request.Request(f"{index}/{distribution}/", headers={"Accept": SIMPLE_API})
    with urllib.request.urlopen(request, timeout=120) as answer:
        files = json.load(answer)["files"]
    for file in files:
        name = file["filename"]
        try:
            parse = parse_wheel_filename if name.endswith(".whl") else parse_sdist_filename
            yield parse(name)[1], file
        except (InvalidSdistFilename, InvalidWheelFilename):
            continue


def newest(distribution: str) -> str:
    """Return the newest version on the index that is not a pre-release."""
    return str(max(version for version, _ in files_of(distribution) if not version.is_prerelease))


def fetch(distribution: str, package: str, version: str) -> Path:
    """Return the cached folder of a package's Python files; download them if needed.

    Args:
        distribution: name on the index.
        package: name in imports.
        version: version of the distribution.

    Raises:
        LookupError: the index has no such version.
    """
    folder = CACHE / "sources" / f"{distribution}-{version}"
    if not (folder / package).is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        found = [file for its, file in files_of(distribution) if its == Version(version)]
        if not found:
            raise LookupError(f"the index has no {distribution} {version}")
        # Prefer the sdist: a vLLM wheel contains the compiled kernels.
        file = min(found, key=lambda file: file["filename"].endswith(".whl"))
        with tempfile.TemporaryDirectory(dir=folder.parent) as temporary:
            archive = Path(temporary, file["filename"])
            _download(file, archive)
            unpacked = Path(temporary, "unpacked")
            unpack(archive, package, unpacked)
            folder.mkdir(exist_ok=True)
            try:
                unpacked.rename(folder / package)
            except OSError:
                # Another process was first.
                if not (folder / package).is_dir():
                    raise
    return folder / package


def _download(file: Mapping[str, Any], path: Path) -> None:
    with urllib.request.urlopen(file["url"], timeout=600) as answer:
        path.write_bytes(answer.read())
    expected = file["hashes"].get("sha256")
    if expected and hashlib.sha256(path.read_bytes()).hexdigest() != expected:
        raise OSError(f"{path.name} is not what the index says: its checksum differs")


def unpack(archive: Path, package: str, folder: Path) -> None:
    """Write the Python files of a package from a wheel or an sdist into ``folder``."""
    for name, read in _members(archive):
        parts = name.split("/")
        # An sdist wraps everything in one folder.
        inside = parts if archive.suffix == ".whl" else parts[1:]
        if inside[0] == package and name.endswith(".py") and ".." not in parts:
            path = folder.joinpath(*inside[1:])
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(read())


def _members(archive: Path) -> Iterator[tuple[str, Callable[[], bytes]]]:
    """Yield the name of each file, and a function that reads it."""
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as wheel:
            for name in wheel.namelist():
                yield name, partial(wheel.read, name)
        return
    with tarfile.open(archive) as sdist:
        for member in sdist:
            content = sdist.extractfile(member)
            if content is not None:
                yield member.name, content.read
