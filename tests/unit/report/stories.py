"""Studies as they are told: an ordinary one, and one whose author and script wish the reader harm."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from autotune.measure.bottleneck import Bottleneck, BottleneckKind
from autotune.model.outcome import Outcome
from autotune.model.study_view import StudyView
from autotune.model.trial_records import FinalRecord, TrialRecord
from autotune.settings import Precision
from autotune.units import GIB

from ..facts import script_facts
from .examples import NATURAL, TUNED, failed, measured, search_result

NOW = datetime(2026, 11, 20, 10, 30, tzinfo=UTC)
HOSTILE = "\x1b[31m</title></style><script>own()</script><img src=x onerror='own()'>\"'&|`*_[a](b)\udcff\u202e\n# head"
"""Ends whatever it is put into: a title, a style sheet, an attribute, a table's cell, a line."""


def trial(number: int, settings: Any, result: Any, **changes: Any) -> TrialRecord:
    stage = "baseline" if number == 0 else "workers"
    values = {"attempt": 1, "stage": stage, "settings": settings, "result": result}
    values |= {"started_at": NOW, "finished_at": NOW, "optuna_told": True}
    return TrialRecord(number=number, **{**values, **changes})


WORKERS = replace(NATURAL, num_workers=2)
MORE_WORKERS = replace(NATURAL, num_workers=4)
TRIALS = (
    trial(0, NATURAL, measured(1000.0, peak_memory_bytes=10 * GIB, durations_s={"imports": 3.0, "window": 8.0})),
    trial(1, WORKERS, measured(2000.0, peak_memory_bytes=11 * GIB)),
    trial(2, MORE_WORKERS, measured(1900.0, outcome=Outcome.RACED_OUT, reason="It cannot be the fastest.")),
    trial(3, TUNED, measured(2410.0, peak_memory_bytes=12 * GIB)),
    trial(4, replace(TUNED, batch_size=256), failed(Outcome.OVER_CAP, "It held 17 GiB.", peak_memory_bytes=17 * GIB)),
    trial(5, replace(TUNED, precision=Precision.FP16), failed(Outcome.CRASHED, "It raised.", log_tail="a\nb <c>\n")),
)
RESULT = search_result(best=replace(search_result().best, trial=3), baseline=search_result().baseline)


def bottleneck(kind: BottleneckKind, wait: float, ceiling: float) -> Bottleneck:
    return Bottleneck(kind=kind, data_wait_fraction=wait, ceiling_samples_per_second=3300.0, ceiling_fraction=ceiling)


def view(**changes: Any) -> StudyView:
    """A finished study of six trials, with some fields changed."""
    values: dict[str, Any] = {
        "study": "train",
        "status": "improved",
        "is_live": False,
        "is_final": True,
        "created_at": NOW,
        "command": ("python", "train.py", "--data", "photos"),
        "script": "/home/ada/photos/train.py",
        "cwd": "/home/ada/photos",
        "storage": "sqlite:////home/ada/photos/studies/autotune.db",
        "max_trials": 40,
        "effective_batch": "fixed",
        "budget_s": 900.0,
        "spent_s": 60.0,
        "memory_cap_bytes": 16 * GIB,
        "facts": script_facts(),
        "script_settings": NATURAL,
        "refused": (("compile", "no compiler"),),
        "machine": {"cpu": "EPYC", "memory_bytes": str(64 * GIB), "torch": "2.13.0"},
        "result": RESULT,
        "trials": TRIALS,
        "finals": (
            FinalRecord(round=0, number=0, settings=NATURAL, result=measured(1290.0), finished_at=NOW),
            FinalRecord(round=0, number=3, settings=TUNED, result=measured(3100.0), finished_at=NOW),
        ),
        "baseline_number": 0,
        "best_number": 3,
        "before": bottleneck(BottleneckKind.LOADER, 0.6, 0.35),
        "after": bottleneck(BottleneckKind.COMPUTE, 0.01, 0.98),
        "importances": {"num_workers": 0.75, "precision": 0.25},
    }
    return StudyView(**{**values, **changes})


def hostile_story() -> StudyView:
    """The same with a hostile text in every place that a user, a script or a machine fills."""
    knobs = ((HOSTILE, HOSTILE), ("plain", "1"))
    trials = tuple(
        replace(
            told,
            settings=replace(told.settings, knobs=knobs if told.number % 2 else ()),
            result=replace(told.result, reason=HOSTILE, log_tail=HOSTILE * 3),
            stage=HOSTILE,
            environment={HOSTILE: HOSTILE},
        )
        for told in TRIALS
    )
    return view(
        study=HOSTILE,
        command=("python", HOSTILE),
        script=HOSTILE,
        cwd=HOSTILE,
        storage=HOSTILE,
        effective_batch=HOSTILE,
        refused=((HOSTILE, HOSTILE),),
        machine={HOSTILE: HOSTILE},
        trials=trials,
        result=replace(RESULT, study=HOSTILE, notes=(HOSTILE,), reason=HOSTILE, config=HOSTILE, samples_unit=HOSTILE),
        importances={HOSTILE: 1.0},
    )
