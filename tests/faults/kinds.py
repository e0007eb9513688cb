"""All kinds of attack."""

from __future__ import annotations

from tests.faults import (
    api_requests,
    archives,
    clock_steps,
    flipped_bytes,
    full_disks,
    killed_runs,
    killed_serve,
    killed_servers,
    killed_work,
    recordings,
    slow_clients,
    studio_requests,
    voice_files,
)
from tests.faults.attack import Attack

KINDS: tuple[Attack, ...] = (
    recordings.ATTACK,
    archives.ATTACK,
    voice_files.ATTACK,
    api_requests.ATTACK,
    studio_requests.ATTACK,
    slow_clients.ATTACK,
    flipped_bytes.ATTACK,
    killed_servers.ATTACK,
    killed_work.TRAINING,
    killed_work.BUILDING,
    killed_runs.ATTACK,
    killed_serve.ATTACK,
    full_disks.ATTACK,
    clock_steps.ATTACK,
)
