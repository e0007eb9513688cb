"""The names under which a statement stands in a file, for its writer and its reader."""

from __future__ import annotations

ASSERTION = "org.encore.speech"
"""Label of Encore's own assertion: a `SpeechStatement`."""
ACTIONS = "c2pa.actions.v2"
TRAINED_MODEL = "http://cv.iptc.org/newscodes/digitalsourcetype/trainedAlgorithmicMedia"
"""IPTC's name for sound made by a trained model, which all readers of C2PA know."""

CONFINED_SETTINGS = {"remote_manifest_fetch": False, "ocsp_fetch": False}
"""Nothing that a file refers to is fetched."""
