from dataclasses import replace

from autotune.model.events import FinalFinished, FinalsStarted, FinalStarted, Notice, ProbeStarted, TrialStarted
from autotune.model.facts import ArgumentFacts
from autotune.model.outcome import Outcome
from autotune.report.lines import StudyStatus, event_lines, header, trial_line
from autotune.report.words import OUTCOME_WORDS, changes_text, refused_words, value_text
from autotune.settings import Settings
from autotune.units import GIB

from ..facts import script_facts
from .examples import NATURAL, PROBED, STARTED, TUNED, failed, finished, measured

PROBED_STANDING = StudyStatus().after(STARTED).after(PROBED)
MEASURED = PROBED_STANDING.after(finished(0, NATURAL, measured(1000.0), is_best=True))


def lines_after(status, event):
    return event_lines(event, status.after(event))


def test_the_beginning_names_study_script_machine_cap_budget_and_database():
    assert event_lines(STARTED, StudyStatus()) == (
        "study train: train.py on NVIDIA H200, 8 usable cores, torch 2.13.0",
        "  memory cap 16.0 GiB, at most 40 trials or 15 min 0 s",
        "  stored in sqlite:////home/ada/photos/studies/autotune.db",
    )
    near = replace(STARTED, cwd="/home/ada/photos")
    assert "  stored in sqlite:///studies/autotune.db" in event_lines(near, StudyStatus())
    assert event_lines(replace(STARTED, cwd="/home/ad"), StudyStatus()) == event_lines(STARTED, StudyStatus())
    assert "  goes on after 3 finished trials" in event_lines(replace(STARTED, num_finished=3), StudyStatus())
    assert "  goes on after 1 finished trial" in event_lines(replace(STARTED, num_finished=1), StudyStatus())


def test_the_probe_tells_what_it_learned_and_what_is_left_out():
    assert event_lines(ProbeStarted(), StudyStatus())
    first, left_out = event_lines(PROBED, PROBED_STANDING)
    assert first == (
        "probe done in 6.4 s: 1,000 parameters trained on cpu, batch 64, 0 loader workers, fp32, 10.0 steps per second"
    )
    assert left_out == "  left out split: BatchNorm would see smaller batches"


def test_arguments_that_can_stand_for_settings_are_told_in_words_to_copy():
    arguments = (
        ArgumentFacts(name="num_workers", template="--workers={}", is_taken=True),
        ArgumentFacts(name="batch_size", template="--batch-size={}", is_taken=False),
        ArgumentFacts(name="precision.bf16", template="--dtype bfloat16", is_taken=False),
    )
    *_, taken, proposed = event_lines(replace(PROBED, arguments=arguments), PROBED_STANDING)
    assert taken == "  given by your script's own arguments: num_workers by --workers={}"
    assert proposed.endswith(": --map 'batch_size=--batch-size={}' --map 'precision.bf16=--dtype bfloat16'")


def test_settings_that_do_nothing_on_a_cpu_do_not_make_the_baseline_different():
    pinned = replace(PROBED, natural=replace(NATURAL, pin_memory=True))
    own = pinned.natural.canonical(device_is_cpu=True)
    status = StudyStatus().after(pinned)
    assert changes_text(own, status.baseline) == ""


def test_what_is_left_out_for_one_reason_is_told_once():
    refused = (("pin_memory", "no\naccelerator"), ("compile", "no compiler"), ("non_blocking", "no accelerator"))
    assert refused_words(refused) == ["pin_memory, non_blocking: no accelerator", "compile: no compiler"]


def test_threads_that_a_launcher_set_are_told():
    facts = replace(PROBED.facts, notes=("launcher_threads",), world_size=2)
    probed = replace(PROBED, facts=facts, natural=replace(PROBED.natural, intra_op_threads=1))
    told = [line for line in event_lines(probed, PROBED_STANDING) if "OMP_NUM_THREADS" in line]
    assert told == [
        "  torchrun set OMP_NUM_THREADS=1 for each process, since you set none; the baseline has it too, "
        "and others are tried where there are cores"
    ]
    assert not any("OMP_NUM_THREADS" in line for line in event_lines(PROBED, PROBED_STANDING))


