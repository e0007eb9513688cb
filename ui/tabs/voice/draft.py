"""What was filled in on the last visit: text, voice and settings, kept in the visitor's own browser."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import gradio as gr

from backend.errors import EncoreError
from training.model.hub.hub import short_name
from ui.context import PageContext
from ui.events import Trigger, Update, bind
from ui.tabs.voice.source import SourcePart
from ui.tabs.voice.speak import SpeechPart
from ui.words.words import say

KEEP = """(kept, sample, voice, text, way, language, style, seed, temperature, top_k, top_p, repetition_penalty) => {
  // Until it is filled in again, what was kept is all there is.
  if (!encore.isRestored) return kept;
  const model = document.querySelector("#model-chip .chip-name")?.textContent ?? "";
  const sampling = { seed, temperature, top_k, top_p, repetition_penalty };
  const chosen = document.querySelector(".voice-choice[aria-checked=true]")?.dataset ?? kept;
  return { kind: chosen.kind, voiceKey: chosen.voiceKey, text, way, language, style, model, sampling };
}"""
"""Runs in the browser: what is typed is not sent anywhere to be kept."""


class Draft:
    """Keeps what is filled in, and fills it in again."""

    def __init__(self, context: PageContext, source: SourcePart, speech: SpeechPart) -> None:
        self._context, self._source, self._speech = context, source, speech
        # The key hides nothing there; without it each start has another.
        self._kept = gr.BrowserState({}, storage_key="encore-draft", secret="encore")
        self._sampling = {
            "seed": speech.seed,
            "temperature": speech.temperature,
            "top_k": speech.top_k,
            "top_p": speech.top_p,
            "repetition_penalty": speech.repetition_penalty,
        }
        fields = [source.sample, source.saved, speech.text, speech.way, speech.language]
        fields += [speech.style, *self._sampling.values()]
        gr.on(
            [cast("Any", field).change for field in fields],
            None,
            [self._kept, *fields],
            self._kept,
            js=KEEP,
            queue=False,
            show_progress="hidden",
            api_visibility="private",
        )

    def restore_after(self, trigger: Trigger) -> None:
        """Fill in what was kept, once the page has the model's own values."""
        speech, source = self._speech, self._source
        filled = [speech.text, speech.way, speech.language, speech.style, *self._sampling.values(), *source.chosen]
        # Through the queue: only there does Gradio tell the others that the voice has changed.
        restored = bind(trigger, self._restore, {"kept": self._kept}, filled)
        restored.then(None, js="() => { encore.isRestored = true; }", api_visibility="private")

    def _restore(self, kept: object, request: gr.Request) -> Update:
        speech = self._speech
        ways = [(say("speak.closer"), "auto"), (say("speak.freer"), "x-vector")]
        known = kept if isinstance(kept, dict) else {}
        update: Update = {speech.way: gr.update(choices=ways, value=_one_of(known.get("way"), ways) or "auto")}
        if isinstance(known.get("text"), str):
            update[speech.text] = known["text"]
        loaded = self._context.studio.loaded
        if loaded is not None and known.get("model") == short_name(loaded.name):
            if known.get("language") in ("auto", *loaded.facts.languages):
                update[speech.language] = gr.update(value=known["language"])
            sampling = known.get("sampling")
            update |= self._restore_sampling(sampling if isinstance(sampling, dict) else {})
        update |= self._restore_voice(str(known.get("kind")), str(known.get("voiceKey")), request)
        return update | speech.offer_styles(update.get(self._source.source), str(known.get("style") or ""))

    def _restore_sampling(self, kept: Mapping[str, Any]) -> Update:
        return {field: gr.update(value=kept[name]) for name, field in self._sampling.items() if name in kept}

    def _restore_voice(self, kind: str, key: str, request: gr.Request) -> Update:
        try:
            return self._source.use(kind, key, request)
        except EncoreError:
            # It was deleted since.
            return {}


def _one_of(value: object, choices: list[tuple[str, str]]) -> str | None:
    return next((name for _, name in choices if name == value), None)
