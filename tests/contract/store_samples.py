"""Records for the tests of the store: made from a seed, so that a test can tell them apart and compare them whole."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from autotune.measure.block import Block, Phase
from autotune.model.facts import BatchSamplerKind, LoaderFacts, LossReduction, ScriptFacts
from autotune.model.outcome import Outcome
from autotune.model.result import Measurement, RaisedError, RankResult, RankStatus, TrialResult
from autotune.model.search_result import Contender, SearchResult, Status, TrialCounts
from autotune.model.trial_records import FinalRecord, TrialRecord
from autotune.settings import Group, OmpWaitPolicy, Precision, Settings
from autotune.spec import SearchSpec
from autotune.store.records import Owner, StudyRecord

NOW = datetime(2026, 3, 29, 1, 30, 0, 123456, tzinfo=UTC)


def spec(name: str, *, command: tuple[str, ...] = ("python", "train.py", "--epochs", "90")) -> SearchSpec:
    return SearchSpec(
        command=command,
        script="/home/ada/ein Ordner/train.py",
        cwd="/home/ada/ein Ordner",
        study=name,
        memory_cap="16GiB",
        max_trials=12,
        ranges=(("num_workers", "0..4"),),
        maps=(("storage", "--storage={}"),),
    )


def study(name: str, *, created_at: datetime = NOW) -> StudyRecord:
    return StudyRecord(
        name=name,
        spec=spec(name),
        fingerprint={"script": "sha256:ab12", "space": {"split": [1, 2, 4]}, "effective_batch": 64, "host": None},
        created_at=created_at,
    )


def facts() -> ScriptFacts:
    return ScriptFacts(
        device="cuda",
        world_size=1,
        loader=LoaderFacts(
            keys=("train.py:31#0",),
            dataset="Photos",
            is_iterable=False,
            num_workers=0,
            prefetch_factor=2,
            pin_memory=False,
            persistent_workers=False,
            batch_size=64,
            drop_last=True,
            batch_sampler=BatchSamplerKind.DEFAULT,
            num_batches=100,
            num_samples=6400,
            batch_bytes=64 * 3 * 224 * 224,
            is_read_before_training=False,
        ),
        num_micro_batches_per_step=1,
        num_backwards_per_step=1,
        num_optimizers=1,
        optimizer="SGD",
        uses_closure=False,
        num_batch_norms=20,
        num_convolutions=20,
        num_root_modules=1,
        own_autocast=None,
        own_grad_scaler=False,
        own_compile=False,
        own_threads=False,
        own_cudnn_benchmark=False,
        own_memory_fraction=False,
        loss_reduction=LossReduction.MEAN,
        first_loss=2.302585092994046,
        first_grad_norm=None,
        intra_op_threads=2,
        omp_wait_policy="default",
        precision="fp32",
        claims=(Group.LOADER, Group.PRECISION),
        knobs=(("storage", "jpeg"),),
        modules=("PIL", "torch"),
        torch_version="2.13.0",
        num_parameters=11_689_512,
        first_step_s=3.25,
        step_s=0.031,
        num_steps=12,
    )


def settings(seed: int = 0) -> Settings:
    return Settings(
        num_workers=seed % 5,
        batch_size=2 ** (seed % 6),
        precision=Precision.BF16,
        memory_fraction=0.9,
        omp_wait_policy=OmpWaitPolicy.PASSIVE,
        knobs=(("storage", "a 'quoted' \"value\" \N{SNOWMAN}"),),
    )


LOG_TAIL = "epoch 1\n\tloss 0.5 \N{SNOWMAN}\x00"


def ok_result(seed: int = 0, *, num_blocks: int = 10, log_tail: str = LOG_TAIL) -> TrialResult:
    rate = 1000.0 + seed
    blocks = tuple(
        Block(
            phase=Phase.WINDOW,
            num_steps=4,
            num_micro_batches=8,
            num_samples=256.0,
            duration_s=256.0 / rate + 1e-6 * (i % 7),
            data_wait_s=0.1 / 3,
            num_skipped_steps=i % 2,
        )
        for i in range(num_blocks)
    )
    rank = RankResult(
        rank=0,
        world_size=1,
        status=RankStatus.MEASURED,
        blocks=blocks,
        is_converged=True,
        compute_samples_per_second=2 * rate,
        observed={"num_workers": "2", "precision": "bf16"},
        peak_allocated_bytes=11 * 1024**3,
        first_losses=(2.3, 2.2),
        num_steps=4 * num_blocks,
    )
    return TrialResult(
        outcome=Outcome.OK,
        measurement=Measurement(
            samples_per_second=rate,
            low=0.98 * rate,
            high=1.02 * rate,
            is_converged=True,
            is_nonstationary=False,
            is_primed=False,
            num_blocks=num_blocks,
            window_s=3.3,
            data_wait_fraction=0.41,
            compute_samples_per_second=2 * rate,
        ),
        peak_memory_bytes=12 * 1024**3,
        ranks=(rank,),
        wall_s=9.75,
        durations_s={"imports": 2.5, "window": 3.3},
        exit_code=0,
        log_tail=log_tail,
    )


def failed_result(reason: str = "The script was refused memory.") -> TrialResult:
    error = RaisedError(kind="OutOfMemoryError", message="no room", is_out_of_memory=True, requested_bytes=2**33)
    rank = RankResult(rank=1, world_size=2, status=RankStatus.RAISED, error=error, facts=facts())
    return TrialResult(outcome=Outcome.OUT_OF_MEMORY, reason=reason, ranks=(rank,), exit_code=1, signal=9)


def trial(number: int, *, result: TrialResult | None = None, attempt: int = 1) -> TrialRecord:
    started_at = NOW + timedelta(seconds=10 * number)
    return TrialRecord(
        number=number,
        settings=settings(number),
        stage="workers",
        result=result if result is not None else ok_result(number),
        started_at=started_at,
        finished_at=started_at + timedelta(seconds=9.5),
        environment={"OMP_NUM_THREADS": "2", "LANG": "C.UTF-8"},
        attempt=attempt,
        optuna_told=False,
    )


def final(round_: int, number: int, *, finished_at: datetime = NOW, result: TrialResult | None = None) -> FinalRecord:
    return FinalRecord(
        round=round_,
        number=number,
        settings=settings(number),
        result=result if result is not None else ok_result(number),
        finished_at=finished_at,
    )


def search_result(name: str) -> SearchResult:
    """How a search of the samples ended."""
    return SearchResult(
        study=name,
        status=Status.IMPROVED,
        baseline=contender(0),
        best=contender(2),
        speedup=(1.002, 1.001, 1.003),
        bottleneck="loader",
        bottleneck_after="compute",
        data_wait_fraction=0.41,
        ceiling_samples_per_second=2000.0,
        trials=TrialCounts(complete=2, infeasible=1, failed=0, gated=0),
        memory_cap_bytes=16 * 1024**3,
        wall_s=312.5,
        measuring_s=9.9,
        config="/home/ada/ein Ordner/autotune.yaml",
        reason="The plan is through.",
        notes=("The 3 rounds of the finals differ.",),
    )


def contender(number: int) -> Contender:
    rate = 1000.0 + number
    return Contender(
        settings=settings(number),
        trial=number,
        feasible=True,
        samples_per_second=rate,
        interval=(0.98 * rate, 1.02 * rate),
        peak_memory_bytes=12 * 1024**3,
    )


def beside(host: str = "container-7") -> Owner:
    """A tuner in another container of this machine."""
    return Owner(host=host, boot_id=f"{Owner.this_process().machine} pid:[1]", pid=4711, start_ticks=99)


def elsewhere(host: str = "gpu-7") -> Owner:
    """A tuner on another machine."""
    return Owner(host=host, boot_id="0c6d", pid=4711, start_ticks=99)
