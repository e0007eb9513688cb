"""Bodies of requests and answers, under the names that OpenAI's and vLLM-Omni's speech APIs use."""

from __future__ import annotations

from typing import Annotated, Any, Literal, cast

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    JsonValue,
    StringConstraints,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
)

from backend.audio.formats import AudioFormat
from backend.audio.speed import FASTEST, SLOWEST
from backend.provenance.reading import SignedStatement
from backend.provenance.statement import SpeechStatement
from backend.provenance.verdict import FoundWatermark, Verdict
from backend.serving.speech.text_check import MAX_TEXT_LENGTH
from backend.takes.parts import Doubt, TakePart
from backend.takes.take import Take
from backend.voices.consent import Consent, StatementKind
from backend.voices.voice import Voice, VoiceKind
from training.model.hub.hub import short_name
from training.model.seed import Seed

MAX_INSTRUCTION_LENGTH = 4096
MAX_VOICES = 8
MAX_NAME_LENGTH = 200

_VoiceName = Annotated[str, StringConstraints(min_length=1, max_length=MAX_NAME_LENGTH)]
_Text = Annotated[str, StringConstraints(min_length=1, max_length=MAX_TEXT_LENGTH)]
_LanguageName = Annotated[str, StringConstraints(min_length=1, max_length=40)]


class _Request(BaseModel):
    # Forbidden: a misspelt field would otherwise be a wish that is ignored without a word.
    model_config = ConfigDict(extra="forbid", frozen=True)


