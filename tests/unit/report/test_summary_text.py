import json
from dataclasses import replace

import pytest

from autotune.errors import StoreError
from autotune.model.search_result import SearchResult, Status, TrialCounts
from autotune.report.document import document_text
from autotune.report.summary_text import headline, summary
from autotune.settings import Settings

from .examples import BASELINE, BEST, COMMANDS, CONTRIBUTIONS, search_result

IMPROVED = """\
These settings train 2.41x [2.35, 2.47] as many samples per second as yours.

  yours       1,294 [1,280, 1,310] samples per second, peak memory 10.0 GiB, 62% of the cap of 16.0 GiB
  trial 19    3,118 [3,097, 3,140] samples per second, peak memory 12.0 GiB, 75% of the cap of 16.0 GiB

  What changed:
    num_workers         0 -> 4
    persistent_workers  false -> true
    precision           fp32 -> bf16

  What each was worth, by single trials one after the other (trials 0, 3, 19):
    2.10x [2.05, 2.15]  num_workers, persistent_workers (only ever changed together)
    1.02x [0.98, 1.06]  precision (no more than the noise)
  Alone, beside other settings:
    at least 1.40x  num_workers (trials 5 and 7)

  Your settings are bound by the data loader; 61% of the time goes into waiting for data.
  Now it is bound by the training step itself; a faster loader would gain a tenth at most.
  Without any loader your settings would train 3,300 samples per second.
  In the real run, 10 h of training steps take about 4 h 8 min. At another time expect \
3 h 48 min to 4 h 30 min: nine of ten published gains were in such a range. Warm-up and evaluation are left out, \
loading the data is not.

  37 trials in 14 min 2 s, 6 min 40 s of it measuring: 30 measured, 4 over the memory cap, 3 failed, \
2 left out because they would have needed more memory than the cap.
  The plan is through.

  Config: autotune.yaml

  Train with it, the script unedited:
    autotune run train.py -- --data photos
  or load it in the script, where lines of its own then put in force what changed:
    import autotune
    cfg = autotune.load("autotune.yaml")
    loader = DataLoader(data, shuffle=True, **cfg.loader_kwargs())
    for x, y in loader:
        with cfg.autocast():
            loss = ...
        cfg.backward(loss, optimizer)  # in place of backward, step and zero_grad
  or take it elsewhere:
    autotune export train --to json
  Every trial and its reason, a page with pictures to show, and this summary again:
    autotune studies show train
    autotune report train
    autotune resume train
"""


def text_of(**changes):
    return summary(search_result(**changes), COMMANDS).plain


def test_a_gain_is_told_with_its_interval_its_reason_and_what_to_type_next():
    assert text_of() == IMPROVED


def test_the_lines_for_the_script_put_in_force_all_that_changed_and_no_more():
    best = replace(BEST, settings=replace(BASELINE.settings, batch_size=16, grad_accum_steps=4))
    text = text_of(best=best)
    for line in ("**cfg.loader_kwargs())", "in autotune.micro_batches(loader):", "cfg.backward(loss, optimizer)"):
        assert line in text
    assert "cfg.prepare(model)" not in text and "cfg.autocast()" not in text
    best = replace(BEST, settings=replace(BASELINE.settings, cudnn_benchmark=True))
    text = text_of(best=best, samples_unit="steps")
    assert "steps per second" in text and "DataLoader" not in text
    assert 'cfg = autotune.load("autotune.yaml")\n    model = cfg.prepare(model)\n' in text


@pytest.mark.parametrize("status", list(Status))
def test_every_ending_has_a_headline_and_fits_what_is_known_then(status):
    result = search_result(status=status, best=None, baseline=None, speedup=None, config=None)
    assert summary(result, COMMANDS).plain.startswith(headline(result) + "\n")


def test_changes_that_cannot_be_told_apart_are_said_not_to_be():
    text = text_of(contributions=(CONTRIBUTIONS[0],))
    assert "What each was worth cannot be told apart: no trial had only some of them.\n" in text
    assert "2.10x" not in text


def test_changes_that_were_measured_apart_after_all_are_told_alone():
    alone = tuple(
        replace(CONTRIBUTIONS[1], settings=(name,), is_along=False, from_trial=7) for name in CONTRIBUTIONS[0].settings
    )
    text = text_of(contributions=(CONTRIBUTIONS[0], *alone))
    assert "cannot be told apart" not in text
    lines = text.split("What each was worth alone, beside the others:\n")[1].splitlines()[: len(alone)]
    assert all(name in line for name, line in zip(CONTRIBUTIONS[0].settings, lines, strict=True))


def test_of_a_single_change_the_headline_says_what_it_is_worth():
    assert "was worth" not in text_of(contributions=(replace(CONTRIBUTIONS[1], from_trial=0),))
    assert "was worth" not in text_of(contributions=())


def test_the_contributions_survive_the_database():
    result = search_result()
    assert SearchResult.from_document(json.loads(json.dumps(result.document()))) == result


def test_a_stored_result_of_another_release_is_refused_with_a_sentence():
    with pytest.raises(StoreError, match="stored result of study 'photos' cannot be read"):
        SearchResult.from_document({"schema": 1, "study": "photos", "status": "improved"})


def test_without_a_gain_nothing_changed_and_nothing_is_promised():
    text = text_of(status=Status.NO_GAIN, best=replace(BASELINE), speedup=None)
    assert "yours are kept" in text
    assert "What changed" not in text
    assert "In the real run" not in text
    assert text.count("1,294") == 1
    assert "autotune.load" not in text and "autotune run" not in text
    assert "with the script's own settings" in text


