"""What is known of a take, for tests of where takes are kept."""

from __future__ import annotations

from backend.takes.take import TakeFacts
from backend.voices.consent import Consent
from training.model.generation.finish_reason import FinishReason
from training.model.sampling_settings import Sampling

FACTS = TakeFacts(
    made_by="studio",
    voice="Anna",
    text="Hello.",
    model_name="mini",
    is_in_context=True,
    is_fine_tuned=False,
    language="auto",
    sampling=Sampling(temperature=0.5),
    seeds=(1, 2),
    seconds=1.5,
    real_time_factor=0.5,
    seconds_to_first_audio=0.1,
    finish_reason=FinishReason.EOS,
    consent=Consent.give("Ann Author"),
)
