"""All clips of a set compared: every gate, the verdicts, the reference clip and the held-out clips."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from backend.dataset.clips.encoded_clip import ClipVoice
from backend.dataset.clips.fingerprints import SoundIndex
from backend.dataset.clips.gates import (
    CONFIDENCE,
    DUPLICATE_AUDIO,
    GateResult,
    Verdict,
    doubt_gate,
    duplicate_text_gate,
    failure_gate,
    missing_text_gate,
    overall,
    sound_gates,
    speaker_gate,
    speaking_rate_gate,
)
from backend.dataset.clips.stage_results import CutClip, TextSource
from backend.dataset.clips.thresholds import GateSettings
from backend.dataset.clips.views import ClipDetails, ClipEdit, ClipRow
from backend.dataset.verdicts.calibration import judge_texts
from backend.dataset.verdicts.speakers import speaker_distances
from backend.transcription.text_difference import normalise_text

_NO_TEXT = "Nothing says what is spoken here. Listen, and type it."
_UNSURE = "{} is not sure of its words with this voice. Listen, and type what is said."


@dataclass(frozen=True, kw_only=True, eq=False)
class Candidate:
    """A clip to review; the gates, verdicts and distance in its details are ignored.

    `voice` is None until the clip is tokenized.
    """

    key: str
    audio: Path
    details: ClipDetails
    voice: ClipVoice | None


def decide_verdicts(
    candidates: Sequence[Candidate],
    edits: Mapping[str, ClipEdit],
    chosen_reference_key: str | None,
    settings: GateSettings,
) -> list[ClipRow]:
    """The verdicts on all clips of a set; what the user decided wins."""
    results = [own_gates(each.details, settings) for each in candidates]
    for found, judged in zip(results, judge_texts([each.details for each in candidates], settings), strict=True):
        found += [judged] if judged is not None else []
    _compare_sounds(candidates, results, settings)
    _compare_texts(candidates, results)
    distances = _compare_speakers(candidates, results, settings)
    rows = [
        reviewed_row(candidate, found, distance, edits.get(candidate.key))
        for candidate, found, distance in zip(candidates, results, distances, strict=True)
    ]
    return mark_selection(rows, chosen_reference_key, settings)


def own_gates(details: ClipDetails, settings: GateSettings) -> list[GateResult]:
    """The gates that look at one clip alone."""
    found = [failure_gate(details.failure)] if details.failure else []
    found += _text_gates(details.current, details.text, details.text_source, settings)
    found += sound_gates(details.current.seconds, details.current.sound, settings)
    return found


def _text_gates(current: CutClip, text: str, text_source: TextSource, settings: GateSettings) -> list[GateResult]:
    if not normalise_text(text):
        return [missing_text_gate(current.doubt or _NO_TEXT)]
    found = [speaking_rate_gate(text, current.seconds, settings)]
    if text_source == "whisper":
        if current.confidence is not None:
            found.append(CONFIDENCE.check(current.confidence, settings))
        elif _sureness(current) < settings.min_confidence:
            # Its guess stays in the field, for the person to correct.
            found.append(missing_text_gate(_UNSURE.format(current.transcriber)))
        if current.doubt:
            found.append(doubt_gate(current.doubt, current.confidence or 0.0, settings))
    return found


def _sureness(clip: CutClip) -> float:
    """Mean probability of the words that were heard; a whole where none has any."""
    sureness = [probability for _, probability in clip.heard_words]
    return sum(sureness) / len(sureness) if sureness else 1.0


def _compare_sounds(candidates: Sequence[Candidate], results: list[list[GateResult]], settings: GateSettings) -> None:
    """Look for each clip in the earlier ones that were not rejected."""
    index = SoundIndex([candidate.details.current.sound.fingerprint for candidate in candidates])
    kept: list[int] = []
    kept_by_id: dict[str, int] = {}
    for position, (candidate, found) in enumerate(zip(candidates, results, strict=True)):
        share, twin = index.heard_before(position, kept, settings.duplicate_similarity)
        clip_id = candidate.details.current.clip_id
        if clip_id in kept_by_id:
            share, twin = 1.0, kept_by_id[clip_id]
        place = "" if twin is None else place_of(candidates[twin].details)
        found.append(DUPLICATE_AUDIO.check(share, settings, twin=place))
        if not overall(found).is_left_out:
            kept.append(position)
            kept_by_id[clip_id] = position


def _compare_texts(candidates: Sequence[Candidate], results: list[list[GateResult]]) -> None:
    seen: Counter[str] = Counter()
    for candidate, found in zip(candidates, results, strict=True):
        text = normalise_text(candidate.details.text)
        if text and not overall(found).is_left_out:
            found.append(duplicate_text_gate(seen[text]))
            seen[text] += 1


def _compare_speakers(
    candidates: Sequence[Candidate], results: list[list[GateResult]], settings: GateSettings
) -> list[float | None]:
    """Find the centre of the clips that were not rejected so far, and other speakers among them."""
    distances: list[float | None] = [None] * len(candidates)
    voices = {
        index: candidate.voice
        for index, candidate in enumerate(candidates)
        if candidate.voice is not None and not overall(results[index]).is_left_out
    }
    for index, (distance, gate) in review_speakers(voices, settings).items():
        distances[index] = distance
        results[index] += [gate] if gate is not None else []
    return distances


def review_speakers(
    voices: Mapping[int, ClipVoice], settings: GateSettings
) -> dict[int, tuple[float, GateResult | None]]:
    """Distance of each to the centre of all, and the gate's answer if there are enough clips to tell."""
    if not voices:
        return {}
    found = speaker_distances(list(voices.values()))
    is_enough = len(voices) >= settings.min_clips_for_speaker
    limits = settings.verified_speaker if found.is_verified else settings.own_speaker
    return {
        index: (distance, speaker_gate(distance, deviation, limits) if is_enough else None)
        for index, distance, deviation in zip(voices, found.distances, found.deviations, strict=True)
    }


