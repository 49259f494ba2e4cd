"""What every database behind a Repository must do when several processes use it, or die while they do."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from autotune.errors import StudyExistsError
from autotune.store.records import Owner
from autotune.store.repository import Repository

from . import store_samples as samples
from .store_processes import Child
from .store_samples import NOW


class LeaseContract:
    """Leases, kills and races; every subclass has a fixture `url`, of an empty database."""

    @pytest.fixture
    def repository(self, url: str) -> Iterator[Repository]:
        with Repository.open(url) as repository:
            yield repository

    @pytest.fixture
    def children(self) -> Iterator[list[Child]]:
        children: list[Child] = []
        yield children
        for child in children:
            child.kill()

    # The lease

    def test_a_live_tuner_keeps_others_out_and_is_named(self, repository: Repository, children: list[Child]) -> None:
        repository.create_study(samples.study("photos"))
        children.append(Child("hold", repository.url, "photos"))
        children[0].read()
        # However old its sign of life: on this machine the process table decides.
        later = datetime.now(UTC) + timedelta(days=1)
        with pytest.raises(StudyExistsError, match=f"by process {children[0].process.pid} on "):
            repository.acquire_lease("photos", Owner.this_process(), now=later)

    def test_a_tuner_that_was_killed_is_replaced_at_once(self, repository: Repository, children: list[Child]) -> None:
        repository.create_study(samples.study("photos"))
        children.append(Child("hold", repository.url, "photos"))
        children[0].read()
        children[0].process.kill()
        os.waitid(os.P_PID, children[0].process.pid, os.WEXITED | os.WNOWAIT)  # dead, and still a zombie
        repository.acquire_lease("photos", Owner.this_process(), now=datetime.now(UTC))
        assert repository.live_owners("photos", now=datetime.now(UTC)) == (Owner.this_process(),)

    def test_a_process_that_got_the_number_of_a_dead_one_is_not_taken_for_it(self, repository: Repository) -> None:
        repository.create_study(samples.study("photos"))
        here = Owner.this_process()
        dead = replace(here, start_ticks=(here.start_ticks or 0) - 1)
        repository.acquire_lease("photos", dead, now=NOW)
        repository.acquire_lease("photos", here, now=NOW)
        assert repository.live_owners("photos", now=NOW) == (here,)

    def test_a_tuner_of_another_container_is_replaced_only_when_its_last_sign_of_life_is_old(
        self, repository: Repository
    ) -> None:
        repository.create_study(samples.study("photos"))
        repository.acquire_lease("photos", samples.beside(), now=NOW)
        repository.renew_lease("photos", samples.beside(), now=NOW + timedelta(seconds=60))
        with pytest.raises(StudyExistsError, match="on container-7"):
            repository.acquire_lease("photos", Owner.this_process(), now=NOW + timedelta(seconds=179))
        repository.acquire_lease("photos", Owner.this_process(), now=NOW + timedelta(seconds=181))
        with pytest.raises(StudyExistsError, match="taken over"):
            repository.renew_lease("photos", samples.beside(), now=NOW + timedelta(seconds=182))

    def test_a_sign_of_life_from_the_future_counts_as_fresh(self, repository: Repository) -> None:
        repository.create_study(samples.study("photos"))
        repository.acquire_lease("photos", samples.beside(), now=NOW)
        with pytest.raises(StudyExistsError):
            repository.acquire_lease("photos", Owner.this_process(), now=NOW - timedelta(days=1))

    def test_an_owner_whose_start_is_unknown_holds_its_lease_too(self, repository: Repository) -> None:
        repository.create_study(samples.study("photos"))
        owner = replace(samples.beside(Owner.this_process().machine), boot_id="", start_ticks=None)
        repository.acquire_lease("photos", owner, now=NOW)
        repository.renew_lease("photos", owner, now=NOW + timedelta(seconds=60))
        with pytest.raises(StudyExistsError):
            repository.acquire_lease("photos", Owner.this_process(), now=NOW + timedelta(seconds=90))
        repository.release_lease("photos", owner)
        assert repository.live_owners("photos", now=NOW) == ()

    def test_the_owner_may_take_its_lease_again_and_nobody_else_gives_it_up(self, repository: Repository) -> None:
        repository.create_study(samples.study("photos"))
        repository.acquire_lease("photos", samples.beside(), now=NOW)
        repository.acquire_lease("photos", samples.beside(), now=NOW)
        repository.release_lease("photos", Owner.this_process())
        assert repository.live_owners("photos", now=NOW) == (samples.beside(),)
        repository.release_lease("photos", samples.beside())
        repository.acquire_lease("photos", Owner.this_process(), now=NOW)

    # Several machines

    def test_tuners_of_several_machines_may_search_one_study(self, repository: Repository) -> None:
        repository.create_study(samples.study("photos"))
        here = Owner.this_process()
        repository.acquire_lease("photos", here, now=NOW)
        for host in ("gpu-7", "gpu-8"):
            repository.acquire_lease("photos", replace(samples.elsewhere(host), boot_id=host), now=NOW)
        assert [owner.host for owner in repository.live_owners("photos", now=NOW) if owner != here] == [
            "gpu-7",
            "gpu-8",
        ]
        soon = NOW + timedelta(seconds=100)
        repository.renew_lease("photos", replace(samples.elsewhere("gpu-8"), boot_id="gpu-8"), now=soon)
        later = repository.live_owners("photos", now=NOW + timedelta(seconds=150))
        assert [owner.host for owner in later if owner != here] == ["gpu-8"]

    def test_the_last_tuner_that_leaves_is_told_so_and_keeps_its_lease(self, repository: Repository) -> None:
        repository.create_study(samples.study("photos"))
        here = Owner.this_process()
        for owner in (here, samples.elsewhere()):
            repository.acquire_lease("photos", owner, now=NOW)
        assert repository.leave_to_others("photos", here, now=NOW)
        assert not repository.leave_to_others("photos", samples.elsewhere(), now=NOW)
        assert repository.live_owners("photos", now=NOW) == (samples.elsewhere(),)
        assert repository.study("photos").spent_s == samples.study("photos").spent_s

    def test_of_several_tuners_that_leave_at_once_exactly_one_is_the_last(
        self, repository: Repository, children: list[Child]
    ) -> None:
        repository.create_study(samples.study("photos"))
        children.extend(Child("leave", repository.url, "photos", str(number)) for number in range(3))
        assert [child.read() for child in children] == ["ready"] * 3
        for child in children:
            child.go()
        assert sorted(child.read() for child in children) == ["last", "left", "left"]

    # Races

    def test_of_several_processes_that_want_a_dead_owners_lease_exactly_one_gets_it(
        self, repository: Repository, children: list[Child]
    ) -> None:
        names = [f"study {number}" for number in range(20)]
        for name in names:
            repository.create_study(samples.study(name))
        for name in names[::2]:  # half are dead owners' leases, half are free
            repository.acquire_lease(name, samples.elsewhere(), now=NOW)
        children.extend(Child("race", repository.url, *names) for _ in range(3))
        assert [child.read() for child in children] == ["ready"] * 3
        for child in children:
            child.go()
        won = [child.read() for child in children]
        assert sorted(" ".join(filter(None, won)).replace("study ", "").split(), key=int) == [str(n) for n in range(20)]

    # Processes that die, and processes that meet

    def test_a_kill_in_the_middle_of_a_commit_loses_that_trial_only(
        self, repository: Repository, children: list[Child]
    ) -> None:
        repository.create_study(samples.study("photos"))
        children.append(Child("hang_in_commit", repository.url, "photos"))
        children[0].read()
        children[0].kill()
        assert repository.trials("photos") == (samples.trial(0), samples.trial(1))
        repository.record_trial("photos", samples.trial(2))
        assert len(repository.trials("photos")) == 3

    def test_a_kill_at_any_moment_loses_no_trial_that_was_stored(
        self, repository: Repository, children: list[Child]
    ) -> None:
        repository.create_study(samples.study("photos"))
        for num_stored in (1, 4, 9):
            child = Child("record_forever", repository.url, "photos")
            children.append(child)
            stored = [child.read() for _ in range(num_stored)]
            child.kill()
            numbers = [trial.number for trial in repository.trials("photos")]
            assert numbers == list(range(len(numbers)))
            assert len(numbers) >= len(stored)

    def test_several_processes_may_open_an_empty_database_at_once(self, url: str, children: list[Child]) -> None:
        children.extend(Child("create", url) for _ in range(3))
        assert [child.read() for child in children] == ["ready"] * 3
        for child in children:
            child.go()
        assert [child.read() for child in children] == ["done"] * 3
