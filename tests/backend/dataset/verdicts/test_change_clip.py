"""One clip of a set changes: the verdicts equal those of a full review, at a fraction of its work."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from backend.audio.span import Span
from backend.dataset.clips.encoded_clip import ClipVoice
from backend.dataset.clips.fingerprints import SoundIndex
from backend.dataset.clips.gates import Verdict
from backend.dataset.clips.measures import measure_sound
from backend.dataset.clips.stage_results import CutClip
from backend.dataset.clips.thresholds import GateSettings
from backend.dataset.clips.views import ClipDetails, ClipEdit, ClipRow
from backend.dataset.verdicts import change_clip
from backend.dataset.verdicts.calibration import discrepancy_of
from backend.dataset.verdicts.change_clip import ClipSelection
from backend.dataset.verdicts.decide_verdicts import Candidate, decide_verdicts
from backend.transcription.pocketsphinx_transcriber import POCKETSPHINX
from backend.transcription.text_difference import normalise_text
from tests.backend.dataset.speechlike import RATE, speechlike

# With synthetic sound the others would reject everything for reasons that no edit changes.
SETTINGS = GateSettings(max_silence_share=1.0, silence_share=1.0)
# What is usual for the speaker alone decides which texts are doubted.
RESTLESS = SETTINGS.model_copy(update={"max_disagreement": 0.1, "disagreement": 0.05})
NUM_SOUNDS, SECONDS = 10, 2.5
BYTES = 8 * 156
"""Of a fingerprint of so many seconds."""

TEXTS = (
    "The lighthouse stands on a rock.",
    "the lighthouse stands on a rock",
    "Every morning I bake bread.",
    "",
    "Hm.",
)
FEW, MANY = 40, 160
STRANGER = 5


class Shelf:
    """Clips of a set as they come out of a build, a third of them heard before, one in six by a stranger."""

    def __init__(self, num_clips: int, *, is_heard: bool = False) -> None:
        self.is_heard = is_heard
        choices = random.Random(num_clips)
        measured = measure_sound(speechlike(0, SECONDS), RATE)
        whole = [choices.randbytes(BYTES).hex() for _ in range(NUM_SOUNDS)]
        # The same sound cut elsewhere is another one that holds most of it.
        parts = [one[BYTES // 2 :] + other[: BYTES // 2] for one, other in pairwise(whole)]
        self.sounds = [measured.model_copy(update={"fingerprint": one}) for one in [*whole, *parts]]
        self.embeddings: dict[str, NDArray[np.float32]] = {}
        self.num_opened = 0
        self.details: dict[str, ClipDetails] = {}
        for number in range(num_clips):
            self.details[f"clip {number}"] = self.cut(f"clip {number}", choices)

    def cut(self, key: str, choices: random.Random) -> ClipDetails:
        """A stretch of a recording, with sound, text and voice by chance."""
        start = choices.randrange(100) / 10
        text = choices.choice(TEXTS)
        clip_id = choices.choice([f"{key} {start}", f"sound {choices.randrange(NUM_SOUNDS)}"])
        cut = CutClip(
            span=Span(start_seconds=start, end_seconds=start + SECONDS),
            clip_id=clip_id,
            seconds=SECONDS,
            sound=choices.choice(self.sounds),
            text=text or None,
            text_source="file" if text else "none",
            # Some are well understood and some are not, so that it takes little to change what is usual.
            heard=text[choices.randrange(4) * choices.randrange(4) :] if self.is_heard else None,
            transcriber=POCKETSPHINX,
        )
        voice = np.random.default_rng(choices.randrange(2**32)).normal(0, 0.1, 16)
        speaker = np.arange(16) % (STRANGER if choices.random() < 0.17 else 2)
        self.embeddings.setdefault(clip_id, (voice + speaker).astype(np.float32))
        return ClipDetails(
            recording_name="ann.wav",
            recording_audio_id="ann",
            original=cut,
            current=cut,
            text=text,
            text_source=cut.text_source,
            discrepancy=discrepancy_of(cut, text),
            tensors_id=choices.choice([clip_id, clip_id, clip_id, None]),
        )

    def open(self, tensors_id: str) -> ClipVoice:
        self.num_opened += 1
        return ClipVoice(embedding=self.embeddings[tensors_id])

    def review(
        self, edits: dict[str, ClipEdit], chosen_key: str | None = None, settings: GateSettings = SETTINGS
    ) -> list[ClipRow]:
        """All of them."""
        candidates = [
            self.candidate(key, details, self.embeddings.get(details.tensors_id or ""))
            for key, details in self.details.items()
        ]
        return decide_verdicts(candidates, edits, chosen_key, settings)

    @staticmethod
    def candidate(key: str, details: ClipDetails, embedding: NDArray[np.float32] | None = None) -> Candidate:
        audio = Path(f"{details.current.clip_id}.wav")
        voice = None if embedding is None else ClipVoice(embedding=embedding)
        return Candidate(key=key, audio=audio, details=details, voice=voice)


def with_text(details: ClipDetails, text: str) -> ClipDetails:
    """A clip whose text a person has typed."""
    found = discrepancy_of(details.current, text)
    return details.model_copy(update={"text": text, "text_source": "person", "discrepancy": found})


def edited(shelf: Shelf, key: str, edits: dict[str, ClipEdit], choices: random.Random) -> ClipDetails:
    """What a person may do to a clip, by chance."""
    details = shelf.details[key]
    match choices.randrange(4):
        case 0:
            edits[key] = ClipEdit(verdict=choices.choice([None, Verdict.ACCEPTED, Verdict.REJECTED]))
        case 1:
            text = choices.choice(TEXTS)
            details = with_text(details, text)
        case 2:
            details = shelf.cut(key, choices).model_copy(update={"original": details.original, "tensors_id": None})
        case 3 if details.tensors_id is None:
            details = details.model_copy(update={"tensors_id": details.current.clip_id})
    return details


def test_after_any_edit_verdicts_equal_those_of_a_full_review() -> None:
    choices = random.Random(7)
    shelf, edits = Shelf(FEW, is_heard=True), dict[str, ClipEdit]()
    rows = shelf.review(edits, settings=RESTLESS)
    verdicts = Counter(row.verdict for row in rows)
    assert verdicts[Verdict.REJECTED] > 3 < verdicts[Verdict.ACCEPTED] + verdicts[Verdict.WARNED]
    num_changed = num_rejudged = 0
    for _ in range(100):
        key = choices.choice(list(shelf.details))
        shelf.details[key] = edited(shelf, key, edits, choices)
        chosen_key = choices.choice([None, *shelf.details])
        reviewed = ClipSelection(rows, RESTLESS, shelf.open)
        reviewed.change(shelf.candidate(key, shelf.details[key]))
        before, rows = rows, reviewed.rows(edits, chosen_key)
        assert rows == shelf.review(edits, chosen_key, RESTLESS)
        others = [(row, was) for row, was in zip(rows, before, strict=True) if row != was and row.key != key]
        num_changed += bool(others)
        num_rejudged += any(hearing_gate(row) != hearing_gate(was) for row, was in others)
    assert num_changed > 20, "edits that matter to others are what this is about"
    assert num_rejudged > 2, "and edits after which another text is doubted"


def hearing_gate(row: ClipRow) -> Verdict | None:
    """The verdict on text and hearing."""
    return next((gate.verdict for gate in row.details.gates if gate.gate == "disagreement"), None)


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Counts the work for a clip: reviewed alone, looked for in the earlier ones."""
    counted: Counter[str] = Counter()
    own_gates, heard_before = change_clip.own_gates, SoundIndex.heard_before

    def counting(name: str, real: Callable[..., object]) -> Callable[..., object]:
        def call(*args: object) -> object:
            counted[name] += 1
            return real(*args)

        return call

    monkeypatch.setattr(change_clip, "own_gates", counting("reviewed", own_gates))
    monkeypatch.setattr(SoundIndex, "heard_before", counting("looked for", heard_before))
    return counted


