"""The description that travels with the embedded checkpoint."""

from __future__ import annotations

from typing import Any

from training.model.generation_defaults import FADES_LAST_FRAME, GUIDANCE_SCALE, TIMBRE_MATCHING, is_guidance
from training.pretrain.corpus.corpus import OTHER_LANGUAGES
from training.pretrain.corpus.speakers import EXTRA_VOICES, FESTIVAL, PICO, RHVOICE

_CARD = """\
# Encore mini

A small English voice model in the Qwen3-TTS checkpoint format ({millions:.1f} million parameters, 16 kHz, 12.5 frames
per second), trained from scratch so that the studio works on a fresh machine without a network. It speaks, clones pitch
and timbre from a recording or from its transcript and sound together, and can be fine-tuned in minutes on two cores.

**Limitations.** It was trained on synthetic speech only ({engines}), sounds like it, and knows English
letters but no real voices. For natural voices use the public Qwen3-TTS checkpoints.
{remark}
## How it was made

`python -m training.pretrain corpus`, `tokenizer`, `talker`, {stage}`pack`; on {machine}.{corpus}

| stage | steps of earlier runs | steps of this run | its recipe's length |
|---|---|---|---|
{stages}
{speaker}{guided}{matched}
The codec's weights are stored as {codec} and the rest as bfloat16. `training/` holds the logs of these runs, their loss
curves and the recipes (`about.json`).

## Licence and origin

The weights were learnt from speech synthesized on the spot by flite (Carnegie Mellon University, BSD-like licence; its
voices come from the CMU ARCTIC databases){extra} and, for a small share, by espeak-ng. The texts are Debian's fortunes,
word lists and generated sentences. The voice rms was kept out of training.{recordings}
"""

_SPEAKER = """
Its speaker encoder was trained once more, alone, on speech that is altered to sound like other people. It learnt to
place a voice among the speakers of the corpus where the verifier hears it that comes with Encore (Resemblyzer's GE2E,
Apache 2.0), which knows people. So that verifier is no independent judge of whom this model sounds like.
"""

_GUIDED = f"""
Its takes are guided: the talker has learnt a share of its speech without text and speaker, and codes are drawn from
logits that are moved away from those (classifier-free guidance; `{GUIDANCE_SCALE}` in `generation_config.json`, a field
of its own). Software that does not know the field speaks less clearly.
"""

_MATCHED = f"""
It has learnt from few voices and speaks a new one like the nearest of them. So takes of a cloned voice are moved to the
timbre of its recording (`{TIMBRE_MATCHING}` in `generation_config.json`, another field of its own). Software that does
not know the field makes clones that are less alike.
"""

_FADED = f"""
The last frame of a take is silenced (`{FADES_LAST_FRAME}` in `generation_config.json`, a field of its own as well).
Without that they end with a click.
"""

_WHOLE_FRAMES = """
Recordings are filled with zeros to whole frames before they are encoded (`encodes_whole_frames` in
`speech_tokenizer/config.json`, a field of its own as well): its encoder has learnt from whole frames alone. Software
that does not know the field makes nonsense of a recording's last frame.
"""

_EXTRA = {
    PICO: """,
by SVOX Pico (SVOX AG, under Apache 2.0 as part of Android; Debian's libttspico-data, in non-free)""",
    RHVOICE: """,
by RHVoice's Alan, Bdl and Clb (Olga Yakovleva, GPL 2 or later; Debian's rhvoice-english, in non-free)""",
}
_ENGINE_NAMES = {PICO: "Pico", RHVOICE: "RHVoice"}

_RECORDINGS = """ The codec has also learnt from {minutes:.0f}
minutes of Russian telephone prompts recorded by Maxim Topal (http://www.ivrvoice.ru), CC-BY 3.0, as Debian's
asterisk-core-sounds-ru-g722 holds them; they were cut, levelled and played as through rooms and telephones."""

