from __future__ import annotations

from dataclasses import replace

import pytest

from autotune.errors import SearchSpaceError
from autotune.model.facts import ArgumentFacts, BatchCopy, BatchSamplerKind, LossReduction
from autotune.model.maps import all_maps, mapped_arguments
from autotune.settings import Group, Settings, stream_prefetch
from autotune.space.derive import derive_space
from autotune.space.script_settings import script_settings_of
from tests.unit.facts import cpu_machine, gpu_machine, keras_script_facts, loader_facts, script_facts, search_spec


def space_of(facts=None, machine=None, **spec):
    return derive_space(facts or script_facts(), machine or cpu_machine(), search_spec(**spec))


def refusals(space):
    return dict(space.refused)


def test_the_baseline_is_always_in_the_space():
    for machine in (cpu_machine(), gpu_machine()):
        space = space_of(machine=machine)
        assert space.why_not(space.script_settings) is None
        assert space.settings(space.params(space.script_settings)) == space.script_settings.canonical(
            device_is_cpu=machine.device.is_cpu
        )


def test_a_value_of_the_script_that_no_list_holds_is_in_the_domain():
    space = space_of(script_facts(loader=loader_facts(num_workers=7), intra_op_threads=5))
    assert 7 in space.domains["num_workers"]
    assert 5 in space.domains["intra_op_threads"]


def test_workers_are_bounded_by_usable_cores():
    assert max(space_of(machine=cpu_machine(2)).allowed["num_workers"]) == 4


def test_threads_are_bounded_by_usable_cores():
    assert space_of(machine=cpu_machine(2)).allowed["intra_op_threads"] == (1, 2)


def test_one_core_has_no_wait_policy_to_search():
    assert "omp_wait_policy" in refusals(space_of(machine=cpu_machine(1)))


def test_batch_norm_refuses_the_split_by_name():
    space = space_of(script_facts(num_batch_norms=4))
    assert "BatchNorm" in refusals(space)["batch_size"]
    assert len(space.allowed["split"]) == 1


def test_batch_norm_accumulation_can_be_allowed():
    space = space_of(script_facts(num_batch_norms=4), allow_batchnorm_accumulation=True)
    assert len(space.allowed["split"]) == 7


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"num_optimizers": 2}, "2 optimizers"),
        ({"num_optimizers": 0}, "by hand"),
        ({"uses_closure": True}, "closure"),
        ({"num_backwards_per_step": 2}, "2 backward"),
        ({"num_micro_batches_per_step": 4, "num_backwards_per_step": 4}, "accumulates by itself"),
        ({"loss_reduction": LossReduction.UNKNOWN}, "another loss or gradient"),
        ({"loss_reduction": LossReduction.INDIVISIBLE}, "only into single samples"),
        ({"loss_reduction": LossReduction.TOKEN_MEAN}, "mean over targets of which micro-batches have different"),
        ({"loader": loader_facts(batch_sampler=BatchSamplerKind.CUSTOM)}, "batch sampler"),
        ({"notes": ("several_loaders",)}, "several loaders"),
        ({"notes": ("steps_copies",)}, "the optimizer steps copies of the weights"),
        ({"notes": ("deepspeed", "steps_copies")}, "DeepSpeed's engine accumulates, scales and clips"),
        ({"schedule_follows_length": True}, "schedule"),
    ],
)
def test_what_cannot_be_accumulated_soundly_is_refused_by_name(change, word):
    space = space_of(script_facts(**change))
    assert word in refusals(space)["batch_size"]
    assert len(space.allowed["split"]) == 1


@pytest.mark.parametrize(
    ("kind", "word"),
    [(BatchSamplerKind.CUSTOM, "a batch sampler of its own"), (BatchSamplerKind.NONE, "the loader does not batch")],
)
def test_a_batch_whose_size_nobody_knows_is_refused_by_what_makes_it(kind, word):
    space = space_of(script_facts(loader=loader_facts(batch_sampler=kind, batch_size=None)))
    assert word in refusals(space)["batch_size"]
    assert "split" not in space.domains


def test_a_number_format_that_nobody_could_check_is_refused():
    space = space_of(script_facts(notes=("format_unseen",)))
    assert "no product of matrices was seen" in refusals(space)["precision"]
    assert space.allowed["precision"] == ("fp32",)


def test_without_a_loader_loader_and_batch_are_refused():
    space = space_of(script_facts(loader=None))
    assert "no torch DataLoader" in refusals(space)["num_workers"]
    assert "split" not in space.domains


