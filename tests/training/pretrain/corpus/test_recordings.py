from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import av
import numpy as np

from training.pretrain.corpus.corpus import RECORDINGS, has_part, open_corpus
from training.pretrain.corpus.make_corpus import _make_part
from training.pretrain.corpus.own_sentences import read_g722
from training.pretrain.corpus.recordings import SPEAKER, recorded_part


def write_g722(path: Path, samples: np.ndarray) -> None:
    with av.open(path, "w", format="g722") as container:
        stream = container.add_stream("g722", rate=16_000, layout="mono")
        frame = av.AudioFrame.from_ndarray(samples[None], format="s16", layout="mono")
        frame.sample_rate = 16_000
        for packet in [*stream.encode(frame), *stream.encode(None)]:
            container.mux(packet)


def test_files_become_a_part_that_can_be_opened(tmp_path: Path):
    assert recorded_part(RECORDINGS, tmp_path) is None
    tone = (8000 * np.sin(2 * np.pi * 300 * np.arange(16_000) / 16_000)).astype(np.int16)
    (tmp_path / "digits").mkdir()
    write_g722(tmp_path / "digits" / "1.g722", tone)
    assert abs(len(read_g722(tmp_path / "digits" / "1.g722")) - 16_000) <= 320
    (tmp_path / "empty.g722").touch()
    part = recorded_part(RECORDINGS, tmp_path)
    assert part is not None
    with ThreadPoolExecutor(1) as pool:
        _make_part(tmp_path / "corpus", part, 500, pool, lambda line: None)
    assert has_part(tmp_path / "corpus", RECORDINGS)
    made = open_corpus(tmp_path / "corpus", RECORDINGS)
    assert [(entry.speaker, entry.text) for entry in made.entries] == [(SPEAKER, "")]
