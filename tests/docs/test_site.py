"""The documents as a site: built without a warning, with every page in it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.blocks import ROOT

TAB = re.compile(r'<label for="__tabbed_\d+_\d+"[^>]*>(.*?)</label>')


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    words = ("build", "--strict", "--config-file", ".mkdocs.yml", "--site-dir", str(folder))
    command = [sys.executable, "-m", "mkdocs", *words]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    # The Chinese build begins to count anew.
    warnings = [line for line in done.stderr.splitlines() if line.startswith("WARNING")]
    assert (done.returncode, warnings) == (0, []), done.stderr
    return folder


def test_every_page_is_in_it(site: Path) -> None:
    docs = ROOT / "docs"
    pages = [path.relative_to(docs).with_suffix("") for path in docs.rglob("*.md")]
    for page in (page for page in pages if page.name not in ("README", "README.zh")):
        chinese = page.suffix == ".zh"
        place = site / ("zh" if chinese else "") / page.with_suffix("" if chinese else page.suffix)
        assert (place / "index.html").is_file(), page


@pytest.mark.parametrize(("folder", "first"), [("", "Ascend NPU"), ("zh", "昇腾 NPU")])
def test_the_quick_start_has_a_tab_for_each_device(site: Path, folder: str, first: str) -> None:
    text = (site / folder / "quickstart" / "index.html").read_text()
    assert TAB.findall(text) == [first, "NVIDIA GPU", "CPU"]


def test_what_lies_outside_is_named(site: Path) -> None:
    """A site has no files of the repository, so it says where they are."""
    text = (site / "evidence" / "index.html").read_text()
    assert "(<code>tests/npu_sim/README.md</code>)" in text
    assert 'href="../../tests' not in text
