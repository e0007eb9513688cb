"""Requests for speech on a cluster that shares nothing but an S3 server, while one machine after another is killed.

    python -m tests.benchmarks.cluster_requests --out tests/benchmarks/results/2026-11-25-cluster-requests.md

Three nodes of Ray on this machine, each with mounts and a cache of its own, do not see the home; moto's server is the
storage. An engine and an ingress for each of them speak in three voices. In each part of the requests but the first a
node is killed with all its processes, and a new one is added. Every answer is compared with that to the same request
before anything was killed; then the takes that were kept, and what was counted, with the answers.

The head is not killed: it has the home with its database, Serve's controller, and the program that started it all.
"""

from __future__ import annotations

import argparse
import io
import os
import re
import shutil
import socket
import statistics
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import httpx
import psutil
import soundfile

from backend.cluster.connect import SERVE, connect
from backend.serving.deploy.configure import ServeOptions, configure
from backend.serving.deploy.factory import build_synthesizer
from backend.serving.requests import AudioChunk, Reference, SpeechSummary, SynthesisRequest
from backend.serving.settings import ServeSettings
from backend.serving.synthesizer import Synthesizer
from backend.settings import Settings
from backend.store.home import Home
from backend.voices.reference import write_reference
from backend.voices.registry import Voices
from backend.watermark.mark import Mark
from tests.backend.cluster.machines import Machine, Machines, machines
from tests.backend.serving.api.served import CONSENT, is_same_sound
from tests.backend.voices.checkpoints import adapter_of
from tests.benchmarks.cluster_answers import SENT_ALONG, TEXTS, Outcome, Sound, Wish, ask, wishes
from tests.benchmarks.machine import describe_machine
from tests.benchmarks.report import footer
from tests.golden import GOLDEN_CHECKPOINT
from tests.object_server import BUCKET, object_server, variables
from tests.ui.recordings import write_voice

NUM_NODES = 3
NUM_CLIENTS = 8
NUM_AT_ONCE = 6
"""Asked for right before a machine is killed, so that it dies while it speaks."""

ZERO_SHOT, FINE_TUNED, NEW = "Anna", "Tuned", "New"
NEW_TEXT = "Hi."
PARTS_OF_SERVE = {"ingress": ":Api", "engine": ":SpeechEngine", "proxy": "ProxyActor"}
MAX_SEEDS = 100
CHARACTERS_PER_DAY = 10_000_000
DEADLINE_SECONDS = 300.0


@dataclass
class Kill:
    """One machine that was killed.

    Attributes:
        at: when, of the monotonic clock.
        died: what ran on it.
        outcomes: of the requests of this part.
        healed_after: seconds until everything ran in full numbers again.
    """

    at: float
    died: Counter[str]
    outcomes: list[Outcome] = field(default_factory=list)
    healed_after: float = 0.0


def wait_until(is_reached: Callable[[], bool], cluster: Machines) -> None:
    """Raises TimeoutError with what the nodes have said."""
    give_up_at = time.monotonic() + DEADLINE_SECONDS
    while not is_reached():
        if time.monotonic() > give_up_at:
            raise TimeoutError(cluster.log())
        time.sleep(0.2)


def running_on(node: Machine) -> Counter[str]:
    """What of Serve runs on a node."""
    found: Counter[str] = Counter()
    if node.process.poll() is None:
        for process in psutil.Process(node.process.pid).children(recursive=True):
            try:
                title = process.cmdline()[0]
            except (psutil.Error, IndexError):
                continue
            found.update(part for part, name in PARTS_OF_SERVE.items() if name in title)
    return found


def is_complete(cluster: Machines, serving: ServeSettings) -> bool:
    """Whether as many engines and ingresses run as there should be, none of them on a machine that is gone."""
    from ray import serve  # noqa: PLC0415 - takes seconds

    application = serve.status().applications[serving.name]
    wanted = {"Api": serving.num_ingresses, "SpeechEngine": serving.min_replicas, "Home": 1}
    is_running = all(
        {str(state).rpartition(".")[2]: number for state, number in deployment.replica_states.items()}
        == {"RUNNING": wanted[name]}
        for name, deployment in application.deployments.items()
    )
    there: Counter[str] = Counter()
    for node in [cluster.head, *cluster.nodes]:
        there += running_on(node)
    return is_running and (there["engine"], there["ingress"]) == (serving.min_replicas, serving.num_ingresses)


