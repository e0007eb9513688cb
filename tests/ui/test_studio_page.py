"""Samples, the library and comparisons as a program drives the page: real server, real checkpoint, real store."""

from __future__ import annotations

import json
import re
import time

import httpx
import pytest
from gradio_client import handle_file
from gradio_client.exceptions import AppError

from backend.serving.introductions import find_introduction
from backend.serving.speech.audio_stream import AudioStream
from backend.takes.errors import TakeTooShort
from backend.voices.cloning import clone_voice
from backend.voices.consent import hash_of_file
from backend.voices.errors import VoiceNotFound
from backend.voices.samples import get_sample
from backend.voices.styles import StyleClip
from tests.backend.voices.checkpoints import fine_tuned_checkpoint
from tests.golden import GOLDEN_CHECKPOINT
from tests.ui.recordings import write_broken, write_voice
from tests.ui.served_page import PATIENCE_SECONDS, examine, serve_page, speak

# Gradio 6.31 counts its queue with calls that pandas 3 is going to remove.
pytestmark = pytest.mark.filterwarnings("ignore::pandas.errors.Pandas4Warning")

IN_CONTEXT, BY_SOUND = "sample:iris:in-context:", "sample:iris:x-vector:"


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    with serve_page(tmp_path_factory.mktemp("page"), device="cpu") as served:
        served.studio.load_model(str(GOLDEN_CHECKPOINT), device="cpu")
        yield served


@pytest.fixture
def client(page):
    client = page.session()
    yield client
    client.close()


def listed(client):
    """What the library shows, which is also what may be chosen from then on."""
    return client.call("list_voices")


def save(client, name, *, statement="own-voice", who="Ann Author", transcript=""):
    return client.call("save_voice", name=name, transcript=transcript, statement=statement, who=who)["saved-note"]


def test_a_sample_speaks_without_anything_else_to_fill_in(page, client):
    chosen = client.call("use_sample", name="iris")
    assert "Sample voice Iris." in chosen["voice-about"]
    assert chosen["transcript"].startswith("Every morning")
    assert chosen["consent"] == "synthetic"
    spoken = speak(client, "Hm.", transcript=chosen["transcript"], statement=None)
    assert "Take 1 is ready" in spoken["status"]
    assert "Sample Iris. Cloned with the transcript" in spoken["takes"]
    assert len(page.fetch(spoken["takes"])) > 1000


def test_a_style_is_offered_where_the_voice_has_some_and_is_spoken_in(page, client, tmp_path):
    recording = write_voice(tmp_path / "ann.wav", seconds=1.2)
    checkpoints = {"custom_voice": fine_tuned_checkpoint(tmp_path / "custom_voice"), "base": GOLDEN_CHECKPOINT}
    voice = page.studio.voices.add_fine_tuned(
        "Styled",
        checkpoints,
        consent=get_sample("iris").consent(),
        model="tiny",
        reference=recording,
        styles=[StyleClip(name="calm", clip=recording, text="Hello.")],
    )
    client.call("use_sample", name="iris")
    assert client.call("offer_styles")["style"]["visible"] is False
    client.call("use_voice", voice_id=voice.id)
    offered = client.call("offer_styles")["style"]
    assert (offered["visible"], offered["choices"]) == (True, [["As usual", ""], ["calm", "calm"]])
    spoken = speak(client, "Hm.", style="calm", statement=None)
    assert "is ready" in spoken["status"]
    assert "Style: calm." in spoken["takes"]
    page.studio.voices.delete(voice.id)


def test_a_take_far_too_short_is_spoken_again_unless_a_seed_would_say_the_same(page, client, monkeypatch):
    checked, check = [], AudioStream.check_length

    def find_too_short(stream):
        checked.append(stream)
        if len(checked) == 1:
            raise TakeTooShort("Too short (0.1 s for 1 word). Speak it again.")
        check(stream)

    chosen = client.call("use_sample", name="iris")
    monkeypatch.setattr(AudioStream, "check_length", find_too_short)
    form = {"transcript": chosen["transcript"], "statement": None}
    assert "is ready" in speak(client, "Hm.", seed="", **form)["status"]
    assert len(checked) == 2
    checked.clear()
    assert "Too short" in speak(client, "Hm.", seed="7", **form)["status"]
    assert len(checked) == 1


