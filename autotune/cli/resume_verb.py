"""`autotune resume`: continues an interrupted or killed study; repeats the result of a finished study."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from autotune.cli.options import Flags, Output, Study, takes_options
from autotune.cli.place import open_repository, storage_in_use, working_directory

if TYPE_CHECKING:
    from collections.abc import Callable

    from autotune.model.events import Event
    from autotune.report.lines import StudyStatus
    from autotune.store.records import StudyRecord, TrialOverview

EXAMPLES = """\b
Examples:
  autotune resume train
  autotune resume train --time 30m
  autotune resume train --storage postgresql://user@host/database
"""


@takes_options("resume")
def resume(study: Study, flags: Flags, output: Output) -> int:
    """Go on with a study under the rest of the budget, or under a new limit in all: --time, --trials.

    The command of the study is printed before the first run. If you have neither started nor agreed to the study, you
    are asked first. No finished trial is run again. A finished study gives the same result once more, or goes on under
    a new limit. Several machines of the same class may search a study in a database server together, with a resume on
    each machine.
    """
    from autotune.cli.trust_verb import agreed
    from autotune.study.status import is_final, overview_in
    from autotune.study.trust_record import what_runs
    from autotune.study_file.asked import limits_of

    limits = limits_of(flags)
    with open_repository(flags["storage"]) as repository:
        record = repository.study(study)
        status = status_of(record, overview_in(repository, record))
    words = ""
    if limits or not is_final(record):
        record = agreed(record)
        if not output.quiet:
            words = f"goes on with study {study}, which runs this:\n{what_runs(record)}"

    from autotune.cli.finish import finish
    from autotune.cli.subscribers import event_stream, told
    from autotune.study import searching
    from autotune.study.stop import StopRequest

    stop, in_use, stream = StopRequest(), storage_in_use(flags["storage"]), event_stream(output)
    with told(stop, quiet=output.quiet, stream=stream, status=status) as tell:
        result = searching.resume(
            study,
            storage=in_use,
            cwd=working_directory(),
            on_event=_after(words, tell),
            stop=stop,
            unprotected=flags["unprotected"],
            **limits,
        )
    return finish(result, replace(record.spec, **limits), output, storage=in_use, stream=stream)


def _after(words: str, tell: Callable[[Event], None]) -> Callable[[Event], None]:
    """Says the words before the first event of the search; a refused resume has no event and says nothing."""
    from autotune.model.events import Notice
    from autotune.report.streams import say

    pending = [words] if words else []

    def on_event(event: Event) -> None:
        if pending and not isinstance(event, Notice):
            say(pending.pop())
        tell(event)

    return on_event


def status_of(record: StudyRecord, trials: TrialOverview) -> StudyStatus:
    """The status of a stored study: baseline and best trial, as the reference for new trials."""
    from autotune.model.facts import samples_unit
    from autotune.report.lines import StudyStatus

    baseline, best = trials.baseline, trials.best
    measured = baseline.result.measurement if baseline is not None else None
    best_measured = best.result.measurement if best is not None else None
    return StudyStatus(
        baseline=baseline.settings if baseline is not None else record.script_settings,
        baseline_rate=measured.samples_per_second if measured is not None else None,
        baseline_interval=(measured.low, measured.high) if measured is not None else None,
        best_rate=best_measured.samples_per_second if best_measured is not None else None,
        best_interval=(best_measured.low, best_measured.high) if best_measured is not None else None,
        best_settings=best.settings if best is not None else None,
        best_trial=best.number if best is not None else None,
        samples_unit=samples_unit(record.facts, record.spec.samples_per_step),
    )
