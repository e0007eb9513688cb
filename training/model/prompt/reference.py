# Shape letters: S sample, F energy frame of 10 ms.
"""How a recording must begin and end before a voice is cloned from it in context.

In-context cloning continues the reference: text of reference and take in one sequence, codes of the reference,
then the codes that the talker adds. What stands at the end of the reference therefore decides how the take begins.
If it ends in the middle of a sound, the talker finishes that sound first, and the listener hears the last syllable
of the reference once more. A stretch of digital silence closes the reference, and the take starts fresh.

Nothing here knows the transcript, and sound that the transcript lists but the recording lacks is worse than a
rough end: the talker then speaks the missing words into the take. So whatever may be a word stays:

- Trailing noise and breath go, but the last 150 ms after speech stay: final consonants fade out below any threshold.
- Speech that runs to the end stays and only gets a fade of 10 ms, against the click of a cut.
- One exception: a sound of up to 150 ms that runs to the very end, after a pause of 200 ms or more, is the start of
  a word that the recorder cut off. No transcript has it, and it is just what would leak into the take. A word as
  short as that is safe, because a recorder that was not stopped within it also recorded some silence after it.

What is called speech is whatever is less than 35 dB below the loudest 10 ms: soft consonants are about 25 to 30 dB
below loud vowels. Where the background is louder than that, nothing is recognised as pause and nothing is cut.
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
# A cut-off sound that leaves less than a second is perhaps not the end of the speech but most of it. Two frames
# more than a second, because the first and the last may hold only a little speech each.
_MIN_SPEECH_FRAMES = 102


def prepare_reference(samples: NDArray[np.floating[Any]], sample_rate: int) -> NDArray[np.float32]:
    """Trim a mono recording of shape (samples,) to its speech and close it with 0.5 s of digital silence.

    At most 0.1 s remain before the first speech. The result is float32 at the same rate (Hz); preparing it once
    more changes nothing. A recording without any sound becomes just the silence.

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
        # What ends in that much digital silence was closed before; a second fade would eat into it.
        if num_zeros < silence_S.size:
            is_cut_off = num_zeros < hop and sound_S.size < (speech_frames[-1] + 2) * hop
            end = (_last_frame(speech_frames, is_cut_off=is_cut_off) + 1 + _TAIL_FRAMES) * hop
            sound_S = _fade_out(np.trim_zeros(sound_S[:end], "b"), round(_FADE_SECONDS * sample_rate))
        begin = max(0, int(speech_frames[0]) - _LEAD_FRAMES) * hop
        sound_S = sound_S[begin:]
    return np.concatenate([sound_S, silence_S])


def _find_speech(sound_S: NDArray[np.float32], hop: int) -> NDArray[np.intp]:
    """Indices of the frames of `hop` samples that are less than the margin below the loudest one.

    The loudest frame is the measure, and not the noise floor, because trimming does not change it: the prepared
    recording is judged as the original was.
    """
    num_frames = -(-sound_S.size // hop)
    padded_S = np.pad(sound_S.astype(np.float64), (0, num_frames * hop - sound_S.size))
    energy_F = np.square(padded_S).reshape(num_frames, hop).sum(axis=1)
    return np.flatnonzero(energy_F > energy_F.max(initial=0.0) * 10.0 ** (-_SPEECH_BELOW_PEAK_DB / 10.0))


def _last_frame(speech_frames: NDArray[np.intp], *, is_cut_off: bool) -> int:
    """The last frame of speech that is to stay; `is_cut_off` if sound ran to the end of the recording."""
    last = int(speech_frames[-1])
    pauses = np.flatnonzero(np.diff(speech_frames) > _PAUSE_FRAMES)
    if not is_cut_off or not pauses.size:
        return last
    before_pause, after_pause = int(speech_frames[pauses[-1]]), int(speech_frames[pauses[-1] + 1])
    is_partial_syllable = last - after_pause < _PARTIAL_SYLLABLE_FRAMES
    is_enough_left = before_pause - int(speech_frames[0]) + 1 >= _MIN_SPEECH_FRAMES
    return before_pause if is_partial_syllable and is_enough_left else last


def _fade_out(sound_S: NDArray[np.float32], num_samples: int) -> NDArray[np.float32]:
    """Bring the end down to nearly zero in equal steps; never to zero, so that the end can still be found."""
    faded_S = sound_S.copy()
    num_faded = min(num_samples, faded_S.size)
    faded_S[faded_S.size - num_faded :] *= np.arange(num_faded, 0, -1, dtype=np.float32) / np.float32(num_faded + 1)
    return faded_S
