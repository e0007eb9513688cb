"""What `backend` and `training` say reads as German on a German page, and none of it is forgotten."""

from __future__ import annotations

import re

import pytest

from backend.errors import (
    DecoderFailed,
    RecordingDamaged,
    RecordingNotAudio,
    RecordingNotFound,
    RecordingSilent,
    RecordingTooShort,
)
from backend.runs.errors import RunNotFound
from backend.serving.errors import EngineBusy
from backend.voices.consent import Consent
from backend.voices.errors import VoiceError
from backend.voices.names import clean_name
from tests.ui.words.backend_sentences import all_words, sentences_by_module
from training.errors import JobInvalid
from training.job import FineTuneJob
from training.model.errors import EncoreError
from ui.events import to_shown
from ui.html.messages import failure
from ui.words.sentences import sentence_tables, sentences, translated
from ui.words.words import FIRST_LANGUAGE, spoken_to, tables

LANGUAGES = sorted(set(tables()) - {FIRST_LANGUAGE})

NOT_OURS = "library"
"""The file with what the operating system and libraries say."""

PLACE = re.compile(r"\{#?\}")
SAMPLES = ("q7", "x11", "z-5.wav", "k3", "v8", "w9")
"""Values that are no words of any sentence; each has a digit, as a number has."""


def in_german(sentence):
    with spoken_to("de-DE,de;q=0.9,en;q=0.8"):
        return translated(sentence)


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_sentence_that_the_page_may_show_is_in_the_table(language):
    known = {PLACE.sub("{}", english) for english in sentences(language)}
    missing = [
        f"{module}:{line}: {template}"
        for module, found in sentences_by_module().items()
        for template, line in found.items()
        if template not in known
    ]
    assert missing == []


@pytest.mark.parametrize("language", LANGUAGES)
def test_no_sentence_stays_in_the_table_that_nothing_says_any_more(language):
    said = all_words()
    own = {name: table for name, table in sentence_tables(language).items() if name != NOT_OURS}
    stale = [
        english
        for table in own.values()
        for english in table
        if not all(word in said for word in re.findall(r"[^\W\d_]{4,}", PLACE.sub(" ", english.lower())))
    ]
    assert stale == []


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_wording_has_the_values_of_its_sentence(language):
    wrong = []
    for english, wording in sentences(language).items():
        values = SAMPLES[: len(PLACE.findall(english))]
        used = re.findall(r"\{(\d?)(?::[^{}]*)?\}", wording)
        numbers = sorted(int(number) for number in used) if "" not in used else list(range(len(used)))
        if numbers != list(range(len(values))):
            wrong.append(english)
    assert wrong == []


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_sentence_is_taken_for_itself(language):
    """Filled with values, no sentence is mistaken for another one that looks like it."""
    wrong = {}
    with spoken_to(language):
        for english, wording in sentences(language).items():
            values = SAMPLES[: len(PLACE.findall(english))]
            sentence = PLACE.sub("{}", english).format(*values)
            if translated(sentence) != wording.replace(":word", "").format(*values):
                wrong[sentence] = translated(sentence)
    assert wrong == {}


def raised(act, *args, **kwargs):
    """The error that a call raises."""
    with pytest.raises(EncoreError) as caught:
        act(*args, **kwargs)
    return caught.value


