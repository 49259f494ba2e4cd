"""Settings that reach the script through its own arguments."""

import pytest

from autotune.errors import SearchSpaceError
from autotune.model.maps import check_map, mapped_arguments, mapped_settings, template_for
from autotune.settings import Precision, Settings

OWN = Settings(batch_size=64)


def arguments(maps, **changes):
    return mapped_arguments(Settings(**{"batch_size": 64, **changes}), OWN, maps)


def test_a_template_of_two_words_gives_two_arguments_whatever_the_value_holds():
    settings = Settings(knobs=(("data", "my photos"),))
    assert mapped_arguments(settings, Settings(), (("data", "--data {}"),)) == ("--data", "my photos")


def test_a_map_for_one_value_is_used_for_that_value_only():
    maps = (("precision.bf16", "--amp --dtype=bfloat16"), ("precision.fp16", "--amp"))
    assert arguments(maps, precision=Precision.BF16) == ("--amp", "--dtype=bfloat16")
    assert arguments(maps, precision=Precision.FP16) == ("--amp",)
    assert arguments(maps, precision=Precision.TF32) == ()
    assert mapped_settings(maps) == {"precision"}


def test_a_boolean_is_written_in_small_letters():
    assert arguments((("compile", "--compile={}"),), compile=True) == ("--compile=true",)
    assert arguments((("compile.true", "--compile"),), compile=True) == ("--compile",)


def test_what_torch_refuses_without_workers_is_not_said():
    maps = (("num_workers", "-j {}"), ("prefetch_factor", "--prefetch={}"))
    script_settings = Settings(num_workers=4, prefetch_factor=4)
    assert mapped_arguments(Settings(num_workers=0), script_settings, maps) == ("-j", "0")


def test_a_setting_that_nobody_can_see_in_force_cannot_be_mapped():
    with pytest.raises(SearchSpaceError, match="non_blocking cannot be mapped"):
        check_map("non_blocking", "--async={}")


def test_the_words_for_a_value_are_found():
    maps = {"storage": "--storage={}", "precision.bf16": "--bf16"}
    assert template_for("storage", "npy", maps) == "--storage=npy"
    assert (template_for("precision", "bf16", maps), template_for("precision", "fp16", maps)) == ("--bf16", "")
