"""Consent: who, when, in which words; none is as good as a wrong one."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from pydantic import ValidationError

from backend.voices.consent import STATEMENTS, Consent, SpokenProof, require_consent
from backend.voices.errors import ConsentMissing

FIELDS = {"who": "Anna", "statement": "own-voice", "wording": "I agree.", "given_at": datetime.now(UTC)}


@pytest.mark.parametrize("statement", list(STATEMENTS))
def test_a_consent_says_who_when_and_in_which_words(statement):
    before = datetime.now(UTC)
    consent = Consent.give("  Anna Example ", statement)
    assert consent.who == "Anna Example"
    assert before <= consent.given_at <= datetime.now(UTC)
    assert consent.wording == STATEMENTS[statement]
    assert Consent.model_validate_json(consent.model_dump_json()) == consent


def test_moments_are_kept_in_utc():
    moment = datetime(2026, 3, 1, 12, tzinfo=timezone(timedelta(hours=5)))
    assert Consent(**{**FIELDS, "given_at": moment}).given_at.isoformat() == "2026-03-01T07:00:00+00:00"


@pytest.mark.parametrize(
    "wrong",
    [
        {"who": "  "},
        {"who": "x" * 201},
        {"statement": "whatever"},
        {"wording": ""},
        {"given_at": datetime(2026, 3, 1, 12)},
        {"given_at": datetime.now(UTC) + timedelta(days=3)},
        {"more": 1},
    ],
)
def test_what_is_no_consent(wrong):
    with pytest.raises(ValidationError):
        Consent(**{**FIELDS, **wrong})


def test_giving_a_wrong_consent_says_what_is_missing():
    with pytest.raises(ConsentMissing, match="name of the person"):
        Consent.give(" ")
    with pytest.raises(ConsentMissing, match="own-voice"):
        Consent.give("Anna", "sure")  # type: ignore[arg-type]


def test_no_consent_passes_no_door():
    with pytest.raises(ConsentMissing, match="consent of the person"):
        require_consent(None)
    given = Consent.give("Anna")
    assert require_consent(given) is given


def test_every_form_gives_a_consent_by_the_same_rules():
    proof = SpokenProof(phrase="A", heard="a", error_rate=0.0, similarity=0.9)
    given = Consent.from_form("own-voice", " Anna ", proof)
    assert (given.who, given.statement, given.spoken) == ("Anna", "own-voice", proof)
    with pytest.raises(ConsentMissing, match="Fill in: own-voice, speaker-agreed, synthetic"):
        Consent.from_form("", None, how="Fill in")
    with pytest.raises(ConsentMissing, match="name of the person"):
        Consent.from_form("own-voice", " ")
    for statement in ("sure", None):
        with pytest.raises(ConsentMissing, match="one of these statements"):
            Consent.from_form(statement, "Anna")
