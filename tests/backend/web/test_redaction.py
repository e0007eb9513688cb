"""Paths of the server stay on the server."""

from __future__ import annotations

import pytest

from backend.web.redaction import public_message


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        ("{}/voices/1/generation_config.json cannot be used.", "…/generation_config.json cannot be used."),
        (
            "The voice has lost its checkpoint: {}/voices/1 has none.",
            "The voice has lost its checkpoint: …/1 has none.",
        ),
        ("There is no room in '{}/a/b'.", "There is no room in '…/b'."),
        ("See GET /v1/audio/voices, audio/wav, and/or http://localhost/a/b.", None),
        ("Choose a folder: /no/such/folder is none.", None),
    ],
)
def test_paths_are_shown_by_their_last_part(tmp_path, message, shown, caplog):
    whole = message.format(tmp_path)
    assert public_message(RuntimeError(whole)) == (shown or whole)
    assert (whole in caplog.text) == (shown is not None)
