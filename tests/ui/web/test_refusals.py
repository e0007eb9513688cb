"""What the server refuses before there is a page to show it is said in the language of the browser."""

from __future__ import annotations

import httpx
import pytest

from tests.ui.served_page import PATIENCE_SECONDS, serve_page

WRONG_TRIES = 30
"""More than one address may make in a row."""


@pytest.mark.parametrize(
    ("accepted", "said"),
    [
        (None, "An upload may have at most 1e-06 GB. Upload fewer files at a time."),
        (
            "de-AT,en;q=0.5",
            "Auf einmal lassen sich höchstens 1e-06 GB hochladen. Lade weniger Dateien zugleich hoch.",
        ),
    ],
)
def test_an_upload_is_refused_in_the_language_of_the_browser(tmp_path, accepted, said):
    headers = {"Accept-Language": accepted} if accepted else {}
    with serve_page(tmp_path, max_upload_gb=1e-6) as page:
        files = {"files": ("long.wav", b"x" * 5000)}
        answer = httpx.post(f"{page.address}gradio_api/upload", files=files, headers=headers, timeout=PATIENCE_SECONDS)
    assert answer.status_code == 413
    assert answer.json()["detail"] == said


def test_somebody_who_guesses_passwords_is_told_to_wait_in_the_language_of_the_browser(tmp_path):
    with serve_page(tmp_path, auth="ann:secret") as page:
        for _ in range(WRONG_TRIES):
            answer = httpx.post(
                f"{page.address}login",
                data={"username": "", "password": "wrong"},
                headers={"Accept-Language": "de"},
                timeout=PATIENCE_SECONDS,
            )
            if answer.status_code == 429:
                break
    seconds = answer.headers["Retry-After"]
    expected = f"Zu viele falsche Passwörter von deiner Adresse. Versuche es in {seconds} s noch einmal."
    assert answer.json()["detail"] == expected
