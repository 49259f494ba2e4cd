"""One failure never ends a search, by its command: a setting that fails is left out by name, and the rest is tried."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.integration.search.test_search_command import autotune, finished

SCRIPT = Path(__file__).with_name("fails_under_ours.py")
FIXED = ["--fix", "intra_op_threads=1", "--fix", "omp_wait_policy=default", "--fix", "batch_size=16"]
KERNELS = ["--fix", "num_workers=0", "--set", "channels_last=false,true", "--set", "precision=fp32,bf16"]
WORKERS = ["--set", "num_workers=0,1,2", "--fix", "channels_last=false", "--set", "precision=fp32,bf16"]


@pytest.mark.parametrize(
    ("where", "searched", "name", "value", "reason"),
    [
        ("model", KERNELS, "channels_last", "true", "RuntimeError: view size is not compatible at train.py:29"),
        pytest.param(
            *("worker", WORKERS, "num_workers", "1", "OSError: Caught OSError in DataLoader worker process 0"),
            marks=pytest.mark.slow,  # four trials and finals within the time; tests/unit/search/test_blame.py is fast
        ),
    ],
)
def test_a_setting_that_fails_is_left_out_by_name_and_the_rest_is_tried(tmp_path, where, searched, name, value, reason):
    shutil.copy(SCRIPT, tmp_path / "train.py")
    (tmp_path / "home").mkdir()
    options = ["--trials", "4", "--time", "3m", "--json", *FIXED, *searched]
    code, output, talk = finished(autotune(tmp_path, "search", "train.py", *options, "--", where), timeout_s=400)
    assert code == 0, talk
    (left_out,) = json.loads(output)["left_out"]
    assert left_out["settings"] == {name: value}
    assert left_out["reason"].startswith(reason)
    assert json.loads(output)["trials"]["complete"] >= 2
    code, shown, talk = finished(autotune(tmp_path, "studies", "show", "train"))
    assert code == 0, talk
    words = name if value == "true" else f"{name}={value}"
    assert f"{words} left out: {reason}" in shown.replace("\n", " ")