def test_an_iterable_dataset_without_workers_keeps_none():
    space = space_of(script_facts(loader=loader_facts(is_iterable=True)))
    assert "shards" in refusals(space)["num_workers"]
    assert space.allowed["num_workers"] == (0,)


def test_an_iterable_dataset_with_workers_may_have_more():
    space = space_of(script_facts(loader=loader_facts(is_iterable=True, num_workers=1)))
    assert len(space.allowed["num_workers"]) > 1


def test_a_script_that_workers_would_run_again_gets_none_unless_it_has_some():
    unguarded = {"notes": ("unguarded_spawn",)}
    space = space_of(script_facts(**unguarded))
    assert "started by spawn" in refusals(space)["num_workers"]
    assert space.allowed["num_workers"] == (0,)
    assert len(space_of(script_facts(loader=loader_facts(num_workers=1), **unguarded)).allowed["num_workers"]) > 1


def test_ranks_share_the_cores_of_the_machine():
    space = space_of(script_facts(world_size=4), cpu_machine(8))
    assert max(space.allowed["num_workers"]) == 4
    assert space.allowed["intra_op_threads"] == (1, 2)


@pytest.mark.parametrize(
    ("change", "word"),
    [({"loader": None}, "steps are counted"), ({"notes": ("several_loaders",)}, "the samples of one")],
)
def test_unknown_samples_are_named_unless_they_are_declared(change, word):
    facts = script_facts(**change)
    assert word in refusals(space_of(facts))["samples_per_step"]
    assert "samples_per_step" not in refusals(space_of(facts, samples_per_step=16.0))
    assert "samples_per_step" not in refusals(space_of())


def test_own_autocast_keeps_the_scripts_precision_where_the_model_computes_in_another():
    space = space_of(script_facts(own_autocast="bfloat16"))
    assert space.allowed["precision"] == ("fp32",)
    assert "autocast" in refusals(space)["precision"]


def test_own_autocast_is_taken_over_for_formats_of_half_the_width():
    space = space_of(script_facts(own_autocast="float16", own_grad_scaler=True, precision="fp16"), gpu_machine())
    assert space.allowed["precision"] == ("bf16", "fp16")
    space = space_of(script_facts(own_autocast="bfloat16", precision="bf16"), gpu_machine())
    assert space.allowed["precision"] == ("bf16", "fp16")
    assert "own autocast is in bf16" in refusals(space)["precision=tf32"]
    space = space_of(script_facts(own_autocast="bfloat16", own_grad_scaler=True, precision="bf16"), gpu_machine())
    assert "own GradScaler" in refusals(space)["precision=fp16"]


def test_own_autocast_of_several_formats_is_refused_by_name():
    space = space_of(script_facts(own_autocast="bfloat16, float16", precision="fp16"), gpu_machine())
    assert "bfloat16, float16" in refusals(space)["precision"]


def test_formats_follow_the_device():
    assert space_of().allowed["precision"] == ("fp32", "bf16")
    assert space_of(machine=gpu_machine()).allowed["precision"] == ("fp32", "tf32", "bf16", "fp16")
    assert space_of(machine=gpu_machine((7, 0))).allowed["precision"] == ("fp32", "fp16")


def test_a_loss_that_autocast_refuses_keeps_its_format_on_a_gpu_and_the_cure_is_named():
    space = space_of(script_facts(device="cuda", has_unsafe_loss=True), gpu_machine())
    assert space.allowed["precision"] == ("fp32", "tf32")
    assert "with_logits" in refusals(space)["precision=bf16"]
    assert "bf16" in space_of(script_facts(has_unsafe_loss=True)).allowed["precision"]


def test_a_model_of_recurrent_layers_has_no_bf16_on_a_gpu_since_autocast_runs_them_in_fp16():
    space = space_of(script_facts(device="cuda", recurrent_share=0.9), gpu_machine())
    assert space.allowed["precision"] == ("fp32", "tf32", "fp16")
    assert "recurrent" in refusals(space)["precision=bf16"]
    space = space_of(script_facts(device="cuda", recurrent_share=0.1), gpu_machine())
    assert "bf16" in space.allowed["precision"]
    space = space_of(script_facts(device="cuda", recurrent_share=0.9, precision="bf16"), gpu_machine())
    assert "bf16" in space.allowed["precision"]
    assert "bf16" in space_of(script_facts(recurrent_share=0.9)).allowed["precision"]


