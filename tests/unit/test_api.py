import copy
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.data import DataLoader, TensorDataset

import autotune
from autotune import host
from autotune.emit.config import write_config
from autotune.errors import ConfigError, SearchSpaceError
from autotune.settings import Group, OmpWaitPolicy, Precision, Settings
from autotune.trial import active

from .emit.example import tuned_config

HERE = host.fingerprint(host.cpu_device(), num_devices=1, torch_version=torch.__version__)


class FakeSession:
    """A trial that writes down what the script tells it."""

    def __init__(self, settings: Settings | None) -> None:
        self.settings = settings
        self.claims: list[Group] = []
        self.knobs: dict[str, str] = {}
        self.steps: list[bool] = []
        self.observed: dict[str, str] = {}
        self.wrapped: list[object] = []

    def claim(self, group: Group) -> None:
        self.claims.append(group)

    def declare_knobs(self, defaults: Mapping[str, str]) -> None:
        self.knobs = dict(defaults)

    def wrap_loader(self, batches: Iterable[Any]) -> Iterator[Any]:
        self.wrapped.append(batches)
        return iter(batches)

    def optimizer_stepped(self, skipped: bool) -> None:
        self.steps.append(skipped)

    def observe(self, field: str, value: str) -> None:
        self.observed[field] = value


@pytest.fixture(autouse=True)
def a_process_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An empty working directory, no session, no variables of a launcher, and torch's switches put back."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(active, "session", None)
    for name in ("WORLD_SIZE", "OMP_WAIT_POLICY"):
        monkeypatch.delenv(name, raising=False)
    num_threads, precision = torch.get_num_threads(), torch.get_float32_matmul_precision()
    benchmark, tf32 = torch.backends.cudnn.benchmark, torch.backends.cudnn.allow_tf32
    yield
    torch.set_num_threads(num_threads)
    torch.set_float32_matmul_precision(precision)
    torch.backends.cudnn.benchmark, torch.backends.cudnn.allow_tf32 = benchmark, tf32


def in_search(monkeypatch: pytest.MonkeyPatch, settings: Settings | None) -> FakeSession:
    session = FakeSession(settings)
    monkeypatch.setattr(active, "session", session)
    return session


def config_of(settings: Settings, **changes: Any) -> autotune.Config:
    """The config of a file with these settings, measured on this machine."""
    changes.setdefault("provenance_host", HERE)
    write_config("autotune.yaml", tuned_config(settings=settings, **changes), force=True)
    return autotune.load("autotune.yaml")


class Job:
    """A small regression in fp64 or fp32, the same every time."""

    def __init__(self, num_samples: int = 32, dtype: torch.dtype = torch.float32) -> None:
        generator = torch.Generator().manual_seed(7)
        self.x = torch.randn(num_samples, 6, generator=generator, dtype=dtype)
        self.y = torch.randn(num_samples, 1, generator=generator, dtype=dtype)
        torch.manual_seed(3)
        self.model = torch.nn.Sequential(torch.nn.Linear(6, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1)).to(dtype)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)

    def loader(self, batch_size: int) -> DataLoader[Any]:
        return DataLoader(TensorDataset(self.x, self.y), batch_size=batch_size)

    def loss(self, x: torch.Tensor, y: torch.Tensor, reduction: str = "mean") -> torch.Tensor:
        return torch.nn.functional.mse_loss(self.model(x), y, reduction=reduction)

    def plain_step(
        self, x: torch.Tensor, y: torch.Tensor, clip_norm: float | None = None, reduction: str = "mean"
    ) -> None:
        """One step as a script without autotune writes it."""
        self.loss(x, y, reduction).backward()
        if clip_norm is not None:
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), clip_norm)
        self.optimizer.step()
        self.optimizer.zero_grad()

    def weights(self) -> torch.Tensor:
        return torch.cat([parameter.detach().flatten() for parameter in self.model.parameters()])


def assert_same_weights(one: Job, other: Job, tolerance: float = 1e-6) -> None:
    torch.testing.assert_close(one.weights(), other.weights(), rtol=tolerance, atol=tolerance)


# Accumulation


