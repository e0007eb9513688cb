"""Attempts at a storage: what is tried again and for how long, and what is said when it is given up."""

from __future__ import annotations

import errno
import random
import re
import time
from collections.abc import Callable
from typing import TypeVar

from training.errors import StorageError, StorageRefused, StorageUnreachable
from training.storage.location import StorageLocation

PATIENCE_SECONDS = 120.0
"""How long a storage that does not answer is tried."""

_FIRST_WAIT_SECONDS, _MAX_WAIT_SECONDS = 0.5, 15.0
# As the AWS client spells them in what pyarrow raises; Google's and those of HTTP as they are.
_REFUSALS = re.compile(
    r"ACCESS_DENIED|INVALID_ACCESS_KEY_ID|INVALID_CLIENT_TOKEN_ID|SIGNATURE_DOES_NOT_MATCH|UNRECOGNIZED_CLIENT"
    r"|MISSING_AUTHENTICATION_TOKEN|INVALID_SIGNATURE|EXPIRED_?TOKEN|PERMISSION_DENIED|UNAUTHENTICATED"
    r"|HTTP (?:status|response code:) 40[13]\b|REQUEST_EXPIRED|REQUEST_TIME_TOO_SKEWED",
    re.IGNORECASE,
)
_NO_BUCKET = re.compile(r"NO_SUCH_BUCKET|RESOURCE_NOT_FOUND|NoSuchBucket")
_OTHER_REGION = re.compile(r"HTTP (?:status|response code:) 301\b|PermanentRedirect|AuthorizationHeaderMalformed")
_TEMPORARY = re.compile(
    r"SLOW_DOWN|SERVICE_UNAVAILABLE|INTERNAL_FAILURE|INTERNAL_ERROR|THROTTLING|REQUEST_TIMEOUT|NETWORK_CONNECTION"
    r"|HTTP (?:status|response code:) (?:429|5\d\d)\b|UNAVAILABLE|DEADLINE_EXCEEDED|RESOURCE_EXHAUSTED|curlCode"
    r"|ABORTED",
    re.IGNORECASE,
)

_Answer = TypeVar("_Answer")


class LocalFault(Exception):
    """An error of this machine's disk on the way to or from a storage; carries the error of the system."""

    def __init__(self, error: OSError) -> None:
        super().__init__(str(error))
        self.error = error


def attempt(
    location: StorageLocation,
    what: str,
    action: Callable[[], _Answer],
    *,
    patience_seconds: float = PATIENCE_SECONDS,
) -> _Answer:
    """Do something with a storage, and again after a while where that may help.

    Args:
        location: of the storage.
        what: is done, as the end of "X could not be ...".
        action: raises OSError of pyarrow's; may be called again.
        patience_seconds: no attempt begins later.

    Raises:
        FileNotFoundError: the object is not there.
        LocalFault: this machine's disk.
        StorageError: anything else, in one sentence.
    """
    give_up_at, wait = time.monotonic() + patience_seconds, _FIRST_WAIT_SECONDS
    while True:
        try:
            return action()
        except FileNotFoundError:
            raise
        except OSError as error:
            # So that workers do not come back all at once.
            pause = wait * random.uniform(0.5, 1.0)
            if not is_temporary(error) or time.monotonic() + pause > give_up_at:
                raise explain(location, what, error) from error
        time.sleep(pause)
        wait = min(wait * 2, _MAX_WAIT_SECONDS)


def is_temporary(error: OSError) -> bool:
    """Whether the same request may succeed a little later."""
    text = str(error)
    return bool(_TEMPORARY.search(text)) and not _REFUSALS.search(text) and not _NO_BUCKET.search(text)


def explain(location: StorageLocation, what: str, error: OSError) -> StorageError:
    """What happened to a request and what to do, in one sentence or two."""
    text = str(error)
    failed = f"{what} at {location}"
    if _NO_BUCKET.search(text):
        return no_bucket(location)
    if _OTHER_REGION.search(text):
        return StorageError(f"{failed} failed: the bucket is in another region. Set AWS_REGION to the bucket's region.")
    if _REFUSALS.search(text):
        return StorageRefused(
            f"{failed} was refused ({_code(text)}). Check {_CREDENTIALS[location.scheme]} on this machine, and that "
            "reading, writing, listing and deleting are allowed."
        )
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return StorageError(f"{failed} failed: the storage is full. Free some space there and try again.")
    if error.errno in (errno.EACCES, errno.EROFS, errno.EPERM):
        return StorageRefused(f"{failed} was refused: {error.strerror}. Allow this user to read and write there.")
    if is_temporary(error):
        return StorageUnreachable(
            f"{failed} failed again and again: the storage does not answer ({_code(text)}). Check the network, "
            "AWS_ENDPOINT_URL if it is set, and the storage itself, and try again."
        )
    return StorageError(f"{failed} failed: {_first_line(text)}. Check ENCORE_STORAGE and the storage, and try again.")


def no_bucket(location: StorageLocation) -> StorageError:
    """Nothing can be stored where nothing is."""
    if location.scheme == "file":
        return StorageError(
            f"The folder {location.bucket} of ENCORE_STORAGE does not exist here. Make it, or mount the disk it is on."
        )
    return StorageError(
        f"The bucket {location.bucket} of ENCORE_STORAGE does not exist. Make it, or correct ENCORE_STORAGE and, if it "
        "is set, AWS_ENDPOINT_URL."
    )


_CREDENTIALS = {
    "s3": "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
    "gs": "GOOGLE_APPLICATION_CREDENTIALS",
    "file": "ENCORE_STORAGE",
}


def _code(text: str) -> str:
    """The name of an error in what pyarrow raised."""
    if found := re.search(r"AWS Error (\w+)", text):
        status = re.search(r"HTTP (?:status|response code:) (\d+)", text)
        # Such as a name that is not known, or a certificate that is not trusted.
        cause = re.search(r"curlCode: \d+, ([^;]+)", text)
        return f"HTTP {status[1]}" if status is not None else cause[1].strip().rstrip(".") if cause else found[1]
    return _first_line(text)


def _first_line(text: str) -> str:
    return (text.strip().splitlines() or ["an unknown error"])[0][:200].rstrip(".")