def shares_text(row: ClipRow, other: ClipRow) -> bool:
    """Whether both say the same: one is told how many do."""
    return normalise_text(row.details.text) == normalise_text(other.details.text)


@pytest.mark.parametrize("num_clips", [FEW, MANY])
def test_an_edit_of_one_clip_leaves_the_others_alone(num_clips: int, work: Counter[str]) -> None:
    shelf = Shelf(num_clips)
    rows = shelf.review({})
    work.clear()
    position = next(
        index
        for index, row in enumerate(rows)
        if row.verdict is not Verdict.REJECTED and row.details.tensors_id and not row.held_out and not row.is_reference
    )
    key = rows[position].key
    for details, edits in (
        (rows[position].details, {key: ClipEdit(verdict=Verdict.ACCEPTED)}),
        (rows[position].details.model_copy(update={"text": "Nobody else says this.", "text_source": "person"}), {}),
    ):
        work.clear()
        reviewed = ClipSelection(rows, SETTINGS, shelf.open)
        reviewed.change(shelf.candidate(key, details))
        after = reviewed.rows(edits, None)
        changed = [row for row, was in zip(after, rows, strict=True) if row.details is not was.details]
        # Another one may be chosen to stand for the voice, but what is known of it stays.
        assert [row.key for row in changed if row.key == key or not shares_text(row, rows[position])] == [key]
        assert work == {"reviewed": 1}
        assert shelf.num_opened == 0


def test_only_clips_that_may_contain_a_sound_are_checked_again(work: Counter[str]) -> None:
    shelf, sounds = Shelf(MANY), random.Random(0)
    twin, copy = "clip 3", "clip 90"
    for key, details in shelf.details.items():
        sound = details.current.sound.model_copy(update={"fingerprint": sounds.randbytes(BYTES).hex()})
        if key == copy:
            sound = shelf.details[twin].current.sound
        cut = details.current.model_copy(update={"clip_id": key, "sound": sound})
        named = {"text": TEXTS[0], "text_source": "file", "tensors_id": None, "discrepancy": None}
        shelf.details[key] = details.model_copy(update={"current": cut, "original": cut, **named})
    rows = shelf.review({})
    assert [row.key for row in rows if row.verdict is Verdict.REJECTED] == [copy]
    work.clear()
    reviewed = ClipSelection(rows, SETTINGS, shelf.open)
    # Without a text the first of the two is left out, and the second is the only one of its kind.
    reviewed.change(shelf.candidate(twin, rows[3].details.model_copy(update={"text": "", "text_source": "person"})))
    after = reviewed.rows({}, None)
    assert [(row.key, row.verdict) for row in after if row.verdict.is_left_out] == [(twin, Verdict.NEEDS_TEXT)]
    assert work["reviewed"] == 1
    assert work["looked for"] < MANY / 4