def test_a_sample_is_analysed_when_it_is_chosen_and_not_when_it_speaks(page, client, monkeypatch):
    analysed = []

    def clone(*arguments):
        analysed.append(arguments)
        return clone_voice(*arguments)

    monkeypatch.setattr("backend.voices.prompts.clone_voice", clone)
    chosen = client.call("use_sample", name="owen")
    client.call("prepare_voice", transcript=chosen["transcript"])
    assert len(analysed) == 1
    assert "is ready" in speak(client, "Hm.", transcript=chosen["transcript"], statement=None)["status"]
    assert len(analysed) == 1


def test_a_recording_of_ones_own_waits_for_its_consent(client, tmp_path, monkeypatch):
    monkeypatch.setattr("backend.voices.prompts.clone_voice", None)
    examine(client, write_voice(tmp_path / "ann.wav"))
    client.call("prepare_voice", transcript="")


def test_what_was_stated_for_one_recording_does_not_sign_the_next(page, client, tmp_path):
    first, second = write_voice(tmp_path / "first.wav"), write_voice(tmp_path / "second.wav", 5.0)
    client.call("examine", files=[handle_file(first)])
    client.call("state_consent")
    assert "is in the library" in save(client, "First of two")
    assert page.studio.voices.get("first of two").consent.given_for == hash_of_file(first)
    client.call("examine", files=[handle_file(second)])
    assert "'value': None" in str(client.call("review_statement")["consent"])
    # A page that has not been told yet.
    assert "stated for another recording" in save(client, "Second of two")
    with pytest.raises(AppError, match="stated for another recording"):
        speak(client, "Hm.", statement="own-voice", who="Ann Author")
    client.call("state_consent")
    assert "is in the library" in save(client, "Second of two")


def test_a_statement_that_was_made_while_a_recording_was_examined_stays(page, client, tmp_path):
    recording = write_voice(tmp_path / "ann.wav")
    client.call("state_consent", files=[handle_file(recording)])
    client.call("examine", files=[handle_file(recording)])
    assert "value" not in str(client.call("review_statement")["consent"])
    assert "is in the library" in save(client, "Stated early")


def test_a_statement_is_for_all_recordings_that_are_listed(page, client, tmp_path):
    first, second = write_voice(tmp_path / "first.wav", 5.0), write_voice(tmp_path / "second.wav")
    shown = client.call("examine", files=[handle_file(first), handle_file(second)])
    client.call("state_consent")
    for path, name in ((first, "One of both"), (second, "Other of both")):
        picked = next(value for label, value in shown["pick"]["choices"] if path.name in label)
        assert "value" not in str(client.call("use_picked", picked=picked)["consent"])
        assert "is in the library" in save(client, name)
        assert page.studio.voices.get(name).consent.given_for == hash_of_file(path)


def test_many_recordings_are_answered_one_by_one(client, tmp_path):
    files = [write_voice(tmp_path / "good.wav"), write_broken(tmp_path / "broken.wav"), write_voice(tmp_path / "b.wav")]
    verdict = examine(client, *files)
    assert verdict.count("Good to clone from.") == 2
    assert verdict.count("This recording cannot be used.") == 1
    assert verdict.index("good.wav") < verdict.index("broken.wav") < verdict.index("b.wav")


def test_the_transcript_of_another_recording_never_stays(client, tmp_path):
    client.call("use_sample", name="rufus")
    first, second = write_voice(tmp_path / "first.wav"), write_voice(tmp_path / "second.wav", 5.0)
    files = [handle_file(first)]
    assert client.call("examine", files=files)["transcript"] == ""
    # Another recording beside it, which the voice does not come from: what was typed stays.
    files = [*files, handle_file(write_voice(tmp_path / "short.wav", 1.5))]
    assert client.call("examine", files=files)["transcript"] != ""
    shown = client.call("use_picked", picked="all")
    assert shown["transcript"] == ""
    assert client.call("use_sample", name="iris")["transcript"].startswith("Every morning")
    assert client.call("examine_microphone", recorded=handle_file(second))["transcript"] == ""


def test_a_recording_is_transcribed_by_itself_and_what_was_typed_wins(client):
    client.call("examine", files=[handle_file(get_sample("rufus").path)])
    said = [update["transcript-state"] for update in client.submit("transcribe")]
    assert "You can speak meanwhile" in said[1]
    filled = client.call("fill_in_transcript")
    assert "Transcribed: correct it if needed." in filled["transcript-state"]
    assert "clocks" in filled["transcript"]
    assert client.call("fill_in_transcript", typed="My own words")["transcript"] != filled["transcript"]
    # Heard, but the voice is another one by now.
    client.call("use_sample", name="iris")
    assert not isinstance(client.call("fill_in_transcript")["transcript"], str)


