"""Two places are kept alike through failures, which are told once."""

import logging
import queue

import pytest

from backend.errors import EncoreError
from backend.store.keeping import keep_alike


@pytest.mark.parametrize("kind", [EncoreError, OSError])
def test_it_goes_on_after_failures_and_tells_each_once(caplog, kind):
    answers = [True, kind("No room."), kind("No room."), kind("No answer."), True, kind("No answer."), False]
    calls = queue.Queue()

    def sync():
        answer = answers.pop(0)
        calls.put(answer)
        if isinstance(answer, Exception):
            raise answer
        return answer

    num_answers = len(answers)
    with caplog.at_level(logging.WARNING):
        keep_alike("test", sync, "It failed", look_seconds=0.0, again_seconds=0.01)
        for _ in range(num_answers):
            calls.get(timeout=30)
    # After false it is not called again: pop would fail.
    assert not answers
    assert caplog.messages == ["It failed: No room.", "It failed: No answer.", "It failed: No answer."]


def test_it_ends_when_it_is_told_to():
    calls = queue.Queue()
    has_ended = keep_alike("test", lambda: calls.put(1) is None, "It failed", look_seconds=0.0, again_seconds=0.0)
    calls.get(timeout=30)
    has_ended.set()
    while True:
        try:
            calls.get(timeout=0.5)
        except queue.Empty:
            break
