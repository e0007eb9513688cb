"""The page as a program drives it: real server, real checkpoint (random weights: noise, but of real length)."""

from __future__ import annotations

import base64
import io
import re
import threading
import wave

import gradio as gr
import httpx
import numpy as np
import pytest
from gradio_client.exceptions import AppError

from backend.settings import Settings
from backend.studio import Studio
from tests.backend.audio.sounds import FORMATS, encode
from tests.backend.serving.conftest import wait_until
from tests.golden import GOLDEN_CHECKPOINT
from tests.ui.recordings import speak_like, write_broken, write_voice
from tests.ui.served_page import examine, serve_page, speak, speak_form
from ui.web import server

# Gradio 6.31 counts its queue with calls that pandas 3 is going to remove.
pytestmark = pytest.mark.filterwarnings("ignore::pandas.errors.Pandas4Warning")

ENDLESS_TEXT = "Say it again. " * 7000
"""Hours of speech: what waits for its end instead of stopping it does not finish within the test's time limit."""

PHONE_FORMATS = (("m4a", "aac"), ("mp4", "aac"), ("3gp", "libopencore_amrnb"), ("webm", "libopus"))


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    with serve_page(tmp_path_factory.mktemp("page"), device="cpu") as served:
        served.studio.load_model(str(GOLDEN_CHECKPOINT), device="cpu")
        yield served


@pytest.fixture(scope="module")
def client(page, tmp_path_factory):
    """One session with a recording for most tests: analysing it is what takes longest."""
    client = page.session()
    path = write_voice(tmp_path_factory.mktemp("recordings") / "voice.wav")
    examine(client, path)
    yield client
    client.close()


def read_wav(content):
    with wave.open(io.BytesIO(content)) as file:
        assert (file.getnchannels(), file.getsampwidth()) == (1, 2)
        return file.getframerate(), np.frombuffer(file.readframes(file.getnframes()), "<i2")


def is_free(page):
    """Whether nothing of what was asked for is still being made, once the engine has had time to notice."""
    engine = page.studio.loaded.engine
    wait_until(lambda: engine.statistics().num_active + engine.statistics().num_waiting == 0)
    return engine.is_healthy


@pytest.mark.parametrize(
    "form", [form for form in FORMATS if (form.suffix, form.codec) in PHONE_FORMATS], ids=lambda form: form.suffix
)
def test_recordings_of_phones_reach_the_decoder_untouched(page, tmp_path, form):
    path = encode(tmp_path / f"voice.{form.suffix}", speak_like(3.5, rate=form.rate), form)
    client = page.session()
    verdict = examine(client, path)
    assert "Length 3.5 s" in verdict
    assert 'role="img"' in verdict
    rate, samples = read_wav(page.fetch(verdict))
    assert len(samples) / rate == pytest.approx(3.5, abs=0.1)
    copies = [copy for copy in page.folder.rglob(path.name) if copy.read_bytes() == path.read_bytes()]
    assert copies, "the upload was changed on its way"
    client.close()


def test_a_broken_upload_gets_our_own_words_and_the_page_goes_on(page, tmp_path):
    client = page.session()
    refusal = examine(client, write_broken(tmp_path / "broken.wav"))
    assert "This recording cannot be used." in refusal
    assert "broken.wav is not a kind of audio file" in refusal
    with pytest.raises(AppError, match="add a recording of the voice that can be used"):
        speak(client, "Hello.")
    verdict = examine(client, write_voice(tmp_path / "voice.wav"))
    assert "Good to clone from." in verdict
    speak(client, "Hello.")
    client.close()


def test_a_recording_that_is_taken_away_leaves_nothing_behind(page, tmp_path):
    client = page.session()
    before = set(page.folder.rglob("reference.wav"))
    examine(client, write_voice(tmp_path / "voice.wav"))
    assert set(page.folder.rglob("reference.wav")) > before
    assert "Good" not in examine(client)
    assert set(page.folder.rglob("reference.wav")) == before
    client.close()


