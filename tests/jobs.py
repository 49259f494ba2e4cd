"""Jobs from flat fields, those of the request among them."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

from autotune.protocol.job import MeasurementRequest, TrialJob

REQUESTED = frozenset(field.name for field in fields(MeasurementRequest))


def job_of(**values: Any) -> TrialJob:
    """A job whose request has the fields of that name."""
    asked = {name: value for name, value in values.items() if name in REQUESTED}
    others = {name: value for name, value in values.items() if name not in REQUESTED}
    return TrialJob(request=MeasurementRequest(**asked), **others)


def changed(job: TrialJob, **values: Any) -> TrialJob:
    """The job with other values of some fields, those of the request among them."""
    asked = {name: value for name, value in values.items() if name in REQUESTED}
    others = {name: value for name, value in values.items() if name not in REQUESTED}
    return replace(job, request=replace(job.request, **asked), **others)
