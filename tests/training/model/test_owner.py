"""Processes told from one another by number, boot and start, not by the clock."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace

from training.model.owner import Owner, birth_of


def test_a_process_is_known_by_its_number_and_its_birth() -> None:
    own = Owner.this_process()
    assert own.is_alive()
    assert Owner.parse(own.tag) == own
    assert not replace(own, birth=f"{own.birth[:8]}0").is_alive()
    assert not replace(own, birth=f"00000000{own.birth[8:]}").is_alive()
    assert not replace(own, host="elsewhere").is_alive()


def test_what_earlier_versions_wrote_has_no_birth() -> None:
    old = Owner.parse(f"{Owner.this_process().host}.{os.getpid()}")
    assert old is not None
    assert old.birth is None
    assert old.is_alive()


def test_other_names_are_no_tags() -> None:
    for name in ("", "tmpabc", "host", "host.x", "a.b.c", "host.1-", "../1.2"):
        assert Owner.parse(name) is None


def test_a_process_that_has_ended_has_no_birth() -> None:
    with subprocess.Popen([sys.executable, "-c", "pass"]) as child:
        owner = Owner(host=Owner.this_process().host, process_id=child.pid, birth=birth_of(child.pid))
        # Waited for without reaping: a zombie is dead, too.
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert birth_of(child.pid) is None
        assert not owner.is_alive()