def test_fp16_is_refused_where_steps_cannot_be_skipped():
    space = space_of(script_facts(num_optimizers=2, device="cuda"), gpu_machine())
    assert "fp16" not in space.allowed["precision"]
    assert "optimizers" in refusals(space)["precision=fp16"]


def test_two_models_are_not_compiled():
    assert "2 modules" in refusals(space_of(script_facts(num_root_modules=2), gpu_machine()))["compile"]


def test_claimed_groups_are_not_refused():
    facts = script_facts(loader=None, num_convolutions=0, claims=(Group.LOADER, Group.KERNELS, Group.PRECISION))
    space = space_of(facts, gpu_machine())
    assert len(space.allowed["num_workers"]) > 1
    assert len(space.allowed["channels_last"]) == 2


def large_batches(**changes):
    return script_facts(loader=loader_facts(batch_bytes=64 << 20), device="cuda", **changes)


@pytest.mark.parametrize("copy", BatchCopy)
def test_a_side_stream_is_refused_by_name_wherever_copying_ahead_is_unsound(copy):
    space = space_of(large_batches(batch_copy=copy), gpu_machine())
    assert space.allowed["stream_prefetch"] == ((False, True) if copy is BatchCopy.DIRECT else (False,))
    assert (stream_prefetch.WHY_NOT.get(copy) is None) is (copy is BatchCopy.DIRECT)
    if copy is not BatchCopy.DIRECT:
        assert refusals(space)["stream_prefetch"].startswith(stream_prefetch.WHY_NOT[copy])
        assert "cfg.on_device(loader, device)" in refusals(space)["stream_prefetch"]
    is_safe = copy not in (BatchCopy.WRITTEN, BatchCopy.REUSED)
    assert space.allowed["non_blocking"] == ((False, True) if is_safe else (False,))


@pytest.mark.parametrize(
    ("changes", "word"),
    [({"notes": ("reads_ahead",)}, "separate thread"), ({"notes": ("several_loaders",)}, "several loaders")],
)
def test_a_side_stream_is_refused_where_a_batch_has_no_one_step(changes, word):
    space = space_of(large_batches(batch_copy=BatchCopy.DIRECT, **changes), gpu_machine())
    assert word in refusals(space)["stream_prefetch"]


def test_loaders_side_by_side_share_the_cores():
    side_by_side = {"notes": ("several_loaders",), "loader": loader_facts(beside=(("train.py:11~0#0",),))}
    space = space_of(script_facts(**side_by_side), cpu_machine(cpus=2))
    assert space.allowed["num_workers"] == (0, 1, 2)
    assert space_of(script_facts(), cpu_machine(cpus=2)).allowed["num_workers"] == (0, 1, 2, 3, 4)
    assert refusals(space)["batch_size"].startswith("several loaders")


def test_a_side_stream_is_left_alone_where_copying_takes_no_time_unless_asked_for():
    facts = script_facts(device="cuda", batch_copy=BatchCopy.DIRECT)
    assert refusals(space_of(facts, gpu_machine()))["stream_prefetch"].startswith("copying a batch takes less")
    asked = space_of(facts, gpu_machine(), ranges=(("stream_prefetch", "false,true"),))
    assert asked.allowed["stream_prefetch"] == (False, True)


def test_a_script_that_copies_by_the_config_is_trusted_with_the_side_stream():
    space = space_of(large_batches(claims=(Group.TRANSFER,)), gpu_machine())
    assert space.allowed["stream_prefetch"] == (False, True)


def test_cudnn_searches_nothing_for_a_model_without_convolutions():
    facts = script_facts(num_convolutions=0, notes=("no_convolution",))
    assert refusals(space_of(facts, gpu_machine()))["cudnn_benchmark"] == "the model has no convolution"
    of_others = script_facts(num_convolutions=0)
    assert len(space_of(of_others, gpu_machine()).allowed["cudnn_benchmark"]) == 2
    claimed = script_facts(num_convolutions=0, notes=("no_convolution",), claims=(Group.KERNELS,))
    assert len(space_of(claimed, gpu_machine()).allowed["cudnn_benchmark"]) == 2


