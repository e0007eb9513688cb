"""All clips of a set side by side: every gate, the verdicts, the reference and what is held out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import jiwer
import numpy as np
from numpy.typing import NDArray

from backend.dataset import gates
from backend.dataset.choices import ReferenceCandidate, choose_held_out, choose_reference
from backend.dataset.dataset_table import ClipEdit, ClipRow
from backend.dataset.fingerprints import SoundIndex
from backend.dataset.gates import GateResult, Verdict, overall
from backend.dataset.records import CutClip, TextSource
from backend.dataset.settings import GateSettings
from backend.dataset.speakers import SpeakerDistances, speaker_distances
from backend.dataset.views import ClipDetails

_TEXTS_REMEMBERED = 8192
_SETS_REMEMBERED = 4
"""What is done for one clip of thousands is judged at once: what its edit cannot change is not found out again."""

_NO_TEXT = "Nobody knows what is said in it. Type the text, give a transcript, or name a Whisper model."


@dataclass(frozen=True, kw_only=True, eq=False)
class Candidate:
    """A clip before it is judged; of its details, the gates, verdicts and distance are not looked at.

    `embedding` is None as long as the clip is not tokenized.
    """

    key: str
    details: ClipDetails
    embedding: NDArray[np.float32] | None


def judge(
    candidates: Sequence[Candidate],
    edits: Mapping[str, ClipEdit],
    chosen_reference_key: str | None,
    settings: GateSettings,
) -> list[ClipRow]:
    """Judge all clips of a set; what a person decided comes last and wins."""
    results = [
        list(
            _own_gates(
                each.details.current, each.details.text, each.details.text_source, each.details.failure, settings
            )
        )
        for each in candidates
    ]
    _compare_sounds(candidates, results, settings)
    _compare_texts(candidates, results)
    distances = _compare_speakers(candidates, results, settings)
    rows = [
        _verdict(candidate, found, distance, edits.get(candidate.key))
        for candidate, found, distance in zip(candidates, results, distances, strict=True)
    ]
    return _choose(rows, chosen_reference_key, settings)


def is_usable(row: ClipRow) -> bool:
    """Whether a clip is trained on or judged with: not rejected, with text and codes."""
    return row.verdict is not Verdict.REJECTED and bool(row.details.text) and row.details.is_tokenized


@lru_cache(maxsize=_TEXTS_REMEMBERED)
def disagreement(given: str, heard: str) -> float:
    """Share of characters in which two texts differ, without case and punctuation."""
    given, heard = _plain(given), _plain(heard)
    if not given or not heard:
        return float(given != heard)
    return float(jiwer.cer(given, heard))


@lru_cache(maxsize=_TEXTS_REMEMBERED)
def _own_gates(
    current: CutClip, text: str, text_source: TextSource, failure: str, settings: GateSettings
) -> tuple[GateResult, ...]:
    """What can be said of a clip without the others."""
    found = [gates.failure_gate(failure)] if failure else []
    found += _text_gates(current, text, text_source, settings)
    found += gates.sound_gates(current.seconds, current.sound, settings)
    return tuple(found)


def _text_gates(current: CutClip, text: str, text_source: TextSource, settings: GateSettings) -> list[GateResult]:
    if not _plain(text):
        return [gates.missing_text_gate(current.doubt or _NO_TEXT)]
    found = [gates.speaking_rate_gate(text, current.seconds, settings)]
    if text_source == "whisper":
        if current.confidence is not None:
            found.append(gates.confidence_gate(current.confidence, settings))
        if current.doubt:
            found.append(gates.doubt_gate(current.doubt, current.confidence or 0.0, settings))
    elif current.heard is not None and not current.doubt:
        found.append(gates.disagreement_gate(disagreement(text, current.heard), settings))
    return found


def _compare_sounds(candidates: Sequence[Candidate], results: list[list[GateResult]], settings: GateSettings) -> None:
    """Look for each clip in the ones before it that may be trained on."""
    heard = _heard_before(
        tuple(candidate.details.current.sound.fingerprint for candidate in candidates),
        tuple(candidate.details.current.clip_id for candidate in candidates),
        tuple(overall(found) is not Verdict.REJECTED for found in results),
        settings,
    )
    for found, (share, twin) in zip(results, heard, strict=True):
        found.append(gates.duplicate_audio_gate(share, "" if twin is None else _place(candidates[twin]), settings))


@lru_cache(maxsize=_SETS_REMEMBERED)
def _heard_before(
    fingerprints: tuple[str, ...], clip_ids: tuple[str, ...], are_good: tuple[bool, ...], settings: GateSettings
) -> tuple[tuple[float, int | None], ...]:
    """Of each clip how much is in earlier ones that are kept, and in which of them the most."""
    index = SoundIndex(fingerprints)
    kept: list[int] = []
    kept_by_id: dict[str, int] = {}
    heard: list[tuple[float, int | None]] = []
    for position, clip_id in enumerate(clip_ids):
        share, twin = index.heard_before(position, kept, settings.duplicate_similarity)
        if clip_id in kept_by_id:
            share, twin = 1.0, kept_by_id[clip_id]
        heard.append((share, twin))
        is_new = gates.duplicate_audio_gate(share, "", settings).verdict is not Verdict.REJECTED
        if are_good[position] and is_new:
            kept.append(position)
            kept_by_id[clip_id] = position
    return tuple(heard)


def _compare_texts(candidates: Sequence[Candidate], results: list[list[GateResult]]) -> None:
    seen: Counter[str] = Counter()
    for candidate, found in zip(candidates, results, strict=True):
        text = _plain(candidate.details.text)
        if text and overall(found) is not Verdict.REJECTED:
            found.append(gates.duplicate_text_gate(seen[text]))
            seen[text] += 1


def _compare_speakers(
    candidates: Sequence[Candidate], results: list[list[GateResult]], settings: GateSettings
) -> list[float | None]:
    """Find the centre of the clips that are good so far, and look for strangers among them."""
    distances: list[float | None] = [None] * len(candidates)
    embeddings = {
        index: candidate.embedding.tobytes()
        for index, candidate in enumerate(candidates)
        if candidate.embedding is not None and overall(results[index]) is not Verdict.REJECTED
    }
    if not embeddings:
        return distances
    found = _speakers(tuple(embeddings.values()))
    for index, distance, deviation in zip(embeddings, found.distances, found.deviations, strict=True):
        distances[index] = distance
        if len(embeddings) >= settings.least_clips_for_speaker:
            results[index].append(gates.speaker_gate(distance, deviation, settings))
    return distances


@lru_cache(maxsize=_SETS_REMEMBERED)
def _speakers(embeddings: tuple[bytes, ...]) -> SpeakerDistances:
    return speaker_distances([np.frombuffer(embedding, np.float32) for embedding in embeddings])


def _verdict(candidate: Candidate, found: list[GateResult], distance: float | None, edit: ClipEdit | None) -> ClipRow:
    own = overall(found)
    person = edit.verdict if edit is not None else None
    details = candidate.details.model_copy(
        update={"gates": tuple(found), "own_verdict": own, "person_verdict": person, "distance": distance}
    )
    return ClipRow(
        key=candidate.key,
        clip_id=details.current.clip_id,
        seconds=details.current.seconds,
        verdict=person or own,
        held_out=False,
        is_reference=False,
        details=details,
    )


def _choose(rows: list[ClipRow], chosen_key: str | None, settings: GateSettings) -> list[ClipRow]:
    usable = {row.clip_id: row for row in rows if is_usable(row)}
    if not usable:
        return rows
    chosen = next((row for row in usable.values() if row.key == chosen_key), None)
    reference_id = (
        chosen.clip_id if chosen else choose_reference([_reference(row) for row in usable.values()], settings)
    )
    held_out = choose_held_out(usable.keys(), reference_id, settings)
    return [
        replace(
            row,
            held_out=row.clip_id in held_out and is_usable(row),
            is_reference=usable.get(row.clip_id) is row and row.clip_id == reference_id,
        )
        for row in rows
    ]


def _reference(row: ClipRow) -> ReferenceCandidate:
    return ReferenceCandidate(
        clip_id=row.clip_id,
        seconds=row.seconds,
        is_clean=row.details.own_verdict is Verdict.ACCEPTED,
        distance=row.details.distance or 0.0,
        speech_over_noise_db=row.details.current.sound.speech_over_noise_db,
    )


def _place(candidate: Candidate) -> str:
    minutes, seconds = divmod(candidate.details.current.span.start_seconds, 60)
    return f"{candidate.details.recording_name} at {minutes:.0f}:{seconds:04.1f}"


@lru_cache(maxsize=_TEXTS_REMEMBERED)
def _plain(text: str) -> str:
    kept = (character for character in text.casefold() if character.isalnum() or character.isspace())
    return " ".join("".join(kept).split())
