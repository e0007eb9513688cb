"""The Ray Serve application: ingresses, replicas that speak, the home, and the bounds of each."""

from __future__ import annotations

import contextlib
import re
from typing import Any

import ray
from ray import serve
from ray.exceptions import RayError
from ray.serve.config import AutoscalingConfig, AutoscalingPolicy, BackpressureConfig
from ray.serve.exceptions import RayServeException
from ray.serve.schema import LoggingConfig

from backend.serving.deploy.autoscaling import SlotPolicy
from backend.serving.deploy.proxy import environment
from backend.serving.deploy.ray_deployments import (
    API_DEPLOYMENT,
    ENGINE_DEPLOYMENT,
    HOME_DEPLOYMENT,
    ApiIngress,
    HomeReplica,
    SpeechEngine,
)
from backend.serving.errors import ServingError
from backend.serving.settings import ServeSettings

HEALTH_CHECK_SECONDS, HEALTH_TIMEOUT_SECONDS = 1.0, 60.0
"""A process that has died is noticed by the next look at it. One that is busy with something else answers late and is
not ill."""

_LOOK_BACK_SECONDS = 15.0
"""Over which the reports of replicas are averaged; Ray sends them every ten seconds."""

_OWN_ERROR = re.compile(r"^(?:backend|training)(?:\.\w+)+: (.+)$", re.MULTILINE)
"""The last line of a report of Python's about an error of Encore's, which is a sentence for the user."""

_MAX_REASON = 400
_MAX_START_ATTEMPTS = 3
_MAX_API_REQUESTS = 256
_MAX_HOME_CALLS = 1024
_MAX_API_QUEUED = 64


def build_application(settings: ServeSettings) -> serve.Application:
    """Describe the application; nothing is started."""
    # Serve types its decorator for use without arguments only as a function of functions.
    deploy: Any = serve.deployment
    # Once, beside the database. It answers each call in a thread; how many there may be is decided by the ingresses.
    home = deploy(HomeReplica).options(
        name=HOME_DEPLOYMENT,
        num_replicas=1,
        max_ongoing_requests=_MAX_HOME_CALLS,
        ray_actor_options={"num_cpus": 0, "resources": {settings.home_resource or _this_node(): 0.001}},
        # Each ingress asks every few seconds; the log, which is shown to whoever serves, would hold little else.
        logging_config=LoggingConfig(enable_access_log=False),
        **_common_options(settings),
    )
    api = deploy(serve.ingress()(ApiIngress)).options(
        name=API_DEPLOYMENT,
        num_replicas=settings.num_ingresses,
        max_replicas_per_node=max_on_one_machine(settings.num_ingresses, _num_machines()),
        max_ongoing_requests=_MAX_API_REQUESTS,
        max_queued_requests=_MAX_API_QUEUED,
        backpressure_config=BackpressureConfig(status_code=429, retry_after_s=settings.retry_after_seconds),
        ray_actor_options={"num_cpus": 0},
        **_common_options(settings),
    )
    application: serve.Application = api.bind(settings, build_speech(settings), home.bind(settings))
    return application


def build_speech(settings: ServeSettings) -> serve.Application:
    """Describe the part of it that speaks, which is an application of its own for those who ask by Serve's handles."""
    deploy: Any = serve.deployment
    engine = deploy(SpeechEngine).options(
        name=ENGINE_DEPLOYMENT,
        # Twice what it serves: who of them is refused is decided there, fairly, see `FairShare`.
        max_ongoing_requests=2 * settings.engine.max_requests,
        max_queued_requests=settings.max_queued,
        ray_actor_options={"num_cpus": settings.num_cpus, "num_gpus": settings.num_gpus},
        **_common_options(settings),
        **_replica_options(settings),
    )
    application: serve.Application = engine.bind(settings.engine)
    return application


