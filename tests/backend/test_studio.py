"""Rules that concern more than one part of the store."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from backend.dataset.errors import DatasetInUse, DatasetNotFound
from backend.runs.storage.states import RunState
from backend.settings import Settings
from backend.studio import Studio


@pytest.mark.parametrize(
    ("state", "error"), [(RunState.RUNNING, DatasetInUse), (RunState.PAUSED, DatasetNotFound)], ids=str
)
def test_a_dataset_is_not_deleted_while_a_run_learns_from_it(tmp_path, state, error):
    studio = Studio(Settings(home=tmp_path))
    run = SimpleNamespace(dataset="ann", voice="Ann", state=state)
    studio.__dict__["runs"] = SimpleNamespace(list=lambda: [run])
    with pytest.raises(error, match="ann"):
        studio.delete_dataset("ann")
