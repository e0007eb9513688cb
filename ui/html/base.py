"""What the page says: domain objects to text and HTML. Pure: no Gradio, no files, everything foreign escaped."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path
from urllib.parse import quote

from backend.audio.formats import FORMAT_TABLE
from backend.audio.quality import NOISY_RATIO_DB, QUIET_SPEECH_DBFS, Concern, ReferenceReport
from backend.serving.pool.loading import LoadingState
from backend.serving.speech.speech import SpeechProgress
from backend.takes.take import Take
from backend.voices.consent import Consent
from training.model.decoding.frame_loop import FinishReason
from training.model.hub.hub import EMBEDDED_MODEL, KNOWN_MODELS
from training.model.sampling import Sampling
from ui.html.waveform import waveform_svg

PRECISIONS = {"fp32": "full precision (fp32)", "bf16": "half precision (bf16)", "int8": "8-bit weights (int8)"}
DEVICES = {"cpu": "the processor (CPU)", "cuda": "the graphics card (CUDA)"}

ADVICE = {
    Concern.CLIPPED: "Overdriven: the loudest parts are cut off and crackle. Record again at a lower level.",
    Concern.NOISY: "Noisy: what is heard behind the voice is cloned too. Try a quieter room, closer to the microphone.",
    Concern.QUIET: "Quiet: speak up, or move closer to the microphone.",
    Concern.SHORT: "Short: ten seconds or more bring the voice closer.",
    Concern.LONG: "Longer than needed: ten to thirty seconds are as good, and quicker.",
}

ENDINGS = {
    FinishReason.EOS: "ended by itself",
    FinishReason.LENGTH: "cut off at the length limit: listen to the end, the model may have rambled",
    FinishReason.CANCELLED: "stopped before the end",
}

EMBEDDED_NOTE = (
    "It is the small model inside Encore, made to try everything with: it speaks English and copies pitch and timbre. "
    "For voices to publish, load Qwen3-TTS under “Choose a model”."
)

VERY_QUIET_RATIO_DB = 40.0

NO_TAKES = "What you let it speak is collected here, also when you come back another day."

CLONING_MODELS = tuple(model for model in KNOWN_MODELS if model.name.endswith("-Base"))
"""The others speak in voices of their own, which this page has no use for."""


NOTHING = '<div class="says-nothing" role="status"></div>'
"""Stands where something will be said: screen readers announce changes only of what is there already."""


def model_line(name: str, precision: str, device: str) -> str:
    """Which model speaks, how, and on what."""
    how = PRECISIONS.get(precision, precision)
    where = DEVICES.get(device, device)
    what = f" {EMBEDDED_NOTE}" if name == EMBEDDED_MODEL else ""
    return says(
        "good", f"<strong>Model: {escape(short_name(name))}</strong>, in {escape(how)} on {escape(where)}.{what}"
    )


def no_model_line(is_loading: bool) -> str:
    """What stands in place of the model until there is one."""
    if is_loading:
        return says("", "<strong>The model is on its way.</strong> You can already add a recording and your text.")
    return says("mixed", "<strong>No model is loaded.</strong> Choose one below; recording and text can come first.")


def loading_line(state: LoadingState | None) -> str:
    """How a loading stands, or why the last one failed."""
    if state is None or not (state.is_running or state.problem):
        return NOTHING
    if not state.is_running:
        return says(
            "bad", f"<strong>{escape(state.name)} was not loaded.</strong> {escape(state.problem)}", role="alert"
        )
    if state.progress is None:
        return says("", f"Loading <strong>{escape(state.name)}</strong> …")
    done, total = state.progress.bytes_done, state.progress.bytes_total
    percent = 100 * done // total if total else 0
    left = "" if state.seconds_left is None else f", about {time_in_words(state.seconds_left)} left"
    bar = (
        f'<div class="progress-track" role="progressbar" aria-label="Download" aria-valuemin="0" aria-valuemax="100" '
        f'aria-valuenow="{percent}"><div style="width:{percent}%"></div></div>'
    )
    text = f"Downloading <strong>{escape(state.name)}</strong>: {size_in_words(done)} of {size_in_words(total)}{left}."
    return says("", text, more=f"{bar}<p><code>{escape(state.progress.file)}</code></p>")


def explain_models() -> str:
    """Which models there are and how to get one, with and without a network."""
    known = "".join(
        f"<li><code>{escape(model.name)}</code>: {escape(model.purpose)}, "
        f"{size_in_words(model.num_bytes)} to download</li>"
        for model in CLONING_MODELS
    )
    example = escape(CLONING_MODELS[0].name)
    return (
        '<div class="explanation"><p>Everything that speaks needs a model. Any of these will do:</p><ul>'
        "<li><code>mini</code>: the small model inside Encore, nothing to download "
        "(where this copy has the folder <code>assets/mini</code>)</li>"
        f"{known}"
        "<li>a folder on this machine with a checkpoint in the Qwen3-TTS format: type its path</li></ul>"
        "<p>A download happens once, shows its progress and can be cancelled and continued. "
        f"Without a network: run <code>hf download {example} --local-dir FOLDER</code> on a machine that has one, "
        "bring the folder here and type its path.</p></div>"
    )


def model_choices() -> list[tuple[str, str]]:
    """Label and name of each model that can be picked without typing; only those that clone."""
    hub = [(f"{model.name} ({size_in_words(model.num_bytes)} download)", model.name) for model in CLONING_MODELS]
    return [("mini (inside Encore)", EMBEDDED_MODEL), *hub]


def verdict(report: ReferenceReport, preview: Path, *, name: str = "") -> str:
    """How good a recording is to clone from, in words and as a picture; `preview` is the WAV to listen to."""
    heading = f"<span>{escape(name)}</span><br>" if name else ""
    seconds = f"{report.seconds:.1f} s"
    level = "quiet" if report.speech_dbfs < QUIET_SPEECH_DBFS else "good"
    facts = (
        f"Length {seconds}, level {level} ({report.speech_dbfs:.0f} dB), "
        f"background {_background(report.speech_over_noise_db)} ({report.noise_dbfs:.0f} dB)."
    )
    picture = recording_picture(report, preview)
    if not report.concerns:
        return says("good", f"{heading}<strong>Good to clone from.</strong> {facts}", more=picture)
    advice = "".join(f"<li>{ADVICE[concern]}</li>" for concern in report.concerns)
    return says(
        "mixed", f"{heading}<strong>Usable, but not ideal.</strong> {facts}", more=f"<ul>{advice}</ul>{picture}"
    )


def cards(rendered: Sequence[str]) -> str:
    """Several messages below each other."""
    return f'<div class="cards">{"".join(rendered)}</div>' if rendered else NOTHING


def escaped(text: str) -> str:
    """Foreign text as part of a message."""
    return escape(text)


def refusal(message: str) -> str:
    """Why a recording cannot be used."""
    return says("bad", f"<strong>This recording cannot be used.</strong> {escape(message)}", role="alert")


def speaking_line(progress: SpeechProgress) -> str:
    """How far a take has come."""
    pieces = ""
    if progress.num_pieces > 1:
        pieces = f", part {min(progress.pieces_done + 1, progress.num_pieces)} of {progress.num_pieces}"
    left = f", about {time_in_words(progress.seconds_left)} left" if progress.share_done else ""
    return says("", f"Speaking: {progress.seconds_spoken:.1f} s so far{pieces}{left}.")


def spoken_line(take: Take) -> str:
    """That a take is there, and where."""
    tone = "good" if take.finish_reason is FinishReason.EOS else "mixed"
    return says(
        tone, f"<strong>Take {take.number} is ready:</strong> {take.seconds:.1f} s, {ENDINGS[take.finish_reason]}."
    )


def take_list(takes: Sequence[tuple[Take, Path]], empty: str = NO_TAKES) -> str:
    """Takes in the order given, each with the place of its file, a player, a download and a way to delete it."""
    if not takes:
        return f'<p class="note">{empty}</p>'
    cards = "".join(take_card(take, place) for take, place in takes)
    return f'<ol class="take-list">{cards}</ol>'


def take_card(take: Take, place: Path) -> str:
    """One take: its text, its sound, how it was made, and when."""
    url = file_url(place)
    title = f"Take {take.number}"
    suffix = FORMAT_TABLE[take.audio_format].suffix
    how = "Cloned with the transcript" if take.is_in_context else "Cloned from the sound of the voice alone"
    if take.is_fine_tuned:
        how = "Spoken by a fine-tuned voice,"
    return (
        f'<li><h3>{title}</h3><blockquote>{escape(take.text)}</blockquote><div class="player">'
        f'<audio controls preload="metadata" src="{url}" aria-label="{title}, {take.seconds:.1f} seconds"></audio>'
        f'<a class="download" href="{url}" download="encore-take-{take.number}{suffix}" '
        f'aria-label="Download take {take.number}">Download {suffix[1:].upper()}</a></div>'
        f'<div class="facts">{take.seconds:.1f} s, {ENDINGS[take.finish_reason]}. First sound after '
        f"{take.seconds_to_first_audio:.1f} s; {pace_in_words(take.real_time_factor)}.</div>"
        f'<div class="facts">{escape(take.voice)}. {how} by {escape(short_name(take.model_name))}. '
        f"Language: {_language(take.language)}. {_seeds(take.seeds)}{_sampling(take.sampling)}</div>"
        f'<details class="facts"><summary>Spoken on {take.made_at.astimezone():%Y-%m-%d at %H:%M}: consent, delete'
        "</summary>"
        f'{escape(consent_in_words(take.consent))} <button type="button" class="delete-take" data-take="{take.id}" '
        f'aria-label="Delete take {take.number} for good">Delete this take</button></details></li>'
    )


def consent_in_words(consent: Consent | None) -> str:
    """Who agreed to what, and when."""
    if consent is None:
        return ""
    aloud = " It was also said aloud." if consent.spoken is not None else ""
    return f"Consent by {consent.who} on {consent.given_at:%Y-%m-%d}: “{consent.wording}”{aloud}"


def file_url(path: Path) -> str:
    """Address of a file in the page's temporary folder, fit for an attribute; relative, so a proxy may add a prefix."""
    return escape(f"gradio_api/file={quote(str(path))}")


