"""Settings of a Ray that serves one run on one machine: nobody looks at its dashboard, and its idling costs steps.

Ray's servers, watchers and counters are made for clusters that many people share. On a laptop's processors they took a
tenth of a step's time. A cluster that was joined keeps the settings that its owner gave it.
"""

from __future__ import annotations

import os
from collections.abc import MutableMapping

_SERVERS = {
    # Counters that a dashboard would draw.
    "RAY_enable_metrics_collection": "0",
    "RAY_metrics_report_interval_ms": "600000",
    "RAY_TRAIN_METRICS_ENABLED": "0",
    "RAY_task_events_report_interval_ms": "0",
    "RAY_event_stats": "0",
    "RAY_io_context_monitor_probe_interval_ms": "60000",
    "RAY_event_stats_print_interval_ms": "0",
    "RAY_debug_dump_period_milliseconds": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    "REPORTER_UPDATE_INTERVAL_MS": "600000",
    "EVENT_AGENT_REPORT_INTERVAL_SECONDS": "60",
    "SCAN_EVENT_DIR_INTERVAL_SECONDS": "600",
    "NODE_STATS_UPDATE_INTERVAL_SECONDS": "600",
    # There are no nodes to add, and none that its owner takes away.
    "AUTOSCALER_UPDATE_INTERVAL_S": "60",
    "RAY_TRAIN_ENABLE_PREEMPTION_WATCHER": "0",
    # How often the log monitor looks for new files; below so many files it looks ten times a second.
    "RAY_LOG_MONITOR_MANY_FILES_THRESHOLD": "0",
    "LOG_NAME_UPDATE_INTERVAL_S": "2",
    # How often idle things are looked after.
    "RAY_raylet_report_resources_period_milliseconds": "500",
    "RAY_kill_idle_workers_interval_ms": "2000",
    "RAY_object_manager_timer_freq_ms": "1000",
    "RAY_raylet_check_gc_period_milliseconds": "2000",
    "RAY_raylet_check_for_unexpected_worker_disconnect_interval_ms": "2000",
    "RAY_memory_monitor_refresh_ms": "1000",
    "RAY_report_worker_backlog_interval_ms": "10000",
    # Processes that wait for work that a run does not have.
    "RAY_enable_worker_prestart": "0",
    "RAY_prestart_worker_first_driver": "0",
}


def make_quiet(environment: MutableMapping[str, str] | None = None) -> None:
    """Prepare this process's environment, which Ray's own processes and the workers inherit, for `ray.init`.

    What is set already is somebody's wish and stays.
    """
    environment = os.environ if environment is None else environment
    for name, value in _SERVERS.items():
        environment.setdefault(name, value)
