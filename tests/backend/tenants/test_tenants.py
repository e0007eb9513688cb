"""Keys, limits and what is used of them: right with many at once, after a restart, and whatever the clock does."""

from __future__ import annotations

import asyncio
import itertools
import json
import shutil
import threading
import time
import uuid
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backend.serving.api.allowance import Allowance, duration
from backend.settings import Settings
from backend.store import database as database_module
from backend.store.home import Home
from backend.tenants.errors import QuotaExceeded, TenantError
from backend.tenants.keys import ApiKeys, digest_of
from backend.tenants.limits import LimitChanges, Limits, limits_of_settings
from backend.tenants.names import parse_tenant, shown_tenant
from backend.tenants.usage import Usage
from backend.voices.registry import Voices
from tests.backend.serving.api.served import CONSENT

NOON = 1_764_072_000.0  # 2025-11-25 12:00 UTC
DAY_SECONDS = 24 * 3600


@pytest.fixture(scope="module")
def home(tmp_path_factory) -> Home:
    return Home(tmp_path_factory.mktemp("tenants"))


class Clock:
    def __init__(self, now: float = NOON) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def passes(usage: Usage, tenant: str, per_minute: int) -> bool:
    try:
        usage.take_request(tenant, per_minute)
    except QuotaExceeded:
        return False
    return True


NAMES = itertools.count()


@settings(max_examples=40)
@given(waits=st.lists(st.floats(-30, 90, allow_nan=False), min_size=1, max_size=12), per_minute=st.integers(1, 5))
def test_requests_pass_as_a_bucket_that_fills_evenly(home, waits, per_minute):
    clock = Clock()
    usage, tenant = Usage(home.database, clock), f"bucket {next(NAMES)}"
    passed: list[float] = []
    elapsed = 0.0
    for wait in waits:
        clock.now += wait
        # A clock that was set back gives nothing away.
        elapsed += max(0.0, wait)
        while passes(usage, tenant, per_minute):
            passed.append(elapsed)
            assert len(passed) < 200
        with pytest.raises(QuotaExceeded) as refused:
            usage.take_request(tenant, per_minute)
        assert 0 < refused.value.retry_after_seconds <= 60 / per_minute + 1e-6
    for first in range(len(passed)):
        for last in range(first, len(passed)):
            seconds = passed[last] - passed[first]
            assert last - first + 1 <= per_minute + seconds * per_minute / 60 + 1e-6


def test_whoever_waits_as_told_passes_wherever_the_clock_was_set(home):
    clock = Clock()
    usage = Usage(home.database, clock)
    for jump in (0, 0, 86_400, -86_400, 0, -7, 0):
        clock.now += jump
        while passes(usage, "patient", 3):
            pass
        with pytest.raises(QuotaExceeded) as refused:
            usage.take_request("patient", 3)
        clock.now += refused.value.retry_after_seconds + 1e-6
        assert passes(usage, "patient", 3)


def test_many_at_once_get_exactly_what_there_is(home):
    usages = [Usage(Home(home.folder).database) for _ in range(4)]
    begin = threading.Barrier(8)

    def spend(number: int) -> int:
        begin.wait()
        spent = 0
        for _ in range(6):
            try:
                usages[number % 4].spend_characters("crowd", 7, 100)
            except QuotaExceeded:
                continue
            spent += 7
        return spent

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(spend, range(8))) == 98
    # As another process sees it.
    assert Usage(Home(home.folder).database).characters_left("crowd", 100).remaining == 2


def test_characters_come_back_at_midnight_and_when_nothing_was_spoken(home):
    clock = Clock()
    usage = Usage(home.database, clock)
    day = usage.spend_characters("reader", 80, 100)
    with pytest.raises(QuotaExceeded, match=r"21 characters are more than the 20 that are left of today's 100"):
        usage.spend_characters("reader", 21, 100)
    assert usage.characters_left("reader", 100).reset_seconds == DAY_SECONDS / 2
    clock.now += DAY_SECONDS / 2
    assert usage.characters_left("reader", 100).remaining == 100
    usage.spend_characters("reader", 100, 100)
    # What was begun yesterday is given back to yesterday.
    usage.give_back("reader", 80, day)
    assert usage.characters_left("reader", 100).remaining == 0


def test_characters_are_given_back_however_a_speech_ends_before_its_first_sound(home):
    usage = Usage(home.database)
    allowance = Allowance(usage, "leaver", Limits(characters_per_day=100))

    async def speak(*, is_spoken: bool, waits: bool) -> None:
        async with allowance.spending(60) as spending:
            spending.is_spoken = is_spoken
            if waits:
                await asyncio.sleep(60)
            raise RuntimeError

    async def leave(*, after_steps: int) -> None:
        """Cancel at whatever step of it."""
        task = asyncio.create_task(speak(is_spoken=False, waits=True))
        for _ in range(after_steps):
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        # What was begun in a thread comes to its end.
        for _ in range(200):
            if usage.characters_left("leaver", 100).remaining == 100:
                return
            await asyncio.sleep(0.01)
        pytest.fail(f"after {after_steps} steps nothing was given back")

    async def everything() -> None:
        with pytest.raises(RuntimeError):
            await speak(is_spoken=False, waits=False)
        assert usage.characters_left("leaver", 100).remaining == 100
        for steps in (0, 1, 2, 3, 10):
            await leave(after_steps=steps)
        with pytest.raises(RuntimeError):
            await speak(is_spoken=True, waits=False)
        assert usage.characters_left("leaver", 100).remaining == 40
        with pytest.raises(QuotaExceeded):
            await speak(is_spoken=True, waits=False)
        assert usage.characters_left("leaver", 100).remaining == 40

    asyncio.run(everything())


