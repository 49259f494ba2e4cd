"""What every Python process of a trial runs first, in an interpreter of its own, with a torch that does nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.integration.trial.ground import INJECT


def test_a_script_that_clears_its_environment_before_it_imports_torch_is_attached_to(tmp_path: Path) -> None:
    pretended = tmp_path / "autotune" / "trial" / "start"
    pretended.mkdir(parents=True)
    for folder in (pretended.parent.parent, pretended.parent, pretended):
        (folder / "__init__.py").write_text("")
    (pretended / "bootstrap.py").write_text(
        "import os\ndef install(ready_at):\n    print(sorted(k for k in os.environ if k.startswith('AUTOTUNE_')))\n"
    )
    (tmp_path / "torch.py").write_text("")
    (tmp_path / "train.py").write_text("import os\nos.environ.clear()\nimport random, torch\nprint(random.random())\n")
    environment = {**os.environ, "PYTHONPATH": str(INJECT), "AUTOTUNE_TRIAL": str(tmp_path), "AUTOTUNE_SEED": "3"}
    runs = [
        subprocess.run([sys.executable, "train.py"], cwd=tmp_path, env=environment, capture_output=True, text=True)
        for _ in range(2)
    ]
    assert runs[0].returncode == 0, runs[0].stderr
    assert runs[0].stdout.startswith("['AUTOTUNE_SEED', 'AUTOTUNE_TRIAL']\n")
    assert runs[0].stdout == runs[1].stdout
