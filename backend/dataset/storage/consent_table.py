"""Consents for the recordings of datasets: each belongs to the content of the file that it was given for."""

from __future__ import annotations

from collections.abc import Mapping

from backend.store.database import Database
from backend.voices.consent import Consent, combine_consents, require_consent
from backend.voices.errors import ConsentInvalid, ConsentMissing


class ConsentTable:
    """Stores who agreed to what, by dataset and recording; needs no lock, as the newest statement counts."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def give(self, dataset: str, consents: Mapping[str, Consent]) -> None:
        """Store the consent for each of some recordings, by the hash of its content; it replaces an earlier one."""
        with self._database.transaction() as connection:
            connection.executemany(
                "INSERT OR REPLACE INTO recording_consents (dataset, recording_id, consent) VALUES (?, ?, ?)",
                [
                    (dataset, recording_id, consent.for_one_of_several(recording_id).model_dump_json())
                    for recording_id, consent in consents.items()
                ],
            )

    def of(self, dataset: str) -> dict[str, Consent | None]:
        """The consent for each recording that a clip was cut from, in their order; None where there is none yet."""
        with self._database.reading() as connection:
            rows = connection.execute(
                "SELECT recording_id, consent FROM dataset_recordings LEFT JOIN recording_consents "
                "USING (dataset, recording_id) "
                "WHERE dataset = ? AND recording_id IS NOT NULL AND num_clips > 0 ORDER BY position",
                (dataset,),
            ).fetchall()
        return {
            row["recording_id"]: None if row["consent"] is None else Consent.model_validate_json(row["consent"])
            for row in rows
        }

    def agreed(self, dataset: str, given: Consent | None) -> Consent:
        """The consent to a fine-tune on a dataset; one that is `given` is stored for recordings without one.

        Raises:
            ConsentMissing: there is none for some of the recordings, and none is given.
            ConsentInvalid: what is given differs from what was stated for the recordings.
        """
        stored = self.of(dataset)
        missing = [recording_id for recording_id, consent in stored.items() if consent is None]
        known = {recording_id: consent for recording_id, consent in stored.items() if consent is not None}
        if not stored:
            return require_consent(given)
        if given is None and missing:
            raise _missing(dataset, len(missing), len(stored))
        if given is not None and not missing and not any(given.says_the_same(one) for one in known.values()):
            first = next(iter(known.values()))
            raise ConsentInvalid(
                f"The recordings of {dataset} have their consent already: {first.statement}, by {first.who}. Leave the "
                "statement out; for other recordings, make another dataset."
            )
        if given is not None and missing:
            self.give(dataset, dict.fromkeys(missing, given))
            known |= dict.fromkeys(missing, given)
        return combine_consents((recording_id, known[recording_id]) for recording_id in stored)


def _missing(dataset: str, num_missing: int, num_recordings: int) -> ConsentMissing:
    which = "its recordings" if num_missing == num_recordings else f"{num_missing} of its {num_recordings} recordings"
    try:
        require_consent(None)
    except ConsentMissing as error:
        return ConsentMissing(f"{dataset} has no consent yet for {which}. {error}")
    raise AssertionError
