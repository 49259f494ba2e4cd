"""What other processes do to the database in the tests: `python store_children.py VERB URL ARGUMENT...`.

A child prints a line when it is ready, and goes on when it reads one.
"""

from __future__ import annotations

import sys
import time
from datetime import UTC, datetime

from sqlalchemy import event
from store_samples import trial

from autotune.errors import StudyExistsError
from autotune.store.records import Owner
from autotune.store.repository import Repository


def say(line: str) -> None:
    print(line, flush=True)


def create(url: str) -> None:
    """Opens a database that several processes open at the same moment."""
    import optuna

    say("ready")
    sys.stdin.readline()
    with Repository.open(url) as repository:
        study = optuna.create_study(storage=repository.optuna_storage)
        study.tell(study.ask(), 1.0)
    say("done")


def race(url: str, *names: str) -> None:
    """Wants the lease of every study, and stays alive until told to end."""
    with Repository.open(url) as repository:
        say("ready")
        sys.stdin.readline()
        won = []
        for name in names:
            try:
                repository.acquire_lease(name, Owner.this_process(), now=datetime.now(UTC))
                won.append(name)
            except StudyExistsError:
                continue
        say(" ".join(won))
        sys.stdin.readline()


def leave(url: str, name: str, machine: str) -> None:
    """Searches the study as a tuner of that machine, and leaves it when told to."""
    owner = Owner(host=machine, boot_id=machine, pid=1, start_ticks=1)
    with Repository.open(url) as repository:
        repository.acquire_lease(name, owner, now=datetime.now(UTC))
        say("ready")
        sys.stdin.readline()
        say("left" if repository.leave_to_others(name, owner, now=datetime.now(UTC)) else "last")


def hold(url: str, name: str) -> None:
    """Holds a lease until it is killed."""
    with Repository.open(url) as repository:
        repository.acquire_lease(name, Owner.this_process(), now=datetime.now(UTC))
        say("ready")
        time.sleep(600)


def hang_in_commit(url: str, name: str) -> None:
    """Records trials 0 and 1, and is stuck in the middle of trial 2: written, not committed."""
    repository = Repository.open(url)
    repository.record_trial(name, trial(0))
    repository.record_trial(name, trial(1))

    @event.listens_for(repository._database._engine, "commit")
    def _stuck(_connection: object) -> None:
        say("ready")
        time.sleep(600)

    repository.record_trial(name, trial(2))


def record_forever(url: str, name: str) -> None:
    """Records one trial after the other and says each number once it is stored."""
    repository = Repository.open(url)
    number = 0
    while True:
        repository.record_trial(name, trial(number))
        say(str(number))
        number += 1


if __name__ == "__main__":
    verbs = {f.__name__: f for f in (create, race, leave, hold, hang_in_commit, record_forever)}
    verbs[sys.argv[1]](*sys.argv[2:])
