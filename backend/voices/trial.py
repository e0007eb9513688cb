"""Whether a stranger's checkpoint can speak: two frames, in a process of its own that may fail in any way.

The process has limits for memory and time and writes nothing. It is the first that is ended where the machine has too
little memory, so that nothing which is being spoken suffers.
"""

from __future__ import annotations

import functools
import logging
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

import torch

from backend.audio.confined_process import process_environment
from backend.audio.confinement import address_space_bytes, lower_limit
from backend.voices.errors import VoiceFileInvalid
from training.model.errors import EncoreError
from training.model.generation.adapter import load_adapter
from training.model.generation.take_batch import TakeBatch
from training.model.generation.take_request import TakeRequest, VoicePrompt
from training.model.owner import temporary_folder
from training.model.voice_model import VoiceModel

# Frames and text are as short as they can be: the second frame is the first that reads what was spoken.
_NUM_FRAMES = 2
_TEXT = "One."
_REFERENCE_SECONDS = 1
_CACHE_LENGTH = 256

# The weights are read, converted to float32 and packed; the interpreter with its libraries comes on top.
_COPIES_OF_WEIGHTS = 6
_SPARE_BYTES = 2 * 2**30
# To import the libraries, and to read and speak; many times of what a slow disk and a slow core take.
_SECONDS, _SECONDS_PER_GB = 300.0, 120.0

_REFUSED = 3
_MAX_REASON_CHARACTERS = 400
_logger = logging.getLogger(__name__)


def require_speech(folder: Path, language: str, adapter: Path | None = None) -> None:
    """Have a checkpoint, with an adapter if one is given, speak a moment in a process of its own.

    Raises:
        VoiceFileInvalid: it cannot; the message says why.
    """
    folders = [folder] if adapter is None else [folder, adapter]
    num_bytes = sum(path.stat().st_size for one in folders for path in one.rglob("*.safetensors"))
    memory_bytes = _COPIES_OF_WEIGHTS * num_bytes + _SPARE_BYTES
    seconds = _SECONDS + _SECONDS_PER_GB * num_bytes / 1e9
    command = [sys.executable, "-P", "-m", "backend.voices.trial", language, str(memory_bytes), *map(str, folders)]
    try:
        with temporary_folder() as scratch:
            environment = process_environment() | {"TMPDIR": scratch}
            done = subprocess.run(command, env=environment, capture_output=True, timeout=seconds, check=False)
    except subprocess.TimeoutExpired as error:
        raise VoiceFileInvalid(
            f"The voice's checkpoint did not speak within {seconds:.0f} s. It is not used."
        ) from error
    except OSError as error:
        raise VoiceFileInvalid(f"The voice's checkpoint cannot be tried: {error.strerror}. Try again.") from error
    if done.returncode == 0:
        return
    said = done.stderr.decode(errors="replace").strip()
    if done.returncode == _REFUSED:
        reason = "".join(character for character in said.rpartition("\n")[2] if character.isprintable())
        raise VoiceFileInvalid(f"The voice's checkpoint cannot speak: {reason[:_MAX_REASON_CHARACTERS]}")
    _logger.warning("trial of %s ended with %d: %s", folder, done.returncode, said[-2000:])
    raise VoiceFileInvalid(
        "The voice's checkpoint cannot speak: loading it took more memory than its size explains, or crashed. "
        "It is not used."
    )


def try_to_speak(folder: Path, language: str, adapter: Path | None = None) -> None:
    """Load a checkpoint on the processor, and an adapter if one is given, and let it speak two frames, in this process.

    Raises:
        EncoreError: it cannot be loaded or cannot speak.
    """
    model = VoiceModel.load(folder, device="cpu")
    if model.speaker_encoder is None:
        voice = VoicePrompt(speaker_name=next(iter(model.config.talker.spk_id)))
    else:
        noise = torch.Generator().manual_seed(0)
        voice = VoicePrompt(
            speaker=model.embed_speaker(
                0.1 * torch.randn(_REFERENCE_SECONDS * model.speaker_sample_rate, generator=noise)
            ),
            reference_codes=model.encode(
                0.1 * torch.randn(_REFERENCE_SECONDS * model.tokenizer_sample_rate, generator=noise)
            ),
            reference_text=_TEXT,
        )
    if adapter is not None:
        loaded = load_adapter(adapter, model)
        voice = VoicePrompt(speaker=next(iter(loaded.speakers.values())), adapter=loaded)
    batch = TakeBatch(model, num_slots=1, cache_length=_CACHE_LENGTH)
    request = batch.lay_out(TakeRequest(text=_TEXT, voice=voice, language=language, seed=0, max_frames=_NUM_FRAMES))
    batch.admit(0, request, voice)
    while not batch.prepare(0):
        pass
    for _ in range(_NUM_FRAMES):
        step = batch.step()
        samples = torch.from_numpy(batch.decode([0], step.codes_BQ[:1].unsqueeze(1)))
        if 0 not in step.spoke or not bool(samples.isfinite().all()):
            raise VoiceFileInvalid("It makes sounds that are no numbers. It is not used.")


def main() -> None:
    """Try the checkpoint in the folder that the arguments name, within limits."""
    language, memory_bytes, folders = sys.argv[1], int(sys.argv[2]), [Path(one) for one in sys.argv[3:]]
    if sys.platform == "linux":
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")
        lower_limit(resource.RLIMIT_AS, address_space_bytes() + memory_bytes)
    lower_limit(resource.RLIMIT_CORE, 0)
    lower_limit(resource.RLIMIT_FSIZE, 0)
    # Otherwise Python finds out by writing where it can write.
    tempfile.tempdir = os.environ["TMPDIR"]
    try:
        try_to_speak(folders[0], language, *folders[1:])
    except EncoreError as error:
        reason = functools.reduce(lambda said, folder: said.replace(str(folder), "it"), folders, str(error))
        sys.stderr.write(f"\n{reason}\n")
        sys.stderr.flush()
        os._exit(_REFUSED)
    # Without the libraries' own farewell, which may hang.
    os._exit(0)


if __name__ == "__main__":
    main()
