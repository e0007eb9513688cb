"""From recordings to a fine-tune under way, in one call: what the page's button and `app.py pipeline` do."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from backend.dataset.clips.build_job import BuildJob
from backend.dataset.clips.views import BuildProgress
from backend.runs.planning.plan import RunPlan
from backend.runs.planning.request import RunRequest
from backend.runs.runs import Runs
from backend.voices.consent import Consent, require_consent

if TYPE_CHECKING:
    from backend.dataset.datasets import Datasets


def build_and_start(
    datasets: Datasets,
    runs: Runs,
    build: BuildJob,
    request: RunRequest,
    consent: Consent | None,
    *,
    on_progress: Callable[[BuildProgress], None],
    on_plan: Callable[[RunPlan], None] | None = None,
) -> str:
    """Check the request, build the dataset, plan the run on it and start it; return the run's id.

    Args:
        datasets: of the home.
        runs: of the same home.
        build: the dataset to build.
        request: the run, without a dataset.
        consent: for the recordings of the build that its request has none for.
        on_progress: hears how the build is doing; where it raises, the build is cancelled.
        on_plan: hears the plan before the run starts.

    Raises:
        EncoreError: any of these cannot be done. What would be refused whatever the dataset holds is refused first.
    """
    if not build.consents:
        require_consent(consent)
    build = build.agreed_by(consent)
    runs.plan(request).require_possible()
    datasets.build_and_wait(build, on_progress)
    plan = runs.plan(request.model_copy(update={"dataset": build.name}))
    if on_plan is not None:
        on_plan(plan)
    return runs.start(plan, None)
