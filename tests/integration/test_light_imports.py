"""A training job must not pay for the tuner: what a fresh interpreter has loaded after the public calls."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SETTINGS = """
schema: 1
settings: {num_workers: 2, batch_size: 16}
samples_per_second: 100.0
interval: [99.0, 101.0]
memory_cap_bytes: 1000000
provenance:
  study: s
  trial: 1
  host: {cpu: c, usable_cpus: 1.0, memory_bytes: 1, system: linux, device: c}
  created_at: "2026-11-20"
  autotune: "0.1.0"
script: {path: train.py, digest: "", natural: {}}
"""


def loaded_after(code: str) -> set[str]:
    """Top-level modules that a fresh interpreter has after the code, beyond those of the standard library."""
    program = f"{code}\nimport json, sys\nprint(json.dumps(sorted({{name.split('.')[0] for name in sys.modules}})))"
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    return set(json.loads(done.stdout)) - set(sys.stdlib_module_names)


@pytest.fixture(scope="module")
def always() -> set[str]:
    """What this environment loads in every interpreter, by its own start-up files."""
    return loaded_after("")


def test_importing_the_package_loads_nothing_of_others(always: set[str]) -> None:
    assert loaded_after("import autotune") - always == {"autotune"}


def test_loading_a_file_needs_no_torch_and_nothing_of_a_search(always: set[str], tmp_path: Path) -> None:
    path = tmp_path / "autotune.yaml"
    path.write_text(SETTINGS)
    code = f"import autotune\nassert autotune.load({str(path)!r}, batch_size=64).settings.batch_size == 16"
    loaded = loaded_after(code) - always
    assert {"autotune", "yaml"} <= loaded
    of_yaml = {name for name in loaded if "yaml" in name or "cython" in name}
    assert loaded - of_yaml == {"autotune"}


def test_loading_without_a_file_needs_nothing_of_others(always: set[str], tmp_path: Path) -> None:
    code = f"import autotune\nautotune.load({str(tmp_path / 'none.yaml')!r}, num_workers=0).loader_kwargs()"
    assert loaded_after(code) - always == {"autotune"}


def test_naming_the_search_loads_neither_torch_nor_what_users_may_lack(always: set[str]) -> None:
    assert "torch" not in loaded_after("import autotune\nautotune.search") - always
    assert loaded_after("import autotune\nautotune.SearchResult") - always == {"autotune"}


def test_the_integrations_are_there_without_their_frameworks(always: set[str]) -> None:
    code = "import autotune\nautotune.integrations.lightning\nautotune.integrations.huggingface"
    assert not {"torch", "transformers", "lightning", "optuna", "sqlalchemy"} & (loaded_after(code) - always)
