"""The servers that the examples describe: what each one's container runs, and where it listens."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.docs.person import environment
from tests.examples.manifests import EXAMPLES, MANIFESTS, pod_templates, read
from tests.zoo import MODELS, TARGET, ZOO

SCRIPTS = "/opt/vllm-ascend-spec/"
MODELARTS = EXAMPLES / "modelarts"
ENTRY = f"{SCRIPTS}entry.sh"
# What the controllers set in each pod of a group.
GROUP = {"LWS_GROUP_SIZE": "2", "LWS_LEADER_ADDRESS": "speculation-0.speculation"}
# The zoo's models that take the place of those that are mounted, by method.
STAND_INS = {
    "eagle": {"MODEL": TARGET, "DRAFT": str(MODELS / "eagle")},
    "draft_model": {"MODEL": TARGET, "DRAFT": str(MODELS / "draft")},
    "mtp": {"MODEL": str(ZOO / "target-deepseek")},
    "suffix": {"MODEL": TARGET},
}

# What each service printed, by its name.
PRINTED: dict[str, list[str]] = {}


@dataclass(frozen=True)
class Service:
    """A container that runs a server.

    Attributes:
        name: the file, and which container of it.
        words: its command, without entry.sh.
        variables: its environment.
        mounts: the folders that are mounted.
        container: the container of a manifest; empty for other files.
    """

    name: str
    words: tuple[str, ...]
    variables: Mapping[str, str]
    mounts: tuple[str, ...]
    container: Mapping[str, Any]

    @property
    def headless(self) -> bool:
        """Whether it has no API."""
        return any("HEADLESS=true" in word for word in self.words)

    def command(self) -> list[str]:
        """Return the command of vLLM that it prints, with the zoo's models for the mounted ones."""
        if self.name not in PRINTED:
            PRINTED[self.name] = self._command()
        return PRINTED[self.name]

    def _command(self) -> list[str]:
        result = self.run(**self.fakes())
        assert result.returncode == 0, f"{self.name}: {result.stderr}"
        words = shlex.split(result.stdout)
        assert words[:2] == ["vllm", "serve"]
        return words

    def fakes(self) -> dict[str, str]:
        """Return the zoo's models under the names of the settings."""
        models = STAND_INS[self.variables["ASCEND_SPEC_METHOD"]]
        return {f"ASCEND_SPEC_{name}": path for name, path in models.items()}

    def run(self, **more: str) -> subprocess.CompletedProcess[str]:
        """Run its command up to the line that it prints, with this checkout's scripts."""
        given = {**self.variables, **more, "ASCEND_SPEC_PRINT_ONLY": "true"}
        words = [sys.executable if word == "python3" else word for word in self.words]
        words = [re.sub(f"^{SCRIPTS}", f"{MODELARTS}/", word) for word in words]
        return subprocess.run(
            words, env=environment(**given), capture_output=True, text=True, check=False
        )


def env_file(path: Path) -> dict[str, str]:
    """Return the variables of a file for docker and kubectl."""
    lines = [line for line in path.read_text().splitlines() if line and line[0] != "#"]
    return dict(line.split("=", 1) for line in lines)


def in_manifests() -> Iterator[Service]:
    """Yield the containers of the manifests."""
    for path in MANIFESTS:
        documents = read(path)
        maps = {d["metadata"]["name"]: d["data"] for d in documents if d["kind"] == "ConfigMap"}
        pods = [pod for document in documents for pod in pod_templates(document)]
        for rank, pod in enumerate(pods):
            (container,) = pod["spec"]["containers"]
            yield of_container(f"{path.name}-{rank}", container, maps, rank)


def of_container(
    name: str, container: Mapping[str, Any], maps: Mapping[str, Mapping[str, str]], rank: int
) -> Service:
    """Return the service of a container of a manifest."""
    variables: dict[str, str] = {}
    for source in container.get("envFrom", ()):
        variables |= maps[source["configMapRef"]["name"]]
    variables |= {e["name"]: e["value"] for e in container["env"] if "value" in e}
    words = [*container["command"], *container.get("args", ())]
    if words[0] == ENTRY:
        del words[0]
    group = {**GROUP, "LWS_WORKER_INDEX": str(rank)}
    words = [re.sub(r"\$\((\w+)\)", lambda found: group[found[1]], word) for word in words]
    mounts = tuple(mount["mountPath"] for mount in container["volumeMounts"])
    return Service(name, tuple(words), variables, mounts, container)


def form() -> dict[str, Any]:
    """Return ModelArts' form."""
    return yaml.safe_load((MODELARTS / "service.yaml").read_text())


def in_form() -> Service:
    """Return the service of ModelArts' form, with the settings of its file."""
    filled = form()
    entry, *words = shlex.split(filled["command"])
    assert entry == ENTRY
    given = {**env_file(MODELARTS / filled["environment"]["file"]), **filled["environment"]["more"]}
    mounts = tuple(model["mount"] for model in filled["models"])
    return Service("service.yaml", tuple(words), given, mounts, {})


def of_env_files() -> Iterator[Service]:
    """Yield the service of each file of settings, started as the image does by itself."""
    for path in sorted((MODELARTS / "env").glob("*.env")):
        words = ("python3", f"{SCRIPTS}start.py")
        yield Service(path.name, words, env_file(path), ("/home/mind/model",), {})


def pymotor_command(config: Mapping[str, Any]) -> list[str]:
    """Return the words that MindIE-PyMotor makes of ``engine_config``.

    As its ``motor/engine_server/core/vllm/vllm_config.py`` does: underscores are hyphens, true is a
    flag, false is nothing, an object is JSON.
    """
    words = ["vllm", "serve"]
    for key, value in config.items():
        flag = f"--{key.replace('_', '-')}"
        if isinstance(value, bool):
            words += [flag] * value
        elif isinstance(value, dict):
            words += [flag, json.dumps(value)]
        else:
            words += [flag, str(value)]
    return words


SERVICES = [*in_manifests(), in_form(), *of_env_files()]