@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("num_micro_batches", [1, 2, 4, 8])
def test_accumulated_micro_batches_step_like_the_full_batch(num_micro_batches: int, reduction: Any) -> None:
    cfg = config_of(Settings(batch_size=32 // num_micro_batches, grad_accum_steps=num_micro_batches))
    full, accumulated = Job(), Job()
    clip_norm = 1.0 if reduction == "sum" else None
    full.plain_step(full.x, full.y, clip_norm, reduction)
    stepped = [
        cfg.backward(accumulated.loss(x, y, reduction), accumulated.optimizer, clip_norm=clip_norm, reduction=reduction)
        for x, y in autotune.micro_batches(accumulated.loader(32 // num_micro_batches))
    ]
    assert stepped == [False] * (num_micro_batches - 1) + [True]
    assert_same_weights(full, accumulated)
    assert all(parameter.grad is None for parameter in accumulated.model.parameters())


def test_clipping_sees_the_norm_of_the_whole_step() -> None:
    full, accumulated = Job(), Job()
    full.loss(full.x, full.y).backward()
    norm = float(torch.nn.utils.get_total_norm([p.grad for p in full.model.parameters()]))
    full.optimizer.zero_grad()
    # Just above the true norm nothing is clipped, although single micro-batches and their sum are above it.
    cfg = config_of(Settings(batch_size=8, grad_accum_steps=4))
    for x, y in autotune.micro_batches(accumulated.loader(8)):
        cfg.backward(accumulated.loss(x, y), accumulated.optimizer, clip_norm=norm * 1.001)
    full.plain_step(full.x, full.y)
    assert_same_weights(full, accumulated)

    before = accumulated.weights()
    for x, y in autotune.micro_batches(accumulated.loader(8)):
        cfg.backward(accumulated.loss(x, y), accumulated.optimizer, clip_norm=norm / 100)
    assert float((accumulated.weights() - before).norm()) == pytest.approx(0.1 * norm / 100, rel=1e-3)


def test_the_scheduler_moves_once_per_optimizer_step() -> None:
    job = Job()
    scheduler = torch.optim.lr_scheduler.LambdaLR(job.optimizer, lambda step: 1 / (1 + step))
    cfg = config_of(Settings(batch_size=2, grad_accum_steps=4))
    for x, y in autotune.micro_batches(job.loader(2)):
        cfg.backward(job.loss(x, y), job.optimizer, scheduler=scheduler)
    assert scheduler.last_epoch == 32 // 2 // 4


def test_micro_batches_that_do_not_fill_the_last_step_count_truly() -> None:
    cfg = config_of(Settings(batch_size=2, grad_accum_steps=4))
    full, accumulated = Job(num_samples=22), Job(num_samples=22)
    scheduler = torch.optim.lr_scheduler.LambdaLR(accumulated.optimizer, lambda _: 1.0)
    for _ in range(2):
        for start in (0, 8, 16):
            full.plain_step(full.x[start : start + 8], full.y[start : start + 8], clip_norm=0.5)
        for x, y in autotune.micro_batches(accumulated.loader(2)):
            cfg.backward(accumulated.loss(x, y), accumulated.optimizer, clip_norm=0.5, scheduler=scheduler)
        assert_same_weights(full, accumulated)
    assert scheduler.last_epoch == 6


def test_a_summed_loss_of_an_unfilled_step_is_not_rescaled() -> None:
    cfg = config_of(Settings(batch_size=2, grad_accum_steps=4))
    full, accumulated = Job(num_samples=6), Job(num_samples=6)
    full.plain_step(full.x, full.y, 1.0, "sum")
    for x, y in autotune.micro_batches(accumulated.loader(2)):
        cfg.backward(accumulated.loss(x, y, "sum"), accumulated.optimizer, clip_norm=1.0, reduction="sum")
    assert_same_weights(full, accumulated)


def test_a_loop_that_is_left_early_hands_its_micro_batches_to_the_next() -> None:
    cfg = config_of(Settings(batch_size=8, grad_accum_steps=4))
    full, accumulated = Job(), Job()
    full.plain_step(full.x, full.y)
    start = accumulated.weights()
    batches = list(accumulated.loader(8))
    for x, y in autotune.micro_batches(batches):
        cfg.backward(accumulated.loss(x, y), accumulated.optimizer)
        if x is batches[1][0]:
            break
    torch.testing.assert_close(accumulated.weights(), start)
    for x, y in autotune.micro_batches(batches[2:]):
        cfg.backward(accumulated.loss(x, y), accumulated.optimizer)
    assert_same_weights(full, accumulated)


def test_a_validation_loop_inside_an_epoch_steps_nothing() -> None:
    cfg = config_of(Settings(batch_size=8, grad_accum_steps=4))
    full, accumulated = Job(), Job()
    full.plain_step(full.x, full.y)
    for x, y in autotune.micro_batches(accumulated.loader(8)):
        cfg.backward(accumulated.loss(x, y), accumulated.optimizer)
        with torch.no_grad():
            losses = [float(accumulated.loss(*batch)) for batch in autotune.micro_batches(accumulated.loader(16))]
        assert len(losses) == 2
    assert_same_weights(full, accumulated)


def test_an_error_in_the_loader_steps_nothing() -> None:
    def broken(job: Job) -> Iterator[Any]:
        yield next(iter(job.loader(8)))
        raise OSError("disk")

    cfg = config_of(Settings(batch_size=8, grad_accum_steps=4))
    job = Job()
    start = job.weights()
    with pytest.raises(OSError, match="disk"):
        for x, y in autotune.micro_batches(broken(job)):
            cfg.backward(job.loss(x, y), job.optimizer)
    torch.testing.assert_close(job.weights(), start)


def test_a_second_optimizer_is_refused() -> None:
    cfg = config_of(Settings(batch_size=8))
    one, other = Job(), Job()
    cfg.backward(one.loss(one.x, one.y), one.optimizer)
    with pytest.raises(ConfigError, match=r"second optimizer.*Call autotune\.load once for each"):
        cfg.backward(other.loss(other.x, other.y), other.optimizer)


def test_gradients_zeroed_by_the_script_between_micro_batches_are_refused() -> None:
    cfg = config_of(Settings(batch_size=8, grad_accum_steps=4))
    job = Job()
    with pytest.raises(
        ConfigError, match=r"gradients of 1 micro-batches were zeroed.*Leave zero_grad to cfg\.backward"
    ):
        for x, y in autotune.micro_batches(job.loader(8)):
            job.optimizer.zero_grad()
            cfg.backward(job.loss(x, y), job.optimizer)


# Precision


class MatmulDtypes(TorchDispatchMode):
    """Sees the operands of every matrix product."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: set[torch.dtype] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.overloadpacket in (torch.ops.aten.addmm, torch.ops.aten.mm):
            self.seen |= {value.dtype for value in args if isinstance(value, torch.Tensor)}
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize(
    ("precision", "dtype"),
    [
        (Precision.FP32, torch.float32),
        (Precision.TF32, torch.float32),
        (Precision.BF16, torch.bfloat16),
        (Precision.FP16, torch.float16),
    ],
)
def test_matrix_products_really_have_the_tuned_format(precision: Precision, dtype: torch.dtype) -> None:
    cfg = config_of(Settings(batch_size=32, precision=precision))
    job = Job()
    model = cfg.prepare(job.model)
    with MatmulDtypes() as dtypes, cfg.autocast():
        model(job.x)
    assert dtypes.seen == {dtype}
    assert cfg.in_force()["precision"] == precision.value
    assert not torch.is_autocast_enabled("cpu")
    assert (torch.get_float32_matmul_precision() == "high") == (precision is Precision.TF32)


@pytest.mark.parametrize("num_micro_batches", [1, 4])
@pytest.mark.parametrize("precision", list(Precision))
def test_the_loss_falls_in_every_precision(precision: Precision, num_micro_batches: int) -> None:
    size = 32 // num_micro_batches
    cfg = config_of(Settings(batch_size=size, grad_accum_steps=num_micro_batches, precision=precision))
    job = Job()
    cfg.prepare(job.model)
    first = float(job.loss(job.x, job.y))
    for _ in range(30):
        for x, y in autotune.micro_batches(job.loader(size)):
            with cfg.autocast():
                loss = job.loss(x, y)
            cfg.backward(loss, job.optimizer, clip_norm=1.0)
    assert float(job.loss(job.x, job.y)) < 0.8 * first


def test_fp16_is_scaled_for_backward_and_unscaled_for_clipping(monkeypatch: pytest.MonkeyPatch) -> None:
    scales: list[float] = []
    scale = torch.amp.GradScaler.scale

    def spy(scaler: torch.amp.GradScaler, loss: torch.Tensor) -> Any:
        scaled = scale(scaler, loss)
        scales.append(float(scaled.detach() / loss.detach()))
        return scaled

    monkeypatch.setattr(torch.amp.GradScaler, "scale", spy)
    cfg = config_of(Settings(batch_size=8, grad_accum_steps=4, precision=Precision.FP16))
    full, accumulated = Job(), Job()
    full.plain_step(full.x, full.y, clip_norm=0.05)
    for x, y in autotune.micro_batches(accumulated.loader(8)):
        with cfg.autocast():
            loss = accumulated.loss(x, y)
        cfg.backward(loss, accumulated.optimizer, clip_norm=0.05)
    assert scales == [65536.0] * 4
    assert_same_weights(full, accumulated, tolerance=2e-3)
    assert float((accumulated.weights() - Job().weights()).norm()) == pytest.approx(0.1 * 0.05, rel=1e-3)


def test_a_step_that_overflows_is_skipped_with_its_scheduler(monkeypatch: pytest.MonkeyPatch) -> None:
    session = in_search(monkeypatch, Settings(batch_size=32, precision=Precision.FP16))
    cfg = autotune.load("autotune.yaml")
    job = Job()
    scheduler = torch.optim.lr_scheduler.LambdaLR(job.optimizer, lambda _: 1.0)
    start = job.weights()
    with cfg.autocast():
        loss = job.loss(job.x, job.y)
    assert cfg.backward(loss * 1e36, job.optimizer, clip_norm=1.0, scheduler=scheduler) is False
    torch.testing.assert_close(job.weights(), start)
    assert all(parameter.grad is None for parameter in job.model.parameters())
    with cfg.autocast():
        loss = job.loss(job.x, job.y)
    assert cfg.backward(loss, job.optimizer, clip_norm=1.0, scheduler=scheduler) is True
    assert (scheduler.last_epoch, session.steps) == (1, [True, False])


def test_a_script_without_autocast_is_not_scaled() -> None:
    cfg = config_of(Settings(batch_size=32, precision=Precision.FP16))
    full, job = Job(), Job()
    full.plain_step(full.x, full.y)
    assert cfg.backward(job.loss(job.x, job.y), job.optimizer)
    assert_same_weights(full, job)
    assert "precision" not in cfg.in_force()


# The other parts


def test_a_loader_without_workers_gets_no_worker_arguments() -> None:
    cfg = config_of(Settings(num_workers=0, prefetch_factor=4, persistent_workers=True, batch_size=4))
    assert cfg.loader_kwargs() == {"num_workers": 0, "batch_size": 4}
    assert DataLoader(range(8), **cfg.loader_kwargs()).batch_size == 4  # type: ignore[arg-type]


def test_a_loader_with_workers_gets_them_all() -> None:
    cfg = config_of(Settings(num_workers=3, prefetch_factor=4, persistent_workers=True, batch_size=4))
    loader = DataLoader(range(8), shuffle=True, **cfg.loader_kwargs())  # type: ignore[arg-type]
    assert (loader.num_workers, loader.prefetch_factor, loader.persistent_workers) == (3, 4, True)
    assert cfg.in_force() == {**cfg.loader_kwargs(), "pin_memory": False}


@pytest.mark.parametrize("has_accelerator", [True, False])
def test_memory_is_pinned_only_for_an_accelerator(monkeypatch: pytest.MonkeyPatch, has_accelerator: bool) -> None:
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: has_accelerator)
    cfg = config_of(Settings(pin_memory=True))
    assert cfg.loader_kwargs() == {"num_workers": 0} | ({"pin_memory": True} if has_accelerator else {})


def test_prepare_applies_threads_kernels_format_and_compilation(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[torch.nn.Module] = []
    monkeypatch.setattr(torch.nn.Module, "compile", lambda module: compiled.append(module))
    monkeypatch.setenv("OMP_WAIT_POLICY", "PASSIVE")
    cfg = config_of(
        Settings(
            intra_op_threads=2,
            cudnn_benchmark=True,
            channels_last=True,
            compile=True,
            omp_wait_policy=OmpWaitPolicy.PASSIVE,
        )
    )
    model = torch.nn.Conv2d(3, 4, 3)
    names = set(model.state_dict())
    assert cfg.prepare(model) is model
    assert compiled == [model]
    assert set(model.state_dict()) == names
    assert torch.get_num_threads() == 2
    assert torch.backends.cudnn.benchmark is True
    assert model.weight.is_contiguous(memory_format=torch.channels_last)
    assert model(torch.randn(1, 3, 8, 8)).is_contiguous(memory_format=torch.channels_last)
    assert cfg.in_force() == {
        "intra_op_threads": 2,
        "cudnn_benchmark": True,
        "channels_last": True,
        "compile": True,
        "omp_wait_policy": "passive",
    }


@pytest.mark.filterwarnings("ignore:autotune.yaml does not exist")
def test_the_defaults_of_the_call_leave_alone_what_they_do_not_say() -> None:
    torch.set_num_threads(2)
    torch.backends.cudnn.benchmark = True
    cfg = autotune.load(channels_last=True)
    model = cfg.prepare(torch.nn.Conv2d(3, 4, 3))
    with cfg.autocast():
        pass
    assert torch.get_num_threads() == 2
    assert torch.backends.cudnn.benchmark is True
    assert model.weight.is_contiguous(memory_format=torch.channels_last)
    assert cfg.in_force() == {"channels_last": True}


# Which settings hold


def test_without_a_file_the_defaults_of_the_call_hold_with_a_warning() -> None:
    with pytest.warns(
        UserWarning, match=r"autotune\.yaml does not exist, so the defaults hold \(batch_size=64"
    ) as seen:
        cfg = autotune.load("autotune.yaml", batch_size=64, num_workers=2, storage="jpeg")
    assert cfg.settings == Settings(batch_size=64, num_workers=2, knobs=(("storage", "jpeg"),))
    assert cfg["storage"] == "jpeg"
    assert [warning.filename for warning in seen] == [__file__]


def test_the_file_holds_before_the_defaults_of_the_call() -> None:
    settings = Settings(batch_size=16, grad_accum_steps=4, num_workers=4)
    write_config("other.toml", tuned_config(settings=settings, provenance_host=HERE), force=False)
    cfg = autotune.load("other.toml", batch_size=64, num_workers=2)
    assert cfg.settings == settings


def test_a_batch_size_unknown_to_the_file_is_the_calls() -> None:
    write_config("autotune.yaml", tuned_config(settings=Settings(), provenance_host=HERE), force=False)
    assert autotune.load(batch_size=64).settings.batch_size == 64


def test_another_machine_is_a_warning_at_the_users_line() -> None:
    write_config("autotune.yaml", tuned_config(settings=Settings()), force=False)
    with pytest.warns(UserWarning, match=r"may not hold here.*differs in cpu: .*was AMD EPYC 9654") as seen:
        autotune.load("autotune.yaml")
    assert [warning.filename for warning in seen] == [__file__]


@pytest.mark.parametrize("world_size", ["4", "0", "two"])
def test_another_world_size_is_an_error(monkeypatch: pytest.MonkeyPatch, world_size: str) -> None:
    monkeypatch.setenv("WORLD_SIZE", world_size)
    with pytest.raises(ConfigError, match=r"tuned for 2 process\(es\) and this job has 4.*2 times|WORLD_SIZE is '"):
        config_of(Settings(), provenance_world_size=2)


def test_the_tuned_world_size_is_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert config_of(Settings(), provenance_world_size=2).settings == Settings()


def test_a_wait_policy_that_is_not_in_the_environment_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.warns(UserWarning, match=r"can only be set before Python starts.*autotune run.*export --to env"):
        cfg = config_of(Settings(omp_wait_policy=OmpWaitPolicy.PASSIVE))
    cfg.prepare(torch.nn.Linear(1, 1))
    assert cfg.in_force()["omp_wait_policy"] == "default"
    monkeypatch.setenv("OMP_WAIT_POLICY", "PASSIVE")
    config_of(Settings(omp_wait_policy=OmpWaitPolicy.PASSIVE))


def test_a_batch_size_that_changed_since_the_search_is_a_warning() -> None:
    write_config("autotune.yaml", tuned_config(settings=Settings(batch_size=16), provenance_host=HERE), force=False)
    with pytest.warns(UserWarning, match=r"says batch_size=128; autotune\.yaml was tuned when it said 64"):
        assert autotune.load(batch_size=128).settings.batch_size == 16


def test_sharing_without_figures_is_a_warning() -> None:
    config = tuned_config(settings=Settings(), provenance_host=HERE)
    write_config("autotune.yaml", config, force=False)
    autotune.load(share=True)
    memory = replace(config.memory, shared_memory_bytes=None, shared_memory_fraction=None)
    write_config("autotune.yaml", replace(config, memory=memory), force=False)
    with pytest.warns(UserWarning, match="does not say how little memory suffices"):
        autotune.load(share=True)


def test_a_file_that_is_no_config_is_an_error() -> None:
    Path("autotune.yaml").write_text("schema: 99")
    with pytest.raises(ConfigError, match="schema 99 is newer"):
        autotune.load("autotune.yaml", batch_size=64)
    Path("gone.yaml").symlink_to("nowhere")
    with pytest.raises(ConfigError, match=r"gone\.yaml does not exist"):
        autotune.load("gone.yaml")


# Knobs


def test_knobs_have_the_type_of_their_default() -> None:
    knobs = (("cache", "false"), ("depth", "3"), ("ratio", "0.5"), ("storage", "npy"), ("unused", ""))
    write_config("autotune.yaml", tuned_config(settings=Settings(knobs=knobs), provenance_host=HERE), force=False)
    cfg = autotune.load(cache=True, depth=1, ratio=1.0, storage="jpeg", unused="left", missing=7)
    values = [cfg[name] for name in ("cache", "depth", "ratio", "storage", "unused", "missing")]
    assert values == [False, 3, 0.5, "npy", "left", 7]
    assert cfg.in_force()["knobs.cache"] == "false"
    with pytest.raises(ConfigError, match="'num_workers' is not a knob of this config"):
        cfg["num_workers"]


def test_a_knob_of_another_type_is_an_error() -> None:
    settings = Settings(knobs=(("depth", "deep"),))
    write_config("autotune.yaml", tuned_config(settings=settings, provenance_host=HERE), force=False)
    with pytest.raises(ConfigError, match="The knob depth is 'deep', and its default 1 is of type int"):
        autotune.load(depth=1)["depth"]


def test_a_tuned_knob_that_the_call_does_not_declare_is_a_warning() -> None:
    with pytest.warns(UserWarning, match=r"has the knob storage=npy, which autotune\.load was not told of"):
        config_of(Settings(knobs=(("storage", "npy"),)))
    config_of(Settings(knobs=(("storage", "npy"),)), script_maps={"storage": "--storage={}"})


def test_a_slip_in_a_setting_is_not_taken_for_a_knob() -> None:
    with pytest.raises(ConfigError, match=r"'batchsize' is not a setting.*Write batch_size"):
        autotune.load(batchsize=64)
    with pytest.raises(ConfigError, match=r"The knob layers is \[1, 2\]"):
        autotune.load(layers=[1, 2])
    with pytest.raises(SearchSpaceError, match="num_workers -1"):
        autotune.load(num_workers=-1)


# In a search


def test_a_trial_gives_its_settings_and_no_file_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("autotune.yaml").write_text("not: [a config")
    session = in_search(monkeypatch, Settings(num_workers=3, knobs=(("storage", "npy"),)))
    cfg = autotune.load("autotune.yaml", batch_size=64, storage="jpeg", cache=True)
    assert cfg.settings == Settings(num_workers=3, batch_size=64, knobs=(("storage", "npy"),))
    assert session.knobs == {"storage": "jpeg", "cache": "true"}
    assert (cfg["storage"], cfg["cache"]) == ("npy", True)
    assert session.observed == {"knobs.storage": "npy", "knobs.cache": "true"}


def test_the_probe_and_the_baseline_give_the_defaults_of_the_call(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("autotune.yaml").write_text("not: [a config")
    in_search(monkeypatch, None)
    num_threads = torch.get_num_threads()
    cfg = autotune.load("autotune.yaml", batch_size=64, num_workers=2)
    cfg.prepare(torch.nn.Linear(1, 1))
    assert cfg.settings == Settings(batch_size=64, num_workers=2)
    assert torch.get_num_threads() == num_threads


@pytest.mark.parametrize(
    ("call", "claims"),
    [
        (lambda cfg, _: cfg.loader_kwargs(), [Group.LOADER, Group.BATCH]),
        (lambda cfg, job: cfg.prepare(job.model), [Group.KERNELS, Group.THREADS]),
        (lambda cfg, _: cfg.autocast(), [Group.PRECISION]),
        (lambda cfg, job: cfg.backward(job.loss(job.x, job.y), job.optimizer), [Group.BATCH]),
        (lambda cfg, _: cfg.settings, []),
    ],
)
@pytest.mark.parametrize("settings", [Settings(batch_size=8, intra_op_threads=2), None])
def test_each_method_claims_the_groups_that_it_applies(
    monkeypatch: pytest.MonkeyPatch, settings: Settings | None, call: Any, claims: list[Group]
) -> None:
    session = in_search(monkeypatch, settings)
    cfg = autotune.load("autotune.yaml", batch_size=8)
    call(cfg, Job())
    call(cfg, Job()) if Group.BATCH not in claims or len(claims) > 1 else None
    assert session.claims == claims


def test_a_trial_is_told_what_is_in_force_and_of_every_step(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = Settings(batch_size=8, grad_accum_steps=3, intra_op_threads=2, precision=Precision.BF16)
    session = in_search(monkeypatch, settings)
    cfg = autotune.load("autotune.yaml", batch_size=24)
    job = Job()
    cfg.prepare(job.model)
    for x, y in autotune.micro_batches(job.loader(8)):
        with cfg.autocast():
            loss = job.loss(x, y)
        cfg.backward(loss, job.optimizer)
    assert session.steps == [False, False], "one full step and the one at the end of the loader"
    assert session.wrapped == [], "a torch DataLoader is seen by the trial itself"
    assert session.observed == {
        "intra_op_threads": "2",
        "cudnn_benchmark": "False",
        "channels_last": "False",
        "compile": "False",
        "omp_wait_policy": "default",
        "precision": "bf16",
        "grad_accum_steps": "3",
    }


def test_batches_of_no_torch_loader_go_through_the_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    session = in_search(monkeypatch, None)
    batches = [1, 2, 3]
    assert list(autotune.micro_batches(batches)) == [1, 2, 3]
    assert session.wrapped == [batches]


def test_outside_a_search_micro_batches_are_the_loaders_own() -> None:
    batches = autotune.micro_batches([1, 2, 3])
    assert next(batches) == 1
    assert list(batches) == [2, 3]


def test_the_lines_of_the_documentation_train_as_a_plain_script_does() -> None:
    write_config(
        "autotune.yaml",
        tuned_config(settings=Settings(batch_size=16, grad_accum_steps=2, intra_op_threads=2), provenance_host=HERE),
        force=False,
    )
    plain, owned = Job(), Job()
    for _ in range(3):
        plain.plain_step(plain.x, plain.y, clip_norm=1.0)

    optimizer, data = owned.optimizer, TensorDataset(owned.x, owned.y)
    loss_fn = torch.nn.functional.mse_loss
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda _: 1.0)
    cfg = autotune.load("autotune.yaml", batch_size=64, num_workers=2)
    model = cfg.prepare(owned.model)
    loader = DataLoader(data, shuffle=True, **cfg.loader_kwargs())
    for _ in range(3):
        for x, y in autotune.micro_batches(loader):
            with cfg.autocast():
                loss = loss_fn(model(x), y)
            cfg.backward(loss, optimizer, clip_norm=1.0, scheduler=scheduler)
    assert_same_weights(plain, owned)
    assert copy.copy(cfg.in_force())["grad_accum_steps"] == 2


def test_the_version_is_the_distributions_or_unknown() -> None:
    from importlib.metadata import PackageNotFoundError, version

    try:
        expected = version("torch-autotune")
    except PackageNotFoundError:
        expected = "0+unknown"
    assert autotune.__version__ == expected


def test_an_unknown_name_of_the_package_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'serach'"):
        autotune.serach  # type: ignore[attr-defined] # noqa: B018
    assert {"load", "micro_batches", "Config", "__version__"} <= set(dir(autotune))
