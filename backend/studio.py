"""The studio: what the page can do, each as one call; `app.py clone` uses it, too."""

from __future__ import annotations

import hashlib
import socket
import threading
from collections.abc import Callable, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import JsonValue

from backend.audio.quality import ReferenceReport
from backend.audio.writing import WavWriter
from backend.background_tasks import BackgroundTask, BackgroundTasks, TaskState
from backend.dataset.errors import DatasetInUse
from backend.errors import EncoreError, ModelError, SettingsError
from backend.provenance.check import Checker
from backend.provenance.signing import FileSigner
from backend.serving.engine.engine import Engine
from backend.serving.loaded_model import LoadedModel
from backend.serving.pool.engine_pool import EnginePool
from backend.serving.remote.remote_model import RemoteModel
from backend.serving.settings import EngineSettings, ServeSettings
from backend.serving.speak_again import check_same_checkpoint, put_in_place, request_again
from backend.serving.speech.audio_stream import AudioStream
from backend.serving.synthesizer import Synthesizer
from backend.settings import Settings
from backend.store.home import Home
from backend.store.leftovers import sweep_leftovers
from backend.store.trash import Deleted, Trash
from backend.takes.stored_takes import StoredTakes
from backend.takes.take import Take
from backend.takes.takes import TakeBounds, Takes
from backend.transcription.listening import Heard, hear_recording
from backend.voices.consent import Consent, SpokenProof
from backend.voices.errors import ConsentInvalid, VoiceError
from backend.voices.publisher import VoicePublisher
from backend.voices.reference import examine_reference, read_reference, write_reference
from backend.voices.registry import Voices
from backend.voices.samples import get_sample
from backend.voices.spoken_consent import check_phrase
from backend.voices.voice import Voice
from backend.voices.voice_index import owner_of
from backend.watermark.installation import installation_key, mark_of
from training.machine import Machine
from training.model.hub.hub import DownloadProgress, resolve_model
from training.model.precision import PrecisionChoice
from training.model.speaker_verifier import load_verifier
from training.storage.objects import open_store

if TYPE_CHECKING:
    from backend.comparisons.comparisons import Comparisons
    from backend.dataset.datasets import Datasets
    from backend.evaluation.review_take import Likeness
    from backend.runs.runs import Runs

_LOADING = "model"

NUM_SLOTS = 1
"""A further slot would make every frame slower for the one user who mostly listens, and the last bits of a take
depend on what is decoded with it: with one slot a seed gives the same file each time. Several users take turns,
sentence by sentence."""

CLUSTER_SLOTS = 4
"""Takes that one process of a cluster speaks at once."""

MAX_REPLICAS = 2
"""Of them: base and fine-tuned voices side by side, where there is room."""

CACHE_LENGTH = 4096
"""Tokens per slot: room for the longest reference and the longest sentence of the public checkpoints."""


MAX_LIKENESSES = 200
"""Of a voice and a checkpoint each."""


