"""Use studio and API together from a seed, and print what their memory came to: python -m tests.soak --minutes 60."""

from __future__ import annotations

import sys

from tests.soak.soak import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