def test_what_could_not_be_heard_is_left_to_the_person(client, tmp_path):
    examine(client, write_voice(tmp_path / "song.wav"))
    list(client.submit("transcribe"))
    filled = client.call("fill_in_transcript")
    assert "Type what it says" in filled["transcript-state"]
    assert not isinstance(filled["transcript"], str)


def test_a_saved_voice_speaks_and_keeps_its_consent(page, client, tmp_path):
    examine(client, write_voice(tmp_path / "ann.wav"))
    assert "is in the library" in save(client, "Ann")
    voice = page.studio.voices.get("ann")
    assert (voice.consent.who, voice.consent.statement) == ("Ann Author", "own-voice")
    other = page.session()
    other.call("list_saved")
    other.call("use_voice", voice_id=voice.id)
    assert "Ann. Cloned from the sound" in speak(other, "Hm.", statement=None)["takes"]
    other.close()


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"name": ""}, "needs a name"),
        ({"name": "Ben", "who": " "}, "name of the person who gives it"),
        ({"name": "Ben", "statement": None}, "one of these statements"),
    ],
)
def test_without_name_or_consent_nothing_is_saved(page, client, tmp_path, fields, words):
    before = page.studio.voices.list()
    examine(client, write_voice(tmp_path / "voice.wav"))
    assert words in save(client, **fields)
    assert page.studio.voices.list() == before


def test_without_a_recording_nothing_is_saved(client):
    assert "no new voice to save" in save(client, "Nobody")


def test_a_phrase_is_asked_for_before_it_is_checked(client):
    assert "Add a recording of the voice first" in client.call("check_phrase")["spoken-result"]
    assert "I agree that my voice is cloned." in client.call("draw_phrase")["phrase"]


def compare(client, first=IN_CONTEXT, second=BY_SOUND, third="", *, blind=True, text="Hm, hello."):
    """Begin a listening test and have all of it made that can be made before the first vote."""
    client.call("list_sides")
    begun = client.call("begin_comparison", first=first, second=second, third=third, text=text, seed="3", blind=blind)
    updates = client.submit("compare")
    # What an update leaves as it is comes as no text.
    return {**begun, **{name: value for update in updates for name, value in update.items() if isinstance(value, str)}}


def vote(client, stage, verdict):
    comparison = re.search(r'data-comparison="(\w+)"', stage).group(1)
    return client.call("vote", pressed=f"{comparison}:{verdict}")


def test_a_blind_comparison_is_revealed_after_the_vote(page, client):
    stage = compare(client)["stage"]
    addresses = re.findall(r'data-play="([^"]+)"', stage)
    assert len(addresses) == 2
    for address in addresses:
        assert len(httpx.get(page.address + address, timeout=PATIENCE_SECONDS).raise_for_status().content) > 1000
    assert "Iris" not in stage
    assert "Likeness" not in stage
    voted = vote(client, stage, "B")
    assert "Sample Iris: zero-shot, in context" in voted["stage"]
    assert "Likeness" in voted["stage"]
    assert "Your vote: Sample Iris" in voted["stage"]
    # A second press that was under way counts nothing.
    assert "Your vote" in vote(client, stage, "A")["stage"]
    assert len(page.studio.comparisons.votes.list_voted()) == 1
    assert "is in the library" in client.call("keep", name="Kept")["kept"]
    assert page.studio.voices.get("kept").consent.statement == "synthetic"


def test_sentence_follows_sentence_and_the_next_is_made_meanwhile(page, client):
    texts = ("Hm, one.", "Hm, two.", "Hm, three.")
    stage, seen = (
        compare(client, "sample:owen:in-context:", "sample:owen:x-vector:", text="\n".join(texts))["stage"],
        [],
    )
    for verdict in ("A", "same", "bad"):
        seen.append(next(text for text in texts if f">{text}<" in stage))
        shown = vote(client, stage, verdict)
        stage = shown["stage"]
    assert seen == list(texts)
    assert stage.count("Your vote: ") == 3
    assert "Your vote: no difference" in stage
    assert "2 without a preference" in stage


def test_who_stops_early_sees_what_the_votes_so_far_say(client):
    stage = compare(client, "sample:rufus:in-context:", "sample:rufus:x-vector:", text="Hm, one.\nHm, two.")["stage"]
    assert "Your vote" not in vote(client, stage, "A")["stage"]
    assert "Your vote: Sample Rufus" in client.call("finish_comparison")["stage"]
    compare(client, "sample:rufus:in-context:", "sample:rufus:x-vector:", text="Hm, one.")
    assert "Stopped before the first vote" in client.call("finish_comparison")["compare-status"]


