"""What the page says, without Gradio: the facts are in it, and nothing foreign becomes markup."""

from __future__ import annotations

import math
import re
import time
from dataclasses import replace
from datetime import UTC, datetime
from html.parser import HTMLParser
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markupsafe import Markup

from backend.audio.quality import Concern, ReferenceReport
from backend.background_tasks import TaskState
from backend.serving.loaded_model import ModelFacts
from backend.serving.speech.audio_stream import SpeechProgress
from backend.store.trash import Deleted
from backend.takes.parts import HeardInPart, TakePart
from backend.takes.take import Take
from backend.transcription.catalogue import PUBLISHED_WHISPERS
from backend.voices.consent import Consent
from backend.voices.voice import Voice
from training.model.generation.finish_reason import FinishReason
from training.model.hub.hub import KNOWN_MODELS
from training.model.sampling_settings import Sampling
from ui.html import models, words
from ui.html.messages import NOTHING, task_line
from ui.html.takes import ENDINGS, download_name, rate_in_words, take_card, take_list
from ui.html.voices import kept_line, saved_line
from ui.tabs.voice import render as render_voice
from ui.tabs.voices import render as render_voices
from ui.words.words import say, spoken_to

HOSTILE = '<img src=x onerror="alert(1)">\'&amp;'

REPORT = ReferenceReport(
    seconds=8.43, speech_dbfs=-18.2, noise_dbfs=-62.4, clipped_share=0.0, envelope=(0.1, 0.5), concerns=()
)

TAKE = Take(
    id="a" * 32,
    owner="browser",
    number=3,
    made_at=datetime(2026, 1, 2, 12, tzinfo=UTC),
    num_bytes=1000,
    made_by="studio",
    voice="voice.wav",
    text="Hello.",
    model_name="mini",
    is_in_context=True,
    is_fine_tuned=False,
    language="english",
    sampling=None,
    seeds=(7,),
    seconds=4.2,
    real_time_factor=0.5,
    seconds_to_first_audio=0.31,
    finish_reason=FinishReason.EOS,
    consent=Consent.give("Ann Author"),
    path=Path("/home/takes/a.wav"),
)
PLACE = Path("/tmp/takes/take-3.wav")

FACTS = ModelFacts(
    name=HOSTILE, precision="fp32", device="cpu", languages=(), default_sampling=Sampling(), cluster=HOSTILE
)


def take(**changes):
    return TAKE.model_copy(update=changes)


VOICE = Voice(
    id="0" * 32,
    name="Ann's voice",
    kind="zero-shot",
    model=HOSTILE,
    transcript=HOSTILE,
    consent=Consent.give(HOSTILE, "own-voice"),
    provenance={"recordings": [HOSTILE], "sample": HOSTILE},
    created_at=datetime(2026, 1, 2, tzinfo=UTC),
    folder=Path("/nowhere"),
)
SHOWN = render_voices.ShownVoice(
    voice=VOICE, avatar=Markup(), sentence=None, hint=HOSTILE, votes=(), model="http://127.0.0.1:8000"
)
GONE = Deleted(
    id=HOSTILE, kind="voice", item_id=HOSTILE, owner="", label=HOSTILE, deleted_at=datetime.now(UTC), num_bytes=1
)


def test_a_deleted_take_is_called_as_on_the_page():
    taken = replace(GONE, kind="take", label="Take 3")
    assert words.deleted_name(taken) == "Take 3"
    with spoken_to("de"):
        assert words.deleted_name(taken) == "Ergebnis 3"
        assert words.deleted_name(replace(GONE, label="Take 3")) == "Take 3"


class Page(HTMLParser):
    """Text, tags and whether every tag that was opened is closed in order."""

    VOID = ("img", "path", "br", "input", "circle")

    def __init__(self, html):
        super().__init__()
        self.tags, self.words, self._open = [], [], []
        self.feed(html)
        assert not self._open, f"never closed: {self._open}"

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        if tag not in self.VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        assert self._open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)

    @property
    def text(self):
        return " ".join("".join(self.words).split())


def played(page):
    return [attributes["data-play"] for _, attributes in page.tags if "data-play" in attributes]


def downloading(name, done, *, at_start=0, seconds=3.0, file="model.safetensors"):
    since = time.monotonic() - seconds
    return TaskState(
        what=name, num_done=done, num_total=2_000_000_000, num_at_start=at_start, counting_since=since, detail=file
    )