def reviewed_row(
    candidate: Candidate, found: Sequence[GateResult], distance: float | None, edit: ClipEdit | None
) -> ClipRow:
    """A clip with the answers of the gates; what the user decided wins."""
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
        audio=candidate.audio,
        details=details,
    )


def mark_selection(rows: Sequence[ClipRow], chosen_key: str | None, settings: GateSettings) -> list[ClipRow]:
    """The same clips, with the reference clip and the held-out clips marked."""
    usable = {row.clip_id: row for row in rows if row.is_usable}
    held_out: frozenset[str] = frozenset()
    reference: ClipRow | None = None
    if usable:
        reference = next((row for row in usable.values() if row.key == chosen_key), None)
        if reference is None:
            reference = usable[choose_reference([_reference(row) for row in usable.values()], settings)]
        held_out = choose_held_out(usable.keys(), reference.clip_id, settings)
    return [_marked(row, row.clip_id in held_out and row.is_usable, row is reference) for row in rows]


def _marked(row: ClipRow, held_out: bool, is_reference: bool) -> ClipRow:
    if (row.held_out, row.is_reference) == (held_out, is_reference):
        return row
    return replace(row, held_out=held_out, is_reference=is_reference)


def _reference(row: ClipRow) -> ReferenceCandidate:
    return ReferenceCandidate(
        clip_id=row.clip_id,
        seconds=row.seconds,
        is_clean=row.details.own_verdict is Verdict.ACCEPTED,
        distance=row.details.distance or 0.0,
        speech_over_noise_db=row.details.current.sound.speech_over_noise_db,
    )


def choose_held_out(clip_ids: Collection[str], reference_id: str, settings: GateSettings) -> frozenset[str]:
    """A few clips that are never trained on: chosen by their hash, so the same set gives the same choice.

    At least one and at most `max_held_out`, but none where fewer than `min_clips_to_train_on` would remain.
    """
    wanted = min(max(1, round(settings.held_out_share * len(clip_ids))), settings.max_held_out)
    num_held_out = max(0, min(wanted, len(clip_ids) - settings.min_clips_to_train_on))
    candidates = sorted(set(clip_ids) - {reference_id}, key=lambda clip_id: _hash("held out", clip_id))
    return frozenset(candidates[:num_held_out])


@dataclass(frozen=True, kw_only=True)
class ReferenceCandidate:
    """The properties by which the reference clip is chosen.

    Attributes:
        is_clean: no gate has warned.
        distance: of its speaker embedding to the centre.
    """

    clip_id: str
    seconds: float
    is_clean: bool
    distance: float
    speech_over_noise_db: float


def choose_reference(candidates: Sequence[ReferenceCandidate], settings: GateSettings) -> str:
    """The best of one or more clips as reference: clean, of 5 to 10 s, near the centre, with little noise."""

    def demerits(candidate: ReferenceCandidate) -> tuple[bool, float, float, str]:
        """The disadvantages of a clip, the most important first."""
        seconds = candidate.seconds
        shortest, longest = settings.min_reference_seconds, settings.max_reference_seconds
        outside_seconds = max(shortest - seconds, seconds - longest, 0.0)
        # Ten decibels of noise weigh as much as a tenth of cosine distance; beyond 40 dB it is inaudible.
        blemish = candidate.distance - min(candidate.speech_over_noise_db, 40.0) / 100.0
        return (not candidate.is_clean, outside_seconds, blemish, candidate.clip_id)

    return min(candidates, key=demerits).clip_id


def _hash(purpose: str, clip_id: str) -> str:
    return hashlib.sha256(f"{purpose}/{clip_id}".encode()).hexdigest()


def place_of(details: ClipDetails) -> str:
    """Where a clip was cut from, for a sentence."""
    minutes, seconds = divmod(details.current.span.start_seconds, 60)
    return f"{details.recording_name} at {minutes:.0f}:{seconds:04.1f}"
