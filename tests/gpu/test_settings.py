"""Settings in force on a CUDA device, each read back from torch and training as the script's own settings train."""

from __future__ import annotations

import statistics
from dataclasses import replace
from typing import Any

import pytest
import torch

from autotune.model.outcome import Outcome
from autotune.settings.compile_mode import GRAPHS, CompileMode
from autotune.settings.optimizer_form import OptimizerForm, forms_of, read, write
from autotune.space.refusals import why_not_unedited
from autotune.trial.torch import torch_names
from tests.gpu.bench import Bench, note, rank_of

pytestmark = pytest.mark.gpu

LOSS_TOLERANCE = 0.1
"""Share of the first loss for the mean of ten losses: kernels draw the masks of dropout differently."""


@pytest.mark.parametrize(
    ("script", "changes"),
    [
        ("attends.py", {"sdpa_backend": "math"}),
        ("attends.py", {"sdpa_backend": "efficient"}),
        ("attends.py", {"sdpa_backend": "flash", "precision": "bf16"}),
        ("attends.py", {"optimizer_form": "fused"}),
        ("attends.py", {"activation_checkpointing": True}),
        ("attends.py", {"compile": True, "compile_mode": "regional"}),
        ("attends.py", {"compile": True, "compile_mode": "reduce-overhead"}),
        ("attends.py", {"compile": True, "compile_mode": "max-autotune"}),
        ("attends.py", {"compile": True, "compile_mode": "max-autotune-no-cudagraphs"}),
        ("attends.py", {"optimizer_form": "for_loop"}),
        ("attends.py", {"unused_blocks": "collect"}),
        ("attends.py", {"unused_blocks": "whole"}),
        ("attends.py", {"num_workers": 2, "in_order": False}),
        ("attends.py", {"compile": True, "activation_memory_budget": 0.5}),
        ("trains.py", {"cudnn_benchmark": True, "cudnn_benchmark_limit": 0}),
    ],
    ids=str,
)
def test_a_setting_is_in_force_and_trains_alike(bench: Bench, script: str, changes: dict[str, Any]) -> None:
    jobs = bench.probed(script)
    own = bench.run(bench.trial(jobs))
    result = bench.run(bench.trial(jobs, **changes))
    assert result.outcome is Outcome.OK, result.reason + result.log_tail
    assert {name: rank_of(result).observed[name] for name in changes} == changes
    first, losses = rank_of(own).first_losses[:10], rank_of(result).first_losses[:10]
    assert statistics.fmean(losses) == pytest.approx(statistics.fmean(first), abs=LOSS_TOLERANCE * abs(first[0]))


@pytest.mark.filterwarnings("default")  # torch's compiler warns of its own imports and of TF32
@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
def test_a_smaller_last_batch_trains_as_without_compilation(mode: str) -> None:
    def losses(compiles: bool) -> list[float]:
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(16, 64), torch.nn.ReLU(), torch.nn.Linear(64, 4)).cuda()
        if compiles:
            torch_names.compile_in_place(model, compile_mode=mode)
        optimizer, found = torch.optim.SGD(model.parameters(), lr=0.1), []
        for size in (32, 32, 32, 7) * 4:
            loss = model(torch.randn(size, 16, device="cuda")).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            found.append(loss.item())
        return found

    assert losses(compiles=True) == pytest.approx(losses(compiles=False), rel=1e-3)


def graphed_steps(form: OptimizerForm) -> torch.Tensor:
    """Weights after three steps of a capturable optimizer in one form, and three further steps of a CUDA graph."""
    torch.manual_seed(0)
    model, inputs = torch.nn.Linear(64, 64).cuda(), torch.randn(32, 64, device="cuda")
    optimizer = torch.optim.AdamW(model.parameters(), lr=torch.tensor(0.01, device="cuda"), capturable=True)
    assert form.value in forms_of(optimizer)
    write(optimizer, form)

    def step() -> None:
        optimizer.zero_grad(set_to_none=False)
        model(inputs).square().mean().backward()
        optimizer.step()

    beside = torch.cuda.Stream()
    beside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(beside):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(beside)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    for _ in range(3):
        graph.replay()
    assert read(optimizer) == form.value
    assert {int(state["step"]) for state in optimizer.state.values()} == {6}
    return model.weight.detach().clone()