class Studio:
    """Holds one loaded model and the stores; its methods may be called from any thread."""

    def __init__(self, settings: Settings | None = None) -> None:
        """Load nothing yet; `settings` say where voices, datasets and runs are kept."""
        self.settings = settings or Settings()
        self._loaded: LoadedModel | None = None
        self._loading = threading.Lock()
        self._tasks: BackgroundTasks[None] = BackgroundTasks()
        self._num_threads = torch.get_num_threads()
        self._likeness: dict[tuple[Path, int, str], Likeness] = {}
        self._hearing = threading.Lock()

    @cached_property
    def home(self) -> Home:
        """What outlasts the program. Raises StoreError when it cannot be opened."""
        return Home(self.settings.home_folder)

    @cached_property
    def voices(self) -> Voices:
        """The library."""
        return Voices(self.home)

    def use_storage(self) -> None:
        """Keep what is made in the object storage too, if there is one, and tidy it up. Raises StorageError."""
        if (store := open_store(self.settings.storage)) is not None:
            VoicePublisher(self.voices, store, self.home.folder).keep_publishing()
            StoredTakes(self.home, store, owner_of(self.home.folder)).keep_syncing()
            # Here: see `datasets`.
            from backend.dataset.storage.stored_builds import keep_removing_abandoned  # noqa: PLC0415
            from backend.dataset.stored_datasets import StoredDatasets  # noqa: PLC0415

            StoredDatasets(self.home, store, owner_of(self.home.folder)).keep_syncing()
            keep_removing_abandoned(store, self.home.folder)

    @cached_property
    def datasets(self) -> Datasets:
        """Clips with transcripts, to fine-tune on."""
        # Imported here, as below: speaking, which is what this is mostly loaded for, needs none of it.
        from backend.dataset.datasets import Datasets  # noqa: PLC0415 - see above

        return Datasets(self.home)

    @cached_property
    def runs(self) -> Runs:
        """Fine-tunes."""
        from backend.runs.runs import Runs  # noqa: PLC0415 - see above

        return Runs(self.home)

    @cached_property
    def comparisons(self) -> Comparisons:
        """Voices side by side, and votes."""
        from backend.comparisons.comparisons import Comparisons  # noqa: PLC0415 - see above
        from backend.comparisons.vote_table import VoteTable  # noqa: PLC0415

        votes, home = VoteTable(self.home.database), self.settings.home_folder
        return Comparisons(votes, self.voices, self.runs, home, self.signer)

    @cached_property
    def takes(self) -> Takes:
        """What was spoken, also before the program was started. Raises StoreError."""
        takes = Takes(self.home, TakeBounds(max_takes=self.settings.max_takes), self.signer)
        takes.sweep()
        self.trash.sweep()
        self.voices.sweep()
        sweep_leftovers(self.home.folder)
        return takes

    @cached_property
    def trash(self) -> Trash:
        """What was deleted and can still be restored."""
        return Trash(self.home)

    @cached_property
    def signer(self) -> FileSigner:
        """Signs what leaves; its `problem` says why it does not."""
        return FileSigner(self.home.folder, self.settings.signing_cert, self.settings.signing_key)

    @cached_property
    def checker(self) -> Checker:
        """Says of recordings what they say of themselves."""
        # The signer first: it makes the certificate by which the checker knows this installation.
        assert self.signer is not None
        return Checker(self.home.folder, self.settings.signing_cert, installation_key(self.home))

    @property
    def loaded(self) -> LoadedModel | None:
        """What speaks now, with the model loaded last."""
        return self._loaded

    def load_model(
        self,
        name: str,
        *,
        precision: PrecisionChoice = "auto",
        device: str = "auto",
        progress: Callable[[DownloadProgress], None] | None = None,
        cancelled: Callable[[], bool] | None = None,
    ) -> Synthesizer:
        """Find a model (downloading it if necessary) and make it the one that speaks.

        Raises:
            EncoreError: it cannot be found, downloaded or read; the model loaded before stays.
        """
        with self._loading:
            folder = resolve_model(name, progress=progress, cancel=cancelled)
            load = partial(
                Engine.load,
                precision=precision,
                device=device,
                num_slots=NUM_SLOTS,
                cache_length=CACHE_LENGTH,
                mark=mark_of(self.home),
            )
            before, loaded = self._loaded, Synthesizer(name, folder, EnginePool(load))
            # A small network's operations are over before a second thread has woken up to help.
            torch.set_num_threads(1 if loaded.model.is_small else self._num_threads)
            self._loaded = loaded
            if before is not None:
                before.retire()
            return loaded

    def load_on_cluster(
        self, name: str, *, precision: PrecisionChoice = "auto", cancelled: Callable[[], bool] | None = None
    ) -> RemoteModel:
        """Make a model speak that runs on the cluster; this process loads nothing of it.

        Raises:
            EncoreError: the cluster cannot be joined, or the model does not start there. What this process had loaded
                stays; what was loaded there is gone, because it may have needed the room.
        """
        with self._loading:
            address = self.cluster
            if address is None:
                raise SettingsError("There is no cluster to speak on. Set RAY_ADDRESS=host:port, and start again.")
            if isinstance(self._loaded, RemoteModel):
                self._loaded.retire(hands_over=True)
                self._loaded = None
            settings = self._cluster_settings(name, precision)
            before, loaded = self._loaded, RemoteModel(settings, address, cancelled=cancelled)
            torch.set_num_threads(self._num_threads)
            self._loaded = loaded
            if before is not None:
                before.retire()
            return loaded

    @property
    def cluster(self) -> str | None:
        """Address of the cluster on which models can speak; None without one, or where it shall not be used.

        Only a machine that is part of a cluster hears what Ray Serve streams there: not one that reaches it by ray://.
        """
        address = None if self.settings.speech == "local" else Machine.here().address
        return None if address is None or address.startswith("ray://") else address

    def _cluster_settings(self, name: str, precision: PrecisionChoice) -> ServeSettings:
        # By machine and home: what a program that was killed has left there is found again.
        whose = hashlib.sha256(f"{socket.gethostname()} {self.home.folder}".encode()).hexdigest()[:8]
        engine = EngineSettings(
            model=name,
            precision=precision,
            num_slots=CLUSTER_SLOTS,
            cache_length=CACHE_LENGTH,
            mark=mark_of(self.home),
            storage=self.settings.storage,
        )
        home = self.home.folder
        return ServeSettings(engine=engine, home=home, name=f"encore-studio-{whose}", max_replicas=MAX_REPLICAS)

    @property
    def loading(self) -> TaskState[None] | None:
        """The loading begun by `start_loading`, under way or ended; None if there was none."""
        return self._tasks.state(_LOADING)

    def start_loading(
        self, name: str, *, precision: PrecisionChoice = "auto", device: str = "auto", on_cluster: bool | None = None
    ) -> None:
        """Do what `load_model` does in the background, or `load_on_cluster`; watch `loading`.

        Args:
            name: of the model.
            precision: of its weights.
            device: that it runs on, in this process.
            on_cluster: where it is loaded; wherever the settings say when None.

        Raises:
            EncoreError: another model is being loaded.
        """
        is_there = self.settings.speech == "cluster" or self.cluster is not None if on_cluster is None else on_cluster

        def load(task: BackgroundTask[None]) -> None:
            if is_there:
                task.tell(0, 0, self.cluster or "")
                self.load_on_cluster(name, precision=precision, cancelled=task.is_cancelled)
                return
            self.load_model(
                name,
                precision=precision,
                device=device,
                progress=lambda done: task.tell(done.bytes_done, done.bytes_total, done.file),
                cancelled=task.is_cancelled,
            )

        if self.loading is not None and self.loading.is_running:
            raise ModelError(f"{self.loading.what} is being loaded. Wait until it is there, or cancel it first.")
        self._tasks.start(_LOADING, name, load)

    def cancel_loading(self) -> None:
        """Stop a download begun by `start_loading`; what has arrived is kept."""
        self._tasks.cancel(_LOADING)

    def examine(self, reference: Path, preview: Path | None = None) -> ReferenceReport:
        """Say how good a recording is to clone a voice from; see `examine_reference`. Raises EncoreError."""
        return examine_reference(reference, preview)

    def hear_recording(self, reference: Path, report: Callable[[int, int], object]) -> Heard | None:
        """Write down what a recording says; None where nobody on this machine can.

        Args:
            reference: the recording.
            report: called with the parts that are done and their number; may raise to end it.

        Raises:
            EncoreError: the recording cannot be used, or the listener failed.
        """
        recording = read_reference(reference)
        return hear_recording(recording.samples, recording.sample_rate, report)

    def speak_part_again(
        self, loaded: LoadedModel, take: Take, number: int, *, client: str = "", cancelled: Callable[[], bool]
    ) -> AudioStream:
        """Begin to speak one part of a take once more, as the take was spoken; hand what comes to `keep_part`.

        Raises:
            EncoreError: there is no such part, what it was spoken from is gone, or another model is loaded.
        """
        request = request_again(take, number, self.voices).model_copy(update={"client": client})
        stream = loaded.speak(request, cancelled=cancelled)
        try:
            check_same_checkpoint(take, stream.facts())
        except EncoreError:
            stream.close()
            raise
        return stream

    def keep_part(self, take: Take, number: int, stream: AudioStream, spoken: NDArray[np.float32]) -> Take:
        """Put a part that was spoken again, with all its samples (samples,), into its take.

        Raises:
            EncoreError: it is too short for its text, the take was deleted meanwhile, or the disk is full.
        """
        from backend.evaluation.take_scores import read_own_pcm16  # noqa: PLC0415 - see `datasets`

        stream.check_length()
        take = self.takes.get(take.id)
        samples, sample_rate = read_own_pcm16(take.path)
        whole, changes = put_in_place(samples, sample_rate, take, number, spoken, stream.facts())
        with self.takes.incoming() as file:
            with WavWriter(file, sample_rate, "" if take.statement is None else take.statement.as_comment()) as writer:
                writer.write_pcm16(whole)
            return self.takes.replace(take, file, **changes)

    def likeness_of(self, take: Take, reference: Path) -> Likeness | None:
        """How like its reference a take is, measured once for each recording and checkpoint; None if nobody can tell.

        Raises:
            RecordingError: the reference cannot be read.
        """
        from backend.evaluation.review_take import likeness_of  # noqa: PLC0415 - see `datasets`

        checkpoint = (take.statement.checkpoint if take.statement is not None else None) or take.model_name
        key = (reference, reference.stat().st_mtime_ns if reference.is_file() else 0, checkpoint)
        if key not in self._likeness and (found := likeness_of(take, reference)) is not None:
            self._likeness[key] = found
            while len(self._likeness) > MAX_LIKENESSES:
                self._likeness.pop(next(iter(self._likeness)), None)
        return self._likeness.get(key)

    def hear_take(self, take: Take, report: Callable[[int, int], object]) -> Take:
        """Listen to the parts of a kept take, one take at a time, and keep with it what was heard.

        Raises:
            EncoreError: the listener failed, or the take was deleted meanwhile.
        """
        from backend.evaluation.review_take import hear_parts  # noqa: PLC0415 - see `datasets`

        with self._hearing:
            parts = hear_parts(take, report)
            now = self.takes.get(take.id)
            # A part that was spoken again meanwhile has not been heard.
            if now.parts != take.parts or now.parts == parts:
                return now
            return self.takes.update(now, parts=parts)

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
        accept_synthetic: bool = False,
    ) -> Voice:
        """Put a zero-shot voice into the library.

        Args:
            name: what it is called.
            recording: what it is cloned from.
            consent: of whoever speaks in it.
            transcript: what the recording says.
            origin: how the recording was called.
            is_sample: whether it came with the program.
            accept_synthetic: also of a recording that Encore made.

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
            accept_synthetic=accept_synthetic,
        )

    def sample_reference(self, name: str) -> Path:
        """The part of a sample that a voice is cloned from, as a file. Raises EncoreError."""
        return get_sample(name).reference_in(self.settings.home_folder)

    def delete_voice(self, name: str) -> Deleted:
        """Put a voice with its consent and its files into the trash; it leaves memory once it does not speak any more.

        Raises:
            VoiceNotFound: there is no voice of that name.
        """
        deleted = self.voices.delete(self.voices.get(name).id)
        if self._loaded is not None:
            self._loaded.forget_deleted()
        return deleted

    def delete_dataset(self, name: str) -> Deleted:
        """Put a dataset with what was uploaded for it into the trash.

        Raises:
            DatasetInUse: a run is learning from it.
            DatasetNotFound, DatasetBusy: see `Datasets.delete`.
        """
        for run in self.runs.list():
            if run.dataset == name and run.state.is_active:
                raise DatasetInUse(f"{run.voice} learns from {name}. Cancel that run first, or wait for its end.")
        return self.datasets.delete(name)

    def prove_consent(
        self, loaded: LoadedModel, phrase: str, spoken: Path, reference: Path, recording: str | None = None
    ) -> SpokenProof:
        """Check that a phrase was spoken by the voice of a reference; `recording` is what the proof is then good for.

        Raises:
            ConsentInvalid: other words or another voice, or there is no speech recognition on this machine.
            RecordingError: a recording cannot be used.
        """
        listeners = self.comparisons.measuring.transcribers()
        if not listeners:
            raise ConsentInvalid(
                "There is no speech recognition on this machine to hear the phrase with. Give the statement alone, or "
                "download a Whisper model behind the model button."
            )
        verifier = load_verifier()
        return check_phrase(
            phrase,
            spoken,
            reference,
            listener=listeners[0],
            model=loaded.encoder,
            verifier=verifier,
            recording=recording,
        )