def test_a_script_without_a_loader_and_with_ranks_is_described_so():
    probed = replace(PROBED, facts=script_facts(loader=None, world_size=2, step_s=0.0))
    (first, *_) = event_lines(probed, PROBED_STANDING)
    assert (
        "2 processes, " in first
        and "FSDP" not in first
        and "no torch DataLoader" in first
        and "steps per second" not in first
    )


def test_ranks_that_share_out_the_weights_are_described_so():
    probed = replace(PROBED, facts=script_facts(world_size=2, notes=("sharded",)))
    (first, *_) = event_lines(probed, PROBED_STANDING)
    assert "2 processes, each with its share of the weights (FSDP)" in first


def test_the_baseline_is_called_yours_and_has_ratio_one():
    (line,) = lines_after(PROBED_STANDING, finished(0, NATURAL, measured(1000.0), is_best=True))
    assert line == "    0  ok                 1,000   1.00x    10.0 GiB  your settings"


def test_a_trial_shows_only_what_differs_from_the_baseline():
    (line,) = lines_after(MEASURED, finished(7, TUNED, measured(2410.0)))
    assert line == (
        "    7  ok                 2,410   2.41x    10.0 GiB  num_workers=4 persistent_workers=true precision=bf16"
    )


def test_columns_stand_under_their_header():
    (line,) = lines_after(MEASURED, finished(7, TUNED, measured(2410.0)))
    for unit in ("samples", "steps"):
        head = header(unit)
        for name, value in ((f"{unit}/s", "2,410"), ("ratio", "2.41x"), ("memory", "10.0 GiB")):
            assert head.index(name) + len(name) == line.index(value) + len(value)
        assert head.index("settings") == line.index("num_workers")


def test_the_guard_on_memory_is_no_difference_once_the_baseline_ran_with_it():
    guarded = replace(NATURAL, memory_fraction=0.9)
    status = PROBED_STANDING.after(finished(0, guarded, measured(1000.0)))
    (line,) = lines_after(status, finished(1, replace(guarded, num_workers=2), measured(1100.0)))
    assert line.endswith("  num_workers=2")


def test_a_new_best_is_marked_and_the_baseline_is_not():
    (line,) = lines_after(MEASURED, finished(7, TUNED, measured(2410.0), is_best=True))
    assert line.endswith("  <- best so far")


def test_an_early_stop_shows_its_bound_as_a_bound():
    result = measured(800.0, outcome=Outcome.RACED_OUT, reason="It could not reach the best.")
    (line,) = lines_after(MEASURED, finished(3, TUNED, result))
    assert "  <808  <0.81x" in line, "the upper end of its interval, as the search is told"
    assert line.endswith("(It could not reach the best.)")


def test_a_trial_over_the_cap_shows_that_it_needs_at_least_so_much():
    result = failed(Outcome.OVER_CAP, "It needs more than the cap.", peak_memory_bytes=20 * GIB)
    (line,) = lines_after(MEASURED, finished(4, TUNED, result))
    assert "over the cap" in line and ">20.0 GiB" in line


def test_a_failure_has_its_reason_on_the_same_line_without_control_characters():
    result = failed(Outcome.CRASHED, "RuntimeError: a\nb\x1b[31m")
    (line,) = lines_after(MEASURED, finished(4, TUNED, result))
    assert line.endswith("(RuntimeError: a b [31m)")
    assert "    -       -" in line


def test_every_outcome_has_words():
    assert set(OUTCOME_WORDS) == set(Outcome)
    assert max(map(len, OUTCOME_WORDS.values())) <= 13