def write_home(home: Path, recording: Path) -> None:
    """Write a home with a zero-shot voice and a fine-tuned one."""
    voices = Voices(Home(home))
    voices.create_zero_shot(ZERO_SHOT, recording, consent=CONSENT, model="tiny")
    adapter = adapter_of(home / "adapter", seed=1)
    voices.add_fine_tuned(FINE_TUNED, {}, adapter=adapter, consent=CONSENT, model="tiny")
    shutil.rmtree(adapter)


def settings_of(settings: Settings) -> ServeSettings:
    """An application with an engine and an ingress for each node."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    options = ServeOptions(
        model=str(GOLDEN_CHECKPOINT), precision="fp32", device="cpu", num_slots=4, min_replicas=NUM_NODES,
        max_replicas=NUM_NODES, num_ingresses=NUM_NODES,
    )  # fmt: skip
    serving = configure(settings, options, (), port=port)
    # Each take's mark has a number of its own, and samples are compared here.
    return serving.model_copy(update={"engine": serving.engine.model_copy(update={"mark": Mark()})})


def undisturbed(serving: ServeSettings, recording: Path, asked: Sequence[Wish]) -> dict[tuple[str, str], Sound]:
    """What each wish sounds like, by an engine of this process; the seed is one with which the take can be used."""
    voices = Voices(Home(serving.home))
    canonical = serving.home.with_name("canonical.wav")
    write_reference(canonical, [recording])
    sent = Reference(name=SENT_ALONG, recording=canonical.read_bytes(), transcript=None, consent=CONSENT)
    synthesizer = build_synthesizer(serving.engine)
    found: dict[tuple[str, str], Sound] = {}
    for name, text in {wish.sound for wish in asked}:
        voice = sent if name == SENT_ALONG else voices.get(name)
        for seed in range(1, MAX_SEEDS):
            request = SynthesisRequest(voice=voice, text=text, seed=seed, audio_format="pcm")
            streamed, whole = (speak(synthesizer, request, is_streamed=is_streamed) for is_streamed in (True, False))
            # Random weights may stop at once, or never; then a whole answer is another one.
            if streamed is not None and whole is not None and is_same_sound(streamed, whole):
                found[name, text] = Sound(seed, streamed)
                break
    synthesizer.close()
    return found


def speak(synthesizer: Synthesizer, request: SynthesisRequest, *, is_streamed: bool) -> bytes | None:
    """The samples of a take; None where it cannot be used."""
    changed = request.model_copy(update={"is_streamed": is_streamed})
    *events, last = synthesizer.events(changed, lambda: False)
    if not isinstance(last, SpeechSummary):
        return None
    return b"".join(event.content for event in events if isinstance(event, AudioChunk))


class Clients:
    """Ask at a steady pace, whether or not others are still waiting."""

    def __init__(self, address: str, recording: Path, pause: float, expected: Mapping[tuple[str, str], Sound]) -> None:
        self._address, self._recording, self._pause, self._expected = address, recording, pause, expected
        self._began = time.monotonic()

    def ask(self, wish: Wish) -> Outcome:
        """Ask for one, and wait."""
        outcome = ask(self._address, wish, self._recording, self._expected[wish.sound])
        at = outcome.asked_at - self._began
        print(
            f"  {at:.1f} {outcome.first_seconds:.1f} {outcome.seconds:.1f} {wish.way} {outcome.ending} {outcome.said}"
        )
        return outcome

    def ask_all(self, asked: Sequence[Wish], at_once: Callable[[], None] | None = None) -> list[Outcome]:
        """Ask for all of them; some at once, a moment before `at_once` is called in a thread of its own."""
        waiting: list[Future[Outcome]] = []
        with ThreadPoolExecutor(NUM_CLIENTS) as pool:
            for number, wish in enumerate(asked):
                waiting.append(pool.submit(self.ask, wish))
                if at_once is None or number >= NUM_AT_ONCE:
                    time.sleep(self._pause)
                elif number == NUM_AT_ONCE - 1:
                    time.sleep(0.3)
                    threading.Thread(target=at_once).start()
        return [each.result() for each in waiting]


def kill_one(cluster: Machines, node: Machine, clients: Clients, asked: Sequence[Wish], serving: ServeSettings) -> Kill:
    """Ask a part of the requests, among which a node is killed and replaced."""
    kill = Kill(time.monotonic(), running_on(node))
    is_replaced = threading.Event()

    def kill_and_replace() -> None:
        kill.at = time.monotonic()
        print("killing", flush=True)
        node.kill()
        try:
            cluster.add(1, num_cpus=1)
        finally:
            is_replaced.set()

    def heal() -> None:
        is_replaced.wait()
        wait_until(lambda: is_complete(cluster, serving), cluster)
        kill.healed_after = time.monotonic() - kill.at

    healing = threading.Thread(target=heal)
    healing.start()
    kill.outcomes = clients.ask_all(asked, kill_and_replace)
    healing.join()
    print(f"killed {dict(kill.died)}; complete again after {kill.healed_after:.0f} s", flush=True)
    return kill


@dataclass(frozen=True, kw_only=True)
class Result:
    """All of it.

    Attributes:
        where: what of Serve ran on the head and on each node.
        before: of the requests before the first kill.
        new_voice: what was answered to who spoke in a voice that had just been stored.
        kills: and the requests around them.
        counted: at the end.
    """

    where: list[dict[str, int]]
    before: list[Outcome]
    new_voice: list[str]
    kills: list[Kill]
    counted: Counted

    @property
    def outcomes(self) -> list[Outcome]:
        """Of all parts."""
        return self.before + [outcome for kill in self.kills for outcome in kill.outcomes]


@dataclass
class Counted:
    """What the application says of itself at the end, beside what was heard.

    Attributes:
        takes: kept ones, by voice and text.
        num_wrong_takes: whose sound is another one.
        characters: that were taken off.
        done: speeches that `/metrics` counts as done.
        files: that nodes made where the home is.
    """

    takes: Counter[tuple[str, str]]
    num_wrong_takes: int
    characters: int
    done: int
    files: int


def count(address: str, expected: Mapping[tuple[str, str], Sound], cluster: Machines, home: Path) -> Counted:
    """Ask for all of it."""
    takes: Counter[tuple[str, str]] = Counter()
    num_wrong = 0
    with httpx.Client(base_url=address, timeout=60) as client:
        listed = client.get("/v1/audio/takes")
        listed.raise_for_status()
        left = int(listed.headers["x-ratelimit-remaining-characters"])
        for take in listed.json()["data"]:
            if take["voice"] == NEW:
                continue
            voice = take["voice"] if take["voice"] in (ZERO_SHOT, FINE_TUNED) else SENT_ALONG
            takes[voice, take["input"]] += 1
            content = client.get(f"/v1/audio/takes/{take['id']}/content").raise_for_status().content
            samples, _ = soundfile.read(io.BytesIO(content), dtype="int16")
            num_wrong += not is_same_sound(samples.tobytes(), expected[voice, take["input"]].samples)
        text = client.get("/metrics").raise_for_status().text
    done = re.search(r'^encore_speeches_total{outcome="done"} (\S+)', text, re.MULTILINE)
    seen = [Path(f"/proc/{node.process.pid}/root") / home.relative_to("/") for node in cluster.nodes]
    files = sum(len(list(folder.rglob("*"))) for folder in seen if folder.is_dir())
    return Counted(takes, num_wrong, CHARACTERS_PER_DAY - left, int(float(done[1])) if done else 0, files)


def main() -> None:
    """Do all of it and write the result; ends with status 1 if any answer was wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=200)
    parser.add_argument("--kills", type=int, default=3)
    parser.add_argument("--pause", type=float, default=1.0, help="seconds between two requests")
    parser.add_argument("--beside", default="nothing", help="what else ran on the machine, as the result says it")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    facts = describe_machine("cpu")
    with tempfile.TemporaryDirectory() as name, object_server() as port:
        folder, home = Path(name), Path(name) / "home"
        for variable, value in variables(port).items():
            os.environ.pop(variable, None)
            if value is not None:
                os.environ[variable] = value
        os.environ |= {"ENCORE_STORAGE": f"s3://{BUCKET}/show", "ENCORE_HOME": str(home), "RAY_AUTH_MODE": "disabled"}
        os.environ |= {"ENCORE_CHARACTERS_PER_DAY": str(CHARACTERS_PER_DAY), "ENCORE_MAX_TAKES": "10000"}
        recording = write_voice(folder / "anna.wav", seconds=1.2)
        write_home(home, recording)
        serving = settings_of(Settings.from_environment())
        with machines(folder / "machines", home, NUM_NODES) as cluster:
            os.environ["RAY_ADDRESS"] = cluster.address
            with connect(SERVE):
                result = work(options, cluster, serving, recording)
    report = describe(options, facts, result)
    options.out.write_text(report, encoding="utf-8")
    print(report)
    if any(outcome.ending == "WRONG" for outcome in result.outcomes):
        sys.exit(1)


