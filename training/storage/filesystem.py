"""Pyarrow's file system for a location.

Endpoint and credentials are found where every other program finds them: AWS_ACCESS_KEY_ID, AWS_PROFILE, AWS_REGION,
AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL, AWS_CA_BUNDLE; GOOGLE_APPLICATION_CREDENTIALS. None of them is read here but what
pyarrow does not look up by itself, and none is passed on to other machines.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

import pyarrow.fs

from training.storage.location import Scheme, StorageLocation

_CONNECT_SECONDS = 10.0
_GOOGLE_SECONDS = 20
"""Of Google's client's own attempts; ours come on top."""
_ATTEMPTS = 2
"""Of the AWS client's own, for a connection that was closed meanwhile; ours come on top."""


def open_filesystem(location: StorageLocation, environment: Mapping[str, str] | None = None) -> pyarrow.fs.FileSystem:
    """Make the file system; nothing is asked of the storage yet. Raises OSError."""
    return _OPENERS[location.scheme](os.environ if environment is None else environment)


def _open_s3(environment: Mapping[str, str]) -> pyarrow.fs.FileSystem:
    options: dict[str, Any] = {
        "retry_strategy": pyarrow.fs.AwsStandardS3RetryStrategy(max_attempts=_ATTEMPTS),
        "connect_timeout": _CONNECT_SECONDS,
        # A small object is one request in place of three.
        "allow_delayed_open": True,
    }
    # These pyarrow leaves to its caller.
    endpoint = environment.get("AWS_ENDPOINT_URL_S3") or environment.get("AWS_ENDPOINT_URL")
    if endpoint:
        scheme, _, host = endpoint.rpartition("://")
        options |= {"endpoint_override": host.rstrip("/"), "scheme": scheme or "https"}
    if region := environment.get("AWS_REGION") or environment.get("AWS_DEFAULT_REGION"):
        options["region"] = region
    if bundle := environment.get("AWS_CA_BUNDLE"):
        options["tls_ca_file_path"] = bundle
    return pyarrow.fs.S3FileSystem(**options)


def _open_google(environment: Mapping[str, str]) -> pyarrow.fs.FileSystem:
    return pyarrow.fs.GcsFileSystem(retry_time_limit=timedelta(seconds=_GOOGLE_SECONDS))


def _open_folder(environment: Mapping[str, str]) -> pyarrow.fs.FileSystem:
    return pyarrow.fs.LocalFileSystem()


_OPENERS: dict[Scheme, Callable[[Mapping[str, str]], pyarrow.fs.FileSystem]] = {
    "s3": _open_s3,
    "gs": _open_google,
    "file": _open_folder,
}
