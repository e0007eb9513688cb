"""A voice: something that can speak, with where it comes from and who agreed to it."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, JsonValue, StringConstraints

from backend.voices.consent import Consent
from backend.voices.names import clean_name
from backend.voices.styles import MAX_STYLES, STYLES_FOLDER, VoiceStyle, require_style
from training.model.sampling_settings import Sampling

VoiceKind = Literal["zero-shot", "fine-tuned"]
Variant = Literal["custom_voice", "base"]
CloningMode = Literal["in-context", "x-vector", "fine-tuned", "fine-tuned-in-context"]

REFERENCE_FILE = "reference.wav"
PROMPTS_FOLDER = "prompts"
ADAPTER_FOLDER = "adapter"
VARIANT_FOLDERS: tuple[Variant, ...] = ("custom_voice", "base")
VARIANT_OF_MODE: dict[CloningMode, Variant] = {"fine-tuned": "custom_voice", "fine-tuned-in-context": "base"}
"""Which of a fine-tuned voice's checkpoints speaks; the base model in other modes.

A voice with an adapter has none: the base model speaks in all its modes, with the adapter beside it in these two."""

Language = Annotated[str, StringConstraints(to_lower=True, pattern=r"^[A-Za-z_]{2,40}$")]
"""`auto`, or a language as the checkpoints name it, such as `english`."""
VoiceId = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{32}$")]


class VoiceRecord(BaseModel):
    """What is stored and exported of a voice, wherever its files are."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    id: VoiceId
    name: Annotated[str, AfterValidator(clean_name)]
    kind: VoiceKind
    language: Language = "auto"
    model: str = Field(min_length=1, max_length=500)
    """The base model that speaks, or that the voice was trained from."""
    transcript: str | None = Field(default=None, max_length=5000)
    """The transcript of the reference, word for word; with it the voice is cloned in context."""
    consent: Consent
    provenance: dict[str, JsonValue] = Field(default_factory=dict)
    """Where it comes from: digest of the dataset, scores of the checkpoint, the file it was imported from."""
    sampling: Sampling | None = None
    """Sampling of its takes unless a request overrides it; None for the checkpoint's default."""
    styles: tuple[VoiceStyle, ...] = Field(default=(), max_length=MAX_STYLES)
    """The ways in which it can be told to speak; see `SynthesisRequest.style`."""
    run_id: str | None = Field(default=None, max_length=200)
    created_at: datetime


class Voice(VoiceRecord):
    """A voice of this machine's registry, with the folder of its files."""

    folder: Path

    @property
    def reference(self) -> Path | None:
        """The reference recording, 24 kHz mono PCM16, made here; safe to serve. Fine-tuned voices may lack one."""
        path = self.folder / REFERENCE_FILE
        return path if path.is_file() else None

    def style(self, word: str) -> VoiceStyle:
        """The style of that name. Raises VoiceStyleUnknown, which lists those it has."""
        return require_style(self.name, self.styles, word)

    def clip_of(self, style: VoiceStyle) -> Path:
        """The recording that takes of a style continue; 24 kHz mono PCM16, made here."""
        return self.folder / STYLES_FOLDER / style.file_name

    @property
    def prompts_folder(self) -> Path:
        """Where the prompts made from the reference are kept."""
        return self.folder / PROMPTS_FOLDER

    @property
    def variants(self) -> dict[Variant, Path]:
        """A fine-tuned voice's checkpoint folders; `custom_voice` speaks, `base` can be cloned from and trained on."""
        return {name: self.folder / name for name in VARIANT_FOLDERS if (self.folder / name).is_dir()}

    @property
    def adapter(self) -> Path | None:
        """The folder of a fine-tuned voice's adapter, which its base model speaks with; None for other voices."""
        folder = self.folder / ADAPTER_FOLDER
        return folder if self.kind == "fine-tuned" and folder.is_dir() else None

    @property
    def modes(self) -> tuple[CloningMode, ...]:
        """The modes in which it can speak; its intended mode first."""
        modes: list[CloningMode] = []
        if self.kind == "fine-tuned":
            has_adapter = self.adapter is not None
            if "custom_voice" in self.variants or has_adapter:
                modes.append("fine-tuned")
            if ("base" in self.variants or has_adapter) and self.reference is not None and self.transcript:
                modes.append("fine-tuned-in-context")
        if self.reference is not None:
            modes += ["in-context", "x-vector"] if self.transcript else ["x-vector"]
        return tuple(modes)

    @property
    def record(self) -> VoiceRecord:
        """The same without its folder."""
        return VoiceRecord.model_validate(self.model_dump(exclude={"folder"}))