@pytest.mark.parametrize("transcript", ["", "What it says."])
def test_speaking_streams_and_ends_in_a_file_with_the_same_sound(page, client, transcript):
    updates = list(client.submit("speak", **speak_form("Hello. How are you?", transcript=transcript)))
    players = [update["live-player"] for update in updates]
    windows = [player for player in players if isinstance(player, dict) and "chunks" in player]
    assert len(windows) >= 2
    assert windows[-1]["is_complete"]
    takes = updates[-1]["takes"]
    assert "is ready" in updates[-1]["status"]
    assert "Seed 7:" in takes
    assert ("with the transcript" in takes) == bool(transcript)
    rate, samples = read_wav(page.fetch(takes))
    assert rate == windows[-1]["sample_rate"]
    assert np.abs(samples).max() > 100, "silence"
    # Short enough for all of it to be in the last window.
    assert decoded(windows[-1]).tolist() == samples.tolist()


def decoded(window):
    return np.concatenate([np.frombuffer(base64.b64decode(chunk), "<i2") for chunk in window["chunks"].split(",")[:-1]])


def test_takes_are_collected_and_a_seed_repeats_one(page, client):
    lists = [speak(client, "Hm.", seed=seed)["takes"] for seed in ("1", "1", "2")]
    first, second, third = (read_wav(page.fetch(each))[1].tolist() for each in lists)
    assert first == second != third
    numbers = [[int(number) for number in re.findall(r"<h3>Take (\d+)</h3>", each)] for each in lists]
    for listed in numbers:
        assert listed == list(range(len(listed), 0, -1))
    assert [len(listed) - len(numbers[0]) for listed in numbers] == [0, 1, 2]
    other = page.session()
    with pytest.raises(AppError, match="add a recording"):
        speak(other, "Hm.")
    other.close()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"statement": None}, "choose the consent"),
        ({"who": " "}, "write your name for the consent"),
        ({"text": " \n "}, "write what it should say"),
        ({"seed": "-1"}, "not a valid seed"),
        ({"seed": "<b>"}, "'&lt;b&gt;' is not a valid seed"),
    ],
)
def test_what_is_missing_or_wrong_is_said(client, changes, words):
    with pytest.raises(AppError, match=words):
        client.call("speak", **speak_form("Hello.") | changes)


def test_the_list_of_takes_says_whose_it_is(page):
    """Who opened the page in another browser missed the takes that were there."""
    values = [str(block.value) for block in page.blocks.blocks.values() if isinstance(block, gr.HTML)]
    (title,) = (place for place, value in enumerate(values) if 'data-word="speak.takes"' in value)
    assert "Listed in this browser only" in values[title + 1]


def test_a_take_outlives_the_page_with_its_settings_and_consent(page, client):
    speak(client, "Keep me.", seed="11")
    # What the next start of the program opens.
    again = Studio(Settings(home=page.folder / "home")).takes
    take = next(take for take in again.list() if take.text == "Keep me.")
    assert (take.made_by, take.seeds, take.owner) == ("studio", (11,), f"visit {client.session_hash}")
    assert (take.consent.who, take.consent.statement) == ("Ann Author", "own-voice")
    rate, samples = read_wav(take.path.read_bytes())
    assert len(samples) / rate == pytest.approx(take.seconds)


def test_stop_ends_a_take_and_keeps_what_was_heard(page, client):
    is_stopped = False
    for update in client.submit("speak", **speak_form(ENDLESS_TEXT)):
        player = update["live-player"]
        if not is_stopped and isinstance(player, dict) and player.get("chunks"):
            client.call("stop")
            is_stopped = True
    assert "stopped before the end" in update["status"]
    assert len(read_wav(page.fetch(update["takes"]))[1]) > 0
    assert is_free(page)


def test_a_listener_who_leaves_frees_the_model(page, client):
    """As a closed tab does it: the connection ends in the middle, and nobody says goodbye."""
    body = {
        "data": client.data("speak", speak_form(ENDLESS_TEXT), with_states=True),
        "fn_index": client.number("speak"),
        "session_hash": client.session_hash,
    }
    has_begun = False
    with httpx.Client(base_url=page.address, timeout=60) as browser:
        assert browser.post("gradio_api/queue/join", json=body).status_code == 200
        with browser.stream("GET", "gradio_api/queue/data", params={"session_hash": client.session_hash}) as events:
            has_begun = any("Speaking: " in line for line in events.iter_lines())
    assert has_begun
    assert is_free(page)
    incoming = page.folder / "home" / "takes" / "incoming"
    wait_until(lambda: not list(incoming.iterdir()))


