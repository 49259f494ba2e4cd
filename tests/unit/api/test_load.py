from dataclasses import replace
from pathlib import Path

import pytest
import torch

import autotune
from autotune.emit.writing import write_config
from autotune.errors import ConfigError, SearchSpaceError
from autotune.settings import OmpWaitPolicy, Settings

from ..emit.example import tuned_config
from .scripts import HERE, config_of


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


@pytest.mark.parametrize(
    ("name", "value", "variables"),
    [
        ("tf_gpu_allocator", "cuda_malloc_async", {"TF_GPU_ALLOCATOR": "cuda_malloc_async"}),
        ("xla_flags", "no_triton_gemm", {"XLA_FLAGS": "--other --xla_gpu_enable_triton_gemm=false"}),
    ],
)
def test_an_option_of_an_engine_that_is_not_in_the_environment_is_a_warning(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, variables: dict[str, str]
) -> None:
    monkeypatch.setenv("XLA_FLAGS", "--other")
    tuned = Settings(keras_backend="tensorflow", **{name: value})  # type: ignore[arg-type]
    with pytest.warns(
        UserWarning, match=rf"{name} {value} of .* can only be set before Python starts.*export --to env"
    ):
        config_of(tuned)
    for variable, text in variables.items():
        monkeypatch.setenv(variable, text)
    config_of(tuned)


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