def test_a_baseline_over_the_cap_is_said_to_be():
    over = replace(BASELINE, feasible=False, samples_per_second=None, interval=None, peak_memory_bytes=20 * 1024**3)
    text = text_of(status=Status.BASELINE_INFEASIBLE, baseline=over, speedup=None)
    assert "yours       peak memory 20.0 GiB, 125% of the cap of 16.0 GiB, over the cap" in text
    assert text.startswith("Your own settings need more memory than the cap")


def test_an_interrupted_search_says_how_to_go_on_and_that_its_best_is_not_confirmed():
    unconfirmed = replace(BEST, samples_per_second=None, interval=None)
    text = text_of(status=Status.INTERRUPTED, best=unconfirmed, speedup=None, config=None)
    assert "Go on: autotune resume train" in text
    assert "trial 19    not confirmed by finals" in text
    assert "Config" not in text


def test_finals_that_all_failed_are_not_called_trials_that_could_not_be_measured():
    nothing = search_result(status=Status.ALL_FAILED, trials=TrialCounts(failed=1))
    assert headline(nothing) == "No trial could be measured."
    assert headline(search_result(status=Status.ALL_FAILED)).startswith("No run of the finals could be measured")


@pytest.mark.parametrize(
    ("counts", "begin"),
    [
        ({"complete": 2}, "One other combination was tried, and is"),
        ({"complete": 1, "failed": 1}, "One other combination was tried, and is"),
        ({"complete": 3}, "No settings were found"),
        ({"complete": 1, "infeasible": 2}, "No settings were found"),
    ],
)
def test_no_gain_over_one_other_combination_is_not_told_of_all_settings(counts, begin):
    """In three minutes on two GPUs one combination was slower, and nothing was said of how little that is."""
    assert headline(search_result(status=Status.NO_GAIN, trials=TrialCounts(**counts))).startswith(begin)


def test_settings_faster_beside_load_alone_are_not_told_as_no_faster_than_yours():
    """A summary said "is not faster than yours beyond the noise" above a note on 4.05x beside the load of others."""
    load = "others kept up to 0.9 of 2 cores busy in 4 of 4 runs"
    told = headline(search_result(status=Status.NO_GAIN, trials=TrialCounts(complete=2), beside_load=load))
    assert told.startswith(f"Settings looked faster than yours beside other load ({load}), and whether they are")
    assert told.endswith("yours are kept.")


@pytest.mark.parametrize("status", [Status.NO_FEASIBLE, Status.ALL_FAILED])
def test_a_search_without_a_result_says_where_its_reasons_are(status):
    text = text_of(status=status, best=None, speedup=None, config=None)
    assert "Why each trial ended: autotune studies show train" in text
    assert ("--memory-cap" in text) == (status is Status.NO_FEASIBLE)


def test_notes_are_lines_of_their_own_without_control_characters():
    assert "  note: At 4x the batch +58 %.\n" in text_of(notes=("At 4x the\x1b batch\n+58 %.",))


def test_steps_are_not_called_samples():
    text = text_of(samples_unit="steps")
    assert "steps per second" in text
    assert "samples per second" not in text


def test_what_is_bound_alike_before_and_after_is_said_once_more_as_still():
    assert "Now it is still bound by the data loader" in text_of(bottleneck_after="loader")


def test_a_ceiling_is_told_only_where_the_loader_costs_something():
    assert "Without any loader" not in text_of(bottleneck="compute")
    assert "waiting for data" not in text_of(data_wait_fraction=0.001)


def test_how_much_of_the_ceiling_is_reached_is_told_with_it():
    text = text_of(ceiling_fraction=0.392)
    assert "would train 3,300 samples per second; you are at 39% of that." in text


def test_the_rate_within_an_epoch_is_told_where_starting_one_costs_something():
    text = text_of(baseline=replace(BASELINE, steady_samples_per_second=1500.0))
    assert "1,294 [1,280, 1,310] samples per second, 1,500 between the starts of epochs, peak memory" in text


def test_one_trial_is_not_called_trials():
    assert "  1 trial in " in text_of(trials=TrialCounts(complete=1))


def test_knobs_are_told_apart_from_settings_and_the_scripts_own_value_has_a_name():
    best = replace(BEST, settings=Settings(knobs=(("storage", "npy"),)))
    baseline = replace(BASELINE, settings=Settings())
    assert "knobs.storage  the script's own -> npy" in text_of(best=best, baseline=baseline)


def test_a_config_elsewhere_is_shown_with_its_whole_path():
    text = text_of(config='/data/a "b"/autotune.yaml')
    assert 'Config: /data/a "b"/autotune.yaml' in text
    assert r'autotune.load("/data/a \"b\"/autotune.yaml")' in text


def test_the_summary_is_plain_ascii():
    assert text_of(notes=("x",)).isascii()


def test_a_document_is_one_json_value_in_ascii():
    text = document_text({"study": "\N{SNOWMAN}\udcff", "rate": 1.5})
    assert text.isascii() and text.endswith("}\n")
    assert json.loads(text) == {"study": "\N{SNOWMAN}\udcff", "rate": 1.5}


def test_what_json_cannot_say_is_null_in_a_document():
    text = document_text({"rate": float("nan"), "interval": [1.0, float("inf")]})
    assert json.loads(text) == {"rate": None, "interval": [1.0, None]}
