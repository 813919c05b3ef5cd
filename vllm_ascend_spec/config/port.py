"""Check the port of a server before its model is loaded."""

from __future__ import annotations

import errno
import socket

from vllm_ascend_spec.errors import ConfigError


def check_port(host: str | None, port: int) -> None:
    """Raise if another process listens on the port.

    Raises:
        ConfigError: the port is taken.
    """
    family = socket.AF_INET6 if host and ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host or "", port))
        except OSError as error:
            # Anything else (no such interface, no permission) is vLLM's to report.
            if error.errno == errno.EADDRINUSE:
                raise ConfigError(
                    "--port", port, "another process listens on it; choose a free port"
                ) from None