def work(options: argparse.Namespace, cluster: Machines, serving: ServeSettings, recording: Path) -> Result:
    """Serve, ask, kill, ask and count."""
    from backend.serving.deploy.ray_application import start_application, stop_application  # noqa: PLC0415 - seconds

    start_application(serving)
    wait_until(lambda: is_complete(cluster, serving), cluster)
    address = f"http://127.0.0.1:{serving.port}"
    where = [dict(running_on(node)) for node in [cluster.head, *cluster.nodes]]
    print("on the head and the nodes:", *where, flush=True)
    asked = wishes((ZERO_SHOT, FINE_TUNED, SENT_ALONG), options.requests)
    expected = undisturbed(serving, recording, asked)
    clients = Clients(address, recording, options.pause, expected)
    number = options.requests // (options.kills + 1)
    before = clients.ask_all(asked[:number])
    new_voice = speak_new_voice(address, recording)
    print("a new voice at once:", *new_voice, flush=True)
    parts = [asked[at : at + number] for at in range(number, number * (options.kills + 1), number)]
    nodes = list(cluster.nodes)
    kills = [
        kill_one(cluster, node, clients, part, serving)
        for node, part in zip(nodes[: options.kills], parts, strict=True)
    ]
    # What ingresses count is told every two seconds.
    time.sleep(5)
    counted = count(address, expected, cluster, serving.home)
    stop_application(serving, is_own_cluster=True)
    return Result(where=where, before=before, new_voice=new_voice, kills=kills, counted=counted)