@pytest.mark.parametrize(
    "html",
    [
        models.model_line(FACTS),
        models.loading_line(TaskState(what=HOSTILE)),
        models.loading_line(TaskState(what=HOSTILE, is_running=False, problem=HOSTILE)),
        models.loading_line(downloading(HOSTILE, 1, file=HOSTILE)),
        render_voice.refusal(HOSTILE),
        render_voice.verdict(REPORT, Path("/tmp") / HOSTILE.replace("/", "") / "reference.wav"),
        render_voice.verdict(REPORT, Path("/x.wav"), name=HOSTILE),
        render_voice.listening(HOSTILE, 1, 2),
        render_voice.saved_card(VOICE),
        saved_line(VOICE),
        render_voice.phrase_card(HOSTILE),
        kept_line(VOICE),
        render_voices.shelf_html([SHOWN], render_voices.Said(voice_id=VOICE.id, words=HOSTILE)),
        render_voices.space_html(
            [render_voices.RunSpace(id=HOSTILE, name=HOSTILE, when="", num_bytes=1, is_active=False)], [GONE], HOSTILE
        ),
        take_list(
            [
                (
                    take(
                        text=HOSTILE,
                        voice=HOSTILE,
                        model_name=HOSTILE,
                        language=HOSTILE,
                        consent=Consent.give(HOSTILE, wording=HOSTILE),
                    ),
                    PLACE,
                )
            ]
        ),
    ],
)
def test_nothing_foreign_becomes_markup(html):
    assert all(tag != "img" and "onerror" not in attributes for tag, attributes in Page(html).tags)


def test_the_model_is_named_with_precision_and_device():
    def line(name, **changes):
        own = {"name": name, "cluster": ""}
        return models.model_line(FACTS.model_copy(update=own | changes))

    text = Page(line("mini", precision="bf16", device="cuda")).text
    assert text.startswith("Model: mini, in half precision (bf16) on the GPU (CUDA).")
    assert "small model inside Encore" in text
    assert "small model" not in line("/models/tiny")
    assert "tiny" in line("/a/b/tiny/")
    assert "/a/b" not in line("/a/b/tiny/")
    assert "Qwen/Qwen3-TTS" in line("Qwen/Qwen3-TTS")
    assert "on the CPU, on the Ray cluster at head:6379." in Page(line("/models/tiny", cluster="head:6379")).text


def test_without_a_model_every_way_to_one_is_explained():
    text = Page(models.explain_models()).text
    cloning = [model for model in KNOWN_MODELS if "clones" in model.purpose]
    assert len(cloning) >= 2
    for model in cloning:
        assert f"{model.name}: {model.purpose}, {model.num_bytes / 1e9:.1f} GB to download" in text
    assert all(word in text for word in ("mini", "folder on this machine", "Without a network", "hf download"))


def test_what_models_are_good_for_is_said_in_the_language_of_the_page():
    purposes = {one.purpose for one in (*KNOWN_MODELS, *PUBLISHED_WHISPERS)}
    assert purposes <= words.PURPOSES.keys()
    assert all(words.purpose_in_words(one) == one for one in words.PURPOSES)
    with spoken_to("de"):
        assert words.purpose_in_words("most accurate") == "am genauesten"


def test_only_models_that_clone_can_be_picked():
    names = [name for _, name in models.model_choices()]
    assert names == ["mini", *(model.name for model in KNOWN_MODELS if "clones" in model.purpose)]


def test_a_download_shows_bytes_share_and_time_left():
    state = downloading("owner/model", 500_000_000, at_start=100_000_000, seconds=39.5)
    page = Page(models.loading_line(state))
    # 400 MB in 40 s leave 1500 MB, so 150 s.
    assert "500 MB of 2.0 GB, about 2 min left." in page.text
    assert [attributes["aria-valuenow"] for _, attributes in page.tags if attributes.get("role") == "progressbar"] == [
        "25"
    ]


@pytest.mark.parametrize("done", [0, 100_000_000])
def test_without_a_pace_no_time_is_promised(done):
    state = downloading("m", done, at_start=done)
    assert "left" not in models.loading_line(state)


def test_a_loading_that_ended_well_says_nothing_and_a_failed_one_why():
    assert models.loading_line(None) == NOTHING
    assert models.loading_line(TaskState(what="m", is_running=False)) == NOTHING
    failed = Page(models.loading_line(TaskState(what="m", is_running=False, problem="No such folder.")))
    assert failed.text == "m was not loaded. No such folder."
    assert failed.tags[0][1]["role"] == "alert"


