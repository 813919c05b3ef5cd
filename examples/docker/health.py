"""Ask the server of this container for its health: status 0 if it is well, 1 if not.

It reads the settings that start.py reads, so that host, port and protocol are the server's.
"""

from __future__ import annotations

import os
import ssl
import sys
import urllib.error
import urllib.request

# A server that listens everywhere does so here.
EVERYWHERE = ("", "0.0.0.0", "::")


def address() -> str:
    """Return the server's address for health checks."""
    protocol = "https" if os.environ.get("ASCEND_SPEC_CERT") else "http"
    host = os.environ.get("ASCEND_SPEC_HOST", "")
    if host in EVERYWHERE:
        host = "127.0.0.1"
    elif ":" in host:
        host = f"[{host}]"
    return f"{protocol}://{host}:{os.environ.get('ASCEND_SPEC_PORT') or 8080}/health"


def main() -> int:
    """Ask, and say why not."""
    # The certificate is for the name that clients use, not for this address.
    context = ssl._create_unverified_context()
    try:
        with urllib.request.urlopen(address(), timeout=5, context=context):
            return 0
    except (OSError, urllib.error.URLError) as error:
        sys.stderr.write(f"health.py: {address()}: {error}\n")
        return 1


if __name__ == "__main__":
    sys.exit(main())
