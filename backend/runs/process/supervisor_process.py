"""The process that owns a run: started with the run's lock in hand, known by it, and ended with all it started."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil

from backend.runs.errors import RunError
from backend.runs.storage.records import RunRecord
from backend.runs.storage.run_folder import RunFolder
from backend.store.lock import is_held
from training.model.owner import Owner
from training.model.project import PROJECT_FOLDER

_END_SECONDS = 10.0


def start_watchdog(run_id: str, home: Path, folder: RunFolder, lock: int) -> int:
    """Start `python -m backend.runs.process.watchdog` in a session of its own, and tell its process id.

    Args:
        run_id: the run.
        home: ENCORE_HOME.
        folder: of the run.
        lock: descriptor that holds the run's lock, which the new process holds as well, without a gap.

    Raises:
        RunError: the system cannot start a process.
    """
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(filter(None, (str(PROJECT_FOLDER), os.environ.get("PYTHONPATH")))),
        "PYTHONUNBUFFERED": "1",
    }
    command = [sys.executable, "-m", "backend.runs.process.watchdog", run_id, "--home", str(home)]
    try:
        with folder.log.open("ab") as output:
            child = subprocess.Popen(
                [*command, "--lock", str(lock)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=PROJECT_FOLDER,
                env=environment,
                pass_fds=[lock],
                start_new_session=True,
            )
    except OSError as error:
        raise RunError(f"The fine-tune's process could not be started: {error.strerror}. Free memory and retry.") from (
            error
        )
    # Reaped when it ends, or it would stay as a zombie while this process lives.
    threading.Thread(target=child.wait, daemon=True, name=f"watchdog-{run_id}").start()
    return child.pid


def sign(lock: int) -> None:
    """Write down in the lock's file who holds it, so that what a killed owner leaves can be found and ended."""
    with contextlib.suppress(OSError):  # a full disk; then only the number in the database is known
        os.ftruncate(lock, 0)
        os.pwrite(lock, Owner.this_process().tag.encode(), 0)


def has_owner(run: RunRecord, folder: RunFolder) -> bool:
    """Whether a living process sees a run through: told by the lock that it holds."""
    if folder.lock.is_file():
        return is_held(folder.lock)
    # Started by a version without locks, which may still be training while this one is installed.
    return run.process_id is not None and _is_supervisor(run.process_id, run.id)


def end_owner(run: RunRecord, folder: RunFolder) -> None:
    """Kill the owner of a run and everything it started that is still there, such as a Ray that outlived it."""
    try:
        owner = Owner.parse(folder.lock.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        owner = None
    if owner is not None:
        end_session(owner)
    elif run.process_id is not None and _is_supervisor(run.process_id, run.id):
        end_session(Owner.parse(f"{Owner.this_process().host}.{run.process_id}"))


def end_session(leader: Owner | None, *, spare: int | None = None) -> None:
    """Kill all processes of the session that a process of this machine leads or has led, but `spare`.

    A session's number is not given away again as long as one of its processes lives.
    """
    if leader is None or not leader.is_of_this_boot:
        return
    if not leader.is_alive() and psutil.pid_exists(leader.process_id) and not _is_zombie(leader.process_id):
        return  # it is long gone, and another process has its number
    give_up = time.monotonic() + _END_SECONDS
    # Once is not enough: what a member started after the processes were listed would live on.
    while (members := members_of(leader.process_id, spare)) and time.monotonic() < give_up:
        for member in members:
            with contextlib.suppress(psutil.Error):
                member.kill()
        psutil.wait_procs(members, timeout=1)


def members_of(session: int, spare: int | None = None, *, dead: bool = False) -> list[psutil.Process]:
    """The living processes of a session, but `spare`; with `dead` also those that nothing has reaped."""
    members = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            # A zombie is dead already; it may stay for ever where nothing reaps orphans, as in many containers.
            is_member = _session_of(process.pid) == session and process.pid != spare
            if is_member and (dead or process.status() != psutil.STATUS_ZOMBIE):
                members.append(process)
    return members


def _is_supervisor(process_id: int, run_id: str) -> bool:
    try:
        return run_id in psutil.Process(process_id).cmdline()
    except psutil.Error:
        return False


def _is_zombie(process_id: int) -> bool:
    try:
        return bool(psutil.Process(process_id).status() == psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return True


def _session_of(process_id: int) -> int | None:
    try:
        return os.getsid(process_id)
    except OSError:
        return None
