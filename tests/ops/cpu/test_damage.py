"""A damaged library is noticed before it is loaded: one line, and the reference is used."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.ops.cpu.marks import requires_library
from vllm_ascend_spec.ops import checksum, cpu_library

ROOT = Path(__file__).parents[3]
CASES = ("whole", "cut 25%", "cut 50%", "cut 99%", "empty", "flip 25%", "flip 50%", "flip 75%")
DAMAGED = CASES[1:]
NOT_BUILT_SO = "its SHA-256 is not that of the library that was built"

# Uses one library and tells what came of it. Damage that goes unnoticed kills the process.
USE = """
import json, logging, sys
from pathlib import Path
import torch
from vllm_ascend_spec.cli import info
from vllm_ascend_spec.errors import BackendUnavailableError
from vllm_ascend_spec.log import PARENT
from vllm_ascend_spec.ops import OPS, cpu_library, verify_greedy
logged = []
handler = logging.Handler()
handler.emit = lambda record: logged.append(record.getMessage())
logging.getLogger(PARENT).addHandler(handler)
cpu_library.LIBRARY = Path(sys.argv[1])
zero, logits = torch.zeros(1, dtype=torch.int32), torch.eye(2, 5)
tokens = [verify_greedy(logits, zero, zero + 1, 1)[0].tolist() for _ in range(3)]
try:
    refused = verify_greedy(logits, zero, zero + 1, 1, backend="cpu") and None
except BackendUnavailableError as error:
    refused = str(error)
used = {op.backend(None, logits.device).__module__.rsplit(".")[-1] for op in OPS}
print(json.dumps({
    "tokens": tokens, "refused": refused, "logged": logged, "used": sorted(used),
    "info": info.op_backends("cpu"),
}))
"""


def use(library: Path) -> dict[str, Any]:
    """Use a library in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-c", USE, str(library)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"status {done.returncode}: {done.stderr[-2000:]}"
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def damaged(case: str, content: bytes) -> bytes:
    """Return the library's content with the damage that a case names."""
    kind, _, share = case.partition(" ")
    place = len(content) * int(share.rstrip("%") or 0) // 100 if share else 0
    if kind == "flip":
        return content[:place] + bytes([content[place] ^ 0xFF]) + content[place + 1 :]
    return content if kind == "whole" else content[:place]


def copy(folder: Path, case: str) -> Path:
    """Put a library of one case, and the checksum of the whole one, into a folder."""
    library = folder / cpu_library.LIBRARY.name
    shutil.copy(cpu_library.LIBRARY, library)
    checksum.write_checksum(library)
    library.write_bytes(damaged(case, library.read_bytes()))
    return library


@requires_library
@pytest.mark.parametrize("case", DAMAGED)
def test_damage_is_named(case: str, tmp_path: Path) -> None:
    found = checksum.file_problem(copy(tmp_path, case))
    assert found == f"{cpu_library.LIBRARY.name} is damaged, {NOT_BUILT_SO}"


@requires_library
@pytest.mark.parametrize("case", ["whole", "cut 50%", "flip 50%"])
def test_no_damaged_library_is_loaded(case: str, tmp_path: Path) -> None:
    result = use(copy(tmp_path, case))
    assert result["tokens"] == 3 * [[[0, 1]]]
    if case == "whole":
        assert (result["used"], result["logged"], result["refused"]) == (["cpu"], [], None)
        assert result["info"]["cpu_instruction_set"] == cpu_library.instruction_set()
        return
    why = (
        f"the C++ backend cannot be loaded: {cpu_library.LIBRARY.name} is damaged, {NOT_BUILT_SO}; "
        f"remedy: {cpu_library.REMEDY}"
    )
    assert len(why) <= 300
    assert result["used"] == ["reference"]
    assert result["logged"] == [f"{why}; the next backend is used"]
    assert result["refused"] == f"verify_greedy: backend 'cpu' cannot run here: {why}"
    assert result["info"]["verify_greedy"]["cpu"] == why
    assert "cpu_instruction_set" not in result["info"]


@requires_library
def test_without_a_checksum_the_length_is_checked(tmp_path: Path) -> None:
    library = copy(tmp_path, "whole")
    checksum.checksum_of(library).unlink()
    assert checksum.file_problem(library) is None
    size = library.stat().st_size
    for case in ("cut 25%", "cut 50%", "cut 99%"):
        content = damaged(case, cpu_library.LIBRARY.read_bytes())
        library.write_bytes(content)
        found = checksum.file_problem(library)
        assert found == (f"{library.name} is damaged, it ends after {len(content)} of {size} bytes")
    assert found in use(library)["logged"][0]


@pytest.mark.parametrize("text", ["", "\n", "0" * 64, "\xff\xfe"])
def test_a_damaged_checksum_is_not_trusted(text: str, tmp_path: Path) -> None:
    library = tmp_path / "library.so"
    library.write_bytes(b"content")
    checksum.checksum_of(library).write_text(text, encoding="latin-1")
    assert NOT_BUILT_SO in (checksum.file_problem(library) or "")


def test_the_checksum_is_in_the_form_of_sha256sum(tmp_path: Path) -> None:
    library = tmp_path / "library.so"
    library.write_bytes(b"content")
    checksum.write_checksum(library)
    digest = hashlib.sha256(b"content").hexdigest()
    assert checksum.checksum_of(library).read_text() == f"{digest}  library.so\n"
    assert checksum.file_problem(library) is None