def test_the_verdict_names_length_level_and_noise():
    page = Page(render_voice.verdict(REPORT, Path("/tmp/a b/reference.wav")))
    assert page.text == "Good to clone from. Length 8.4 s, level good (-18 dB), background quiet (-62 dB).0:08"
    assert played(page) == ["gradio_api/file=/tmp/a%20b/reference.wav"]


@pytest.mark.parametrize("concern", Concern)
def test_every_concern_comes_with_advice(concern):
    text = Page(render_voice.verdict(replace(REPORT, concerns=(concern,)), Path("/x.wav"))).text
    assert text.startswith("Usable, but not ideal.")
    assert say(render_voice.ADVICE[concern]) in text


def test_a_noisy_background_is_called_so():
    assert "background noisy (-30 dB)" in render_voice.verdict(replace(REPORT, noise_dbfs=-30.0), Path("/x.wav"))
    assert "background fairly quiet" in render_voice.verdict(replace(REPORT, noise_dbfs=-45.0), Path("/x.wav"))


def test_a_take_says_how_it_was_made_in_words():
    text = Page(take_card(TAKE, PLACE)).text
    for fact in (
        "0:04",
        "4.2 s. Language: English.",
        "First sound after 0.3 s",
        "0.50 s of work for each second of speech, faster than listening",
        "voice.wav. Cloned with the transcript by mini",
        "Seed 7: the same text and seed give the same take.",
        "Consent by Ann Author on",
    ):
        assert fact in text


@pytest.mark.parametrize("reason", FinishReason)
def test_every_way_to_end_has_words(reason):
    # What went as it should needs no words.
    words = say(ENDINGS[reason])
    assert (words in take_card(take(finish_reason=reason), PLACE)) == (reason is not FinishReason.EOS)
    assert words in render_voice.spoken_line(take(finish_reason=reason))


def test_settings_of_a_take_are_shown_where_they_differ():
    other = take_card(take(seeds=(1, 2), sampling=Sampling(temperature=0.5), is_in_context=False), PLACE)
    assert "Seeds 1, 2, one for each part. Temperature 0.5, top-k 50, top-p 1, repetition penalty 1.05." in other
    assert "from the sound of the voice alone" in other


def test_a_slow_take_is_called_slow():
    assert "slower than listening" in rate_in_words(1.3)


def part(**changes):
    known = {"text": "One two.", "seed": 1, "finish_reason": FinishReason.EOS, "start_seconds": 0.0, "seconds": 4.0}
    return TakePart(**known | {"expected_seconds": 4.2} | changes)


def test_a_take_says_which_of_its_parts_lost_words_and_offers_to_speak_them_again():
    heard = HeardInPart(text="one", listener="x", lost_share=0.5)
    parts = (part(), part(seconds=1.0), part(heard=heard), part(finish_reason=FinishReason.LENGTH))
    page = Page(take_card(take(parts=parts), PLACE))
    assert "where this voice needs about 4.2 s" in page.text
    assert "50% of its letters were not heard. Heard: “one”" in page.text
    assert [a["data-part"] for tag, a in page.tags if tag == "button" and "data-part" in a] == ["2", "3", "4"]
    assert "Parts 2, 3 and 4 may have lost words" in Page(render_voice.spoken_line(take(parts=parts))).text


def test_a_take_of_parts_can_be_read_along_at_the_speed_it_was_made():
    parts = (part(), part(text="Three.", start_seconds=4.0, seconds=1.0))
    page = Page(take_card(take(parts=parts, speed=2.0, text="One two.\nThree."), PLACE))
    times = [(a["data-from"], a["data-until"]) for tag, a in page.tags if tag == "span" and "data-from" in a]
    assert times == [("0.00", "2.00"), ("2.00", "2.50")]
    assert "One two. Three." in page.text
    assert not any("data-from" in a for _, a in Page(take_card(take(parts=parts[:1]), PLACE)).tags)


def test_a_stopped_take_shows_its_text_as_far_as_it_was_spoken():
    parts = (part(text="One two."), part(text="Three …", finish_reason=FinishReason.CANCELLED))
    stopped = take(text="One two. Three four. Five.", parts=parts, finish_reason=FinishReason.CANCELLED)
    text = Page(take_card(stopped, PLACE)).text
    assert "One two. Three …" in text
    assert "four" not in text
    assert "Speak" not in text
    # Takes of earlier versions know no parts.
    assert "Five." in Page(take_card(replace_parts(stopped), PLACE)).text