def test_an_open_comparison_shows_names_at_once(client):
    stage = compare(client, "sample:owen:x-vector:", "sample:rufus:x-vector:", blind=False)["stage"]
    assert stage.index("Sample Owen") < stage.index("Sample Rufus")


@pytest.mark.parametrize(
    ("sides", "text", "words"),
    [
        ((IN_CONTEXT, None), "Hello.", "Choose two voices"),
        ((IN_CONTEXT, IN_CONTEXT), "Hello.", "two or three different voices"),
        ((IN_CONTEXT, BY_SOUND), "  ", "no text to speak"),
        ((IN_CONTEXT, BY_SOUND), "Hello.\n" * 60, "At most 50 sentences"),
    ],
)
def test_what_cannot_be_compared_is_said_beside_the_button(client, sides, text, words):
    assert words in compare(client, *sides, text=text)["compare-status"]


def test_nothing_is_voted_on_before_it_was_heard(client):
    with pytest.raises(AppError, match="nothing to vote on"):
        client.call("vote", pressed="1234:A")


def press(client, do, **fields):
    """A button on a card."""
    return client.call("change_voice", order=json.dumps({"do": do, **fields}))


def test_a_voice_is_renamed_exported_deleted_and_imported_again(page, client, tmp_path):
    client.call("use_sample", name="rufus")
    save(client, "Rufus")
    voice = page.studio.voices.get("rufus")
    listed(client)
    renamed = press(client, "rename", id=voice.id, name="Old Rufus")
    assert "It is now called Old Rufus." in renamed["shelf"]
    link = press(client, "export", id=voice.id)["shelf"]
    address = re.search(r'class="download" href="([^"]+)"', link).group(1)
    file = tmp_path / "rufus.encore-voice"
    file.write_bytes(httpx.get(page.address + address, timeout=PATIENCE_SECONDS).raise_for_status().content)
    imported = client.call("import_voice", file=handle_file(file))
    assert "Old Rufus 2 is in the library" in imported["import-status"]
    page.studio.delete_voice(page.studio.voices.get("Old Rufus 2").id)
    gone = press(client, "delete", id=voice.id)
    assert "Old Rufus was deleted" in gone["shelf"]
    assert "Old Rufus" in gone["space"]
    with pytest.raises(VoiceNotFound):
        page.studio.voices.get(voice.id)
    assert "Old Rufus is back." in press(client, "undo", id=voice.id)["shelf"]
    assert page.studio.voices.get("old rufus") == page.studio.voices.get(voice.id)
    press(client, "delete", id=voice.id)
    press(client, "purge", id=voice.id)
    assert voice.id not in {one.item_id for one in page.studio.trash.list("voice")}
    imported = client.call("import_voice", file=handle_file(file))
    assert "Old Rufus is in the library" in imported["import-status"]
    assert page.studio.voices.get("Old Rufus").reference.is_file()
    assert "Imported from rufus.encore-voice" in imported["shelf"]
    broken = client.call("import_voice", file=handle_file(write_broken(tmp_path / "x.encore-voice")))
    assert "is not imported" in broken["import-status"]


def test_a_name_that_is_taken_is_said_on_the_card(page, client):
    client.call("use_sample", name="owen")
    for name in ("First Owen", "Second Owen"):
        save(client, name)
    *_, last = client.submit(
        "change_voice",
        order=json.dumps({"do": "rename", "id": page.studio.voices.get("First Owen").id, "name": "Second Owen"}),
    )
    tile = last["shelf"].split(f'data-voice="{page.studio.voices.get("First Owen").id}"')[1].split("</li>")[0]
    assert "There is a voice" in tile


def test_the_trash_gives_back_or_is_emptied(page, client):
    client.call("use_sample", name="iris")
    save(client, "Twice")
    voice = page.studio.voices.get("Twice")
    listed(client)
    press(client, "delete", id=voice.id)
    deleted = next(one for one in page.studio.trash.list("voice") if one.item_id == voice.id)
    back = client.call("change_space", order=json.dumps({"do": "restore", "id": deleted.id}))
    assert "Twice is back." in back["space"]
    assert "Twice" in back["shelf"]
    press(client, "delete", id=voice.id)
    assert "Everything in the trash is gone." in client.call("change_space", order='{"do": "empty"}')["space"]
    assert page.studio.trash.list() == ()


