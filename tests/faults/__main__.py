"""Attack Encore from a seed and print one table: python -m tests.faults --minutes 5 --seed 1."""

from __future__ import annotations

import sys

from tests.faults.rounds import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