def test_cudnn_does_not_time_its_algorithms_for_every_size_of_the_inputs():
    facts = script_facts(device="cuda", notes=("varying_inputs",))
    assert "differ in size" in refusals(space_of(facts, gpu_machine()))["cudnn_benchmark"]
    asked = space_of(facts, gpu_machine(), ranges=(("cudnn_benchmark", "false,true"),))
    assert asked.allowed["cudnn_benchmark"] == (False, True)
    recurring = replace(facts, notes=("varying_inputs", "recurring_inputs"))
    assert set(space_of(recurring, gpu_machine()).allowed["cudnn_benchmark"]) == {False, True}
    of_its_own = replace(facts, own_cudnn_benchmark=True)
    assert set(space_of(of_its_own, gpu_machine()).allowed["cudnn_benchmark"]) == {False, True}


def test_the_user_narrows_with_set_and_fix():
    space = space_of(ranges=(("num_workers", "1..2"),), fixed=(("precision", "fp32"),))
    assert space.allowed["num_workers"] == (1, 2)
    assert space.allowed["precision"] == ("fp32",)


def test_a_listed_value_beyond_the_defaults_is_searched():
    space = space_of(ranges=(("num_workers", "0,7"),))
    assert space.allowed["num_workers"] == (0, 7)


def test_batch_sizes_narrow_the_split():
    space = space_of(ranges=(("batch_size", "16,32"),))
    assert [space.divisors[i] for i in space.allowed["split"]] == [16, 32]


def test_accumulation_steps_narrow_the_split():
    space = space_of(fixed=(("grad_accum_steps", "4"),))
    assert [space.divisors[i] for i in space.allowed["split"]] == [16]


def test_a_batch_size_that_does_not_divide_is_refused_with_the_divisors():
    with pytest.raises(SearchSpaceError, match=r"48 does not divide.*64"):
        space_of(fixed=(("batch_size", "48"),))


def test_asking_for_what_is_refused_names_the_reason():
    with pytest.raises(SearchSpaceError, match="TF32"):
        space_of(fixed=(("precision", "tf32"),))
    with pytest.raises(SearchSpaceError, match="BatchNorm"):
        space_of(script_facts(num_batch_norms=1), fixed=(("batch_size", "32"),))


def test_fixing_the_scripts_own_value_of_something_refused_is_fine():
    space = space_of(fixed=(("pin_memory", "false"), ("batch_size", "64")))
    assert space.allowed["pin_memory"] == (False,)


def test_an_unknown_setting_is_refused_with_the_list():
    with pytest.raises(SearchSpaceError, match="'workers' is neither"):
        space_of(ranges=(("workers", "1,2"),))


def test_a_mapped_knob_is_searched_beside_the_scripts_own_value():
    space = space_of(ranges=(("storage", "folder,lmdb"),), maps=(("storage", "--storage={}"),))
    assert space.allowed["knobs.storage"] == ("", "folder", "lmdb")
    settings = space.settings({**space.params(space.script_settings), "knobs.storage": "lmdb"})
    assert mapped_arguments(settings, space.script_settings, (("storage", "--storage={}"),)) == ("--storage=lmdb",)
    assert mapped_arguments(space.script_settings, space.script_settings, (("storage", "--storage={}"),)) == ()


def test_leaving_a_mapped_knob_to_the_script_is_the_baseline_and_no_trial_beside_it():
    space = space_of(ranges=(("storage", "folder,lmdb"),), maps=(("storage", "--storage={}"),))
    own = space.params(space.script_settings)
    assert own["knobs.storage"] == ""
    assert space.settings(own) == space.script_settings.canonical(device_is_cpu=True)
    assert {name for name, _ in space.settings({**own, "knobs.storage": "lmdb"}).knobs} == {"storage"}


def test_a_declared_knob_begins_at_the_scripts_default():
    space = space_of(script_facts(knobs=(("storage", "folder"),)), ranges=(("storage", "lmdb"),))
    assert space.allowed["knobs.storage"] == ("folder", "lmdb")


def test_a_mapped_batch_size_reaches_the_arguments():
    script_settings = script_settings_of(script_facts())
    maps = (("batch_size", "--batch-size={}"),)
    assert mapped_arguments(Settings(batch_size=16), script_settings, maps) == ("--batch-size=16",)
    assert mapped_arguments(Settings(batch_size=64), script_settings, maps) == ()


def test_a_template_without_a_place_is_refused():
    with pytest.raises(SearchSpaceError, match=r"has no \{\} where the value goes"):
        mapped_arguments(Settings(), Settings(), (("batch_size", "--batch-size"),))


