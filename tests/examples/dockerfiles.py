"""The Dockerfiles of examples/docker, read by dockerfile-parse."""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import dataclass
from functools import cache
from io import BytesIO
from pathlib import Path

from dockerfile_parse import DockerfileParser

from tests.examples.manifests import EXAMPLES, ROOT

FOLDER = EXAMPLES / "docker"
CPU, ASCEND = FOLDER / "Dockerfile.cpu", FOLDER / "Dockerfile.ascend"
PATHS = [CPU, ASCEND]
SCRIPTS = "/opt/vllm-ascend-spec/"


@dataclass(frozen=True)
class Step:
    """An instruction.

    Attributes:
        name: in capitals, as ``RUN``.
        text: what follows it, lines joined.
    """

    name: str
    text: str

    @property
    def words(self) -> list[str]:
        """The words of an instruction in JSON, or of a COPY."""
        return json.loads(self.text) if self.text.startswith("[") else shlex.split(self.text)


@cache
def steps(path: Path) -> tuple[Step, ...]:
    """Return the instructions of a file, without its comments."""
    parser = DockerfileParser(fileobj=BytesIO(path.read_bytes()))
    return tuple(
        Step(found["instruction"], re.sub(r"\s+", " ", found["value"]).strip())
        for found in parser.structure
        if found["instruction"] != "COMMENT"
    )


def named(path: Path, name: str) -> list[Step]:
    """Return the instructions of a kind."""
    return [step for step in steps(path) if step.name == name]


def copies(path: Path) -> dict[str, str]:
    """Return where each copied file or folder of the checkout goes."""
    found = {}
    for step in named(path, "COPY"):
        *sources, target = step.words
        found |= dict.fromkeys(sources, target)
    return found


def is_sent(name: str) -> bool:
    """Whether .dockerignore lets a file or folder of the checkout into the build."""
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    kept = [line[1:] for line in lines if line.startswith("!")]
    return any(name.rstrip("/") == line or name.startswith(f"{line}/") for line in kept)