def test_a_likeness_that_is_not_there_is_said_with_what_would_help():
    built_in = Page(render_voice.likeness_line(take(model_name="mini"))).text
    assert "The built-in model does not know voices like this one." in built_in
    assert "2.5 GB, about 7 min at 50 Mbit/s" in built_in
    assert "built-in" not in Page(render_voice.likeness_line(take(model_name="Qwen/X"))).text
    assert "longer fine-tune" in Page(render_voice.likeness_line(take(is_fine_tuned=True))).text


def replace_parts(taken):
    return taken.model_copy(update={"parts": ()})


def test_takes_are_listed_each_with_player_download_and_delete():
    takes = [(take(id=str(number), number=number), Path(f"/t/{number}.wav")) for number in (2, 1)]
    page = Page(take_list(takes))
    assert re.findall(r"Take (\d)", page.text) == ["2", "1"]
    assert played(page) == ["gradio_api/file=/t/2.wav", "gradio_api/file=/t/1.wav"]
    downloads = [attributes["download"] for tag, attributes in page.tags if tag == "a"]
    assert downloads == ["voice_hello_t02.wav", "voice_hello_t01.wav"]
    assert [attributes["data-take"] for _, attributes in page.tags if "data-take" in attributes] == ["2", "1"]
    assert [attributes["data-again"] for _, attributes in page.tags if "data-again" in attributes] == ["2", "1"]
    spoken_as_mp3 = Page(take_card(take(audio_format="mp3"), PLACE))
    assert [attributes["download"] for tag, attributes in spoken_as_mp3.tags if tag == "a"] == ["voice_hello_t03.mp3"]
    assert Page(take_list([], "None yet.")).text == "None yet."


def test_older_takes_are_folded_away():
    takes = [(take(id=str(number), number=number), Path(f"/t/{number}.wav")) for number in range(8, 0, -1)]
    folded = take_list(takes).split('<details class="older">')
    assert [part.count("data-take=") for part in folded] == [5, 3]
    assert "3 older takes" in folded[1]


@pytest.mark.parametrize(
    ("voice", "text", "name"),
    [
        ("Sample Rufus", "Hello, this is what I sound like.", "sample-rufus_hello-this-is-what_t04.wav"),
        ("my voice.m4a", "Don't stop!", "my-voice_dont-stop_t04.wav"),
        ("Zoë", "Äpfel und Öl", "zoe_apfel-und-ol_t04.wav"),
        ("../../etc", "a/b\\c", "etc_a-b-c_t04.wav"),
    ],
)
def test_a_download_is_named_after_voice_and_words(voice, text, name):
    assert download_name(take(voice=voice, text=text, number=4)) == name


def test_progress_counts_parts_only_where_there_are_several():
    one = SpeechProgress(
        segments_done=0, num_segments=1, seconds_spoken=1.24, wall_seconds=1.0, share_done=0.0, seconds_left=math.inf
    )
    assert Page(render_voice.speaking_line(one)).text == "Speaking: 1.2 s so far."
    many = replace(one, segments_done=1, num_segments=4, share_done=0.25, seconds_left=3.0)
    assert Page(render_voice.speaking_line(many)).text == "Speaking: 1.2 s so far, part 2 of 4, about 3 s left."
    # The last piece is done, and there is no fifth.
    assert "part 4 of 4" in render_voice.speaking_line(replace(many, segments_done=4, share_done=1.0))


@given(st.floats(0, 1e6))
def test_durations_are_rounded_not_lost(seconds):
    number, unit = words.time_in_words(seconds).split()
    assert abs(float(number) * {"s": 1, "min": 60, "h": 3600}[unit] - max(seconds, 1)) <= max(
        0.5, 0.51 * {"s": 1, "min": 60, "h": 360}[unit]
    )


def test_a_background_task_is_shown_while_it_lasts_and_when_it_failed():
    state = TaskState(what="Listening", num_done=1, num_total=4)
    assert "1 of 4" in task_line(state)
    assert task_line(TaskState(what="Listening", is_running=False)) == NOTHING
    failed = task_line(TaskState(what="L", is_running=False, problem=HOSTILE))
    assert 'role="alert"' in failed
    assert HOSTILE not in failed