def speak_new_voice(address: str, recording: Path) -> list[str]:
    """Store a voice and speak in it at once, although its files are on the head alone; says what is answered."""
    with httpx.Client(base_url=address, timeout=60) as client:
        form = {"name": NEW, "consent": CONSENT.statement, "consent_by": CONSENT.who}
        file = {"audio_sample": ("new.wav", recording.read_bytes())}
        client.post("/v1/audio/voices", data=form, files=file).raise_for_status()
        answers = [
            client.post("/v1/audio/speech", json={"input": NEW_TEXT, "voice": NEW, "seed": 1}) for _ in range(NUM_NODES)
        ]
    return ["spoken" if answer.is_success else f"{answer.status_code} {answer.text}" for answer in answers]


def describe_part(name: str, outcomes: Sequence[Outcome], kill: Kill | None) -> str:
    """A row: what died, what became of the requests, and for how long not all of them were answered."""
    lost = [one for one in outcomes if one.ending != "whole"]
    whole = [one for one in outcomes if one.ending == "whole"]
    seconds = [one.seconds for one in whole]
    cells = [
        f"{len(whole)} of {len(outcomes)}",
        f"{statistics.median(seconds):.1f} s",
        f"{max(one.seconds for one in outcomes):.1f} s",
    ]
    if kill is None:
        return f"| {' | '.join([name, 'nothing', *cells, '', '', ''])} |"
    died = ", ".join(f"{amount} {part}" for part, amount in kill.died.items()) or "nothing"
    after = [one for one in whole if one.asked_at > kill.at]
    heard = min((one.asked_at + one.first_seconds - kill.at for one in after), default=None)
    last = max((one.asked_at + one.seconds - kill.at for one in lost), default=None)
    times = ["none" if value is None else f"{value:.1f} s" for value in (heard, last)]
    return f"| {' | '.join([name, died, *cells, *times, f'{kill.healed_after:.0f} s'])} |"