@pytest.mark.parametrize(
    ("error", "german"),
    [
        (
            RecordingTooShort("my take.wav", seconds=1.26, min_seconds=3),
            "my take.wav dauert 1.2 s; zum Klonen braucht es mindestens 3.0 s. Nimm etwas Längeres auf.",
        ),
        (
            RecordingNotFound("a.wav", problem="does not exist"),
            "a.wav gibt es nicht. Wähle eine Aufnahme, die auf diesem Rechner ist.",
        ),
        (
            RecordingNotAudio("a.wav"),
            "a.wav ist keine Art von Audiodatei, die hier bekannt ist. "
            "Verwende WAV, FLAC, MP3, OGG, M4A, MP4, WebM oder AAC.",
        ),
        (
            RecordingDamaged("a.wav", problem="parts of it are missing or unreadable"),
            "a.wav ist beschädigt: Teile davon fehlen oder sind nicht lesbar. "
            "Kopiere sie noch einmal von dort, wo sie herkommt, oder nimm neu auf.",
        ),
        (
            RecordingSilent("a.wav", measure="loudest second", level_dbfs=float("-inf"), min_dbfs=-50),
            "a.wav ist still (lauteste Sekunde: völlige Stille); Sprache hat mindestens -50 dBFS. "
            "Prüfe das Mikrofon, und nimm noch einmal auf.",
        ),
        (
            DecoderFailed("a.wav", cause="it took longer than 20 s"),
            "a.wav ließ sich nicht lesen: es dauerte länger als 20 s. "
            "Speichere sie als 16-Bit-WAV, und versuche es noch einmal.",
        ),
        (RunNotFound("r1"), "Es gibt keine Anpassung 'r1'. `runs list` zeigt alle."),
        (
            EngineBusy("12 takes are being spoken or waiting; the limit is 12.", retry_after_seconds=4),
            "12 Ergebnisse werden gesprochen oder warten; höchstens 12 sind möglich. Versuche es in 4 s noch einmal.",
        ),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, EncoreError) else "",
)
def test_an_error_reads_as_german(error, german):
    assert in_german(error) == german


def test_errors_that_are_raised_read_as_german():
    assert in_german(raised(clean_name, "")) == "Eine Stimme braucht einen Namen. Gib einen ein."
    unnamed = in_german(raised(Consent.from_form, None, None))
    assert unnamed.startswith("Eine Stimme wird nur mit Einwilligung der Person geklont, die spricht. Gib an")
    invalid = raised(FineTuneJob.parse, {"num_step": 3})
    assert isinstance(invalid, JobInvalid)
    assert in_german(invalid).startswith("Die Einstellungen der Anpassung sind ungültig: ")
    assert "es gibt keine Option 'num_step'; gemeint ist vielleicht 'num_steps'" in in_german(invalid)


def test_sentences_in_a_row_are_each_translated():
    both = (
        "There is no folder /data/x. The run needs up to 3.0 GB for checkpoints in /x, and 1.0 GB are free. "
        "Free some space, or keep fewer checkpoints."
    )
    assert in_german(both).startswith("Es gibt keinen Ordner /data/x. Die Anpassung braucht bis zu 3.0 GB")


def test_a_verdict_is_translated_with_all_that_it_lists():
    verdict = (
        "The fine-tuned voice at step 120 is better than zero-shot cloning: speaker similarity 0.50 → 0.60 "
        "(the model's own opinion, which is biased), character error 5% → 3% (by chance ±2%) heard by Whisper base "
        "(3% of the speaker's own recordings), length against expected 1.00 → 1.02."
    )
    assert in_german(verdict) == (
        "Die angepasste Stimme bei Schritt 120 ist besser als zero-shot: Ähnlichkeit 0.50 → 0.60 "
        "(eigenes Urteil des Modells, befangen), falsche Zeichen 5% → 3% (Zufall ±2%), gehört von Whisper base "
        "(3% bei den eigenen Aufnahmen), Länge gegenüber der erwarteten 1.00 → 1.02."
    )


def test_a_state_is_a_word_and_a_name_is_none():
    assert in_german("Run done is done, so it cannot be paused.") == (
        "Die Anpassung done lässt sich nicht anhalten (Zustand: fertig)."
    )


def test_what_is_not_known_stays_english():
    unknown = "Something that goes to nobody and by chance is missing. Really."
    assert in_german(unknown) == unknown
    assert in_german("") == ""


def test_programs_and_english_pages_read_english():
    error = VoiceError("A voice needs a recording to be cloned from. Add one.")
    assert translated(error) == str(error)
    with spoken_to("en-GB,de;q=0.5"):
        assert str(error) in failure(error)
    assert to_shown(error).message == str(error)


def test_names_are_escaped_after_the_translation():
    error = RunNotFound("<b>")
    with spoken_to("de"):
        assert "Es gibt keine Anpassung &#39;&lt;b&gt;&#39;." in failure(error)