def short_name(model: str) -> str:
    """A model as it is called in passing: of a folder only the last part."""
    return model if model.count("/") < 2 else model.rstrip("/").rsplit("/", 1)[-1]


def pace_in_words(real_time_factor: float) -> str:
    """Seconds of work per second of speech, and what that means."""
    meaning = "faster than listening" if real_time_factor < 1 else "slower than listening"
    return f"{real_time_factor:.2f} s of work for each second of speech, {meaning}"


def time_in_words(seconds: float) -> str:
    """A duration as people say it; rounded, because it is an estimate."""
    if seconds < 60:
        return f"{max(1, round(seconds))} s"
    if seconds < 3600:
        return f"{round(seconds / 60)} min"
    return f"{seconds / 3600:.1f} h"


def size_in_words(num_bytes: float) -> str:
    """Bytes as MB or GB."""
    return f"{num_bytes / 1e9:.1f} GB" if num_bytes >= 1e9 else f"{num_bytes / 1e6:.0f} MB"


def says(tone: str, text: str, *, more: str = "", role: str = "status") -> str:
    """A framed message; `tone` is good, mixed, bad or nothing. Text and `more` are HTML."""
    return f'<div class="says {tone}" role="{role}"><p>{text}</p>{more}</div>'


def recording_picture(report: ReferenceReport, preview: Path) -> str:
    """A recording to look at and to listen to."""
    seconds = f"{report.seconds:.1f} s"
    waveform = waveform_svg(report.envelope, f"Waveform of the recording, {seconds}")
    return waveform + f'<audio controls src="{file_url(preview)}" aria-label="The recording, {seconds}"></audio>'


def _background(ratio_db: float) -> str:
    if ratio_db < NOISY_RATIO_DB:
        return "noisy"
    return "quiet" if ratio_db >= VERY_QUIET_RATIO_DB else "fairly quiet"


def _language(language: str) -> str:
    return "automatic" if language == "auto" else escape(language.title())


def _seeds(seeds: Sequence[int]) -> str:
    different = list(dict.fromkeys(seeds))
    listed = ", ".join(map(str, different))
    if len(different) == 1:
        return f"Seed {listed}: the same text and seed give the same take."
    return f"Seeds {listed}, one for each part."


def _sampling(sampling: Sampling | None) -> str:
    if sampling is None:
        return ""
    return (
        f" Temperature {sampling.temperature:g}, top-k {sampling.top_k}, top-p {sampling.top_p:g}, "
        f"repetition penalty {sampling.repetition_penalty:g}."
    )
