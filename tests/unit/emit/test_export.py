import shlex

import pytest

from autotune.emit.export import KINDS, export
from autotune.emit.tuned_config import config_text
from autotune.errors import ConfigError, UsageError
from autotune.settings import GROUP_OF_FIELD, OmpWaitPolicy, Precision, Settings

from .example import TUNED, tuned_config


def variables(settings: Settings) -> dict[str, str]:
    """The environment as a shell would read it."""
    assigned = (shlex.split(line) for line in export(tuned_config(settings=settings), "env").splitlines())
    return dict(words[0].split("=", 1) for words in assigned if len(words) == 1)


def test_the_environment_says_what_libraries_read_when_they_start() -> None:
    found = variables(Settings(intra_op_threads=3, omp_wait_policy=OmpWaitPolicy.PASSIVE, expandable_segments=True))
    assert (found["OMP_NUM_THREADS"], found["MKL_NUM_THREADS"]) == ("3", "3")
    assert found["OMP_WAIT_POLICY"] == "PASSIVE"
    assert found["PYTORCH_CUDA_ALLOC_CONF"] == "expandable_segments:True"


def test_what_is_not_asked_is_not_in_the_environment() -> None:
    found = variables(Settings())
    assert not {"OMP_WAIT_POLICY", "PYTORCH_CUDA_ALLOC_CONF", "AUTOTUNE_BATCH_SIZE"} & found.keys()


def test_every_setting_is_in_the_environment() -> None:
    found = variables(TUNED)
    for name in GROUP_OF_FIELD:
        assert f"AUTOTUNE_{name.upper()}" in found
    assert found["AUTOTUNE_PIN_MEMORY"] == "true"
    assert found["AUTOTUNE_COMPILE"] == "false"
    assert found["AUTOTUNE_PRECISION"] == Precision.BF16.value
    assert found["AUTOTUNE_MEMORY_FRACTION"] == "0.9"


def test_a_knob_cannot_be_taken_for_an_option_of_the_command_line() -> None:
    found = variables(Settings(knobs=(("storage", "npy"),)))
    assert found["AUTOTUNE_KNOB_STORAGE"] == "npy"
    assert "AUTOTUNE_STORAGE" not in found


def test_a_hostile_value_stays_one_word_of_the_shell() -> None:
    settings = Settings(knobs=(("a;b", "$(touch x); `y` 'z' \"w\" & #"),))
    assert variables(settings)["AUTOTUNE_KNOB_A_B"] == "$(touch x); `y` 'z' \"w\" & #"


def test_two_knobs_with_one_variable_are_refused() -> None:
    with pytest.raises(ConfigError, match="would both be AUTOTUNE_KNOB_A_B"):
        export(tuned_config(settings=Settings(knobs=(("a-b", "1"), ("a_b", "2")))), "env")


@pytest.mark.parametrize("kind", ["yaml", "toml", "json"])
def test_a_file_format_exports_the_file_itself(kind: str) -> None:
    assert export(tuned_config(), kind) == config_text(tuned_config(), kind)


def test_every_kind_gives_text_that_ends_its_line() -> None:
    for kind in KINDS:
        assert export(tuned_config(), kind).endswith("\n")


def test_an_unknown_kind_is_refused_with_the_known_ones() -> None:
    with pytest.raises(UsageError, match=r"'xml' is not a form.*yaml, toml, json, env"):
        export(tuned_config(), "xml")
