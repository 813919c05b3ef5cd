"""``LLM.generate`` returns before the files with hidden states are there.

Why: the connector writes a request's states in a thread, in a step after the one that answers the
request (vllm/distributed/kv_transfer/kv_connector/v1/example_hidden_states_connector.py:
ExampleHiddenStatesConnector.request_finished). A script that opens ``hidden_states_path`` at once,
as the examples of the method do, finds no file or an incomplete one. An engine in the script's own
process takes no further step, so it never writes the last files.
How: before ``generate`` returns, such an engine runs its remaining steps, and we wait for the lock
that the connector holds on each file. A server's answers do not change: its clients wait for the
lock, with vLLM's ``load_hidden_states``.
Until: vLLM 0.30 has the fault; later versions were not looked at.
"""

from __future__ import annotations

import fcntl
from typing import Any

from vllm_ascend_spec.patches.patching import Patches

_patches = Patches()
revert = _patches.revert


def apply() -> None:
    """Install the patch once."""
    if _patches:
        return
    from vllm.entrypoints.offline_utils import OfflineInferenceMixin

    stock = OfflineInferenceMixin._run_engine

    def _run_engine(self: Any, *args: Any, **kwargs: Any) -> Any:
        outputs = stock(self, *args, **kwargs)
        if paths := [path for output in outputs if (path := path_of(output))]:
            take_last_steps(self.llm_engine.engine_core)
            for path in paths:
                wait_for(path)
        return outputs

    _patches.set(OfflineInferenceMixin, "_run_engine", _run_engine)


def path_of(output: Any) -> str | None:
    """Return the path of the file with a request's states, or None."""
    return (getattr(output, "kv_transfer_params", None) or {}).get("hidden_states_path")


def take_last_steps(client: Any) -> None:
    """Run the remaining steps of an in-process engine; others run theirs in their own process.

    Args:
        client: vLLM's ``EngineCoreClient`` of an engine without unfinished requests.
    """
    from vllm.v1.engine.core_client import InprocClient

    if isinstance(client, InprocClient):
        while client.engine_core.scheduler.has_requests():
            client.get_output()


def wait_for(path: str) -> None:
    """Wait until a file is complete; return at once if it has no lock."""
    try:
        lock = open(f"{path}.lock")  # noqa: SIM115 - what is caught is a lock that is not there
    except FileNotFoundError:  # ``use_synchronization_lock`` is off
        return
    with lock:
        fcntl.flock(lock, fcntl.LOCK_SH)
