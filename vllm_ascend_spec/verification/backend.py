"""Check before anything is loaded that a backend requested by name can run."""

from __future__ import annotations

from vllm_ascend_spec.config.schema import SECTION
from vllm_ascend_spec.errors import ConfigError
from vllm_ascend_spec.ops import OPS

READY = "ready"


def require_backend(name: str | None, device_type: str) -> None:
    """Raise unless every op of the verifier can run on a device with backend ``name``.

    Args:
        name: ``verify_backend``; None leaves the choice to each op.
        device_type: ``cpu``, ``cuda`` or ``npu``.

    Raises:
        ConfigError: it cannot; the message says why.
    """
    if name is None:
        return
    for op in OPS:
        state = op.status(device_type).get(name, f"{op.name} has no such backend")
        if state != READY:
            raise ConfigError(f"additional_config.{SECTION}.verify_backend", name, state)
