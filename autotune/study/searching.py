"""Runs a search from a new study to the tuned config, or goes on with a stored study."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from autotune.errors import UsageError
from autotune.model.events import Notice, OnEvent
from autotune.model.search_result import SearchResult
from autotune.runner.open_runner import RunnerFactory, open_runner
from autotune.spec import SearchSpec
from autotune.store.records import StudyRecord
from autotune.store.repository import Repository
from autotune.store.retry import Patience
from autotune.store.secrets import remember_arguments
from autotune.store.url import mask_url, network_file_system, resolve_url
from autotune.study import trust_record
from autotune.study.fingerprint import check_unchanged, module_digests, study_fingerprint, what_changed
from autotune.study.limits import check_limits, ended_words, with_limits
from autotune.study.open_study import OpenStudy
from autotune.study.publish import check_config_path
from autotune.study.status import is_final, overview_in
from autotune.study.stop import StopRequest
from autotune.study.stored_study import StoredStudy
from autotune.study.take_over import check_can_be_taken_over
from autotune.study.target import open_target


def search(
    spec: SearchSpec,
    *,
    on_event: OnEvent,
    stop: StopRequest | None = None,
    open_runner: RunnerFactory = open_runner,
) -> SearchResult:
    """Searches from a new study to the tuned config.

    Args:
        spec: The user's wishes.
        on_event: Receives every event.
        stop: Ends the search early.
        open_runner: Builds the runners; a simulation hands in another factory.

    Raises:
        StudyExistsError: The database has a study of this name.
        AutotuneError: The user, the machine or the database caused an error; the exit code distinguishes them.
    """
    check_config_path(spec)
    target = open_target(spec)
    with open_repository(spec.storage, Path(spec.cwd), on_event) as repository:
        study = StudyRecord(
            name=spec.study,
            spec=spec,
            fingerprint=study_fingerprint(spec, target),
            created_at=datetime.now(UTC),
            memory_cap_bytes=target.cap_bytes,
        )
        if spec.take_over:
            check_can_be_taken_over(repository.study(spec.take_over), study.fingerprint)
        remember_arguments(spec.command)
        repository.create_study(study)
        study = replace(study, spec=replace(spec, storage=repository.url))
        trust_record.keep(study)
        stored = StoredStudy(study, target, repository)
        return OpenStudy(stored, on_event=on_event, stop=stop or StopRequest(), open_runner=open_runner).run()


def resume(
    study: str,
    *,
    storage: str,
    cwd: Path,
    on_event: OnEvent,
    stop: StopRequest | None = None,
    unprotected: bool = False,
    budget_s: float | None = None,
    max_trials: int | None = None,
    open_runner: RunnerFactory = open_runner,
) -> SearchResult:
    """Goes on with a stored study under the limits of the study, or returns the result of a finished study.

    A finished study goes on too when a new limit is given, and the study keeps the limit. Tuners of several machines of
    one class may go on with a study together; the last tuner measures the finals.

    Args:
        study: Name of the study.
        storage: Database of the study.
        cwd: Working directory, for a relative path of the database.
        on_event: Receives every event.
        stop: Ends the search early.
        unprotected: Go on without layers and Landlock; the study may allow the same.
        budget_s: New limit of the wall time of all runs of the study, in seconds; None = as before.
        max_trials: New limit of the trials of all runs of the study; None = as before.
        open_runner: Builds the runners; a simulation hands in another factory.

    Raises:
        StudyNotFoundError: The database has no study of this name.
        StudyExistsError: Another tuner of this machine is searching the study.
        UsageError: The script, the command or the machine has changed; this user neither started the study nor agreed
            to the study; or a new limit is spent already.
    """
    with open_repository(storage, cwd, on_event, must_exist=True) as repository:
        record = repository.study(study)
        has_limits = budget_s is not None or max_trials is not None
        if is_final(record) and record.result is not None and not has_limits:
            result = SearchResult.from_document(record.result)
            on_event(Notice(message=ended_words(record, result.enough_s), is_warning=False))
            return result
        if has_limits:
            num_finished = overview_in(repository, record).num_finished
            check_limits(record, num_finished, budget_s=budget_s, max_trials=max_trials)
        stored = stored_for_runs(record, repository, unprotected=unprotected)
        new_spec = with_limits(stored.spec, budget_s=budget_s, max_trials=max_trials) if has_limits else None
        stop = stop or StopRequest()
        return OpenStudy(stored, on_event=on_event, stop=stop, open_runner=open_runner, new_spec=new_spec).run()


def stored_for_runs(record: StudyRecord, repository: Repository, *, unprotected: bool = False) -> StoredStudy:
    """A stored study with the whole command and the target, for further runs of the script on this machine.

    Args:
        record: The study.
        repository: Place of the study.
        unprotected: Run without layers and Landlock; the study may allow the same.

    Raises:
        UsageError: The script, the command or the machine has changed; or this user neither started the study nor
            agreed to the study.
        HostError: The device is missing or in use.
    """
    record = trust_record.with_whole_command(record)
    trust_record.check_trusted(record)
    record = replace(record, spec=replace(record.spec, unprotected=record.spec.unprotected or unprotected))
    spec = record.spec
    if not Path(spec.cwd).is_dir():
        raise UsageError(f"The folder {spec.cwd} of study {record.name!r} is not there.", "Resume it where it is.")
    target = open_target(spec)
    now = {"modules": module_digests(spec, record.facts.modules)} if record.facts is not None else {}
    # The fingerprint names the machine's device, or the device of the training.
    trains_on_cpu = record.facts is not None and record.facts.device == "cpu" and not target.device.is_cpu
    if trains_on_cpu and what_changed(record.fingerprint, study_fingerprint(spec, target)):
        target = target.on_cpu(spec)
    target = target if record.memory_cap_bytes is None else replace(target, cap_bytes=record.memory_cap_bytes)
    check_unchanged(record.name, record.fingerprint, {**study_fingerprint(spec, target), **now})
    return StoredStudy(record, target, repository)


def open_repository(storage: str, cwd: Path, on_event: OnEvent, *, must_exist: bool = False) -> Repository:
    """The repository for a command that measures; the user hears of a locked database and of risky file systems.

    Raises:
        StoreError: The database cannot be used, or is missing where it must exist.
    """
    url = resolve_url(storage, cwd)
    file_system = network_file_system(url)
    if file_system is not None:
        on_event(Notice(message=f"The database {mask_url(url)} lies on {file_system}, where SQLite may lose data."))
    message = f"The database {mask_url(url)} is locked or cannot be reached; it is waited for."
    patience = Patience(on_wait=lambda: on_event(Notice(message=message)))
    return Repository.open(url, must_exist=must_exist, patience=patience)
