"""The process in which a foreign file's signed statement is read: it may crash or hang, and nothing else is hurt.

Started by `reading.py` as `python -m backend.provenance.reader_process JOB`, with the file as standard input. What it
found leaves as the last line of standard error, one JSON object.
"""

from __future__ import annotations

import contextlib
import json
import sys
from typing import Any

import c2pa

from backend.audio.confinement import confine
from backend.audio.limits import DecodingLimits
from backend.provenance.manifest import ACTIONS, ASSERTION, CONFINED_SETTINGS

_MAX_OUTPUT_BYTES = 1 << 16


def main() -> None:
    """Read standard input as the only argument says, and report."""
    job = json.loads(sys.argv[1])
    settings: dict[str, Any] = {"verify": CONFINED_SETTINGS}
    if job["anchors"]:
        settings["trust"] = {"user_anchors": job["anchors"]}
    context = c2pa.Context.from_dict(settings)
    with open(0, "rb", buffering=0, closefd=False) as file:
        confine(DecodingLimits(**job["limits"]), _MAX_OUTPUT_BYTES)
        try:
            found = _describe(c2pa.Reader(job["media_type"], file, context=context))
        except c2pa.C2paError as error:
            problem = str(error)
            found = {"state": "none" if problem.startswith("ManifestNotFound") else "unreadable"}
    sys.stderr.write(f"\n{json.dumps(found)}\n")


def _describe(reader: c2pa.Reader) -> dict[str, Any]:  # Any: JSON
    document = json.loads(reader.json())
    manifest = document["manifests"][document["active_manifest"]]
    signature = manifest.get("signature_info", {})
    generators = manifest.get("claim_generator_info") or [{}]
    found: dict[str, Any] = {
        "state": str(document.get("validation_state", "Invalid")).lower(),
        "codes": [str(each.get("code")) for each in document.get("validation_status", [])],
        "signer": signature.get("common_name") or signature.get("issuer") or "",
        "serial_number": str(signature.get("cert_serial_number", "")),
        "generator": generators[0].get("name") or "",
    }
    for assertion in manifest.get("assertions", []):
        label, data = assertion.get("label"), assertion.get("data")
        if label == ASSERTION:
            found["statement"] = data
        elif str(label).startswith(ACTIONS.partition(".v")[0]):
            with contextlib.suppress(KeyError, TypeError, IndexError):
                found["source_type"] = data["actions"][0]["digitalSourceType"]
    return found


if __name__ == "__main__":
    main()
