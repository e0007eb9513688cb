"""Where objects are stored: an S3 or Google bucket, or a folder, as `ENCORE_STORAGE` names it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Literal, Self
from urllib.parse import urlsplit

Scheme = Literal["s3", "gs", "file"]
_WRONG_FORM = (
    "it is not of the form s3://bucket/prefix, gs://bucket/prefix or file:///folder; credentials and endpoint have "
    "variables of their own"
)


@dataclass(frozen=True)
class StorageLocation:
    """A bucket or folder and a prefix in it.

    Attributes:
        scheme: what kind of storage.
        root: bucket with prefix, or the folder, without a slash at the end; the path as pyarrow takes it.
    """

    scheme: Scheme
    root: str

    @classmethod
    def parse(cls, url: str) -> Self:
        """Read `s3://bucket/prefix`, `gs://bucket/prefix` or `file:///folder`.

        Raises:
            ValueError: it is none of these.
        """
        parts = urlsplit(url.strip())
        path = PurePosixPath(parts.path)
        if parts.query or parts.fragment or parts.username or ".." in path.parts:
            raise ValueError(_WRONG_FORM)
        if parts.scheme == "file" and not parts.netloc and len(path.parts) > 1:
            return cls("file", str(path))
        bucket = parts.netloc
        if parts.scheme in ("s3", "gs") and bucket:
            return cls("s3" if parts.scheme == "s3" else "gs", f"{bucket}{path}".rstrip("/."))
        raise ValueError(_WRONG_FORM)

    @property
    def bucket(self) -> str:
        """What must exist before anything is stored; a folder itself."""
        return self.root if self.scheme == "file" else self.root.partition("/")[0]

    def __str__(self) -> str:
        return f"{self.scheme}://{self.root}"