def test_the_trash_hides_takes_of_other_browsers(page, client):
    client.call("use_sample", name="iris")
    spoken = speak(client, "Hm.")
    own = page.studio.takes.list(f"visit {client.session_hash}")[0]
    deleted = page.studio.takes.delete(own.id)
    assert spoken
    assert deleted.label not in client.call("list_voices", browser="someone else")["space"]
    refused = client.call("change_space", order=json.dumps({"do": "restore", "id": deleted.id}), browser="someone else")
    assert "not in the trash any more" in refused["space"]
    client.call("change_space", order='{"do": "empty"}', browser="someone else")
    assert page.studio.trash.get(deleted.id) == deleted


def test_each_voice_speaks_a_sentence_once(page, client, monkeypatch):
    # Random weights now and then end at once, which a real voice is asked to do better.
    monkeypatch.setattr("backend.serving.speech.audio_stream.TOO_SHORT_SHARE", 0.0)
    client.call("use_sample", name="iris")
    save(client, "Speaker")
    voice = page.studio.voices.get("Speaker")
    listed(client)
    page_of = page.studio.loaded.name
    deadline = time.monotonic() + PATIENCE_SECONDS
    while find_introduction(voice, page_of) is None:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    path = find_introduction(voice, page_of)
    made_at = path.stat().st_mtime_ns
    tile = listed(client)["shelf"].split(f'data-voice="{voice.id}"')[1].split("</li>")[0]
    assert len(page.fetch(tile)) > 1000
    assert path.stat().st_mtime_ns == made_at
    assert page.studio.checker.check(path).signed.trust == "ours"


def test_a_sentence_that_lost_its_words_is_spoken_again_at_the_next_visit(page, client, monkeypatch):
    monkeypatch.setattr("backend.serving.speech.audio_stream.TOO_SHORT_SHARE", 1000.0)
    client.call("use_sample", name="iris")
    save(client, "Speaker of few words")
    voice = page.studio.voices.get("Speaker of few words")

    shelf = listed(client)["shelf"]

    def wait_for(words: str) -> str:
        """The card of the voice, once it holds these words."""
        nonlocal shelf
        deadline = time.monotonic() + PATIENCE_SECONDS
        while words not in (tile := shelf.split(f'data-voice="{voice.id}"')[1].split("</li>")[0]):
            assert time.monotonic() < deadline
            time.sleep(0.1)
            looked = client.call("look_at_voices")["shelf"]
            # Without a change there is nothing to show.
            shelf = looked if isinstance(looked, str) else shelf
        return tile

    assert "data-play" not in wait_for("Too short")
    monkeypatch.setattr("backend.serving.speech.audio_stream.TOO_SHORT_SHARE", 0.0)
    client.call("look_at_voices")
    assert find_introduction(voice, page.studio.loaded.name) is None
    shelf = listed(client)["shelf"]
    assert "data-play" in wait_for("data-play")


def test_the_library_names_what_the_api_needs(page, client, tmp_path):
    examine(client, write_voice(tmp_path / "cleo.wav"))
    save(client, "Cleo")
    shown = listed(client)
    tile = shown["shelf"].split(f'data-voice="{page.studio.voices.get("Cleo").id}"')[1].split("</li>")[0]
    assert "Recordings: cleo.wav." in tile
    assert "v1/audio/speech" in tile
    assert "&#34;voice&#34;: &#34;Cleo&#34;" in tile


def test_a_download_is_signed_checked_on_the_page_and_recognised_when_it_comes_back(page, client, tmp_path):
    client.call("use_sample", name="iris")
    spoken = speak(client, "Hm.", statement=None)
    assert "The file says, signed, that it is synthetic" in spoken["takes"]
    path = tmp_path / "downloaded.wav"
    path.write_bytes(page.fetch(spoken["takes"]))
    assert page.studio.checker.check(path).signed.trust == "ours"
    found = client.call("check", file=handle_file(path))["check-verdict"]
    assert "This recording was made by Encore." in found
    assert "unchanged since" in found
    verdict = examine(client, path)
    assert "made by Encore" in verdict
    assert "Tick" in save(client, "Copy")
    assert "not saved" in client.call("list_saved")["rail"]
    answered = client.call("save_voice", name="Copy", statement="own-voice", who="Ann Author", accepted=True)
    assert "Copy" in answered["saved-note"]
    # A script of the page asks before a recording goes that was not saved, and tells it by this.
    saved_key = re.search('data-saved-key="([^"]+)"', answered["saved-note"])[1]
    assert f'data-voice-key="{saved_key}"' in answered["rail"]
    assert "not saved" not in answered["rail"]
    assert "in the library" in answered["rail"]
    real = write_voice(tmp_path / "real.wav")
    assert "does not mean" in client.call("check", file=handle_file(real))["check-verdict"]
