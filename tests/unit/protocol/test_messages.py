"""Messages between the tuner, supervisors, fork servers and trials, as text and back."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from autotune.protocol.codec import decode, encode
from autotune.protocol.environment import PREFIX, REDIRECT
from autotune.protocol.forking import ForkServerHello, ForkServerSpec, PreludeHello
from autotune.protocol.supervision import LayerPlan, RedirectionPlan, SupervisorReport, SupervisorSpec

PLAN = LayerPlan(root="/r", workspace="/w", upper="/u", between=("/b",), plain=("/p",), known=("/k",), has_pids=False)
SPEC = SupervisorSpec(
    command=("python", "train.py"),
    cwd="/project",
    log="/trial/output.log",
    layers=PLAN,
    writable=(),
    servers=(7, 8),
    environment={"TMPDIR": "/trial/tmp", "OMP_NUM_THREADS": None},
    is_prelude=True,
)
SERVER = ForkServerSpec(folder="/f", layers=None, writable=None, imports=("torch",), own_modules=("utils",))


HELLO = PreludeHello(reason="", place="train.py:3", prepared_s=1.5, asks_for_threads=True)


@pytest.mark.parametrize(
    "message",
    [SPEC, SERVER, SERVER._replace(layers=PLAN), ForkServerHello(reason="it hangs"), HELLO, SupervisorReport(status=9)],
    ids=lambda message: type(message).__name__,
)
def test_a_message_comes_back_from_its_text_as_it_was(message: Any) -> None:
    assert decode(type(message), encode(message)) == message
    assert encode(message).isascii()


def test_a_path_whose_bytes_are_no_text_comes_back(tmp_path: Path) -> None:
    spec = SupervisorSpec(command=("python",), cwd="/data\udcff", log="/log")
    (tmp_path / "order.json").write_text(encode(spec))
    assert decode(SupervisorSpec, (tmp_path / "order.json").read_text()).cwd == "/data\udcff"


def test_a_plan_of_redirected_writes_comes_back_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = RedirectionPlan(covered=("/home", "/data\udcff"), layers=("/layer",), spared=())
    monkeypatch.setenv(REDIRECT, encode(plan))
    assert REDIRECT.startswith(PREFIX) and decode(RedirectionPlan, os.environ[REDIRECT]) == plan


@pytest.mark.parametrize("text", ['{"status": "0"}', '{"state": 0}', "[]", "{"])
def test_what_is_no_report_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        decode(SupervisorReport, text)


def test_a_supervisor_loads_neither_third_parties_nor_the_slow_part_of_the_standard_library() -> None:
    program = "import json, sys; sys.path.append(sys.argv[1]); from autotune.sandbox import supervisor; "
    program += "supervisor.decode(supervisor.SupervisorSpec, sys.argv[2]); "
    program += "print(json.dumps(sorted(sys.modules)))"
    root = str(Path(__file__).parents[3])
    command = [sys.executable, "-I", "-S", "-c", program, root, encode(SPEC)]
    loaded = set(json.loads(subprocess.run(command, capture_output=True, check=True).stdout))
    assert {name.split(".")[0] for name in loaded} - sys.stdlib_module_names <= {"autotune", "__main__"}
    assert not loaded & {"subprocess", "shutil", "tempfile", "logging", "asyncio", "socket"}
    assert not loaded & {"dataclasses", "inspect", "ast", "tokenize"}  # As long as all of the rest together.
    ours = {name.split(".")[1] for name in loaded if name.startswith("autotune.")}
    assert ours <= {"sandbox", "protocol", "errors"}