def describe(options: argparse.Namespace, facts: list[str], result: Result) -> str:
    """The result as a document."""
    import ray  # noqa: PLC0415 - see above

    outcomes, counted = result.outcomes, result.counted
    endings = Counter((one.ending, one.said) for one in outcomes)
    whole = [one for one in outcomes if one.ending == "whole"]
    should_be_kept = Counter(one.wish.sound for one in whole if not one.take_problem)
    characters = sum(len(one.wish.text) for one in whole) + result.new_voice.count("spoken") * len(NEW_TEXT)
    num_done = len(whole) + result.new_voice.count("spoken")
    of_lost = sum(len(one.wish.text) for one in outcomes if one.ending != "whole")
    rows = [describe_part("before", result.before, None)]
    rows += [describe_part(f"kill {number}", kill.outcomes, kill) for number, kill in enumerate(result.kills, start=1)]
    said = [f"| {ending} | {what or 'the sound that was expected'} | {n} |" for (ending, what), n in endings.items()]
    longest = max(outcomes, key=lambda one: one.seconds)
    counts = f"--requests {options.requests} --kills {options.kills} --pause {options.pause:g}"
    return "\n".join(
        [
            f"# Requests to machines that are killed, {datetime.now(UTC):%-d %B %Y}",
            "",
            f"`python -m tests.benchmarks.cluster_requests {counts}`: {len(outcomes)} requests,",
            f"of which {len(result.before)} before the first kill, to an application on a Ray of {NUM_NODES} nodes on",
            "this machine that do not see the home, with the tests' S3 server (moto) as storage; a zero-shot voice, a",
            "fine-tuned one and a recording that is sent along, as whole answers, as WAV files, as streamed samples",
            "and as events. The model is the tests' tiny one, without the mark, whose number is another in each take.",
            "The head is not killed: it has the home, Serve's controller and the program that started the application.",
            "Ray's nodes share this machine's processors and its address: a connection to a dead one is refused at",
            "once, which between machines takes as long as the network or the balancer in front needs.",
            "",
            f"At the start, on the head and the nodes: {result.where}.",
            "",
            "| part | what died | whole | answer, median | longest | first sound to who asked after it | last loss "
            "| all in place again |",
            "|---|---|---|---|---|---|---|---|",
            *rows,
            "",
            "The last three columns are seconds from the kill on. "
            f"Texts have {len(TEXTS[0])} to {len(TEXTS[-1])} characters.",
            "",
            "| how requests ended | what was said | number |",
            "|---|---|---|",
            *said,
            "",
            f"- Longest wait: {longest.seconds:.1f} s, {longest.wish.way}, {longest.ending}.",
            f"- Takes kept: {counted.takes.total()}; of whole answers that are missing: "
            f"{(should_be_kept - counted.takes).total()}; answers that said they were not kept: "
            f"{sum(bool(one.take_problem) for one in whole)}; kept with other sound: {counted.num_wrong_takes}.",
            f"- Characters taken off: {counted.characters}, of whole answers {characters}, "
            f"of all others together {of_lost}.",
            f"- Counted as done by `/metrics`: {counted.done}, whole answers, with those by the new voice: {num_done}.",
            f"- A voice that was stored after the first part, spoken at once: {', '.join(result.new_voice)}.",
            f"- Files that the machines made where the home is: {counted.files}.",
            "",
            *footer(options.beside, [*facts, f"Ray {ray.__version__}"]),
        ]
    )


if __name__ == "__main__":
    main()
