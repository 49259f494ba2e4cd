"""`autotune best`: the best settings of a study, also during the search."""

from __future__ import annotations

from autotune.cli.options import Json, Storage, Study
from autotune.cli.place import open_repository

EXAMPLES = """\b
Examples:
  autotune best train
  autotune best train --json
"""


def best(study: Study, storage: Storage = None, as_json: Json = False) -> int:
    """Print the best settings of a study and the path of the config.

    During a search the figures come from single trials; the finals at the end decide. Exits with 3 when everything
    needs more memory than the cap, and with 4 when no trial could be measured.
    """
    from autotune.report.document import write_document
    from autotune.report.status_text import best_text
    from autotune.report.streams import write_result
    from autotune.study.status import is_final, left_out_in, overview_in, status_document, status_result

    with open_repository(storage) as repository:
        record = repository.study(study)
        trials = overview_in(repository, record)
        # The text does not tell what was left out, and finding out reads all trials.
        left_out = left_out_in(repository, record, trials) if as_json else ()
    result = status_result(record, trials, left_out)
    if as_json:
        write_document(status_document(record, trials, left_out))
    else:
        write_result(best_text(result, status=record.status, is_final=is_final(record)))
    return result.status.exit_code if is_final(record) else 0
