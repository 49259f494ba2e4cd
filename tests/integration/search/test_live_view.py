"""A whole search with real processes, watched on a real terminal. Under a minute."""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

import pytest

from tests.pty_session import run_in_terminal
from tests.screen import Screen

SCRIPT = Path(__file__).with_name("plain_loop.py")
NARROW = ["--fix", "intra_op_threads=1", "--fix", "omp_wait_policy=default", "--fix", "precision=fp32"]
LAST_LINE = "Ctrl-C ends after this trial"


@pytest.mark.slow
def test_a_search_is_watched_on_a_terminal_of_80_columns(tmp_path):
    shutil.copy(SCRIPT, tmp_path / "train.py")
    words = ["search", "train.py", "--trials", "2", "--time", "4m", *NARROW, "--set", "num_workers=0,2"]
    session = run_in_terminal(
        [sys.executable, "-m", "autotune", *words], cwd=tmp_path, environment={"OMP_NUM_THREADS": "1", "NO_COLOR": "1"}
    )
    screen = Screen().feed(session.text)
    assert session.code == 0, "\n".join(screen.plain)
    # The trials of a single rival are the first round of the finals, and the runs begin with the second.
    talk = screen.plain[: next(i for i, line in enumerate(screen.plain) if line.startswith("final 2"))]
    assert max(len(line) for line in talk if "sqlite:" not in line) <= 80
    assert LAST_LINE not in "\n".join(screen.plain), "the view is gone at the end"
    assert "\x1b[3" not in session.text, "NO_COLOR"

    frames = session.text.split(LAST_LINE)[:-1]
    in_windows = [frame for frame in frames if "measuring, " in frame]
    assert 5 < len(in_windows) <= session.wall_s, "a frame a second, and nothing is printed while a window is open"
    for words in ("probe: your script as it is", "trial 1", "final 2", "starting, ", "measuring, "):
        assert any(words in frame for frame in frames), words
    assert any(re.search(r"about [\d.,]+ samples/s", frame) for frame in frames)
    for gauge in ("CPU [", "data wait [", "memory ["):
        assert any(gauge in frame for frame in frames), gauge
