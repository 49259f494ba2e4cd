"""Events of a search as its stream tells them."""

from __future__ import annotations

OWN = {"num_workers": 0, "precision": "fp32", "knobs": {}}


def trial(number, *, rate=None, outcome="ok", reason="", **settings):
    """The events of one trial."""
    values = {**OWN, **settings}
    head = {"number": number, "settings": values, "stage": "workers"}
    end = {
        "is_best": False,
        "outcome": outcome,
        "reason": reason,
        "place": "",
        "samples_per_second": rate,
        "interval": [rate, rate] if rate else None,
        "data_wait_fraction": 0.4 if rate else None,
        "peak_memory_bytes": 3 << 30,
        "wall_s": 9.0,
    }
    return [{"event": "trial_started", **head}, {"event": "trial_finished", **head, **end}]


STARTED = {
    "event": "search_started",
    "study": "train",
    "script": "train.py",
    "max_trials": 20,
    "budget_s": 300.0,
    "spent_s": 10.0,
    "memory_cap_bytes": 16 << 30,
}
PROBED = {"event": "probe_finished", "natural": OWN, "samples_unit": "samples"}
SEARCH = [
    STARTED,
    {"event": "probe_started"},
    PROBED,
    *trial(0, rate=1000.0),
    *trial(1, rate=1860.0, num_workers=4),
    *trial(2, rate=1500.0, outcome="raced_out", num_workers=2),
    *trial(3, outcome="crashed", reason="RuntimeError: no", precision="bf16"),
    *trial(4, outcome="of_a_newer_release"),
    {"event": "of_a_newer_release", "number": "x"},
]
RUNNING = {"event": "trial_started", "number": 5, "settings": {**OWN, "num_workers": 6}, "stage": "workers"}
PROGRESS = {
    "event": "trial_progress",
    "gauges": {
        "phase": "window",
        "num_steps": 120,
        "samples_per_second": 1700.0,
        "data_wait_fraction": 0.25,
        "cpu_fraction": 0.9,
        "device_utilization": None,
        "memory_bytes": 4 << 30,
    },
}
