"""What people do with a studio and an API that run for a long time, each deed a function of a seeded generator."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import gradio as gr
import httpx
from gradio_client import handle_file

from backend.runs.runs import Runs
from backend.runs.storage.states import RunState
from backend.store.home import Home
from backend.voices.registry import Voices
from backend.voices.samples import list_samples
from tests.backend.runs.test_ray_run import start
from tests.ui.served_page import PATIENCE_SECONDS, Session, speak_form
from training.data.code_rows import ROWS_FILE

FORMATS = ("wav", "mp3", "flac", "opus", "aac", "m4a", "pcm")
WORDS = "morning river bread window paper seven quiet garden letter yellow".split()
CONSENT = {"consent": "own-voice", "consent_by": "Ann Author"}
NUM_STEPS = 4


@dataclass(frozen=True, kw_only=True)
class Used:
    """What the deeds are done to.

    Attributes:
        api: the address of the API.
        page: the address of the studio, whose layout is `blocks`.
        home: of both.
        recording: of a voice, to upload.
        voice_file: of a voice, to import.
        with_ray: whether fine-tunes may be started.
    """

    api: str
    page: str
    blocks: gr.Blocks
    home: Path
    recording: Path
    voice_file: Path
    with_ray: bool


Deed = Callable[[random.Random, Used], object]


def text_of(rng: random.Random, max_words: int = 12) -> str:
    """A text that nobody has spoken before."""
    return " ".join(rng.choices(WORDS, k=rng.randint(2, max_words))).capitalize() + "."


def _ask(used: Used, path: str, body: Mapping[str, object]) -> None:
    with httpx.Client(base_url=used.api, timeout=PATIENCE_SECONDS) as client:
        _accept(client.post(path, json=body))


def _accept(response: httpx.Response) -> None:
    """Random weights end some takes too early, and a busy server refuses: both are said, and no fault here."""
    code = response.json()["error"]["code"] if response.status_code >= 400 else ""
    assert code in ("", "take_too_short", "rate_limit_exceeded"), response.text[:300]


def speak_whole(rng: random.Random, used: Used) -> None:
    """A whole file in one of the formats."""
    said = {"input": text_of(rng), "voice": "Anna", "response_format": rng.choice(FORMATS), "stream": False}
    _ask(used, "/v1/audio/speech", said)


def stream(rng: random.Random, used: Used) -> None:
    """A stream, every other one left before its end."""
    said = {"input": text_of(rng, 40), "voice": rng.choice(("Anna", "Tuned")), "response_format": rng.choice(FORMATS)}
    leaves = rng.random() < 0.5
    with (
        httpx.Client(base_url=used.api, timeout=PATIENCE_SECONDS) as client,
        client.stream("POST", "/v1/audio/speech", json=said) as response,
    ):
        if response.status_code >= 400:
            response.read()
            _accept(response)
            return
        with suppress(httpx.RemoteProtocolError):  # a stream that turns out too short is cut
            for number, _ in enumerate(response.iter_bytes()):
                if leaves and number > 1:
                    break


def clone(rng: random.Random, used: Used) -> None:
    """A recording of this one request."""
    files = {"ref_audio": ("me.wav", used.recording.read_bytes(), "audio/wav")}
    with httpx.Client(base_url=used.api, timeout=PATIENCE_SECONDS) as client:
        _accept(
            client.post("/v1/audio/speech", data={"input": text_of(rng), "stream": "false", **CONSENT}, files=files)
        )


def churn_voice(rng: random.Random, used: Used) -> None:
    """A voice that is made, spoken with and deleted."""
    files = {"audio_sample": ("me.wav", used.recording.read_bytes(), "audio/wav")}
    name = f"Guest {rng.randrange(10**9)}"
    with httpx.Client(base_url=used.api, timeout=PATIENCE_SECONDS) as client:
        made = client.post("/v1/audio/voices", data={"name": name, **CONSENT}, files=files)
        assert made.status_code < 300, made.text[:300]
        _accept(client.post("/v1/audio/speech", json={"input": text_of(rng), "voice": name, "stream": False}))
        gone = client.delete(f"/v1/audio/voices/{made.json()['id']}", params={"for_good": rng.random() < 0.5})
        assert gone.status_code == 200, gone.text[:300]


def compare_api(rng: random.Random, used: Used) -> None:
    """Two voices at the same moment."""
    _ask(used, "/v1/compare", {"input": text_of(rng), "voices": ["Anna", "Tuned"]})


def look_around(rng: random.Random, used: Used) -> None:
    """Lists, and what is not there."""
    with httpx.Client(base_url=used.api, timeout=PATIENCE_SECONDS) as client:
        for path in ("/v1/models", "/v1/audio/voices", "/v1/audio/takes", "/healthz", "/openapi.json"):
            assert client.get(path).status_code == 200, path
        assert client.get(f"/v1/audio/takes/{rng.randrange(10**9)}").status_code == 404


def _visit(deed: Callable[[random.Random, Used, Session], object], rng: random.Random, used: Used) -> None:
    """Open the page, do something there, and leave."""
    session = Session(used.page, used.blocks)
    try:
        deed(rng, used, session)
    finally:
        session.close()


def speak_sample(rng: random.Random, _: Used, session: Session) -> None:
    """A few takes of a sample, the last one perhaps left before its end."""
    chosen = session.call("use_sample", name=rng.choice(list_samples()).name)
    for _number in range(rng.randint(1, 3)):
        form = speak_form(text_of(rng), transcript=chosen["transcript"], statement=None, seed=str(rng.randrange(99)))
        for _update in session.submit("speak", **form):
            if rng.random() < 0.1:
                return


def upload_and_save(rng: random.Random, used: Used, session: Session) -> None:
    """A recording is examined, spoken with, kept as a voice, and that is deleted."""
    session.call("examine", files=[handle_file(used.recording)])
    session.call("state_consent")
    for _update in session.submit("speak", **speak_form(text_of(rng))):
        pass
    name = f"Visitor {rng.randrange(10**9)}"
    session.call("save_voice", name=name, transcript="", statement="own-voice", who="Ann Author")
    _delete_voice(used, session, name)


def import_and_delete(rng: random.Random, used: Used, session: Session) -> None:
    """A voice comes as a file under a name of its own, and goes."""
    session.call("list_voices")
    session.call("import_voice", file=handle_file(used.voice_file))
    imported = [voice.name for voice in Voices(Home(used.home)).list() if voice.name.startswith("Anna ")]
    for name in imported:
        _delete_voice(used, session, name)
    if rng.random() < 0.3:
        session.call("change_space", order='{"do": "empty"}')


def _delete_voice(used: Used, session: Session, name: str) -> None:
    found = [voice.id for voice in Voices(Home(used.home)).list() if voice.name == name]
    session.call("list_voices")
    for voice_id in found:
        session.call("change_voice", order=json.dumps({"do": "delete", "id": voice_id}))


def compare_pages(rng: random.Random, _: Used, session: Session) -> None:
    """A listening test, left before its end."""
    session.call("list_sides")
    name = rng.choice(list_samples()).name
    sides = {"first": f"sample:{name}:in-context:", "second": f"sample:{name}:x-vector:", "third": ""}
    session.call("begin_comparison", **sides, text=text_of(rng, 4), seed="3", blind=True)
    for _update in session.submit("compare"):
        pass


def look_at_tabs(rng: random.Random, used: Used, session: Session) -> None:
    """All tabs, and a recording that is checked."""
    for event in rng.sample(("list_saved", "list_datasets", "list_runs", "list_voices", "list_api_takes"), 5):
        session.call(event)
    session.call("check", file=handle_file(used.recording))


def build_dataset(rng: random.Random, used: Used, session: Session) -> None:
    """Clips of a sample, and their deletion."""
    name = f"set-{rng.randrange(10**9)}"
    session.call("use_sample", name=rng.choice(list_samples()).name)
    session.call("prepare_dataset", name=name, whisper="none", actors="0")
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not (used.home / "datasets" / name / ROWS_FILE).is_file() and time.monotonic() < deadline:
        session.call("follow_dataset", chosen=name)
        time.sleep(1)
    session.call("list_datasets")
    session.call("choose_dataset", chosen=name)
    with suppress(Exception):  # still being built on a busy machine: it stays
        session.call("delete_dataset", chosen=name)


def fine_tune(_: random.Random, used: Used, session: Session) -> None:
    """A run of seconds, looked at on the page, and the deletion of what came of it."""
    runs = Runs(Home(used.home))
    run_id = start(runs, NUM_STEPS)
    deadline = time.monotonic() + 3 * PATIENCE_SECONDS
    while runs.get(run_id).state.is_active and time.monotonic() < deadline:
        session.call("list_runs")
        time.sleep(2)
    assert runs.get(run_id).state is RunState.DONE, runs.get(run_id).message
    _delete_voice(used, session, "Ann")
    runs.delete(run_id)


API_DEEDS: Mapping[str, Deed] = {
    "speak": speak_whole,
    "stream": stream,
    "clone": clone,
    "make a voice": churn_voice,
    "compare": compare_api,
    "look around": look_around,
}
STUDIO_DEEDS: Mapping[str, Deed] = {
    "speak on the page": partial(_visit, speak_sample),
    "upload and save": partial(_visit, upload_and_save),
    "import and delete": partial(_visit, import_and_delete),
    "compare on the page": partial(_visit, compare_pages),
    "look at the tabs": partial(_visit, look_at_tabs),
}
WORK_DEEDS: Mapping[str, Deed] = {
    "build a dataset": partial(_visit, build_dataset),
    "fine-tune": partial(_visit, fine_tune),
}
