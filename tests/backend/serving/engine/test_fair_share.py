"""Sharing places: one client may have them all, until there is another."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from backend.serving.engine.fair_share import FIRST_GUESS_SECONDS, FairShare
from backend.serving.engine.request_queue import RequestQueue, WaitingTake
from backend.serving.engine.take_stream import TakeStream
from backend.serving.errors import EngineBusy
from tests.backend.serving.conftest import take_of, wait_until


class Clock:
    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


def enter_until_refused(places, client):
    left = []
    with pytest.raises(EngineBusy) as refused:
        left.extend(places.enter(client) for _ in range(1000))
    while len(left) < places.num_held(client):
        left.append(None)
    return refused.value


def test_a_single_client_may_use_all_places():
    places = FairShare(40, "held")
    enter_until_refused(places, "ann")
    assert places.num_held("ann") == 40


def test_a_client_with_all_places_does_not_shut_others_out():
    """As it was found: 45 long texts of one client, and 429 for all others for minutes."""
    places = FairShare(40, "held")
    enter_until_refused(places, "ann")
    for name in ("bob", "cid", "dan"):
        places.enter(name)
    enter_until_refused(places, "bob")
    # An even share of forty among four.
    assert places.num_held("bob") == 10


def test_with_other_clients_waiting_none_gets_more_than_half():
    places = FairShare(40, "held")
    places.enter("bob")
    enter_until_refused(places, "ann")
    assert places.num_held("ann") == 20
    enter_until_refused(places, "bob")
    assert places.num_held("bob") == 20


def test_the_reserve_has_an_end():
    places = FairShare(4, "held")
    enter_until_refused(places, "ann")
    for number in range(4):
        places.enter(f"other {number}")
    with pytest.raises(EngineBusy):
        places.enter("one more")


def test_a_place_is_given_back_once():
    places = FairShare(2, "held")
    leave = places.enter("ann")
    leave()
    leave()
    assert len(places) == 0
    assert places.num_held("ann") == 0


def test_what_goes_on_is_never_refused():
    places = FairShare(1, "held")
    places.enter("ann")
    places.enter("ann", is_promised=True)
    assert len(places) == 2


def test_when_to_come_back_is_measured():
    clock = Clock()
    places = FairShare(4, "held", clock)
    leaves = [places.enter("ann") for _ in range(4)]
    with pytest.raises(EngineBusy) as first:
        places.enter("ann")
    assert first.value.retry_after_seconds == pytest.approx(FIRST_GUESS_SECONDS / 4)
    clock.now = 40.0
    # Nobody has left in 40 seconds: one of the four may after another ten.
    with pytest.raises(EngineBusy) as later:
        places.enter("ann")
    assert later.value.retry_after_seconds == pytest.approx(10.0)
    for leave in leaves:
        leave()
    for _ in range(4):
        places.enter("ann")
    with pytest.raises(EngineBusy) as measured:
        places.enter("ann")
    assert measured.value.retry_after_seconds == pytest.approx(10.0)
    assert "Try again in 10 s" in str(measured.value)


def test_slots_go_to_the_client_with_fewest_running_takes(new_engine, request_of, gate):
    with new_engine(num_slots=1, max_waiting=5) as engine:
        blocked = engine.submit(request_of, cancelled=gate, client="ann")
        gate.wait_until_reached()
        crowd = [engine.submit(replace(request_of, max_frames=40), client="ann") for _ in range(5)]
        with pytest.raises(EngineBusy):
            engine.submit(request_of, client="ann")
        late = engine.submit(request_of, client="bob")
        gate.open()
        assert len(take_of(late).codes) > 0
        for handle in (blocked, *crowd):
            take_of(handle)
        wait_until(lambda: engine.statistics().num_active == 0)
        assert len(engine._places) == 0


def test_a_client_with_takes_in_slots_waits_for_one_with_none():
    queue = RequestQueue()
    for number, (client, needed_at) in enumerate([("ann", 1.0), ("ann", 2.0), ("bob", 3.0), ("cid", 0.0)]):
        stream = TakeStream(1, 1000, is_live=True, client=client)
        queue.add(WaitingTake(needed_at=needed_at, number=number, request=None, voice=None, stream=stream))
    running = Counter({"ann": 2, "cid": 1})
    order = []
    while (take := queue.first(running)) is not None:
        queue.remove(take)
        running[take.stream.client] += 1
        order.append((take.stream.client, take.needed_at))
    assert order == [("bob", 3.0), ("cid", 0.0), ("ann", 1.0), ("ann", 2.0)]
