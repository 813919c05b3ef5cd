"""The steps of the CPU's Dockerfile, run in a fresh virtual environment instead of a container."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.examples.dockerfiles import CPU, SCRIPTS, named, steps
from tests.examples.manifests import ROOT
from tests.zoo import MODELS, TARGET
from vllm_ascend_spec.bench.server import Server

# They change the system, as root; g++ and libnuma are this machine's.
OF_THE_SYSTEM = ("apt-get", "useradd")
SYSTEM_PYTHON = "/usr/local"


class Image:
    """A folder that stands in for the image: its own /opt/vllm-ascend-spec and its own Python."""

    def __init__(self, folder: Path) -> None:
        self.python = folder / "python"
        self.scripts = folder / "opt"
        self.directory = self.scripts
        self.scripts.mkdir()
        subprocess.run([sys.executable, "-m", "venv", str(self.python)], check=True)

    @property
    def environment(self) -> dict[str, str]:
        """What a shell in the container would have; pip may be told where to look."""
        kept = ("HOME", "LANG", "PIP_", "SSL_", "HTTP", "http", "no_proxy")
        found = {name: value for name, value in os.environ.items() if name.startswith(kept)}
        return found | {"PATH": f"{self.python / 'bin'}:/usr/bin:/bin"}

    def here(self, text: str) -> str:
        """Return a text with the places of this folder for those of the image."""
        text = text.replace(SCRIPTS, f"{self.scripts}/")
        return text.replace(f" {SYSTEM_PYTHON} ", f" {self.python} ")

    def run(self, text: str) -> None:
        done = subprocess.run(
            ["bash", "-e", "-c", self.here(text)],
            cwd=self.directory,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{text}\n{done.stdout[-2000:]}{done.stderr[-4000:]}"

    def copy(self, words: list[str]) -> None:
        *sources, target = words
        for source in sources:
            to = self.directory / self.here(target)
            if source.endswith("/"):
                # As .dockerignore says, nothing that was built here.
                ignored = shutil.ignore_patterns("__pycache__", "*.so", "*.so.sha256")
                shutil.copytree(ROOT / source, to, ignore=ignored)
            else:
                to.mkdir(parents=True, exist_ok=True)
                shutil.copy(ROOT / source, to)


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Image]:
    """Do what can be done without a container, and without being root."""
    folder = tmp_path_factory.mktemp("image")
    made = Image(folder)
    done = []
    for step in steps(CPU):
        if step.name == "WORKDIR" and step.text.startswith(SCRIPTS):
            made.directory = Path(made.here(step.text))
            made.directory.mkdir(parents=True)
        elif step.name == "COPY":
            made.copy(step.words)
        elif step.name == "RUN" and not step.text.startswith(OF_THE_SYSTEM):
            made.run(step.text)
            done.append(step)
    assert len(done) == len(named(CPU, "RUN")) - len(OF_THE_SYSTEM)
    yield made
    # Four gigabytes.
    shutil.rmtree(folder)


@pytest.mark.nightly
@pytest.mark.timeout(3600)
def test_the_image_serves_and_is_healthy(image: Image) -> None:
    """ENTRYPOINT starts a server with EAGLE, HEALTHCHECK finds it well, and ill after its end."""
    settings = {
        **{"MODEL": TARGET, "METHOD": "eagle", "DRAFT": str(MODELS / "eagle"), "TOKENS": "3"},
        **{"ARG_KV_CACHE_MEMORY_BYTES": "128M", "ARG_MAX_MODEL_LEN": "512"},
        "ARG_ENFORCE_EAGER": "true",
    }
    given = {f"ASCEND_SPEC_{name}": value for name, value in settings.items()}
    unset = dict.fromkeys(name for name in os.environ if name not in image.environment)
    server = Server("", environment={**unset, **image.environment, **given})
    server.environment["ASCEND_SPEC_PORT"] = str(server.port)
    (entry,) = named(CPU, "ENTRYPOINT")
    server.command = [image.here(word) for word in entry.words]
    server.command[0] = str(image.python / "bin" / server.command[0])
    (check,) = named(CPU, "HEALTHCHECK")
    words = [image.here(word) for word in json.loads(check.text.split(" CMD ")[1])]
    asked = f"ASCEND_SPEC_PORT={server.port} {shlex.join(words)}"
    with server:
        image.run(asked)
    # Later versions than 0.30 do not log that a platform is activated.
    assert "scheduler class vllm_ascend_spec." in server.log_text()
    image.run(f"! {asked}")


@pytest.mark.nightly
@pytest.mark.timeout(3600)
def test_the_image_has_the_fast_parts(image: Image) -> None:
    """The C++ backend was built, and suffix trees are there."""
    image.run("vllm-ascend-spec info --json | grep --quiet 'cpu.*ready'")
    image.run("python3 -c 'import arctic_inference.suffix_decoding'")
