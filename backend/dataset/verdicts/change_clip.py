"""One clip of a reviewed set changes: only the verdicts that this can affect are computed again.

The answers are those of a review of the whole set, at a cost that hardly grows with its size.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from backend.dataset.clips.encoded_clip import ClipVoice
from backend.dataset.clips.fingerprints import SoundIndex
from backend.dataset.clips.gates import DUPLICATE_AUDIO, GateName, GateResult, duplicate_text_gate
from backend.dataset.clips.stage_results import CutClip
from backend.dataset.clips.thresholds import GateSettings
from backend.dataset.clips.views import ClipEdit, ClipRow
from backend.dataset.verdicts.calibration import judge_texts
from backend.dataset.verdicts.decide_verdicts import (
    Candidate,
    mark_selection,
    own_gates,
    place_of,
    review_speakers,
    reviewed_row,
)
from backend.transcription.text_difference import normalise_text

_COMPARING: tuple[GateName, ...] = ("disagreement", "duplicate audio", "duplicate text", "speaker")
"""Gates that compare clips, in the order in which they are checked."""

_AFTER_KEEPING: tuple[GateName, ...] = ("duplicate text", "speaker")
"""These gates never affect later clips."""

VoiceOf = Callable[[str], ClipVoice]
"""What tells the speaker of a clip, from its artefact. Raises ArtifactError if it is gone."""


class ClipSelection:
    """The clips of a set with every gate's answer."""

    def __init__(self, rows: Sequence[ClipRow], settings: GateSettings, voice_of: VoiceOf) -> None:
        """Start from `rows` as reviewed with `settings`; `voice_of` is called only if the speakers change."""
        self._rows, self._settings, self._voice_of = rows, settings, voice_of
        self._details = [row.details for row in rows]
        self._audio = [row.audio for row in rows]
        self._gates: list[tuple[GateResult, ...]] = [row.details.gates for row in rows]
        self._distances = [row.details.distance for row in rows]
        self._kept = [_is_kept(found) for found in self._gates]

    def change(self, candidate: Candidate) -> None:
        """Review one clip as it is now, and those that it affects.

        Raises ArtifactError if what a clip's speaker is told by is gone.
        """
        details = candidate.details
        position = next(index for index, row in enumerate(self._rows) if row.key == candidate.key)
        before, kept_before = self._details[position], list(self._kept)
        self._details[position], self._audio[position] = details, candidate.audio
        compared = [found for found in self._gates[position] if found.gate in _COMPARING]
        self._gates[position] = (*own_gates(details, self._settings), *compared)
        self._compare_sounds(position, before.current, self._judge_texts())
        turned = [index for index, kept in enumerate(self._kept) if kept != kept_before[index]]
        self._compare_texts({before.text, *(self._details[index].text for index in (position, *turned))})
        was_heard = before.tensors_id if kept_before[position] else None
        is_heard = details.tensors_id if self._kept[position] else None
        if was_heard != is_heard or any(self._details[index].tensors_id for index in turned):
            self._compare_speakers()

    def rows(self, edits: Mapping[str, ClipEdit], chosen_key: str | None) -> list[ClipRow]:
        """The clips with their verdicts now; an unchanged one is the same object."""
        return mark_selection([self._row(index, edits) for index in range(len(self._rows))], chosen_key, self._settings)

    def _row(self, index: int, edits: Mapping[str, ClipEdit]) -> ClipRow:
        row = self._rows[index]
        if (
            self._details[index] is row.details
            and self._gates[index] is row.details.gates
            and self._distances[index] == row.details.distance
        ):
            return row
        candidate = Candidate(key=row.key, audio=self._audio[index], details=self._details[index], voice=None)
        return reviewed_row(candidate, self._gates[index], self._distances[index], edits.get(row.key))

    def _judge_texts(self) -> list[int]:
        """Judge text and hearing again: what is usual for a speaker all clips say. Returns whose gate has changed."""
        before = list(self._gates)
        for index, gate in enumerate(judge_texts(self._details, self._settings)):
            self._put(index, "disagreement", gate)
        return [index for index, gates_before in enumerate(before) if self._gates[index] is not gates_before]

    def _compare_sounds(self, position: int, before: CutClip, rejudged: Sequence[int]) -> None:
        """Check the clips that may duplicate one that was added or removed; each may in turn be added or removed."""
        now = self._details[position].current
        has_moved = (before.clip_id, before.span) != (now.clip_id, now.span)
        waiting = {at for at in (position, *rejudged) if self._kept[at] != _is_kept(self._gates[at])}
        if has_moved:
            waiting.add(position)
        if not waiting:
            return
        index = SoundIndex([details.current.sound.fingerprint for details in self._details])
        if has_moved and self._kept[position]:
            waiting |= self._that_may_hold(before, position, index)
        while waiting:
            at = min(waiting)
            waiting.remove(at)
            if at != position or has_moved:
                self._put(at, "duplicate audio", self._duplicate_gate(at, index))
            is_kept = _is_kept(self._gates[at])
            if is_kept != self._kept[at] or (at == position and has_moved and is_kept):
                self._kept[at] = is_kept
                waiting |= self._that_may_hold(self._details[at].current, at, index)

    def _that_may_hold(self, clip: CutClip, position: int, index: SoundIndex) -> set[int]:
        """Later clips that may contain some of a sound; it cannot affect any others."""
        holders = index.may_hold(clip.sound.fingerprint)
        later = range(position + 1, len(self._details))
        same = {other for other in later if self._details[other].current.clip_id == clip.clip_id}
        return same | {other for other in holders if other > position}

    def _duplicate_gate(self, position: int, index: SoundIndex) -> GateResult:
        earlier = [other for other in range(position) if self._kept[other]]
        share, twin = index.heard_before(position, earlier, self._settings.duplicate_similarity)
        clip_id = self._details[position].current.clip_id
        same = next((other for other in earlier if self._details[other].current.clip_id == clip_id), None)
        if same is not None:
            share, twin = 1.0, same
        place = "" if twin is None else place_of(self._details[twin])
        return DUPLICATE_AUDIO.check(share, self._settings, twin=place)

    def _compare_texts(self, texts: Collection[str]) -> None:
        """Count again the clips that say one of these."""
        seen = {normalise_text(text): 0 for text in texts}
        for index, details in enumerate(self._details):
            plain = normalise_text(details.text)
            if plain not in seen:
                continue
            is_counted = bool(plain) and self._kept[index]
            self._put(index, "duplicate text", duplicate_text_gate(seen[plain]) if is_counted else None)
            seen[plain] += is_counted

    def _compare_speakers(self) -> None:
        """Find the centre again: every distance is to it."""
        voices = {
            index: self._voice_of(details.tensors_id)
            for index, details in enumerate(self._details)
            if details.tensors_id is not None and self._kept[index]
        }
        found = review_speakers(voices, self._settings)
        for index in range(len(self._details)):
            self._distances[index], gate = found.get(index, (None, None))
            self._put(index, "speaker", gate)

    def _put(self, index: int, name: GateName, result: GateResult | None) -> None:
        """Store a gate's new answer, unless it is the old one."""
        before = {found.gate: found for found in self._gates[index] if found.gate in _COMPARING}
        if before.get(name) == result:
            return
        after = {**before, name: result}
        own = [found for found in self._gates[index] if found.gate not in _COMPARING]
        compared = [answer for gate in _COMPARING if (answer := after.get(gate)) is not None]
        self._gates[index] = (*own, *compared)


def _is_kept(found: Sequence[GateResult]) -> bool:
    """Whether later clips are compared with this one."""
    return not any(one.verdict.is_left_out and one.gate not in _AFTER_KEEPING for one in found)