class _Answer(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class VoiceReference(_Request):
    """A voice by its id, as OpenAI's clients name custom voices."""

    id: _VoiceName


def _name_both_forms(value: Any, check: ValidatorFunctionWrapHandler) -> _VoiceName | VoiceReference:
    """Check a voice. What pydantic says of it names one form alone, by a name of its own."""
    try:
        return cast(_VoiceName | VoiceReference, check(value))
    except ValidationError as error:
        raise ValueError(
            f'Send the name or id of a voice as text of 1 to {MAX_NAME_LENGTH} characters, or as {{"id": "..."}}'
        ) from error


class SpeechFields(_Request):
    """Fields of every request for speech."""

    model: str | None = Field(
        default=None, max_length=500, description="A model of /v1/models; the only one if left out."
    )
    input: _Text = Field(description="What to say.")
    instructions: str | None = Field(
        default=None,
        max_length=MAX_INSTRUCTION_LENGTH,
        description="How to say it: a style of the voice, or free text for models that follow it; otherwise refused.",
    )
    response_format: AudioFormat = Field(
        default="mp3",
        description="pcm is 16-bit mono at the rate of the model: 24 kHz for the public ones, 16 kHz for mini. m4a "
        "cannot be streamed and is sent whole.",
    )
    speed: float = Field(default=1.0, ge=SLOWEST, le=FASTEST, allow_inf_nan=False)
    stream_format: Literal["audio", "sse"] = "audio"
    stream: bool = Field(
        default=True,
        description="Stream audio while it is generated; otherwise send the finished file, with its length.",
    )
    language: _LanguageName | None = Field(
        default=None, description="Language of the input, such as english; the voice's own if left out."
    )
    seed: Seed | None = Field(default=None, description="The same seed, voice and input give the same speech.")
    name_speaker: bool = Field(default=False, description="Tell in the file's signed statement whose voice it is.")
    name_text: bool = Field(default=False, description="Tell in the file's signed statement what is spoken.")


class SpeechRequest(SpeechFields):
    """POST /v1/audio/speech as JSON."""

    voice: Annotated[_VoiceName | VoiceReference, WrapValidator(_name_both_forms)]


class OneOffSpeechRequest(SpeechFields):
    """POST /v1/audio/speech as a form with a recording: its voice speaks once and is forgotten."""

    voice: _VoiceName | None = Field(default=None, description="A stored voice, if no recording is sent.")
    ref_text: str | None = Field(default=None, max_length=5000, description="What the recording says, word for word.")
    consent: StatementKind | None = Field(default=None, description="The consent statement for the recording.")
    consent_by: str | None = Field(default=None, max_length=200, description="Who gives the consent.")


class VoiceRequest(_Request):
    """POST /v1/audio/voices, in addition to the recording `audio_sample`."""

    name: str = Field(min_length=1, max_length=200)
    consent: StatementKind | None = Field(default=None, description="The consent statement; required.")
    consent_by: str | None = Field(
        default=None, max_length=200, description="Name of the person who gives the consent; required."
    )
    ref_text: str | None = Field(default=None, max_length=5000, description="What the recording says, word for word.")
    language: str = Field(default="auto", pattern=r"^[A-Za-z_]{2,40}$")
    accept_synthetic: bool = Field(default=False, description="Clone also from a recording that Encore made.")


class VoiceView(_Answer):
    """A stored voice."""

    id: str
    object: Literal["voice"] = "voice"
    name: str
    kind: VoiceKind
    language: str
    model: str
    created_at: int
    has_transcript: bool
    styles: list[str]
    """Values of `instructions` that the voice was trained with."""
    consent: Consent
    provenance: dict[str, JsonValue]

    @classmethod
    def of(cls, voice: Voice) -> VoiceView:
        """What the API shows of a voice; not where its files are."""
        return cls(
            id=voice.id,
            name=voice.name,
            kind=voice.kind,
            language=voice.language,
            model=short_name(voice.model),
            created_at=int(voice.created_at.timestamp()),
            has_transcript=voice.transcript is not None,
            styles=[style.name for style in voice.styles],
            consent=voice.consent,
            provenance=voice.provenance,
        )


class VoiceList(_Answer):
    """GET /v1/audio/voices."""

    object: Literal["list"] = "list"
    data: list[VoiceView]
    voices: list[str]
    """Their names alone, as vLLM-Omni lists them."""


class TakePartView(_Answer):
    """One part of a take: a long text is spoken in several."""

    input: str
    start_seconds: float
    seconds: float
    expected_seconds: float
    """What the voice needs for as much text."""
    seed: int
    finish_reason: str
    heard: str | None
    doubt: Doubt | None
    """Short: it has probably lost words. Lost: words were not heard. Rambling: cut off at the length limit."""

    @classmethod
    def of(cls, part: TakePart) -> TakePartView:
        """What the API shows of a part."""
        return cls(
            input=part.text,
            start_seconds=part.start_seconds,
            seconds=part.seconds,
            expected_seconds=part.expected_seconds,
            seed=part.seed,
            finish_reason=part.finish_reason.value,
            heard=part.heard.text if part.heard is not None else None,
            doubt=part.doubt,
        )


class TakeView(_Answer):
    """A stored take."""

    id: str
    object: Literal["take"] = "take"
    created_at: int
    made_by: Literal["studio", "api", "command"]
    voice: str
    model: str
    input: str
    language: str
    style: str
    """Of the voice; empty for none."""
    seeds: list[int]
    speed: float
    response_format: AudioFormat
    seconds: float
    finish_reason: str
    bytes: int
    spoken: str
    """The input as far as it was spoken."""
    parts: list[TakePartView]
    """None of takes of earlier versions."""

    @classmethod
    def of(cls, take: Take) -> TakeView:
        """What the API shows of a take."""
        return cls(
            id=take.id,
            created_at=int(take.made_at.timestamp()),
            made_by=take.made_by,
            voice=take.voice,
            model=short_name(take.model_name),
            input=take.text,
            language=take.language,
            style=take.style,
            seeds=list(take.seeds),
            speed=take.speed,
            response_format=take.audio_format,
            seconds=take.seconds,
            finish_reason=take.finish_reason.value,
            bytes=take.num_bytes,
            spoken=take.spoken_text,
            parts=[TakePartView.of(part) for part in take.parts],
        )


class TakeList(_Answer):
    """GET /v1/audio/takes."""

    object: Literal["list"] = "list"
    data: list[TakeView]


class Deleted(_Answer):
    """DELETE /v1/audio/voices/{id} and /v1/audio/takes/{id}."""

    id: str
    object: Literal["voice", "take"] = "voice"
    deleted: Literal[True] = True


class ModelView(_Answer):
    """A model that can be requested."""

    id: str
    object: Literal["model"] = "model"
    created: int
    owned_by: str = "encore"


class ModelList(_Answer):
    """GET /v1/models."""

    object: Literal["list"] = "list"
    data: list[ModelView]


class CompareRequest(_Request):
    """POST /v1/compare: one text, spoken by several voices with the same seed."""

    model: str | None = Field(default=None, max_length=500)
    voices: list[_VoiceName] = Field(min_length=2, max_length=MAX_VOICES)
    input: _Text
    response_format: AudioFormat = "wav"
    speed: float = Field(default=1.0, ge=SLOWEST, le=FASTEST, allow_inf_nan=False)
    language: _LanguageName | None = None
    seed: Seed | None = None


class ComparedTake(_Answer):
    """One voice's take."""

    voice: str
    voice_id: str
    audio: str
    """Base64 of the file."""
    seconds: float
    seconds_to_first_audio: float
    real_time_factor: float
    finish_reason: str


class Comparison(_Answer):
    """The takes, in the order of the requested voices."""

    object: Literal["comparison"] = "comparison"
    input: str
    seed: int
    response_format: AudioFormat
    takes: list[ComparedTake]


class CheckRequest(_Request):
    """POST /v1/audio/check, beside the recording `file`."""


class CheckedTake(_Answer):
    """A take of the API that a checked recording is."""

    id: str
    object: Literal["take"] = "take"
    created_at: int


class CheckView(_Answer):
    """What was found in a recording."""

    object: Literal["check"] = "check"
    is_made_by_encore: bool
    """False means that no mark was found, not that it is not synthetic."""
    says: list[str]
    seconds: float
    signed: SignedStatement | None
    comment: SpeechStatement | None
    watermark: FoundWatermark | None
    problem: str
    take: CheckedTake | None

    @classmethod
    def of(cls, verdict: Verdict, take: CheckedTake | None) -> CheckView:
        """What the API tells of a verdict."""
        return cls(
            is_made_by_encore=verdict.is_made_by_encore,
            says=list(verdict.lines),
            seconds=verdict.seconds,
            signed=verdict.signed,
            comment=verdict.comment,
            watermark=verdict.watermark,
            problem=verdict.problem,
            take=take,
        )


class CheckInformation(_Answer):
    """GET /v1/audio/check."""

    signed_formats: list[AudioFormat]
    """Whole files of these carry a signed statement; the others a comment tag where they have one."""
    header: str = "X-Encore-Provenance"
    signer: str | None
    certificates: str | None
    """PEM; what a reader of C2PA has to trust to know this installation."""
    problem: str
    """Why files are not signed; empty when they are."""
    no_mark_means: str


class Health(_Answer):
    """GET /healthz."""

    status: Literal["ok"] = "ok"
    model: str
    num_replicas: int
