"""Supervisors: processes of their own that outlive the app that started them."""

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
from training.model.project import PROJECT_FOLDER

# Process ids are used again; the time of birth tells a successor from the one that was meant.
_SAME_BIRTH_SECONDS = 2.0
_END_SECONDS = 10.0


def start_supervisor(run_id: str, home: Path, log: Path) -> tuple[int, float]:
    """Start `python -m backend.runs.process.supervisor` in a session of its own; tell its process id and time of birth.

    Raises:
        RunError: the system cannot start a process.
    """
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(filter(None, (str(PROJECT_FOLDER), os.environ.get("PYTHONPATH")))),
        "PYTHONUNBUFFERED": "1",
    }
    command = [sys.executable, "-m", "backend.runs.process.supervisor", run_id, "--home", str(home)]
    try:
        with log.open("ab") as output:
            child = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=PROJECT_FOLDER,
                env=environment,
                start_new_session=True,
            )
    except OSError as error:
        raise RunError(f"The fine-tune's process could not be started: {error.strerror}. Free memory and retry.") from (
            error
        )
    birth = birth_of(child.pid)
    # Nobody waits for it, but somebody has to take note of its end, or it stays as a zombie while this process lives.
    threading.Thread(target=child.wait, daemon=True, name=f"supervisor-{run_id}").start()
    return child.pid, birth


def birth_of(process_id: int) -> float:
    """When a process began, in seconds since 1970; 0 if it is gone."""
    try:
        return float(psutil.Process(process_id).create_time())
    except psutil.Error:
        return 0.0


def is_alive(process_id: int | None, started_at: float | None) -> bool:
    """Whether the process that began then still runs."""
    if process_id is None or started_at is None:
        return False
    try:
        process = psutil.Process(process_id)
        is_same = abs(process.create_time() - started_at) < _SAME_BIRTH_SECONDS
        return bool(is_same and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return False


def end_session(leader: int, started_at: float) -> None:
    """Kill a supervisor and everything it started that is still there, such as a Ray that outlived it.

    A session's number is not given away again as long as one of its processes lives.
    """
    if (birth := birth_of(leader)) and abs(birth - started_at) >= _SAME_BIRTH_SECONDS:
        return  # it is long gone, and another process has its number
    give_up = time.monotonic() + _END_SECONDS
    # Once is not enough: what a member started after the processes were listed would live on.
    while (members := _living_members(leader)) and time.monotonic() < give_up:
        for member in members:
            with contextlib.suppress(psutil.Error):
                member.kill()
        psutil.wait_procs(members, timeout=1)


def _living_members(session: int) -> list[psutil.Process]:
    members = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            # A zombie is dead already; it may stay for ever where nothing reaps orphans, as in many containers.
            if _session_of(process.pid) == session and process.status() != psutil.STATUS_ZOMBIE:
                members.append(process)
    return members


def _session_of(process_id: int) -> int | None:
    try:
        return os.getsid(process_id)
    except OSError:
        return None
