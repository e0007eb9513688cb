"""What a worker under Ray Train says that it cannot get around, and who writes it down."""

from __future__ import annotations

from pathlib import Path

import pytest

from backend.runs.planning.launch import LaunchPlan
from backend.runs.storage.control import Control, LineReader
from backend.runs.storage.run_folder import RunFolder
from training.errors import PreflightError, TrainingError
from training.machine import Machine

pytestmark = pytest.mark.ray


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    (tmp_path / "run").mkdir()
    folder = RunFolder(tmp_path / "run")
    Control(attempt=2).write(folder.control)
    return folder


class Wrapped(Exception):
    """As Ray Train hands on what a worker raised."""

    def __init__(self, cause: Exception) -> None:
        super().__init__("Traceback (most recent call last):\nTrainingError: no.")
        self._base_exc = cause


def test_a_machine_that_does_not_see_the_runs_folder_says_so(tmp_path: Path) -> None:
    from backend.runs.process.ray_worker import train_under_ray  # noqa: PLC0415 - only this tier has Ray

    elsewhere = tmp_path / "elsewhere"
    with pytest.raises(PreflightError, match=r"does not see .*elsewhere\. Put ENCORE_HOME on storage"):
        train_under_ray({"folder": str(elsewhere), "attempt": 1, "job": {}})
    assert not elsewhere.exists()


def test_the_controller_records_the_problem_of_a_worker_that_cannot(folder: RunFolder) -> None:
    from backend.runs.process.ray_worker import FaultLog  # noqa: PLC0415 - see above

    FaultLog(folder, 2).after_exception(None, {0: Wrapped(ValueError("broke")), 1: Wrapped(TrainingError("No room."))})
    assert folder.problem.read_text() == "No room."
    assert [line["ranks"] for line in LineReader(folder.faults).new_lines()] == [[0, 1]]


def test_workers_of_an_earlier_attempt_are_ignored(folder: RunFolder) -> None:
    from backend.runs.process.ray_worker import FaultLog  # noqa: PLC0415 - see above

    FaultLog(folder, 1).after_exception(None, {0: Wrapped(TrainingError("Not needed any more."))})
    assert not folder.problem.exists()


def test_a_driver_frees_what_the_trainer_of_one_before_it_sent_for(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It had held all processors, and the run had waited for them for ever."""
    import ray  # noqa: PLC0415 - see above
    from ray.util.placement_group import placement_group  # noqa: PLC0415 - see above

    from backend.runs.process import driver  # noqa: PLC0415 - see above

    workers = [{"CPU": 1.0}, {"CPU": 1.0}]

    class Done:
        return_value = None

    class Trainer:
        def __init__(self, *_: object) -> None:
            pass

        def fit(self) -> Done:
            """Where all processors are free again."""
            assert placement_group(workers).wait(60)
            return Done()

    ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False)
    try:
        assert placement_group(workers).wait(60)
        monkeypatch.setattr(driver, "_trainer", Trainer)
        launch = LaunchPlan(run_id="run", machine=Machine(num_cpus=2, num_gpus=0), max_workers=2)
        driver.Driver().fit({}, launch.model_dump(mode="json"), str(folder.path), 2, None)
    finally:
        ray.shutdown()