def start_application(settings: ServeSettings) -> None:
    """Start or replace the application on the cluster that was joined; returns when it can speak.

    Raises:
        ServingError: it does not come up, with Serve's own words.
    """
    try:
        serve.start(
            http_options={"host": settings.host, "port": settings.port},
            # Without effect where Serve runs already.
            controller_options={"runtime_env": {"env_vars": environment(settings.trusted_proxies)}},
        )
        # Named, because without a name all other applications of the cluster would be deleted.
        serve.run(build_application(settings), name=settings.name, route_prefix=settings.route_prefix, blocking=False)
    except (RuntimeError, RayError, ValueError) as error:
        raise ServingError(
            f"The speech application did not start: {why_not_started(settings.name, error)}. Ray's log "
            "(/tmp/ray/session_latest/logs/serve, on each of its machines) has more."
        ) from error


def why_not_started(name: str, error: Exception) -> str:
    """What a process of the application met that does not come up, without the period; else Serve's own last words.

    Serve itself names only the deployment, and its log is on another machine.
    """
    said: list[str] = []
    with contextlib.suppress(RayError, RayServeException):  # Serve is what was lost
        if (application := serve.status().applications.get(name)) is not None:
            said = [deployment.message for deployment in application.deployments.values()]
    own = _OWN_ERROR.findall("\n".join(said))
    words = own or str(error).strip().splitlines() or [type(error).__name__]
    return str(words[-1])[:_MAX_REASON].rstrip(".")


def stop_application(settings: ServeSettings, *, is_own_cluster: bool) -> None:
    """End the application; Serve itself only where the cluster was started for it."""
    if is_own_cluster:
        serve.shutdown()  # type: ignore[no-untyped-call]
    else:
        # After a minute the others go on without this program, for as long as somebody listens.
        with contextlib.suppress(TimeoutError):
            serve.delete(settings.name)


def _common_options(settings: ServeSettings) -> dict[str, Any]:
    """Of all deployments: how they are looked after, and how they end."""
    return {
        "health_check_period_s": HEALTH_CHECK_SECONDS,
        "health_check_timeout_s": HEALTH_TIMEOUT_SECONDS,
        "graceful_shutdown_timeout_s": settings.drain_seconds,
        "max_constructor_retry_count": _MAX_START_ATTEMPTS,
    }


def _replica_options(settings: ServeSettings) -> dict[str, Any]:
    if settings.min_replicas == settings.max_replicas:
        return {"num_replicas": settings.min_replicas}
    return {
        "autoscaling_config": AutoscalingConfig(
            min_replicas=settings.min_replicas,
            max_replicas=settings.max_replicas,
            policy=AutoscalingPolicy(  # type: ignore[no-untyped-call]
                policy_function=f"{SlotPolicy.__module__}:{SlotPolicy.__qualname__}",
                policy_kwargs={"num_slots": settings.engine.num_slots},
            ),
            look_back_period_s=_LOOK_BACK_SECONDS,
            upscale_delay_s=settings.upscale_seconds,
            downscale_delay_s=settings.downscale_seconds,
        )
    }


def max_on_one_machine(num_ingresses: int, num_machines: int) -> int:
    """How many ingresses a machine may have, so that none of several machines has all of them.

    They need no processor, and Ray, left to itself, puts most of them on one machine. Half of them is as strict as
    two machines allow, to which a cluster may shrink.
    """
    return -(-num_ingresses // 2) if num_machines > 1 else num_ingresses


def _num_machines() -> int:
    # Serve's `build` only describes the application, where there is no Ray.
    return sum(node["Alive"] for node in _nodes()) if ray.is_initialized() else 1


def _nodes() -> list[dict[str, Any]]:
    nodes: list[dict[str, Any]] = ray.nodes()  # type: ignore[no-untyped-call]
    return nodes


def _this_node() -> str:
    """The resource that only this machine has."""
    here = ray.get_runtime_context().get_node_id()
    node = next(node for node in _nodes() if node["NodeID"] == here)
    names: list[str] = list(node["Resources"])
    return next(name for name in names if name.startswith("node:") and "__" not in name)