def test_of_a_key_only_the_hash_is_stored(home):
    keys = ApiKeys(home.database)
    made, key = keys.add("alice", "the shop")
    assert made.digest == digest_of(key)
    keys.mark_used(made.id)
    assert keys.list()[-1].last_used_at is not None
    assert not any(key.encode() in file.read_bytes() for file in home.folder.glob("encore.sqlite*"))
    assert keys.revoke(made.id).revoked_at is not None
    with pytest.raises(TenantError, match="No key"):
        keys.revoke(made.id)
    assert ApiKeys.exist_in(home.folder)


def test_no_home_is_made_to_look_for_keys(tmp_path):
    assert not ApiKeys.exist_in(tmp_path / "none")
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize(
    ("changes", "expected"),
    [({}, (5, 100)), ({"characters_per_day": None}, (5, None)), ({"requests_per_minute": 7}, (7, 100))],
)
def test_what_was_said_for_one_tenant_replaces_what_holds_for_all(changes, expected):
    chosen = Settings.from_environment({"ENCORE_REQUESTS_PER_MINUTE": "5", "ENCORE_CHARACTERS_PER_DAY": "100"})
    stored = LimitChanges.model_validate(changes).model_dump_json(exclude_unset=True)
    limits = LimitChanges.model_validate_json(stored).applied_to(limits_of_settings(chosen))
    assert (limits.requests_per_minute, limits.characters_per_day) == expected


def test_names_of_tenants():
    assert parse_tenant(" Alice@Example.org ") == "alice@example.org"
    assert (parse_tenant("Operator"), shown_tenant("")) == ("", "operator")
    for name in ("", "-x", "a b", "ä", "x" * 65, "../x"):
        with pytest.raises(TenantError):
            parse_tenant(name)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.0174, "17ms"), (7.5, "7.5s"), (1, "1s"), (360, "6m0s"), (29_523.4, "8h12m3s"), (3600, "1h0m0s")],
)
def test_durations_are_written_as_openai_does(seconds, text):
    assert duration(seconds) == text


def test_what_was_there_before_tenants_is_the_operators(tmp_path, monkeypatch):
    """Also a consent, which refers to the table that is copied, and what was in the trash by then."""
    migrations = database_module._MIGRATIONS
    earlier = tmp_path / "migrations"
    earlier.mkdir()
    for file in migrations.glob("*.sql"):
        if file.name < "0110":
            shutil.copy(file, earlier)
    monkeypatch.setattr(database_module, "_MIGRATIONS", earlier)
    before = Home(tmp_path / "home")
    with before.database.transaction() as connection:
        for name in ("Anna", "Gone"):
            record = {"name": name, "kind": "zero-shot", "model": "mini", "provenance": {}}
            record |= {"created_at": "2026-11-01T00:00:00Z", "id": uuid.uuid5(uuid.NAMESPACE_DNS, name).hex}
            connection.execute(
                "INSERT INTO voices VALUES (?, ?, ?, ?, '2026-11-01')",
                (record["id"], name, name.casefold(), json.dumps(record)),
            )
            connection.execute(
                "INSERT INTO consents (voice_id, who, given_at, statement, wording) VALUES (?, ?, ?, ?, ?)",
                (record["id"], "Anna", CONSENT.given_at.isoformat(), CONSENT.statement, CONSENT.wording),
            )
        (row,) = map(dict, connection.execute("SELECT * FROM voices WHERE name = 'Gone'"))
        consents = [dict(one) for one in connection.execute("SELECT * FROM consents WHERE voice_id = ?", (row["id"],))]
        connection.execute("DELETE FROM voices WHERE name = 'Gone'")
        connection.execute(
            "INSERT INTO trash (id, kind, item_id, owner, label, deleted_at, num_bytes, content, files)"
            " VALUES ('t', 'voice', ?, '', 'Gone', ?, 0, ?, '[]')",
            (row["id"], time.time(), json.dumps({"voices": [row], "consents": consents})),
        )
    monkeypatch.setattr(database_module, "_MIGRATIONS", migrations)
    home = Home(tmp_path / "home")
    voices = Voices(home)
    assert [(voice.name, voice.consent.who) for voice in voices.list()] == [("Anna", "Anna")]
    assert voices.restore(voices.trash.find("voice", "gone")).consent.who == "Anna"
    assert Voices(home.of_tenant("alice")).list() == ()
    with home.database.reading() as connection:
        assert connection.execute("PRAGMA foreign_key_check").fetchall() == []
