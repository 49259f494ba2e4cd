"""Writes the database that the tests keep of a released schema: `python tests/data/schemas/write_database.py`.

Run it from the root of the repository when a release changes the schema, and commit the new `vN.db` beside the old.
A file of an earlier version is never written again once it was released: what it holds is what users have.
"""

from __future__ import annotations

import sqlite3
import sys
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import optuna

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parents[1]), str(HERE.parents[2])]

from autotune.store.schema import MIGRATIONS  # noqa: E402
from contract import store_samples as samples  # noqa: E402

from autotune.store.repository import Repository  # noqa: E402
from autotune.store.url import resolve_url  # noqa: E402


def main() -> None:
    path = HERE / f"v{len(MIGRATIONS) + 1}.db"
    path.unlink(missing_ok=True)
    with closing(sqlite3.connect(path)) as connection:  # small pages, since most tables hold a row or none
        connection.execute("PRAGMA page_size = 512")
        connection.execute("VACUUM")
    with Repository.open(resolve_url(str(path), HERE)) as repository:
        repository.create_study(samples.study("photos"))
        repository.save_probe(
            "photos",
            facts=samples.facts(),
            script_settings=samples.settings(0),
            refused=(("compile", "No compiler was found."),),
            memory_cap_bytes=16 * 1024**3,
            layer_folder="",
        )
        study = optuna.create_study(storage=repository.optuna_storage, study_name="photos", direction="maximize")
        for number, result in enumerate((samples.ok_result(0), samples.failed_result(), samples.ok_result(2))):
            trial = study.ask()
            trial.suggest_int("split", 0, 5)
            repository.record_trial("photos", samples.trial(number, result=result))
            trial.set_constraint("memory", -0.25 if result.measurement else 0.5)
            study.tell(trial, result.measurement.samples_per_second if result.measurement else 0.0)
            repository.mark_told("photos", number)
        for number in (2, 0):
            finished_at = samples.NOW + timedelta(minutes=10 - number)
            repository.record_final("photos", samples.final(0, number, finished_at=finished_at))
        repository.acquire_lease("photos", samples.elsewhere(), now=samples.NOW)
        repository.add_spent("photos", 312.5)
        repository.set_status("photos", "improved", samples.search_result("photos").document())
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("VACUUM")
    print(path, path.stat().st_size, "bytes")


if __name__ == "__main__":
    main()
