"""The stages one by one: a long recording whose words are known, what is kept between builds, and stopping."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from backend.audio.canonical import CANONICAL_HZ, read_part
from backend.audio.decoding import decode_recording
from backend.audio.limits import recording_decoding
from backend.audio.loudness import measure_loudness
from backend.audio.resample import resample
from backend.audio.writing import write_wav
from backend.dataset.build import context as context_module
from backend.dataset.build.build import encoder_facts
from backend.dataset.build.context import BuildContext
from backend.dataset.build.passes import count_as_reused, run_in_one_process
from backend.dataset.build.progress import StageCounts
from backend.dataset.build.ray_tasks import SOURCE_SCHEMA, decode, source_row
from backend.dataset.clips.build_job import BuildJob
from backend.dataset.clips.stage_results import DecodedRecording
from backend.dataset.sources.find import SourceRecording
from backend.dataset.stages.decode import decode_recording as decode_stage
from backend.dataset.storage.workspace import DatasetWorkspace
from backend.provenance.statement import SpeechStatement
from backend.transcription.transcript import Transcript, Word, assemble_transcript
from tests.backend.dataset.recorded_words import RecordedTranscriber, words_between
from tests.backend.dataset.spoken import SENTENCES, speak
from tests.golden import GOLDEN_CHECKPOINT

PAUSE_SECONDS = 0.7


@dataclass(frozen=True)
class Spoken:
    """A recording of several sentences, and when each word is said (as evenly as letters are)."""

    path: Path
    words: tuple[Word, ...]
    spans: tuple[tuple[float, float], ...]


@pytest.fixture(scope="module")
def spoken(tmp_path_factory: pytest.TempPathFactory) -> Spoken:
    folder = tmp_path_factory.mktemp("spoken")
    pieces, words, spans = [], [], []
    position = 0.0
    for index, sentence in enumerate(SENTENCES):
        wav = speak(folder / f"{index}.wav", sentence)
        samples = np.trim_zeros(decode_recording(wav, sample_rate=CANONICAL_HZ).samples)
        seconds = len(samples) / CANONICAL_HZ
        words += words_between(sentence, position, position + seconds)
        spans.append((position, position + seconds))
        pieces += [samples, np.zeros(round(PAUSE_SECONDS * CANONICAL_HZ), np.float32)]
        position += seconds + PAUSE_SECONDS
    write_wav(folder / "long.wav", np.concatenate(pieces), CANONICAL_HZ)
    return Spoken(folder / "long.wav", tuple(words), tuple(spans))


@pytest.fixture(scope="module")
def encoder() -> tuple[str, str]:
    facts = encoder_facts(str(GOLDEN_CHECKPOINT), "cpu")
    return facts.folder, facts.identity


@pytest.fixture
def context(tmp_path: Path, job: Callable[..., BuildJob], encoder: tuple[str, str]) -> BuildContext:
    """Nobody listens."""
    return BuildContext(
        home=tmp_path / "home",
        job=job(tmp_path),
        model_folder=Path(encoder[0]),
        encoder_identity=encoder[1],
        transcriber=None,
        language_code=None,
        counts=StageCounts(),
    )


def source(path: Path, given_text: str | None = None) -> SourceRecording:
    return SourceRecording(recording_id="0" * 32, path=str(path), name=path.name, given_text=given_text)


def listening(context: BuildContext, spoken: Spoken) -> tuple[BuildContext, RecordedTranscriber]:
    """The same context with the recorded transcriber, which has to know the pieces it will be asked about."""
    transcriber = RecordedTranscriber(spoken.words)
    context = replace(context, transcriber=transcriber)
    decoded, _ = context.decode(source(spoken.path))
    transcriber.starts = [span.start_seconds for span in context.pieces(decoded)]
    return context, transcriber


@pytest.mark.needs_program("flite")
def test_a_long_recording_is_cut_so_that_clips_hold_what_their_text_says(context: BuildContext, spoken: Spoken):
    context, transcriber = listening(context, spoken)
    assert run_in_one_process([source(spoken.path)], context) == {}
    cut = context.lookup_cut(source(spoken.path))
    assert cut is not None
    assert len(transcriber.asked) > 1
    assert len(cut.clips) >= 3
    texts = [clip.text or "" for clip in cut.clips]
    assert " ".join(texts).split() == " ".join(SENTENCES).split()
    for clip in cut.clips:
        assert 2.0 <= clip.span.end_seconds - clip.span.start_seconds <= 12.0
        for sentence, (begin, end) in zip(SENTENCES, spoken.spans, strict=True):
            inside = clip.span.start_seconds <= begin + 0.15 and end - 0.15 <= clip.span.end_seconds
            assert (sentence in (clip.text or "")) == inside
        samples, rate = read_part(context.workspace.wav(clip.clip_id))
        assert measure_loudness(samples, rate) == pytest.approx(-23.0, abs=1.0)
        assert np.abs(samples).max() <= 10 ** (-1 / 20) + 1e-3
        assert clip.text_source == "whisper"
        assert clip.confidence == pytest.approx(0.9)
        assert context.lookup_tokenized(clip.clip_id) is not None


@pytest.mark.needs_program("flite")
def test_a_given_text_is_laid_over_what_was_heard(context: BuildContext, spoken: Spoken):
    """The transcriber mishears a word; the text that came along has it right."""
    misheard = tuple(replace(word, text="blew") if word.text == "blue" else word for word in spoken.words)
    context, _ = listening(context, replace(spoken, words=misheard))
    given = source(spoken.path, " ".join(SENTENCES))
    run_in_one_process([given], context)
    cut = context.lookup_cut(given)
    assert cut is not None
    assert " ".join(clip.text or "" for clip in cut.clips).split() == " ".join(SENTENCES).split()
    blue = next(clip for clip in cut.clips if "blue" in (clip.text or ""))
    assert blue.text_source == "file"
    assert "blew" in (blue.heard or "")


@pytest.mark.needs_program("flite")
def test_only_clips_with_guessed_words_are_doubtful(context: BuildContext, spoken: Spoken):
    context, transcriber = listening(context, spoken)
    transcriber.guessed = len(transcriber.starts) - 1
    run_in_one_process([source(spoken.path)], context)
    cut = context.lookup_cut(source(spoken.path))
    assert cut is not None
    since = transcriber.starts[-1]
    assert [bool(clip.doubt) for clip in cut.clips] == [clip.span.end_seconds > since for clip in cut.clips]
    assert not cut.clips[0].doubt


@pytest.mark.needs_program("flite")
def test_no_recording_is_transcribed_or_cut_twice(context: BuildContext, spoken: Spoken):
    context, transcriber = listening(context, spoken)
    run_in_one_process([source(spoken.path)], context)
    num_asked = len(transcriber.asked)
    again = replace(context, counts=StageCounts())
    run_in_one_process([source(spoken.path)], again)
    assert len(transcriber.asked) == num_asked
    assert all(count.num_done == count.count("reused") > 0 for count in again.counts.all())


@pytest.mark.needs_program("flite")
def test_a_transcript_is_assembled_once_per_process(
    context: BuildContext, spoken: Spoken, monkeypatch: pytest.MonkeyPatch
):
    """However often the passes, the totals and the rows ask for it."""
    context, transcriber = listening(context, spoken)
    assembled = []

    def assemble(*parts: object, **named: object) -> Transcript:
        assembled.append(parts)
        return assemble_transcript(*parts, **named)

    monkeypatch.setattr(context_module, "assemble_transcript", assemble)
    recording = source(spoken.path)
    run_in_one_process([recording], context)
    count_as_reused([recording], replace(context, counts=StageCounts()))
    decoded = context.lookup_decoded(recording)
    assert decoded is not None
    transcript = context.lookup_transcript(decoded)
    assert transcript is not None
    assert len(transcript.passages) == len(transcriber.asked) > 1
    assert len(assembled) == 1


@pytest.mark.needs_program("flite")
def test_a_long_recording_with_a_text_needs_a_transcriber(context: BuildContext, spoken: Spoken):
    given = source(spoken.path, " ".join(SENTENCES))
    run_in_one_process([given], context)
    cut = context.lookup_cut(given)
    assert cut is not None
    assert (cut.clips, "--whisper" in cut.problem) == ((), True)


def test_silence_is_a_recording_without_clips(context: BuildContext, tmp_path: Path):
    write_wav(tmp_path / "silence.wav", np.zeros(20 * CANONICAL_HZ, np.float32), CANONICAL_HZ)
    run_in_one_process([source(tmp_path / "silence.wav")], context)
    cut = context.lookup_cut(source(tmp_path / "silence.wav"))
    assert cut is not None
    assert (cut.clips, "No speech" in cut.problem) == ((), True)


def test_a_vanished_file_is_a_reason_that_is_not_remembered(context: BuildContext, tmp_path: Path):
    problems = run_in_one_process([source(tmp_path / "gone.wav")], context)
    assert "gone.wav" in problems["0" * 32]
    assert context.lookup_decoded(source(tmp_path / "gone.wav")) is None


def test_a_reason_names_the_file_as_it_is_called_now(context: BuildContext, tmp_path: Path):
    (tmp_path / "any.wav").write_text("This is a letter. " * 40)
    for name in ("first.wav", "second.wav"):
        called = replace(source(tmp_path / "any.wav"), name=name)
        assert context.lookup_decoded(called) is None
        assert context.decode(called)[1] == "failed"
        found, outcome = context.decode(called)
        assert outcome == "reused"
        assert found.problem.startswith(f"{name} is not a kind of audio file")


def test_a_cancelled_stage_leaves_its_rows_alone(context: BuildContext, tmp_path: Path):
    context.counts.cancel()
    table = pa.Table.from_pylist([source_row(source(tmp_path / "any.wav"))], schema=SOURCE_SCHEMA)
    assert [len(out) for out in decode(table, context)] == [0]
    assert all(count.num_done == 0 for count in context.counts.all())


def test_a_damaged_result_is_made_again(context: BuildContext, tmp_path: Path):
    sound = resample(np.random.default_rng(0).normal(size=16_000).astype(np.float32) * 0.1, 16_000, CANONICAL_HZ)
    write_wav(tmp_path / "noise.wav", sound, CANONICAL_HZ)
    noise = source(tmp_path / "noise.wav")
    first, _ = context.decode(noise)
    for file in (context.home / "cache").rglob("*.json"):
        file.write_text('{"problem": ')
    assert context.lookup_decoded(noise) is None
    assert context.decode(noise) == (first, "worked")
    context.workspace.wav(first.audio_id).unlink()
    assert context.lookup_decoded(noise) is None
    assert isinstance(first, DecodedRecording)


def test_totals_are_told_when_the_stage_before_is_through():
    counts = StageCounts()
    counts.expect("decode", 2)
    counts.announce("transcribe", "one", frozenset({"a", "b"}))
    counts.add("decode", "one", "worked", 3.0)
    assert counts.all()[1].num_total is None
    counts.add("decode", "two", "worked", 3.0)
    counts.announce("transcribe", "two", frozenset({"c"}))
    assert counts.all()[1].num_total == 3
    counts.add("decode", "two", "worked", 3.0)
    assert counts.all()[0].num_done == 2
    assert counts.all()[0].audio_seconds == 6.0


def test_a_recording_that_encore_made_is_recognised(tmp_path):
    path = tmp_path / "made.wav"
    write_wav(path, np.zeros(CANONICAL_HZ, np.float32), CANONICAL_HZ, SpeechStatement().as_comment())
    workspace, limits = DatasetWorkspace(tmp_path / "home"), recording_decoding()
    assert decode_stage(workspace, path, "made.wav", limits).made_by_encore
    write_wav(path, np.zeros(CANONICAL_HZ, np.float32), CANONICAL_HZ)
    assert not decode_stage(workspace, path, "made.wav", limits).made_by_encore