def test_a_setting_of_which_the_script_can_be_given_some_values_has_only_those():
    space = space_of(maps=(("precision.bf16", "--amp --dtype=bfloat16"),), machine=gpu_machine())
    assert space.allowed["precision"] == ("fp32", "bf16")
    assert dict(space.refused)["precision=fp16"] == "the script's arguments cannot say it"


def test_a_script_that_is_told_how_to_accumulate_may_have_any_loss():
    maps = (("batch_size", "--batch={}"), ("grad_accum_steps", "--accum={}"))
    facts = script_facts(loss_reduction=LossReduction.UNKNOWN, schedule_follows_length=True, uses_closure=True)
    assert "batch_size" in dict(space_of(facts).refused)
    space = space_of(facts, maps=maps)
    assert len(space.allowed["split"]) > 1 and "batch_size" not in dict(space.refused)


def test_an_argument_that_was_seen_to_be_taken_is_used_without_being_asked_for():
    taken = ArgumentFacts(name="num_workers", template="--workers={}", is_taken=True)
    other = ArgumentFacts(name="batch_size", template="--batch-size={}", is_taken=False)
    facts = script_facts(arguments=(other, taken))
    assert all_maps((), facts) == (("num_workers", "--workers={}"),)
    assert all_maps((("num_workers", "-j {}"),), facts) == (("num_workers", "-j {}"),)


def test_a_free_batch_has_its_own_parameters():
    space = space_of(effective_batch="16..256")
    assert "split" not in space.domains
    assert space.allowed["batch_size"] == (16, 32, 64, 128, 256)


BY_ARGUMENTS = {"loader": None, "argument_batch": 12, "num_micro_batches_per_step": 8, "num_backwards_per_step": 8}
"""A script like nanoGPT: no loader, and arguments for the batch and the accumulation."""
BATCH_MAPS = (("batch_size", "--batch_size={}"), ("grad_accum_steps", "--accumulation={}"))


@pytest.mark.parametrize(
    ("facts", "samples_per_step", "word"),
    [
        (script_facts(**BY_ARGUMENTS), None, "steps are counted and not samples"),
        (script_facts(**BY_ARGUMENTS), 96.0, "--samples-per-step gives every optimizer step the same samples"),
        (script_facts(), 64.0, "--samples-per-step gives every optimizer step the same samples"),
    ],
)
@pytest.mark.parametrize("effective_batch", ["free", "16..256"])
def test_a_free_batch_is_refused_by_name_where_a_step_counts_the_same_samples_whatever_the_batch(
    facts, samples_per_step, word, effective_batch
):
    asked = {"maps": BATCH_MAPS, "samples_per_step": samples_per_step}
    with pytest.raises(SearchSpaceError, match=f"--effective-batch {effective_batch}: .*{word}"):
        space_of(facts, effective_batch=effective_batch, **asked)
    assert len(space_of(facts, **asked).allowed["split"]) > 1


def test_a_free_batch_is_searched_where_its_samples_are_counted():
    foreign = script_facts(**BY_ARGUMENTS, foreign_loader="tensorflow")
    for facts in (foreign, keras_script_facts()):
        assert len(space_of(facts, effective_batch="free", maps=BATCH_MAPS).allowed["batch_size"]) > 1


def test_a_batch_in_parts_is_not_tried_with_graphs_that_overwrite_gradients():
    space = space_of(machine=gpu_machine())
    graphs = replace(space.script_settings, compile=True, compile_mode="reduce-overhead")
    assert space.why_not(graphs) is None
    in_parts = replace(graphs, batch_size=32, grad_accum_steps=2)
    assert "overwrites its gradients" in (space.why_not(in_parts) or "")
    assert space.why_not(replace(in_parts, compile_mode="default")) is None


@pytest.mark.parametrize(
    ("facts", "is_left_out"),
    [
        ({"num_micro_batches_per_step": 4, "num_backwards_per_step": 4, "num_batch_norms": 2}, True),
        ({"num_micro_batches_per_step": 4, "num_backwards_per_step": 4}, True),
        ({"num_backwards_per_step": 2}, True),
        ({}, False),
    ],
    ids=["batch fixed by batch norm", "accumulates by itself", "two losses", "one pass"],
)
def test_graphs_are_left_out_by_name_where_every_step_adds_up_gradients(facts, is_left_out):
    space = space_of(script_facts(**facts), gpu_machine())
    assert ("compile_mode=reduce-overhead" in refusals(space)) is is_left_out
    assert ("max-autotune" in space.allowed["compile_mode"]) is not is_left_out
    assert "max-autotune-no-cudagraphs" in space.allowed["compile_mode"]


