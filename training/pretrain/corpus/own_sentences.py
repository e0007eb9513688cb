"""Two Russians who say sentences of their own only: one is recorded, the other is festival's voice and knows no Latin.

Nothing of what is said is known to the talker, which learns from them how people sound.
"""

from __future__ import annotations

import io
import re
import zlib
from functools import cache
from pathlib import Path

import numpy as np
import soundfile
from numpy.typing import NDArray

from training.pretrain.errors import CorpusError

RUSSIAN_PROMPTS = Path("/usr/share/asterisk/sounds/ru_RU_f_IvrvoiceRU")
"""Of Debian's asterisk-core-sounds-ru-g722, by Maxim Topal (ivrvoice.ru), CC-BY 3.0."""
RUSSIAN_VOICE = Path("/usr/share/festival/voices/russian/msu_ru_nsh_clunits")
"""Of Debian's festvox-ru, by Nickolay V. Shmyrev, under a licence like BSD's: made of his own recordings."""
RECORDING_RATE_HZ = 16_000

_SENTENCES = RUSSIAN_VOICE / "etc" / "txt.done.data"
_SENTENCE = re.compile(r'^\( *\S+ +"(.*)" *\)$')
# Shorter ones are words and sighs; longer ones are read for half a minute.
_LETTERS = (20, 160)
_MIN_BYTES = 12_000
_PATTERN = "**/*.g722"


def recorded(text: str) -> bytes:
    """A recording that is always the same for a text, as a WAV file.

    Raises:
        CorpusError: no recording is installed.
    """
    files = _recordings()
    if not files:
        raise CorpusError(f"{RUSSIAN_PROMPTS} has no recordings. Install asterisk-core-sounds-ru-g722.")
    written = io.BytesIO()
    soundfile.write(written, read_g722(files[_number(text, len(files))]), RECORDING_RATE_HZ, format="WAV")
    return written.getvalue()


def own_sentence(text: str) -> str:
    """A sentence of those that festival's voice is made of, always the same for a text.

    Raises:
        CorpusError: the voice is not installed.
    """
    sentences = _sentences()
    if not sentences:
        raise CorpusError(f"{RUSSIAN_VOICE} does not exist. Install festvox-ru.")
    return sentences[_number(text, len(sentences))]


def read_g722(path: Path) -> NDArray[np.float32]:
    """A file of raw G.722, mono at 16 kHz, in [-1, 1]."""
    # Not needed on machines that only train.
    import av  # noqa: PLC0415

    with av.open(path, format="g722") as container:
        blocks = [frame.to_ndarray().reshape(-1) for frame in container.decode(audio=0)]
        assert container.streams.audio[0].rate == RECORDING_RATE_HZ
    # Some files are empty.
    return np.concatenate([np.zeros(0, np.int16), *blocks]).astype(np.float32) / np.float32(32768)


def recordings_in(folder: Path) -> tuple[Path, ...]:
    """All G.722 files of a folder and those below, always in the same order."""
    return tuple(sorted(folder.glob(_PATTERN)))


@cache
def _recordings() -> tuple[Path, ...]:
    return tuple(path for path in recordings_in(RUSSIAN_PROMPTS) if path.stat().st_size >= _MIN_BYTES)


@cache
def _sentences() -> tuple[str, ...]:
    if not _SENTENCES.is_file():
        return ()
    found = (_SENTENCE.match(line) for line in _SENTENCES.read_text(encoding="utf-8").splitlines())
    # A plus marks stress.
    sentences = (match[1].replace("+", "") for match in found if match)
    return tuple(sentence for sentence in sentences if _LETTERS[0] <= len(sentence) <= _LETTERS[1])


def _number(text: str, count: int) -> int:
    return zlib.crc32(text.encode()) % count
