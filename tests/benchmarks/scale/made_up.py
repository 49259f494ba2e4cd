"""A database with one study of many made-up trials, as a long search on an accelerator would leave it."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import Any

from optuna.distributions import distribution_to_json
from optuna.storages import RDBStorage
from sqlalchemy import MetaData, insert

from autotune.model.outcome import Outcome
from autotune.model.result import TrialResult
from autotune.model.trial_records import TrialRecord
from autotune.search.attributes import candidate_attrs, ending_attrs
from autotune.search.optuna_values import verdict
from autotune.search.plan_state import Candidate, PlanLimits
from autotune.search.search_stopping import NEIGHBOUR_STAGE, SAMPLED_STAGE
from autotune.search.study_search import Proposal, Search
from autotune.search.study_trials import UNNAMED_CONSTRAINTS, _distribution
from autotune.settings import Settings
from autotune.space.derive import derive_space
from autotune.space.search_space import SearchSpace
from autotune.spec import SearchSpec
from autotune.store import rows, tables
from autotune.store.engine import open_engine, transaction
from autotune.store.records import StudyRecord
from autotune.store.repository import Repository
from autotune.units import GIB
from tests.contract.store_samples import ok_result
from tests.unit.facts import gpu_machine, script_facts

STUDY = "train"
CAP_BYTES = 16 * GIB
STARTED = datetime(2026, 3, 1, tzinfo=UTC)
RACED_OUT_SHARE, CRASHED_SHARE = 0.30, 0.02
"""Of all trials, about as a search has them; what is compiled with the whole batch is over the cap."""
OPTUNAS = (
    "trials",
    "trial_values",
    "trial_params",
    "trial_user_attributes",
    "trial_system_attributes",
)
"""Tables of Optuna's."""

NUM_SOUND = 30
"""The first so many trials are measured in full: the plan's."""

FACTS = script_facts(device="cuda")
LIMITS = PlanLimits(usable_cpus=16.0, cap_bytes=CAP_BYTES)


def space() -> SearchSpace:
    """What the trials were drawn from: millions of settings on an accelerator."""
    return derive_space(FACTS, gpu_machine(), spec("/nowhere"))


def spec(folder: str) -> SearchSpec:
    """The search whose study it is."""
    return SearchSpec(command=("python", "train.py"), script="train.py", cwd=folder, study=STUDY, max_trials=1_000_000)


def open_search(repository: Repository) -> Search:
    """The search of the study, as a resume opens it."""
    return Search(repository.optuna_storage, STUDY, space(), LIMITS, seed=0, max_trials=1_000_000, spend_all=True)


def write_database(path: Path, num_trials: int) -> None:
    """Makes the database.

    Args:
        path: The SQLite file, which is not there yet.
        num_trials: Trials of the study.
    """
    url, made = f"sqlite:///{path}", space()
    with Repository.open(url) as repository:
        asked = spec(str(path.parent))
        repository.create_study(StudyRecord(name=STUDY, spec=asked, fingerprint={}, created_at=STARTED))
        repository.save_probe(
            STUDY,
            facts=FACTS,
            script_settings=made.script_settings,
            refused=(),
            memory_cap_bytes=CAP_BYTES,
            layer_folder="",
        )
        open_search(repository)
        records = [*_trials(made, num_trials)]
        _write_ours(url, records)
        _write_optunas(repository.optuna_storage, made, records)


def _write_ours(url: str, records: list[TrialRecord]) -> None:
    engine = open_engine(url)
    with transaction(engine) as connection:
        study_id = connection.execute(tables.studies.select()).scalar_one()
        connection.execute(
            insert(tables.trials),
            [{"study_id": study_id, **rows.trial_to_row(record)} for record in records],
        )
    engine.dispose()


