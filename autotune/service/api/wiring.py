"""Gives the routes the parts of the running application."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Request

from autotune.service.hub import Hub
from autotune.service.service_settings import ServiceSettings
from autotune.store.job_queue import JobQueue
from autotune.store.repository import Repository


def _queue(request: Request) -> JobQueue:
    queue: JobQueue = request.app.state.queue
    return queue


def _repository(request: Request) -> Repository:
    repository: Repository = request.app.state.repository
    return repository


def _hub(request: Request) -> Hub:
    hub: Hub = request.app.state.hub
    return hub


def _settings(request: Request) -> ServiceSettings:
    settings: ServiceSettings = request.app.state.settings
    return settings


Queue = Annotated[JobQueue, Depends(_queue)]
Studies = Annotated[Repository, Depends(_repository)]
TheHub = Annotated[Hub, Depends(_hub)]
Settings = Annotated[ServiceSettings, Depends(_settings)]
