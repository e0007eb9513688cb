"""The container's health check: exit status 0 if a server of Encore answers here, else 1.

Without an address it asks the API, then the studio. A server that asks for a password is healthy.
"""

from __future__ import annotations

import os
import sys
import urllib.error
import urllib.request

TIMEOUT_SECONDS = 4.0
_OUR_FAULT = 500


def addresses() -> list[str]:
    """Where the servers of a container listen."""
    return ["http://127.0.0.1:8000/healthz", f"http://127.0.0.1:{os.environ.get('ENCORE_PORT', '7860')}/"]


def is_healthy(address: str) -> bool:
    """Whether a server answers, and does not say that it is broken."""
    try:
        with urllib.request.urlopen(address, timeout=TIMEOUT_SECONDS) as response:
            return bool(response.status < _OUR_FAULT)
    except urllib.error.HTTPError as error:
        return error.code < _OUR_FAULT
    except OSError:
        return False


if __name__ == "__main__":
    sys.exit(0 if any(map(is_healthy, sys.argv[1:] or addresses())) else 1)
