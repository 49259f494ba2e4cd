"""Under which settings a process searches kernels once for each size of the inputs."""

from dataclasses import replace

import pytest

from autotune.settings import Precision, Settings
from autotune.settings.cudnn_benchmark import searched_under

OWN = Settings(num_workers=4, cudnn_benchmark=True)


@pytest.mark.parametrize("changes", [{"num_workers": 12}, {"pin_memory": True}, {"optimizer_form": "fused"}])
def test_settings_of_the_loader_find_the_kernels_that_the_process_has(changes):
    assert searched_under(replace(OWN, **changes)) == searched_under(OWN) != ()


@pytest.mark.parametrize("changes", [{"precision": Precision.BF16}, {"channels_last": True}, {"batch_size": 8}])
def test_formats_and_sizes_of_batches_are_searched_anew(changes):
    assert searched_under(replace(OWN, **changes)) != searched_under(OWN)


def test_without_the_benchmark_nothing_is_searched():
    assert searched_under(replace(OWN, cudnn_benchmark=False)) == searched_under(None) == ()
