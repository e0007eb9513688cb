"""Why an application did not come up, in the words of the process that met it."""

from __future__ import annotations

from typing import Any

import pytest

# Ray trips over its own old settings while it is imported.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:ray", "ignore::ResourceWarning")

SENTENCE = "The bucket takes of ENCORE_STORAGE does not exist. Make it, or correct ENCORE_STORAGE."
REPORT = f"""\
The deployment failed to start 3 times in a row. This may be due to a problem with its constructor or initial health \
check failing. See controller logs for details. Error:
ray::ServeReplica:encore:SpeechEngine.initialize_and_get_metadata() (pid=1, ip=10.0.0.2, actor_id=1)
  File "/tmp/backend/serving/deploy/ray_deployments.py", line 80, in __init__
    self._synthesizer = build_synthesizer(settings)
training.errors.StorageError: {SENTENCE}
"""


@pytest.mark.parametrize(("said", "expected"), [(REPORT, SENTENCE.rstrip(".")), ("", "Serve's own words")])
def test_the_last_words_are_encores_own_where_there_are_any(
    said: str, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ray import serve  # noqa: PLC0415 - seconds to load
    from ray.serve import schema  # noqa: PLC0415

    from backend.serving.deploy.ray_application import why_not_started  # noqa: PLC0415

    deployment = schema.DeploymentStatusOverview(
        status=schema.DeploymentStatus.DEPLOY_FAILED,
        status_trigger=schema.DeploymentStatusTrigger.REPLICA_STARTUP_FAILED,
        replica_states={},
        message=said,
    )
    application = schema.ApplicationStatusOverview(
        status=schema.ApplicationStatus.DEPLOY_FAILED,
        message="",
        last_deployed_time_s=0.0,
        deployments={"SpeechEngine": deployment},
    )
    status: Any = schema.ServeStatus(applications={"encore": application})
    monkeypatch.setattr(serve, "status", lambda: status)
    assert why_not_started("encore", RuntimeError("failed:\nServe's own words.")) == expected