def test_an_optimizer_in_a_graph_of_the_scripts_own_makes_the_same_updates_in_every_form() -> None:
    reference = graphed_steps(OptimizerForm.DEFAULT)
    for form in OptimizerForm:
        torch.testing.assert_close(graphed_steps(form), reference, rtol=1e-4, atol=1e-5)


def test_attention_is_seen_by_the_probe(bench: Bench) -> None:
    facts = bench.probed("attends.py").facts
    assert facts is not None and "attention" in facts.notes and "own_attention" not in facts.notes


def build_s(bench: Bench, mode: CompileMode) -> float:
    """Seconds before the window of a trial that compiles, without start and imports."""
    built = bench.run(bench.trial(bench.probed("launches.py"), compile=True, compile_mode=mode))
    assert built.outcome is Outcome.OK, built.reason + built.log_tail
    return sum(rank_of(built).durations_s.get(part, 0.0) for part in ("preparation", "warm_up", "compute"))


@pytest.mark.parametrize("mode", [CompileMode.DEFAULT, CompileMode.REGIONAL])
def test_a_second_process_finds_the_build_of_the_first(bench: Bench, mode: CompileMode) -> None:
    first_s, second_s = build_s(bench, mode), build_s(bench, mode)
    note(f"build of {mode}, first and second process", f"{first_s:.1f} s, {second_s:.1f} s")


def test_a_scripts_own_fp16_is_trained_in_bf16_without_its_scaler(bench: Bench) -> None:
    jobs = bench.probed("halves.py")
    assert jobs.facts is not None
    assert (jobs.facts.own_autocast, jobs.facts.precision) == ("float16", "fp16")
    own, changed = bench.run(bench.trial(jobs)), bench.run(bench.trial(jobs, precision="bf16"))
    assert own.outcome is changed.outcome is Outcome.OK, changed.reason + changed.log_tail
    assert rank_of(changed).observed["precision"] == "bf16"
    losses = list(zip(rank_of(own).first_losses, rank_of(changed).first_losses, strict=False))
    assert losses and all(abs(one - two) < 0.1 * abs(one) < 10.0 for one, two in losses)
    rates = [result.measurement.samples_per_second for result in (own, changed) if result.measurement is not None]
    note("own fp16 with a scaler, and bf16 in its place", ", ".join(f"{rate:.0f} samples/s" for rate in rates))


def test_cuda_graphs_are_refused_by_name_where_outputs_are_kept(bench: Bench) -> None:
    jobs = bench.probed("keeps.py")
    assert jobs.facts is not None and jobs.script_settings is not None
    assert "kept_outputs" in jobs.facts.notes
    for mode in GRAPHS:
        asked = replace(jobs.script_settings, compile=True, compile_mode=mode)
        assert "keeps the model's outputs" in why_not_unedited(asked, jobs.script_settings, jobs.facts)["compile_mode"]
    kept = bench.run(bench.trial(jobs, compile=True, compile_mode=CompileMode.REDUCE_OVERHEAD))
    note("CUDA graphs although outputs are kept", f"{kept.outcome}: {kept.reason[:100]}")


def test_usual_scripts_do_not_look_as_if_outputs_were_kept(bench: Bench) -> None:
    for script in ("attends.py", "halves.py", "trains.py"):
        facts = bench.probed(script).facts
        assert facts is not None and not {"kept_outputs", "varying_inputs"} & set(facts.notes), script


def test_a_launch_bound_job_gains_from_cuda_graphs(bench: Bench) -> None:
    jobs = bench.probed("launches.py")
    modes: dict[str, dict[str, Any]] = {
        "plain": {},
        "bf16": {"precision": "bf16"},
        "default": {"compile": True},
        "regional": {"compile": True, "compile_mode": "regional"},
        "reduce-overhead": {"compile": True, "compile_mode": "reduce-overhead"},
        "reduce-overhead, bf16, fused": {
            "compile": True,
            "compile_mode": "reduce-overhead",
            "precision": "bf16",
            "optimizer_form": "fused",
        },
    }
    rates = {}
    for name, changes in modes.items():
        result = bench.run(bench.trial(jobs, **changes))
        assert result.outcome is Outcome.OK, result.reason + result.log_tail
        assert result.measurement is not None
        measured = result.measurement
        rates[name] = measured.compute_samples_per_second or measured.samples_per_second
    note("a launch-bound job, compute alone", ", ".join(f"{name} {rate:.0f}" for name, rate in rates.items()))
    assert rates["reduce-overhead"] > rates["plain"]