def test_two_sessions_take_turns(page, client, tmp_path):
    other = page.session()
    examine(other, write_voice(tmp_path / "other.wav"))
    jobs = [each.submit("speak", **speak_form("Hello there. And you?")) for each in (client, other)]
    assert all("is ready" in list(job)[-1]["status"] for job in jobs)
    other.close()


def test_without_a_model_recordings_are_judged_and_speaking_waits(tmp_path):
    with serve_page(tmp_path) as page:
        client = page.session()
        verdict = examine(client, write_voice(tmp_path / "voice.wav"))
        assert "Good to clone from." in verdict
        with pytest.raises(AppError, match="No model is loaded yet"):
            speak(client, "Hello.")
        client.call("load_model", name=str(GOLDEN_CHECKPOINT))
        page.wait_for_loading()
        assert "Take 1 is ready" in speak(client, "Hm.")["status"]
        client.close()


def test_a_second_loading_is_refused_while_one_is_under_way(tmp_path):
    with serve_page(tmp_path) as page:
        may_end = threading.Event()
        page.studio._tasks.start("model", "slow/model", lambda _: may_end.wait())
        client = page.session()
        with pytest.raises(AppError, match="slow/model is being loaded"):
            client.call("load_model", name=str(GOLDEN_CHECKPOINT))
        may_end.set()
        client.close()


def test_files_outside_the_page_are_not_served(page, tmp_path):
    secret = tmp_path / "secret.txt"
    secret.write_text("secret")
    for path in (secret, "/etc/passwd", "app.py"):
        assert httpx.get(f"{page.address}gradio_api/file={path}").status_code in (403, 404)


def test_uploads_beyond_the_limit_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(server, "MAX_UPLOAD_BYTES", 10_000)
    with serve_page(tmp_path) as page:
        for num_bytes, status in ((10_000, 200), (10_001, 413)):
            files = {"files": ("voice.wav", b"x" * num_bytes)}
            assert httpx.post(f"{page.address}gradio_api/upload", files=files).status_code == status


def test_a_part_is_spoken_again_in_its_place(page, client):
    client.call("use_sample", name="iris")
    # Random weights end where they like: each paragraph is a part, and none too long for any.
    assert "is ready" in speak(client, "Hm.\n\nWell.\n\nSo.", statement=None)["status"]
    take = page.studio.takes.list()[0]
    assert len(take.parts) > 1
    assert take.seeds == tuple(part.seed for part in take.parts)
    assert "Part 2 of take" in client.call("speak_part", pressed={"take": take.id, "number": 2})["status"]
    after = page.studio.takes.get(take.id)
    assert after.number == take.number
    assert after.parts[0] == take.parts[0]
    assert after.parts[1].text == take.parts[1].text
    assert page.studio.checker.check(after.path).signed.trust == "ours"
    missing = client.call("speak_part", pressed={"take": take.id, "number": 99})
    assert "has no part 99" in missing["status"]
    other = page.session()
    assert "in this list" in other.call("speak_part", pressed={"take": take.id, "number": 1})["status"]
    other.close()


def test_a_take_is_reviewed_beside_the_page_and_a_stranger_is_called_one(page, monkeypatch):
    client = page.session()
    client.call("use_sample", name="iris")
    text = "Hm.\n\nWell.\n\nSo.\n\nNo.\n\nYes.\n\nMaybe."
    assert "is ready" in speak(client, text, statement=None)["status"]
    take = page.studio.takes.list()[0]
    assert take.seconds > 2
    said = [update["likeness"] for update in client.submit("review_take")]
    # Noise is nobody's voice. The checkpoint is not the built-in one.
    assert any("no more like its recording than a stranger" in str(one) for one in said)
    assert page.studio.takes.get(take.id).parts == take.parts, "nothing can be heard in noise"
    # Measured once for a voice and a checkpoint.
    monkeypatch.setattr("backend.evaluation.review_take.likeness_of", lambda *_: pytest.fail("measured again"))
    reference = page.studio.sample_reference("iris")
    page.studio._likeness = {(reference, *key[1:]): one for key, one in page.studio._likeness.items()}
    assert not page.studio.likeness_of(take, reference).is_there
    client.close()