def _write_optunas(storage: RDBStorage, made: SearchSpace, records: list[TrialRecord]) -> None:
    """The same trials in Optuna's tables, past its methods: these take 50 ms for each, and more as they become many."""
    distributions = {name: _distribution(name, made) for name in made.domains}
    as_json = {name: distribution_to_json(one) for name, one in distributions.items()}
    study_id = storage.get_study_id_from_name(STUDY)
    tables: dict[str, list[dict[str, Any]]] = {name: [] for name in OPTUNAS}
    for trial_id, record in enumerate(records, 1):
        told = verdict(record.result, CAP_BYTES)
        assert told is not None
        key = {"trial_id": trial_id}
        moments = {"datetime_start": record.started_at, "datetime_complete": record.finished_at}
        state = {"study_id": study_id, "number": record.number, "state": "COMPLETE"}
        tables["trials"].append(key | state | moments)
        tables["trial_values"].append(key | {"objective": 0, "value": told.value, "value_type": "FINITE"})
        tables["trial_params"] += [
            key
            | {"param_name": name, "distribution_json": as_json[name]}
            | {"param_value": distributions[name].to_internal_repr(value)}
            for name, value in made.told_params(record.settings).items()
        ]
        candidate = Candidate(settings=record.settings, stage=record.stage)
        tables["trial_user_attributes"] += _attributes(
            key, {**candidate_attrs(candidate), **ending_attrs(record.result, told)}
        )
        named = {f"constraints:{name}": value for name, value in told.constraints.items()}
        unnamed = {UNNAMED_CONSTRAINTS: list(told.constraints.values())}
        tables["trial_system_attributes"] += _attributes(key, unnamed | named)
    metadata = MetaData()
    metadata.reflect(storage.engine, only=OPTUNAS)
    with storage.engine.begin() as connection:
        for name, values in tables.items():
            connection.execute(insert(metadata.tables[name]), values)


def _attributes(key: dict[str, int], values: dict[str, Any]) -> list[dict[str, Any]]:
    return [{**key, "key": name, "value_json": json.dumps(value)} for name, value in values.items()]


def _trials(made: SearchSpace, num_trials: int) -> Iterator[TrialRecord]:
    """The trials of the plan, then as many others at random as are asked for, each with an ending."""
    draw = random.Random(0)
    for number, (settings, stage) in enumerate(islice(_tried(made, draw), num_trials)):
        moment = STARTED + timedelta(seconds=20 * number)
        yield TrialRecord(
            number=number,
            settings=settings,
            stage=stage,
            result=ending(settings, number),
            started_at=moment,
            finished_at=moment + timedelta(seconds=19),
            environment={"OMP_NUM_THREADS": "2", "LANG": "C.UTF-8"},
            optuna_told=True,
        )


def _tried(made: SearchSpace, draw: random.Random) -> Iterator[tuple[Settings, str]]:
    """Different settings and their stages: what the plan tries until it is through, then others at random."""
    known, search = set[Settings](), Search(None, STUDY, made, LIMITS, seed=0, max_trials=1_000, spend_all=True)
    while isinstance(proposal := search.ask(), Proposal) and proposal.stage not in (SAMPLED_STAGE, NEIGHBOUR_STAGE):
        search.tell(proposal.number, ending(proposal.settings, proposal.number))
        known.add(proposal.settings)
        yield proposal.settings, proposal.stage
    while True:
        settings = made.settings({name: draw.choice(values) for name, values in made.allowed.items()})
        if settings not in known and made.why_not(settings) is None:
            known.add(settings)
            yield settings, SAMPLED_STAGE


def ending(settings: Settings, number: int) -> TrialResult:
    """How a trial of these settings ended: by a rule, with noise from the trial's number."""
    draw = random.Random(number)
    rate = 500.0 * (1 + min(settings.num_workers, 8) / 4) * (1.5 if settings.precision == "bf16" else 1.0)
    rate *= draw.uniform(0.97, 1.03) * (0.95 if settings.compile else 1.0)
    result = ok_result(int(rate), num_blocks=30, log_tail="loss 0.5\n" * 20)
    result = replace(result, peak_memory_bytes=int((2 + (settings.batch_size or 1) / 8) * GIB))
    luck = draw.random() if number >= NUM_SOUND else 1.0
    if luck < CRASHED_SHARE:
        reason = f"RuntimeError: trial {number} went wrong"
        return replace(result, outcome=Outcome.CRASHED, measurement=None, peak_memory_bytes=None, reason=reason)
    if settings.compile and settings.batch_size == FACTS.loader.batch_size:
        return replace(result, outcome=Outcome.OVER_CAP, measurement=None, peak_memory_bytes=CAP_BYTES + GIB)
    if luck < CRASHED_SHARE + RACED_OUT_SHARE:
        return replace(result, outcome=Outcome.RACED_OUT, reason="It cannot be the fastest.")
    return result
