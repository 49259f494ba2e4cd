"""Messages between the tuner and supervisors, through a file and back."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from autotune.protocol.supervision import (
    LayerPlan,
    ServerSpec,
    SupervisorReport,
    SupervisorSpec,
    read_message,
    write_message,
)

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
SERVER = ServerSpec(folder="/f", layers=None, writable=None, imports=("torch",), own_modules=("utils",))


@pytest.mark.parametrize("message", [SPEC, SERVER], ids=["a trial", "a server"])
def test_an_order_comes_back_from_its_file_as_it_was(tmp_path: Path, message: SupervisorSpec | ServerSpec) -> None:
    write_message(tmp_path / "order.json", message)
    assert read_message(type(message), (tmp_path / "order.json").read_text()) == message


def test_a_path_whose_bytes_are_no_text_comes_back(tmp_path: Path) -> None:
    spec = SupervisorSpec(command=("python",), cwd="/data\udcff", log="/log")
    write_message(tmp_path / "order.json", spec)
    assert read_message(SupervisorSpec, (tmp_path / "order.json").read_text()).cwd == "/data\udcff"


@pytest.mark.parametrize("text", ['{"status": "0"}', '{"state": 0}', "[]", "{"])
def test_what_is_no_report_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        read_message(SupervisorReport, text)


def test_a_supervisor_loads_neither_third_parties_nor_the_slow_part_of_the_standard_library() -> None:
    program = "import json, sys; sys.path.append(sys.argv[1]); import autotune.sandbox.supervisor; "
    program += "print(json.dumps(sorted(sys.modules)))"
    root = str(Path(__file__).parents[3])
    command = [sys.executable, "-I", "-S", "-c", program, root]
    loaded = set(json.loads(subprocess.run(command, capture_output=True, check=True).stdout))
    assert {name.split(".")[0] for name in loaded} - sys.stdlib_module_names <= {"autotune", "__main__"}
    assert not loaded & {"subprocess", "shutil", "tempfile", "logging", "asyncio", "socket"}
    ours = {name.split(".")[1] for name in loaded if name.startswith("autotune.")}
    assert ours <= {"sandbox", "protocol", "errors"}