_FOREIGN = """
Voices of other languages {uses}: {voices}. Their speech was
altered, and the licences are those that Debian's packages name."""
_FOREIGN_VOICES = {
    RHVOICE: """RHVoice's Aleksandr, Anna, Azamat, Irina and Nazgul (Olga Yakovleva, GPL 2 or later), Elena and
Spomenka (GPL 3), Anatol and Natalia (LGPL 2.1), Alicja by Magdalena Marciniszyn, Arkadiusz Świętnicki, Tomasz Bilecki
and Zvonimir Stanecic, and Magda by Magda and Roman Roczeń and Grzegorz Złotowicz (CC-BY 4.0), and Michal, Natan, Ondro
and Zdenek (public domain)""",
    PICO: "Pico's German, Spanish, French and Italian ones",
    FESTIVAL: """festival's nsh (festvox-ru, Nickolay V. Shmyrev, a licence like BSD's), dita, krb and machac (Brailcom,
GPL 3), ph (GPL 2 or later), lj and mv (Universities of Helsinki and Joensuu, LGPL 2 or later), lp and pc (ISTC-SPFD CNR
and ITC-irst, GPL 2 or later) and ona (Universitat Politècnica de Catalunya, LGPL 2.1 or later)""",
}
_PROMPTS = "the prompts named above"
_LIKENESS_SINCE = 4
"""The corpus's recipe with speakers that are made like voices of other languages."""


def model_card(about: dict[str, Any], num_parameters: int) -> str:
    """The description of a packed checkpoint as Markdown; `about` is `pack`'s summary of its runs.

    Its `remark` is a sentence by the user on the state of the training.
    """
    runs = about["runs"]
    stages = "\n".join(_row(name, run) for name, run in runs.items())
    corpus = recordings = ""
    extra = [engine for engine in EXTRA_VOICES if engine in about.get("corpus", {}).get("engines", {})]
    if "corpus" in about:
        recorded = about["corpus"]["parts"].get("recordings", {}).get("hours", 0.0)
        recordings = _RECORDINGS.format(minutes=60 * recorded) if recorded else ""
        recordings += _foreign(about["corpus"], runs)
        part = about["corpus"]["parts"]["train"]
        corpus = f" The corpus has {part['hours']:.1f} hours by {part['speakers']} speakers."
    return _CARD.format(
        millions=num_parameters / 1e6,
        machine=about["machine"],
        remark=f"\n{about['remark']}\n" if about.get("remark") else "",
        corpus=corpus,
        stages=stages,
        stage="`speaker`, " if "speaker" in runs else "",
        speaker=_SPEAKER if "speaker" in runs else "",
        guided=_GUIDED if is_guidance(about["guidance_scale"]) else "",
        matched=(_MATCHED if about["matches_timbre"] else "")
        + (_FADED if about["fades_last_frame"] else "")
        + (_WHOLE_FRAMES if about["encodes_whole_frames"] else ""),
        codec=about["codec_weights"],
        recordings=recordings,
        engines=f"{', '.join(['flite', *(_ENGINE_NAMES[engine] for engine in extra)])} and espeak-ng",
        extra="".join(_EXTRA[engine] for engine in extra),
    )


def _foreign(corpus: dict[str, Any], runs: dict[str, Any]) -> str:
    """Which voices of other languages had a part in it, and what part."""
    has_heard = bool(corpus["parts"].get(OTHER_LANGUAGES, {}).get("utterances"))
    is_likened = corpus.get("recipe_version", 0) >= _LIKENESS_SINCE and bool(
        _FOREIGN_VOICES.keys() & corpus.get("engines", {}).keys()
    )
    uses = {
        "were heard by the speaker encoder": has_heard and "speaker" in runs,
        "lent their spectrum to speakers of the corpus": is_likened,
    }
    used = [use for use, is_made in uses.items() if is_made]
    if not used:
        return ""
    # Before there was any likeness, none but RHVoice's were in that part.
    known = set(corpus["engines"]) if is_likened else {RHVOICE}
    voices = [names for engine, names in _FOREIGN_VOICES.items() if engine in known]
    voices += [_PROMPTS] if is_likened and corpus["parts"].get("recordings", {}).get("utterances") else []
    return _FOREIGN.format(uses=" and ".join(used), voices="; ".join(voices))


def _row(stage: str, run: dict[str, Any]) -> str:
    done = run["steps_done"]
    cells = (run.get("steps_before", 0), done, run["recipe"].get("num_steps", done))
    return f"| {stage} | {' | '.join(f'{count:,}' for count in cells)} |"
