"""From a side to what speaks: the checkpoint and the prompt; and from the side that won to a voice of the library."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from pydantic import JsonValue

from backend.comparisons.contenders import CloningMode, Contender, ways_of
from backend.comparisons.errors import ComparisonError
from backend.evaluation.plan import EvaluationPlan
from backend.runs.runs import Runs
from backend.runs.storage.records import RunRecord
from backend.runs.storage.run_folder import RunFolder
from backend.serving.pool.loaded_model import LoadedModel, ModelShelf
from backend.voices.consent import Consent
from backend.voices.registry import Voices
from backend.voices.samples import get_sample
from backend.voices.voice import Variant, Voice
from training.checkpoint import CHECKPOINTS_FOLDER, read_checkpoint
from training.export import export_checkpoint
from training.model.decoding.take_request import VoicePrompt

COMPARE_FOLDER = "compare"
SAMPLES_FOLDER = "samples"

Clone = Callable[[LoadedModel, Path, str | None], VoicePrompt]
_VARIANT_OF: dict[CloningMode, Variant] = {"fine-tuned": "custom_voice", "fine-tuned-in-context": "base"}


@dataclass(frozen=True, kw_only=True, eq=False)
class ResolvedVoice:
    """What speaks for a side, and the recording it is meant to sound like."""

    side: Contender
    loaded: LoadedModel
    prompt: VoicePrompt
    reference: Path | None


class VoiceResolver:
    """Finds or makes what sides need; methods may take seconds."""

    def __init__(self, voices: Voices, runs: Runs, home: Path, clone: Clone, shelf: ModelShelf) -> None:
        self._voices, self._runs, self._home, self._clone, self._shelf = voices, runs, home, clone, shelf

    def resolve(self, side: Contender, base: LoadedModel) -> ResolvedVoice:
        """What speaks for a side; zero-shot ones speak with `base`.

        Raises:
            EncoreError: the voice, its checkpoint or its recording is not there any more.
        """
        match side.source:
            case "voice":
                return self._cast_voice(side, self._voices.get(side.id), base)
            case "sample":
                reference = self.sample_reference(side.id)
                text = get_sample(side.id).reference_text
                return self._zero_shot(side, base, reference, text)
            case "run":
                return self._cast_run(side, base)

    def keep(self, side: Contender, name: str, base: LoadedModel, provenance: Mapping[str, JsonValue]) -> Voice:
        """Make the side a voice of the library; one that is there already stays as it is.

        Raises:
            EncoreError: the name is taken, or the side is not there any more.
        """
        match side.source:
            case "voice":
                return self._keep_voice(side, self._voices.get(side.id), name, base, provenance)
            case "sample":
                sample = get_sample(side.id)
                return self._voices.create_zero_shot(
                    name,
                    self.sample_reference(side.id),
                    consent=sample.consent(),
                    model=base.name,
                    transcript=sample.reference_text if side.way == "in-context" else None,
                    language="english",
                    provenance={"sample": sample.name, **provenance},
                )
            case "run":
                return self._keep_run(side, name, provenance)

    def sample_reference(self, name: str) -> Path:
        """The part of a sample that a voice is cloned from, written the first time. Raises EncoreError."""
        path = self._home / SAMPLES_FOLDER / f"{name}.wav"
        if not path.is_file():
            sample = get_sample(name)
            path.parent.mkdir(parents=True, exist_ok=True)
            sample.write_reference(path)
        return path

    def _zero_shot(self, side: Contender, base: LoadedModel, reference: Path, text: str | None) -> ResolvedVoice:
        transcript = text if side.way in ("in-context", "fine-tuned-in-context") else None
        prompt = self._clone(base, reference, transcript)
        return ResolvedVoice(side=side, loaded=base, prompt=prompt, reference=reference)

    def _cast_voice(self, side: Contender, voice: Voice, base: LoadedModel) -> ResolvedVoice:
        loaded = base
        if side.is_fine_tuned:
            folder = voice.variants.get(_VARIANT_OF[side.way])
            if folder is None:
                raise ComparisonError(f"The voice {voice.name} has lost its checkpoint. Import it again.")
            loaded = self._shelf.get(voice.name, folder, precision=base.model.precision, device=str(base.model.device))
        prompt = loaded.prompts.get(voice)
        if side.way == "x-vector":
            prompt = VoicePrompt(speaker=prompt.speaker)
        return ResolvedVoice(side=side, loaded=loaded, prompt=prompt, reference=voice.reference)

    def _cast_run(self, side: Contender, base: LoadedModel) -> ResolvedVoice:
        plan = EvaluationPlan.read(RunFolder.of(self._home, side.id).evaluation_plan)
        precision, device = base.model.precision, str(base.model.device)
        if plan.base_model.resolve() != base.folder.resolve():
            base = self._shelf.get(plan.base_model.name, plan.base_model, precision=precision, device=device)
        if not side.is_fine_tuned:
            return self._zero_shot(side, base, plan.reference_clip, plan.reference_text)
        folder = self._exported(side, "custom_voice", plan)
        loaded = self._shelf.get(side.checkpoint, folder, precision=precision, device=device)
        speaker_name = next(iter(loaded.model.config.talker.spk_id))
        prompt = VoicePrompt(speaker_name=speaker_name)
        return ResolvedVoice(side=side, loaded=loaded, prompt=prompt, reference=plan.reference_clip)

    def _exported(self, side: Contender, variant: Variant, plan: EvaluationPlan) -> Path:
        """A checkpoint of a run in the public format, made when it is first needed."""
        run = RunFolder.of(self._home, side.id)
        folder = run.path / COMPARE_FOLDER / side.checkpoint / variant
        if not folder.is_dir():
            folder.parent.mkdir(parents=True, exist_ok=True)
            checkpoint = read_checkpoint(run.path / CHECKPOINTS_FOLDER / side.checkpoint)
            export_checkpoint(checkpoint, torch.tensor(plan.speaker, dtype=torch.float32), folder, variant)
        return folder

    def _keep_voice(
        self, side: Contender, voice: Voice, name: str, base: LoadedModel, provenance: Mapping[str, JsonValue]
    ) -> Voice:
        if side.way == next(ways_of(voice), None):
            return voice
        origin: dict[str, JsonValue] = {**voice.provenance, "made_of": voice.name, **provenance}
        if side.is_fine_tuned:
            variant = _VARIANT_OF[side.way]
            return self._voices.add_fine_tuned(
                name,
                {variant: voice.variants[variant]},
                consent=voice.consent,
                model=voice.model,
                run_id=voice.run_id,
                reference=voice.reference,
                transcript=voice.transcript,
                language=voice.language,
                provenance=origin,
            )
        if voice.reference is None:
            raise ComparisonError(f"The voice {voice.name} has lost its recording. Import it again.")
        return self._voices.create_zero_shot(
            name,
            voice.reference,
            consent=voice.consent,
            model=base.name,
            transcript=voice.transcript if side.way == "in-context" else None,
            language=voice.language,
            provenance=origin,
        )

    def _keep_run(self, side: Contender, name: str, provenance: Mapping[str, JsonValue]) -> Voice:
        run: RunRecord = self._runs.get(side.id)
        plan = EvaluationPlan.read(RunFolder.of(self._home, side.id).evaluation_plan)
        consent = Consent.model_validate_json(run.consent) if run.consent else None
        reference = plan.reference_clip if plan.reference_clip.is_file() else None
        origin: dict[str, JsonValue] = {"dataset": run.dataset, "checkpoint": side.checkpoint or None, **provenance}
        if side.is_fine_tuned:
            exported = {variant: self._exported(side, variant, plan) for variant in _VARIANT_OF.values()}
            return self._voices.add_fine_tuned(
                name,
                exported,
                consent=consent,
                model=run.model,
                run_id=run.id,
                reference=reference,
                transcript=plan.reference_text,
                language=plan.language,
                provenance=origin,
            )
        return self._voices.create_zero_shot(
            name,
            plan.reference_clip,
            consent=consent,
            model=run.model,
            transcript=plan.reference_text if side.way == "in-context" else None,
            language=plan.language,
            provenance=origin,
        )
