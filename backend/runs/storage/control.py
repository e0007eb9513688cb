"""How supervisor and workers of a run communicate, on any machine: by small files in the run's folder."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

StopReason = Literal["cancel", "pause", "interrupt"]


class Control(BaseModel):
    """What workers obey; read at every step."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    attempt: int
    """Workers of an earlier attempt that somehow live on must not write at the same time as those that took over."""
    stop: StopReason | None = None
    asked_at: float | None = None
    """When that was, in seconds of the machine's monotonic clock, which nobody sets."""

    @classmethod
    def read(cls, path: Path) -> Control:
        """What stands there now; attempt 0 before the first."""
        try:
            return cls.model_validate_json(path.read_bytes())
        except (FileNotFoundError, ValidationError):
            return cls(attempt=0)

    def write(self, path: Path) -> None:
        """Replace the file in one step, so that a reader never sees half of it."""
        partial = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
        partial.write_text(self.model_dump_json(), encoding="utf-8")
        os.replace(partial, path)


class LineWriter:
    """JSON objects, one a line, in a file of its own: a killed writer leaves half a line that spoils no other's."""

    def __init__(self, folder: Path, attempt: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        # Later files have later names: of a step that was trained twice the second counts.
        earlier = sum(path.name.startswith(f"{attempt:04}-") for path in folder.iterdir())
        self._path = folder / f"{attempt:04}-{earlier:04}-{secrets.token_hex(2)}.jsonl"

    def write(self, line: Mapping[str, Any]) -> None:
        """Append one object; it is in the file when this returns, or nothing of it. Raises OSError."""
        with self._path.open("ab", buffering=0) as file:
            before = file.tell()
            try:
                content = (json.dumps(dict(line)) + "\n").encode()
                while content:
                    content = content[file.write(content) :]
            except OSError:  # a full disk takes a part
                file.truncate(before)
                raise


class LineReader:
    """Reads what `LineWriter`s of a folder append, each line once; an unfinished line waits for its end."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._offsets: dict[str, int] = {}

    def new_lines(self) -> Iterator[dict[str, Any]]:
        """What was appended since the last call, in the order of the files."""
        for path in sorted(self._folder.glob("*.jsonl")) if self._folder.is_dir() else ():
            offset = self._offsets.get(path.name, 0)
            with path.open("rb") as file:
                file.seek(offset)
                content = file.read()
            whole = content[: content.rfind(b"\n") + 1]
            self._offsets[path.name] = offset + len(whole)
            for line in whole.splitlines():
                yield json.loads(line)
