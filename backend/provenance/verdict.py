"""What was found out about a file, and how that is said."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from backend.provenance.reading import SignedStatement
from backend.provenance.statement import GENERATOR, SpeechStatement
from backend.watermark.detector import Detection

NO_MARK = (
    "No mark of Encore was found. That does not mean that the sound is not synthetic: a mark can be lost or removed, "
    "and other programs set none."
)
_MAX_PARTS = 20
_MAX_CERTAINTY = 99
_MAX_SHOWN = 200
"""Characters of a text that somebody else has written."""

_WAYS = {"zero-shot": "with a voice cloned from a recording", "fine-tuned": "with a fine-tuned voice"}


class MarkedPart(BaseModel):
    """A part of a recording with the watermark."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    start_seconds: float
    end_seconds: float
    log10_p: float


class FoundWatermark(BaseModel):
    """The watermark in a recording.

    Attributes:
        log10_p: logarithm of the chance that an unmarked recording of this length seems marked as clearly.
        parts: where it is, in order.
        payload: number of the take, where this installation made it; one in thousands has the same.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    log10_p: float
    parts: tuple[MarkedPart, ...]
    payload: int | None

    @classmethod
    def of(cls, detection: Detection) -> FoundWatermark | None:
        """What a detector found, if it is a watermark."""
        if not detection.is_marked:
            return None
        parts = tuple(
            MarkedPart(start_seconds=one.start_seconds, end_seconds=one.end_seconds, log10_p=one.log10_p)
            for one in detection.spans
        )
        return cls(log10_p=detection.log10_p, parts=parts, payload=detection.payload)


class Verdict(BaseModel):
    """What was found in one file.

    Attributes:
        name: of the file.
        seconds: of its sound; 0 where that could not be decoded.
        signed: its signed statement.
        comment: what its comment tag says, which proves nothing: anyone can write one.
        watermark: in the sound; None where none was found.
        problem: what could not be read.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    seconds: float
    signed: SignedStatement | None = None
    comment: SpeechStatement | None = None
    watermark: FoundWatermark | None = None
    problem: str = ""

    @property
    def is_made_by_encore(self) -> bool:
        """Whether anything in it says so; a statement that is not proven counts, for none would be written in vain."""
        is_signed = self.signed is not None and (
            self.signed.statement is not None or self.signed.generator == GENERATOR
        )
        return is_signed or self.comment is not None or self.watermark is not None

    @property
    def statement_ids(self) -> tuple[str, ...]:
        """By which the take can be looked up, the most reliable first."""
        said = [self.signed.statement if self.signed is not None else None, self.comment]
        return tuple(dict.fromkeys(each.id for each in said if each is not None))

    @property
    def _is_comment_signed(self) -> bool:
        """Whether the comment tag says nothing that the signed statement doesn't say."""
        statement = self.signed.statement if self.signed is not None else None
        return statement is not None and self.comment is not None and statement.as_json() == self.comment.as_json()

    @property
    def lines(self) -> tuple[str, ...]:
        """The verdict in sentences."""
        found = []
        if self.watermark is not None:
            found.append(_watermark_line(self.watermark))
        if self.signed is not None:
            found += [_signed_line(self.signed), *_named_lines(self.signed.statement)]
        if self.comment is not None and not self._is_comment_signed:
            found.append(f"Its comment tag, which anyone can write, says: {_in_words(self.comment)}")
        if self.problem:
            found.append(f"Not everything could be read: {self.problem}")
        return tuple(found) if self.is_made_by_encore else (*found, NO_MARK)


def _watermark_line(watermark: FoundWatermark) -> str:
    listed = [f"{_moment(part.start_seconds)} to {_moment(part.end_seconds)}" for part in watermark.parts]
    shown = ", ".join(listed[:_MAX_PARTS]) + (
        f" and {len(listed) - _MAX_PARTS} more" if len(listed) > _MAX_PARTS else ""
    )
    where = f": {shown}" if shown else ""
    certainty = f"certain to 1 in 10^{min(_MAX_CERTAINTY, int(-watermark.log10_p))}"
    ours = "; this installation made it" if watermark.payload is not None else ""
    return f"The sound carries Encore's watermark ({certainty}{ours}){where}."


def _moment(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02}"


def _signed_line(signed: SignedStatement) -> str:
    if signed.statement is not None:
        says = _in_words(signed.statement)
    elif signed.is_synthetic:
        says = f"made by a model, with {signed.generator or 'an unnamed program'}."
    else:
        says = f"nothing about a model; written by {signed.generator or 'an unnamed program'}."
    signer = f"“{signed.signer}”" if signed.signer else "an unnamed signer"
    match signed.trust:
        case "ours":
            return f"Signed by this installation and unchanged since: {says}"
        case "unknown-signer":
            return f"Signed by {signer}, who is not known here, and unchanged since: {says}"
        case "changed":
            return f"The file was changed after {signer} signed it. It said: {says}"
    return f"The signature does not hold, so nothing it says is proven: {says}"


def _named_lines(statement: SpeechStatement | None) -> list[str]:
    """Speaker and text, where they are told."""
    lines = []
    if statement is not None and statement.speaker is not None:
        lines.append(f"It names the speaker: “{_shown(statement.speaker)}”.")
    if statement is not None and statement.text is not None:
        lines.append(f"It names the text: “{_shown(statement.text)}”.")
    return lines


def _shown(foreign: str) -> str:
    """A text from somebody's file, on one line and without what a terminal would obey."""
    words = " ".join("".join(one if one.isprintable() else " " for one in foreign).split())
    return words if len(words) <= _MAX_SHOWN else f"{words[:_MAX_SHOWN].rstrip()}…"


def _in_words(statement: SpeechStatement) -> str:
    how = f" {_WAYS[statement.voice]}" if statement.voice is not None else ""
    checkpoint = f", checkpoint {statement.checkpoint[:12]}…" if statement.checkpoint is not None else ""
    consent = f", consent {statement.consent}" if statement.consent is not None else ""
    when = f"{statement.made_at:%Y-%m-%d %H:%M} UTC"
    return f"synthetic speech, made by Encore {statement.version} on {when}{how}{checkpoint}{consent}."