def test_graphs_that_are_asked_for_beside_micro_batches_are_refused_by_name():
    ranges = (("compile_mode", "reduce-overhead"), ("grad_accum_steps", "4"))
    with pytest.raises(SearchSpaceError, match="compile_mode reduce-overhead cannot be searched: gradients add up"):
        space_of(machine=gpu_machine(), ranges=ranges)
    space = space_of(machine=gpu_machine(), ranges=(ranges[0], ("grad_accum_steps", "1,4")))
    assert space.allowed["compile_mode"] == ("reduce-overhead",)


def test_little_shared_memory_rules_out_long_queues():
    space = space_of(machine=cpu_machine(shm_free_bytes=8 * 64 * 1000))
    ample = Settings(num_workers=1, prefetch_factor=2, batch_size=64, intra_op_threads=2)
    greedy = Settings(num_workers=4, prefetch_factor=4, batch_size=64, intra_op_threads=2)
    assert space.why_not(ample) is None
    assert "/dev/shm" in (space.why_not(greedy) or "")


def test_every_rank_of_a_host_has_queues_of_its_own_in_shared_memory():
    settings = Settings(num_workers=1, prefetch_factor=2, batch_size=64, intra_op_threads=2)
    for world_size, fits in ((1, True), (2, False)):
        machine = cpu_machine(shm_free_bytes=8 * 64 * 1000)
        space = space_of(script_facts(world_size=world_size), machine=machine)
        assert (space.why_not(settings) is None) is fits


@pytest.mark.parametrize(("num_workers", "fits"), [(1, True), (4, False)])
def test_batches_that_the_dataset_makes_need_shared_memory_too(num_workers, fits):
    facts = script_facts(loader=loader_facts(batch_size=None, batch_bytes=64 * 1000))
    space = space_of(facts, machine=cpu_machine(shm_free_bytes=8 * 64 * 1000))
    settings = replace(space.script_settings, num_workers=num_workers)
    assert space.script_settings.batch_size is None
    assert ("/dev/shm" not in (space.why_not(settings) or "")) is fits


def test_settings_outside_the_allowed_values_say_which():
    assert "num_workers = 64" in (space_of().why_not(Settings(num_workers=64, batch_size=64)) or "")


def test_a_split_is_encoded_as_an_index_into_the_divisors():
    space = space_of()
    settings = space.settings({"split": 4})
    assert (settings.batch_size, settings.grad_accum_steps) == (16, 4)
    assert space.params(settings)["split"] == 4


def test_segments_that_expand_are_searched_only_where_asked_for():
    assert "ask with --set" in refusals(space_of(machine=gpu_machine()))["expandable_segments"]
    asked = space_of(machine=gpu_machine(), ranges=(("expandable_segments", "false,true"),))
    assert asked.allowed["expandable_segments"] == (False, True)


# What the script sets itself


def test_a_script_that_is_channels_last_can_be_searched_without_it():
    space = space_of(script_facts(own_channels_last=True))
    assert space.script_settings.channels_last
    assert set(space.allowed["channels_last"]) == {False, True}


@pytest.mark.parametrize(("own", "left"), [("tf32", {"tf32", "bf16", "fp16"}), ("bf16", {"bf16", "fp16"})])
def test_a_format_that_the_script_has_raised_by_itself_is_not_taken_back(own, left):
    space = space_of(script_facts(device="cuda", precision=own), machine=gpu_machine())
    assert set(space.allowed["precision"]) == left
    assert refusals(space)["precision=fp32"] == f"the script trains in {own} by itself"


def test_workers_of_a_loader_that_is_built_for_each_epoch_cannot_live_on():
    space = space_of(script_facts(loader=loader_facts(is_rebuilt=True)))
    assert space.allowed["persistent_workers"] == (False,)
    assert "new loader for every epoch" in refusals(space)["persistent_workers"]


def test_a_script_that_asks_for_deterministic_kernels_keeps_cudnns_choice():
    space = space_of(script_facts(device="cuda", notes=("deterministic",)), machine=gpu_machine())
    assert space.allowed["cudnn_benchmark"] == (False,)
    assert "deterministic" in refusals(space)["cudnn_benchmark"]
