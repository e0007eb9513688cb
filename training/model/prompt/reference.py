# Shape letters: S sample, F energy frame of 10 ms.
"""Trims a recording for in-context cloning, so that takes begin cleanly.

In-context cloning continues the reference: text of reference and take in one sequence, codes of the reference, then the
codes that the talker adds. So the end of the reference decides how the take begins. If it ends in the middle of a
sound, the talker finishes that sound first, and the last syllable of the reference is heard again. If it ends in
digital silence, the take starts fresh.

The transcript is not known here, and cutting off a word of the transcript is worse than a rough end: the talker then
speaks the missing word in the take. So everything that may be a word is kept:

- Trailing noise and breath are cut, but not the first 150 ms after speech: final consonants fade out below any
  threshold.
- Speech that runs to the end is kept, with a fade of 10 ms to avoid a click.
- One exception: a sound of up to 150 ms that runs to the very end, after a pause of 200 ms or more, is the start of a
  word that the recorder cut off. It is not in the transcript, and would leak into the take. A complete word as short as
  that is safe, because a recorder that was not stopped within it also recorded some silence after it.

Speech is everything less than 35 dB below the loudest 10 ms: soft consonants are about 25 to 30 dB below loud vowels.
With a louder background no pauses are found, and nothing is cut.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from training.model.errors import PromptError

SILENCE_SECONDS = 0.5

_FRAMES_PER_SECOND = 100
_SPEECH_BELOW_PEAK_DB = 35.0
_LEAD_FRAMES = 10
_TAIL_FRAMES = 15
_FADE_SECONDS = 0.01
_PARTIAL_SYLLABLE_FRAMES = 15
# 200 ms that do not begin with a frame hold 19 whole ones. The closure within "p" or "k" has 15 at most.
_PAUSE_FRAMES = 19
# With less than a second left, the cut-off sound may be most of the speech. Two frames more than a second, because the
# first and the last may hold only a little speech.
_MIN_SPEECH_FRAMES = 102


def prepare_reference(samples: NDArray[np.floating[Any]], sample_rate: int) -> NDArray[np.float32]:
    """Trim a mono recording of shape (samples,) to its speech and append 0.5 s of digital silence.

    At most 0.1 s remain before the first speech. The result is float32 at the same rate (Hz); preparing it again
    changes nothing. A recording without any sound becomes just the silence.

    Raises:
        PromptError: there are no samples.
    """
    assert samples.ndim == 1, f"mono samples expected, not shape {samples.shape}"
    if not samples.size:
        raise PromptError("The reference recording is empty. Choose one with a second of speech or more.")
    hop = sample_rate // _FRAMES_PER_SECOND
    silence_S = np.zeros(round(SILENCE_SECONDS * sample_rate), np.float32)
    sound_S = np.trim_zeros(samples.astype(np.float32), "b")
    num_zeros = samples.size - sound_S.size
    speech_frames = _find_speech(sound_S, hop)
    if speech_frames.size:
        # A recording that ends in that much digital silence was prepared before; another fade would shorten it.
        if num_zeros < silence_S.size:
            is_cut_off = num_zeros < hop and sound_S.size < (speech_frames[-1] + 2) * hop
            end = (_last_frame(speech_frames, is_cut_off=is_cut_off) + 1 + _TAIL_FRAMES) * hop
            sound_S = _fade_out(np.trim_zeros(sound_S[:end], "b"), round(_FADE_SECONDS * sample_rate))
        begin = max(0, int(speech_frames[0]) - _LEAD_FRAMES) * hop
        sound_S = sound_S[begin:]
    return np.concatenate([sound_S, silence_S])


def _find_speech(sound_S: NDArray[np.float32], hop: int) -> NDArray[np.intp]:
    """Indices of the frames of `hop` samples that are less than the margin below the loudest one.

    Relative to the loudest frame rather than the noise floor, because trimming does not change it: preparing a
    recording again gives the same result.
    """
    num_frames = -(-sound_S.size // hop)
    padded_S = np.pad(sound_S.astype(np.float64), (0, num_frames * hop - sound_S.size))
    energy_F = np.square(padded_S).reshape(num_frames, hop).sum(axis=1)
    return np.flatnonzero(energy_F > energy_F.max(initial=0.0) * 10.0 ** (-_SPEECH_BELOW_PEAK_DB / 10.0))


def _last_frame(speech_frames: NDArray[np.intp], *, is_cut_off: bool) -> int:
    """The last frame of speech to keep; `is_cut_off` if sound runs to the end of the recording."""
    last = int(speech_frames[-1])
    pauses = np.flatnonzero(np.diff(speech_frames) > _PAUSE_FRAMES)
    if not is_cut_off or not pauses.size:
        return last
    before_pause, after_pause = int(speech_frames[pauses[-1]]), int(speech_frames[pauses[-1] + 1])
    is_partial_syllable = last - after_pause < _PARTIAL_SYLLABLE_FRAMES
    is_enough_left = before_pause - int(speech_frames[0]) + 1 >= _MIN_SPEECH_FRAMES
    return before_pause if is_partial_syllable and is_enough_left else last


def _fade_out(sound_S: NDArray[np.float32], num_samples: int) -> NDArray[np.float32]:
    """Fade the end linearly to nearly zero; not to zero, so that the end can still be found."""
    faded_S = sound_S.copy()
    num_faded = min(num_samples, faded_S.size)
    faded_S[faded_S.size - num_faded :] *= np.arange(num_faded, 0, -1, dtype=np.float32) / np.float32(num_faded + 1)
    return faded_S
