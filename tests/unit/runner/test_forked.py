"""What a trial gets where no process can be made that it could be forked from."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from autotune.runner.forked import ForkRunner
from tests.unit.facts import script_facts
from tests.unit.runner.test_prepared import job


class FullDisk:
    """A workspace in which nothing can be made."""

    has_layers = True

    def new_trial(self) -> None:
        raise OSError(28, "No space left on device")


def test_without_room_for_a_server_a_trial_is_started_cold_with_the_reason() -> None:
    reasons: list[str] = []
    cold: Any = SimpleNamespace(workspace=FullDisk(), start=lambda job, start_reason: reasons.append(start_reason))
    with ForkRunner(cold, script_facts()) as runner:
        runner.start(job())
    assert reasons == ["no server of the imports can be started: [Errno 28] No space left on device"]
