"""How much later a take is heard through Ray Serve than from an engine of this process.

    RAY_ADDRESS=HOST:PORT python -m tests.benchmarks.cluster_speech --rounds 12

Both have the same checkpoint, and take turns with the same sentence and seed. Prints the median, smallest and largest
ratio and difference of the seconds to the first sound, and of those to the end.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from contextlib import closing
from pathlib import Path

from backend.serving.loaded_model import LoadedModel
from backend.serving.requests import Reference, SynthesisRequest
from backend.settings import Settings
from backend.studio import Studio
from backend.voices.samples import list_samples

TEXT = "The quick brown fox jumps over the lazy dog, and nobody has ever asked it why it does so."


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--model", default="mini")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        studios = [Studio(Settings(home=Path(folder))) for _ in range(2)]
        here = studios[0].load_model(options.model, precision="fp32", device="cpu")
        there = studios[1].load_on_cluster(options.model, precision="fp32")
        sample = list_samples()[0]
        voice = Reference(name=sample.name, recording=sample.reference_in(Path(folder)), transcript=None)
        request = SynthesisRequest(voice=voice, text=TEXT, seed=5, made_by="studio")
        for model in (here, there):
            measure(model, request)
        pairs = [(measure(here, request), measure(there, request)) for _ in range(options.rounds)]
        there.retire()
    for number, what in enumerate(("first sound", "whole take")):
        ratios = [second[number] / first[number] for first, second in pairs]
        later = [1000 * (second[number] - first[number]) for first, second in pairs]
        print(
            f"{what}: through Ray Serve {statistics.median(ratios):.2f} times as long "
            f"({min(ratios):.2f} to {max(ratios):.2f}), {statistics.median(later):.0f} ms later "
            f"({min(later):.0f} to {max(later):.0f}), {options.rounds} rounds"
        )


def measure(model: LoadedModel, request: SynthesisRequest) -> tuple[float, float]:
    """Seconds from asking to the first sound, and to the last."""
    asked = time.perf_counter()
    with closing(model.speak(request)) as stream:
        next(stream)
        first = time.perf_counter() - asked
        for _ in stream:
            continue
        return first, time.perf_counter() - asked


if __name__ == "__main__":
    main()
