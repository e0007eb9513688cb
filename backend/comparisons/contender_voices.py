"""From a contender to the voice that a request names, and from the winner to a voice of the library."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from pydantic import JsonValue

from backend.comparisons.contenders import Contender
from backend.comparisons.errors import ComparisonError
from backend.evaluation.plan import EvaluationPlan
from backend.runs.runs import Runs
from backend.runs.storage.run_folder import RunFolder
from backend.serving.requests import Reference, RunCheckpoint
from backend.voices.consent import Consent
from backend.voices.names import name_key
from backend.voices.registry import Voices
from backend.voices.samples import get_sample
from backend.voices.styles import StyleClip
from backend.voices.voice import VARIANT_OF_MODE, CloningMode, Variant, Voice
from training.export import export_checkpoint
from training.run_checkpoints import read_checkpoint

COMPARE_FOLDER = "compare"


@dataclass(frozen=True, kw_only=True)
class ContenderVoice:
    """The voice in a request for a contender's take, and the recording that the take should sound like."""

    voice: Voice | Reference | RunCheckpoint
    mode: CloningMode | None = None
    reference: Path | None


@dataclass(frozen=True, kw_only=True)
class _Origin:
    """Everything a new voice is made from when a contender is kept."""

    consent: Consent | None
    model: str
    reference: Path | None
    transcript: str | None
    language: str
    provenance: Mapping[str, JsonValue]
    run_id: str | None = None
    styles: tuple[StyleClip, ...] = ()


class ContenderVoices:
    """Finds or makes the voices of contenders; methods may take seconds."""

    def __init__(self, voices: Voices, runs: Runs, home: Path) -> None:
        self._voices, self._runs, self._home = voices, runs, home

    def find(self, side: Contender) -> ContenderVoice:
        """The voice that speaks for a contender.

        Raises:
            EncoreError: the voice, its checkpoint or its recording no longer exists.
        """
        if side.source == "voice":
            voice = self._voices.get(side.id)
            return ContenderVoice(voice=voice, mode=side.way, reference=voice.reference)
        if side.source == "sample":
            sample, checkpoint = get_sample(side.id), None
            path, text = sample.reference_in(self._home), sample.reference_text
        else:
            plan = self._plan(side)
            path, text, checkpoint = plan.reference_clip, plan.reference_text, plan.base_model
            if side.is_fine_tuned:
                exported = RunCheckpoint(name=side.checkpoint, checkpoint=self._exported(side, "custom_voice", plan))
                return ContenderVoice(voice=exported, reference=path)
        transcript = text if side.way == "in-context" else None
        reference = Reference(name=side.label, recording=path, transcript=transcript, checkpoint=checkpoint)
        return ContenderVoice(voice=reference, reference=path)

    def keep(self, side: Contender, name: str, model_name: str, provenance: Mapping[str, JsonValue]) -> Voice:
        """Make the contender a voice of the library; one that is there in this way and under this name stays as it is.

        Args:
            side: the contender.
            name: of the new voice.
            model_name: the base model that zero-shot voices spoke with.
            provenance: recorded with the voice.

        Raises:
            EncoreError: the name is taken, or the contender no longer exists.
        """
        checkpoints: Mapping[Variant, Path] = {}
        adapter = None
        if side.source == "voice":
            voice = self._voices.get(side.id)
            is_meant_way = side.way == next(iter(voice.modes), None)
            if is_meant_way and name_key(name) == name_key(voice.name):
                return voice
            origin = _origin_of(voice, voice.model if side.is_fine_tuned else model_name)
            if side.is_fine_tuned and voice.adapter is not None:
                adapter = voice.adapter
            elif side.is_fine_tuned:
                variant = VARIANT_OF_MODE[side.way]
                checkpoints = voice.variants if is_meant_way else {variant: voice.variants[variant]}
        elif side.source == "sample":
            sample = get_sample(side.id)
            origin = _Origin(
                consent=sample.consent(),
                model=model_name,
                reference=sample.reference_in(self._home),
                transcript=sample.reference_text,
                language="english",
                provenance={"sample": sample.name},
            )
        else:
            run, plan = self._runs.get(side.id), self._plan(side)
            origin = _Origin(
                consent=run.consent,
                model=run.model,
                run_id=run.id,
                reference=plan.reference_clip if plan.reference_clip.is_file() else None,
                transcript=plan.reference_text,
                language=plan.language,
                provenance={"dataset": run.dataset, "checkpoint": side.checkpoint or None},
                styles=tuple(style for style in plan.styles if style.clip is None or style.clip.is_file()),
            )
            if side.is_fine_tuned:
                checkpoints = {variant: self._exported(side, variant, plan) for variant in VARIANT_OF_MODE.values()}
        return self._add(side, name, origin, checkpoints, {**origin.provenance, **provenance}, adapter)

    def _add(
        self,
        side: Contender,
        name: str,
        origin: _Origin,
        checkpoints: Mapping[Variant, Path],
        provenance: Mapping[str, JsonValue],
        adapter: Path | None,
    ) -> Voice:
        if checkpoints or adapter is not None:
            return self._voices.add_fine_tuned(
                name,
                checkpoints,
                adapter=adapter,
                consent=origin.consent,
                model=origin.model,
                run_id=origin.run_id,
                reference=origin.reference,
                transcript=origin.transcript,
                language=origin.language,
                provenance=provenance,
                styles=origin.styles if "base" in checkpoints else (),
            )
        if origin.reference is None:
            raise ComparisonError(f"The recording of {side.label} is missing. Choose another voice.")
        return self._voices.create_zero_shot(
            name,
            origin.reference,
            consent=origin.consent,
            model=origin.model,
            transcript=origin.transcript if side.way == "in-context" else None,
            language=origin.language,
            provenance=provenance,
            # It has spoken here before, and won.
            accept_synthetic=True,
            is_derived=True,
        )

    def _plan(self, side: Contender) -> EvaluationPlan:
        return EvaluationPlan.read(RunFolder.of(self._home, side.id).evaluation_plan)

    def _exported(self, side: Contender, variant: Variant, plan: EvaluationPlan) -> Path:
        """A checkpoint of a run in the public format, made when it is first needed."""
        run = RunFolder.of(self._home, side.id)
        folder = run.path / COMPARE_FOLDER / side.checkpoint / variant
        if not folder.is_dir():
            folder.parent.mkdir(parents=True, exist_ok=True)
            checkpoint = read_checkpoint(run.checkpoints / side.checkpoint)
            export_checkpoint(checkpoint, torch.tensor(plan.embeddings, dtype=torch.float32), folder, variant)
        return folder


def _origin_of(voice: Voice, model: str) -> _Origin:
    """What a voice that is made of another one takes over."""
    return _Origin(
        consent=voice.consent,
        model=model,
        run_id=voice.run_id,
        reference=voice.reference,
        transcript=voice.transcript,
        language=voice.language,
        provenance={**voice.provenance, "made_of": voice.name},
        styles=tuple(
            StyleClip(name=style.name, clip=voice.clip_of(style) if style.transcript else None, text=style.transcript)
            for style in voice.styles
        ),
    )
