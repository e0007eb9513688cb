"""The verbs of the studio: what the page, the command line and the API can do, each one call."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, cast

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import JsonValue

from backend.audio.quality import ReferenceReport, report_on
from backend.audio.writing import WavWriter, write_wav
from backend.comparisons.comparing import Comparing
from backend.comparisons.comparisons import Comparisons
from backend.comparisons.contenders import Contender, ways_of
from backend.dataset.errors import DatasetInUse
from backend.runs.runs import Runs
from backend.serving.pool.loaded_model import LoadedModel
from backend.serving.pool.loading import LoadingState, ModelLoading
from backend.serving.speech.speech import Speech, speak
from backend.settings import Settings
from backend.store.database import Database
from backend.takes.takes import TakeBounds, Takes
from backend.transcription.select import load_stored_transcriber
from backend.voices.cache import VoiceCache
from backend.voices.cloning import read_reference
from backend.voices.consent import Consent, SpokenProof
from backend.voices.errors import ConsentRefused, VoiceError
from backend.voices.phrase import check_phrase
from backend.voices.reference import write_reference
from backend.voices.registry import Voices
from backend.voices.voice import Voice
from training.model.decoding.take_request import TakeRequest, VoicePrompt
from training.model.hub.hub import DownloadProgress, resolve_model
from training.model.voice_model import PrecisionChoice

if TYPE_CHECKING:
    from backend.dataset.datasets import Datasets

__all__ = ["LoadedModel", "Studio"]


class Studio:
    """Holds one loaded model and the store; its verbs may be called from any thread."""

    def __init__(self, settings: Settings | None = None) -> None:
        """Hold nothing yet; `settings` say where voices, datasets and runs are kept."""
        self.settings = settings or Settings()
        self._loaded: LoadedModel | None = None
        self._loading = threading.Lock()
        self._background_loading = ModelLoading()
        self._clones = VoiceCache()
        self._num_threads = torch.get_num_threads()

    @cached_property
    def database(self) -> Database:
        """The store of everything that outlasts the program. Raises StoreError when it cannot be opened."""
        return Database(self.settings.home_folder)

    @cached_property
    def voices(self) -> Voices:
        """The library."""
        return Voices(self.database, self.settings.home_folder)

    @cached_property
    def datasets(self) -> Datasets:
        """Clips with transcripts, to fine-tune on."""
        # Imported here: it brings Ray along, which takes seconds to load and which speaking does not need.
        from backend.dataset.datasets import Datasets  # noqa: PLC0415 - see above

        return Datasets(self.database, self.settings.home_folder)

    @cached_property
    def runs(self) -> Runs:
        """Fine-tunes."""
        return Runs(self.database, self.settings.home_folder)

    @cached_property
    def comparing(self) -> Comparing:
        """Voices side by side, and votes."""
        return Comparing(
            Comparisons(self.database),
            self.voices,
            self.runs,
            self.settings.home_folder,
            clone=self.clone,
            speak=self.speak,
        )

    @cached_property
    def takes(self) -> Takes:
        """What was spoken, also before the program was started. Raises StoreError."""
        takes = Takes(self.database, self.settings.home_folder, TakeBounds(max_takes=self.settings.max_takes))
        takes.sweep()
        return takes

    @property
    def loaded(self) -> LoadedModel | None:
        """The model that would speak now."""
        return self._loaded

    def load_model(
        self,
        name: str,
        *,
        precision: PrecisionChoice = "auto",
        device: str = "auto",
        progress: Callable[[DownloadProgress], None] | None = None,
        cancelled: Callable[[], bool] | None = None,
    ) -> LoadedModel:
        """Find a model (fetching it from the hub if need be) and make it the one that speaks.

        Raises:
            EncoreError: it cannot be found, fetched or read; the model loaded before stays.
        """
        with self._loading:
            folder = resolve_model(name, progress=progress, cancel=cancelled)
            loaded = LoadedModel.load(name, folder, precision=precision, device=device)
            # A small network's operations are over before a second thread has woken up to help.
            torch.set_num_threads(1 if loaded.model.is_small else self._num_threads)
            self._loaded = loaded
            # Voices remember the model they were made with, and would keep the one before in memory.
            self._clones = VoiceCache()
            return loaded

    @property
    def loading(self) -> LoadingState | None:
        """The loading begun by `start_loading`, under way or ended; None if there was none."""
        return self._background_loading.state

    def start_loading(self, name: str, *, precision: PrecisionChoice = "auto", device: str = "auto") -> None:
        """Do what `load_model` does without waiting for it; watch `loading`.

        Raises:
            EncoreError: another model is being loaded.
        """
        self._background_loading.start(
            name,
            lambda progress, cancelled: self.load_model(
                name, precision=precision, device=device, progress=progress, cancelled=cancelled
            ),
        )

    def cancel_loading(self) -> None:
        """Stop a download begun by `start_loading`; what has arrived is kept."""
        self._background_loading.cancel()

    def wait_for_loading(self) -> None:
        """Return once nothing begun by `start_loading` is under way."""
        self._background_loading.wait()

    def examine(self, reference: Path, preview: Path | None = None) -> ReferenceReport:
        """Say how good a recording is to clone a voice from; `preview` names a WAV to make of it that is safe to play.

        Raises:
            RecordingError: no voice can be cloned from it.
            AudioNotWritten: the preview cannot be stored.
        """
        recording = read_reference(reference)
        if preview is not None:
            write_wav(preview, recording.samples, recording.sample_rate)
        return report_on(recording)

    def clone(self, loaded: LoadedModel, reference: Path, transcript: str | None = None) -> VoicePrompt:
        """Make a zero-shot voice of a recording: in context with its transcript, else from the speaker embedding.

        The last few are remembered: the same recording and transcript give the same object again.

        Raises:
            EncoreError: the recording cannot be used, or the model cannot clone.
        """
        return self._clones.clone(loaded.model, reference, transcript)

    def cast_voice(self, loaded: LoadedModel, voice_id: str, way: str = "auto") -> tuple[LoadedModel, VoicePrompt]:
        """What speaks in a voice of the library: in the way meant for it, `in-context` or `x-vector`.

        Raises:
            EncoreError: there is no such voice, or it cannot be spoken like that.
        """
        voice = self.voices.get(voice_id)
        ways = tuple(ways_of(voice))
        chosen = next((one for one in ways if way in ("auto", one)), None)
        if chosen is None:
            raise VoiceError(f"The voice {voice.name} cannot be spoken like that: {way}. Choose the closest way.")
        resolved = self.comparing.resolver.resolve(Contender.of_voice(voice, chosen), loaded)
        return resolved.loaded, resolved.prompt

    def join_recordings(self, recordings: Sequence[Path], destination: Path) -> None:
        """Write several recordings as one WAV. Raises EncoreError when one cannot be used, or the disk is full."""
        write_reference(destination, recordings)

    def save_voice(
        self,
        name: str,
        recording: Path | None,
        *,
        consent: Consent | None,
        transcript: str = "",
        origin: str = "",
        is_sample: bool = False,
    ) -> Voice:
        """Put a zero-shot voice into the library.

        Args:
            name: what it is called.
            recording: what it is cloned from.
            consent: of whoever speaks in it.
            transcript: what the recording says.
            origin: how the recording was called.
            is_sample: whether it came with the program.

        Raises:
            EncoreError: the name, the consent or the recording is missing or cannot be used.
        """
        if recording is None:
            raise VoiceError("There is no new voice to save. Add a recording, or choose a sample voice.")
        provenance: dict[str, JsonValue] = {"sample": origin} if is_sample else {"recordings": [origin[:200]]}
        return self.voices.create_zero_shot(
            name,
            recording,
            consent=consent,
            model=self._loaded.name if self._loaded is not None else self.settings.model,
            transcript=transcript,
            provenance=provenance,
        )

    def speak(
        self,
        loaded: LoadedModel,
        request: TakeRequest,
        *,
        streaming: bool = False,
        cancelled: Callable[[], bool] | None = None,
    ) -> Speech:
        """Speak a text of any length; it is made while the result is iterated, from the first sentence on.

        Raises:
            EncoreError: the text cannot be spoken, or too many others are being spoken.
        """
        speech = speak(loaded.engine, request, streaming=streaming, cancelled=cancelled)
        speech.chunks = _holding(loaded, cast("Generator[NDArray[np.float32]]", speech.chunks))
        return speech

    def record(self, speech: Speech, path: Path) -> Generator[NDArray[np.float32]]:
        """Pass a speech's chunks on while writing them to a WAV file, which is there once they are exhausted.

        Raises:
            AudioNotWritten: the file cannot be written.
        """
        # Closed with this iterator, so that a listener who leaves in the middle frees the model at once.
        chunks = cast("Generator[NDArray[np.float32]]", speech.chunks)
        with closing(chunks), WavWriter(path, speech.sample_rate) as writer:
            for chunk in chunks:
                writer.write(chunk)
                yield chunk

    def delete_voice(self, name: str) -> None:
        """Remove a voice, its consent and its files, also from memory. Raises VoiceNotFound."""
        voice = self.voices.get(name)
        self.comparing.shelf.forget(voice.folder)
        self.voices.delete(voice.id)

    def delete_dataset(self, name: str) -> None:
        """Remove a dataset with what was uploaded for it.

        Raises:
            DatasetInUse: a run is learning from it.
            DatasetNotFound, DatasetBusy: see `Datasets.delete`.
        """
        for run in self.runs.list():
            if run.dataset == name and run.state.is_active:
                raise DatasetInUse(f"{run.voice} learns from {name}. Cancel that run first, or wait for its end.")
        self.datasets.delete(name)

    def prove_consent(self, loaded: LoadedModel, phrase: str, spoken: Path, reference: Path) -> SpokenProof:
        """Hear whether a phrase was spoken by the voice of a reference.

        Raises:
            ConsentRefused: other words or another voice, or nobody here can listen.
            RecordingError: a recording cannot be used.
        """
        # A Whisper that knows people, if there is one.
        listener = load_stored_transcriber(None) or self.comparing.measuring.transcriber(loaded)
        if listener is None:
            raise ConsentRefused(
                "There is no speech recognition on this machine to hear the phrase with. Give the statement alone, or "
                "download a Whisper model on the System tab."
            )
        return check_phrase(phrase, spoken, reference, listener=listener, model=loaded.model)


def _holding(loaded: LoadedModel, chunks: Generator[NDArray[np.float32]]) -> Generator[NDArray[np.float32]]:
    """The same chunks, of a model that stays until they are exhausted, whatever is loaded meanwhile."""
    with closing(chunks):
        yield from chunks
    del loaded
