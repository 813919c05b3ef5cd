"""The tool that looks us up in a version's sources, and what it finds in those that we support."""

from __future__ import annotations

import io
import json
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest

from vllm_ascend_spec.conformance import __main__ as command
from vllm_ascend_spec.conformance import fetch, look
from vllm_ascend_spec.conformance.branches import Branches
from vllm_ascend_spec.conformance.sources import Sources
from vllm_ascend_spec.conformance.surface import Surface

# Beside the one that is installed. The index is asked once, then a cache. By day the ends of the
# range, and test_surface.py looks at the one that is installed.
VERSIONS = [
    ("0.23.0", "0.23.0.post1"),
    pytest.param("0.31.0", None, marks=pytest.mark.nightly),
    pytest.param("0.32.0", None, marks=pytest.mark.nightly),
    ("0.33.0", None),
]


def run(*arguments: str) -> int:
    try:
        return command.main(list(arguments))
    except OSError as error:
        pytest.skip(f"the package index cannot be asked: {error}")


@pytest.mark.parametrize(("vllm", "ascend"), VERSIONS)
def test_a_supported_version_has_what_we_use(
    vllm: str, ascend: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    more = () if ascend is None else ("--vllm-ascend", ascend)
    code = run(vllm, *more)
    out, err = capsys.readouterr()
    if code == 2:
        pytest.skip(f"the package index cannot be asked: {err}")
    assert code == 0, out


USER = """
from theirs.base import Base
from ours.ranges import vllm_is

if vllm_is(">=0.30"):
    from theirs.base import later
else:
    from theirs.base import earlier

class Mine(Base):
    if vllm_is(">=0.30"):
        def step(self, k, tokens): ...
    else:
        def step(self, tokens): ...

def which():
    return later() if vllm_is(">=0.30") else earlier()
"""
BASES = {
    "0.23.0": "def earlier(): ...\nclass Base:\n    def step(self, tokens): ...\n",
    "0.32.0": "def later(): ...\nclass Base:\n    def step(self, k, tokens): ...\n",
}


def problems(folder: Path, theirs: str, installed: str) -> list[str]:
    for name, text in {
        "theirs/base.py": theirs,
        "ours/user.py": USER,
        "ours/ranges.py": "def vllm_is(wanted): ...",
    }.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.with_name("__init__.py").touch()
        path.write_text(text)
    roots = {name: folder / name for name in ("theirs", "ours")}
    sources = Sources(roots, ours="ours", installed={"vllm": installed})
    return [f"{use.what}: {use.problem}" for use in Surface(sources, "ours").uses() if use.problem]


@pytest.mark.parametrize("version", BASES)
def test_the_branch_of_the_version_is_looked_at(version: str, tmp_path: Path) -> None:
    assert problems(tmp_path, BASES[version], version) == []


@pytest.mark.parametrize(("version", "other"), [("0.23.0", "0.32.0"), ("0.32.0", "0.23.0")])
def test_another_versions_branch_does_not_fit(version: str, other: str, tmp_path: Path) -> None:
    """Negative control."""
    found = problems(tmp_path, BASES[version], other)
    assert any("there is no such name" in problem for problem in found)
    assert any("overrides step" in problem for problem in found)


def test_conditions_that_ask_for_no_version_are_left() -> None:
    import ast

    text = "if other():\n    a = 1\nelse:\n    a = 2\nb = 1 if not vllm_is('<0.30') else 2"
    tree = Branches({"vllm": "0.30.0"}).visit(ast.parse(text))
    assert ast.unparse(tree) == "if other():\n    a = 1\nelse:\n    a = 2\nb = 1"


def archives(folder: Path) -> dict[str, Path]:
    """Write a wheel and an sdist of the same package."""
    files = {"a/__init__.py": b"", "a/b/c.py": b"x = 1", "a/d.so": b"\0", "e/f.py": b""}
    wheel, sdist = folder / "a-1.0-py3-none-any.whl", folder / "a-1.0.tar.gz"
    with zipfile.ZipFile(wheel, "w") as made:
        for name, text in files.items():
            made.writestr(name, text)
    with tarfile.open(sdist, "w:gz") as made:
        for name, text in files.items():
            entry = tarfile.TarInfo(f"a-1.0/{name}")
            entry.size = len(text)
            made.addfile(entry, io.BytesIO(text))
    return {"wheel": wheel, "sdist": sdist}


@pytest.mark.parametrize("kind", ["wheel", "sdist"])
def test_python_files_are_taken_out_of_archives(kind: str, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    fetch.unpack(archives(tmp_path)[kind], "a", folder)
    found = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    assert found == {"__init__.py", "b/c.py"}


def test_a_version_is_fetched_once_and_its_checksum_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import hashlib

    made = archives(tmp_path)["sdist"]
    file = {
        "filename": made.name,
        "url": made.as_uri(),
        "hashes": {"sha256": hashlib.sha256(made.read_bytes()).hexdigest()},
    }
    page = tmp_path / "index" / "a"
    page.mkdir(parents=True)
    asked = []

    def files_of(distribution: str) -> Any:
        asked.append(distribution)
        yield fetch.Version("1.0"), file

    monkeypatch.setattr(fetch, "files_of", files_of)
    monkeypatch.setattr(fetch, "CACHE", tmp_path / "cache")
    folder = fetch.fetch("a", "a", "1.0")
    assert (folder / "b" / "c.py").read_text() == "x = 1"
    assert fetch.fetch("a", "a", "1.0") == folder
    assert asked == ["a"]
    with pytest.raises(LookupError, match=r"the index has no a 2\.0"):
        fetch.fetch("a", "a", "2.0")
    file["hashes"] = {"sha256": "0" * 64}
    monkeypatch.setattr(fetch, "CACHE", tmp_path / "another")
    with pytest.raises(OSError, match="checksum differs"):
        fetch.fetch("a", "a", "1.0")


def test_versions_are_read_off_the_indexs_list(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ["a-1.0.tar.gz", "a-1.10.0-py3-none-any.whl", "a-2.0rc1.tar.gz", "a-1.9.exe", "a.txt"]
    text = json.dumps({"files": [{"filename": name} for name in names]}).encode()
    monkeypatch.setattr(fetch.urllib.request, "urlopen", lambda *a, **k: io.BytesIO(text))
    assert [str(version) for version, _ in fetch.files_of("a")] == ["1.0", "1.10.0", "2.0rc1"]
    assert fetch.newest("a") == "1.10.0"


def test_options_without_a_record_and_records_without_an_option_are_found(tmp_path: Path) -> None:
    """Negative control."""
    config = tmp_path / "vllm" / "config"
    config.mkdir(parents=True)
    text = (
        "class SpeculativeConfig:\n    method: str\n    fly_window_size: int\n    brand_new: int\n"
    )
    (config / "speculative.py").write_text(text)
    sources = Sources({"vllm": tmp_path / "vllm"})
    wrong = {u.what: u.problem for u in look.options(sources, {"vllm": "0.30.0"}) if u.problem}
    assert wrong["option brand_new"] == "has no record"
    assert wrong["option kv_cache_dtype"] == "this version lacks it"
    assert not {"option method", "option disable_lookahead_block_hashes"} & wrong.keys()


@pytest.mark.nightly  # by day test_surface.py looks for the same uses
def test_what_is_installed_fits(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["installed"]) == 0
    assert "0 uses of ours do not fit" in capsys.readouterr().out


def test_patches_of_other_versions_are_not_looked_at() -> None:
    without = set(look.patches_without_fault({"vllm": "0.33.0"}))
    assert "vllm_ascend_spec.patches.cpu_rejection_kernels" in without
    assert "vllm_ascend_spec.patches.npu_mtp_lm_head" in without
    assert "vllm_ascend_spec.patches.upstream.unguarded_script" not in without