def test_files_that_a_trial_wrote_in_spite_of_its_protection_are_named():
    result = measured(900.0, escaped=("/a/1", "/a/2", "/a/3", "/a/4"))
    _, warning = lines_after(MEASURED, finished(4, TUNED, result))
    assert warning == "warning: files of yours were changed or removed while it ran: /a/1, /a/2, /a/3 and 1 more"


def test_finals_say_who_runs_and_what_came_out():
    assert event_lines(FinalsStarted(numbers=(0, 7), num_rounds=3), MEASURED) == (
        "finals: trials 0, 7 run again in turns; planned: 3 rounds of fresh processes",
    )
    done = FinalFinished(round=0, number=7, result=measured(2400.0))
    assert event_lines(done, MEASURED) == ("final 1: trial 7, 2,400 per second",)
    (alone, *_) = event_lines(FinalsStarted(numbers=(0,), num_rounds=2), MEASURED)
    assert alone == "finals: trial 0 runs again; planned: 2 rounds of fresh processes"
    lost = FinalFinished(round=1, number=7, result=failed(Outcome.TIMED_OUT, "It took 90 s."))
    assert event_lines(lost, MEASURED) == ("final 2: trial 7, timed out (It took 90 s.)",)


def test_finals_that_go_on_tell_how_many_rounds_are_done_and_one_round_is_no_plural():
    (line,) = event_lines(FinalsStarted(numbers=(0, 7), num_rounds=1, num_done=2), MEASURED)
    assert line == "finals: trials 0, 7 run again in turns; planned: 1 more round of fresh processes after 2"


def test_finals_in_the_process_of_the_trials_are_announced_so():
    (line,) = event_lines(FinalsStarted(numbers=(0, 7), num_rounds=3, is_shared=True), MEASURED)
    assert line == "finals: trials 0, 7 run again in turns; planned: 3 rounds in the process of the trials"


def test_what_only_the_live_view_shows_is_no_line():
    started = (TrialStarted(number=4, settings=TUNED, stage="workers"), FinalStarted(round=0, number=4))
    assert [event_lines(event, MEASURED) for event in started] == [(), ()]


def test_only_a_warning_is_called_one():
    assert event_lines(Notice(message="a"), StudyStatus()) == ("warning: a",)
    assert event_lines(Notice(message="a", is_warning=False), StudyStatus()) == ("a",)


def test_the_standing_counts_finished_trials_and_keeps_the_best():
    status = MEASURED.after(finished(1, TUNED, measured(2000.0), is_best=True))
    status = status.after(finished(2, TUNED, failed(Outcome.INTERRUPTED, "The tuner was ended.")))
    assert (status.num_finished, status.best_trial, status.best_rate) == (2, 1, 2000.0)
    assert status.baseline_rate == 1000.0
    assert (status.baseline_interval, status.best_interval) == ((990.0, 1010.0), (1980.0, 2020.0))
    assert status.best_settings == TUNED


def test_a_resumed_search_compares_with_what_was_found_before():
    status = StudyStatus(baseline=NATURAL, baseline_rate=500.0).after(replace(STARTED, num_finished=4))
    (line,) = lines_after(status, finished(5, TUNED, measured(1000.0)))
    assert "2.00x" in line
    assert status.after(finished(5, TUNED, measured(1000.0))).num_finished == 5


def test_a_trial_without_a_known_baseline_has_no_ratio():
    assert "      -  " in trial_line(0, TUNED, measured(10.0), baseline=None, baseline_rate=None)


def test_values_are_written_as_the_command_line_takes_them():
    assert [value_text(value) for value in (True, None, "", 0.5, 3, "a\nb")] == [
        "true",
        "the script's own",
        "the script's own",
        "0.5",
        "3",
        "a b",
    ]
    knobs = Settings(knobs=(("storage", "npy"),))
    assert changes_text(knobs, Settings()) == "storage=npy"
