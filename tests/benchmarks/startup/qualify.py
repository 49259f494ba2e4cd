"""Which of the repository's scripts begin in a way that trials can share."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from autotune.errors import AutotuneError
from autotune.measure.stopping import WindowRule
from autotune.runner.cold import ColdRunner
from autotune.runner.forked import ForkRunner
from autotune.runner.workspace import Workspace
from autotune.space.natural import natural_settings
from autotune.spec import SearchSpec
from autotune.tuner.jobs import Jobs
from autotune.tuner.site import open_site

ROOT = Path(__file__).resolve().parents[3]
LIMIT_S = 180.0
"""Longest start of a script here: the studies make their data first."""
BRIEF = WindowRule(half_width_ratio=0.9, min_window_s=0.1, max_window_s=0.5)


@dataclass(frozen=True, kw_only=True)
class Found:
    """How a trial of a script started."""

    name: str
    start: str
    reason: str
    saved_s: float


def scripts() -> Iterator[tuple[Path, tuple[str, ...]]]:
    """Scripts of the repository that train by themselves, and arguments to try them with."""
    for study in sorted((ROOT / "studies").glob("*/train.py")):
        yield study, ()
    fixtures = [*ROOT.glob("tests/integration/*/scripts/*.py"), *ROOT.glob("tests/benchmarks/*/*job.py")]
    for script in sorted(fixtures):
        text = script.read_text()
        if ".backward(" in text and "torch.distributed" not in text:
            yield script, ("forever",) if script.parent.name == "startup" else ()


def try_script(script: Path, arguments: tuple[str, ...]) -> Found:
    """Probes a script in a copy of its folder, and starts a trial of it."""
    name = str(script.relative_to(ROOT))
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place, script.parent.name)
        shutil.copytree(script.parent, folder, ignore=shutil.ignore_patterns("__pycache__", "studies", "*.md"))
        command = (sys.executable, script.name, *arguments)
        spec = SearchSpec(command=command, script=script.name, cwd=str(folder), study="qualify", device="cpu")
        workspace = Workspace.open(None, cwd=folder, command=command)
        try:
            site = open_site(spec)
            cold, jobs = ColdRunner(workspace, site.device), Jobs(spec=spec, site=site)
            probe = replace(jobs.probe(), start_limit_s=LIMIT_S, total_limit_s=2 * LIMIT_S)
            probed = cold.start(probe).probe_result()
            if probed.facts is None:
                return Found(name=name, start="none", reason=f"its probe taught nothing: {probed.reason}", saved_s=0.0)
            workspace.probe_is_through()
            natural = natural_settings(probed.facts)
            job = replace(replace(jobs, facts=probed.facts, natural=natural).trial(natural), window=BRIEF)
            with ForkRunner(cold, probed.facts, least_preparation_s=0.0) as runner:
                result = runner.start(job).result()
            return Found(name=name, start=result.start, reason=result.start_reason, saved_s=result.saved_s)
        except AutotuneError as error:
            return Found(name=name, start="none", reason=str(error), saved_s=0.0)
        finally:
            workspace.remove()


def qualify() -> str:
    """The section on the repository's scripts."""
    found = [try_script(script, arguments) for script, arguments in scripts()]
    tried = [each for each in found if each.start != "none"]
    num_prepared = sum(each.start == "prepared" for each in tried)
    rows = [
        f"| `{each.name}` | {each.start} | {each.saved_s:.1f} | {each.reason.replace('|', '/').splitlines()[0]} |"
        if each.reason
        else f"| `{each.name}` | {each.start} | {each.saved_s:.1f} | |"
        for each in found
    ]
    return "\n".join(
        [
            "## Scripts that begin in a way that trials can share\n",
            f"{num_prepared} of {len(tried)} scripts that train here; a beginning of any length counts.\n",
            "| script | start | imports and beginning, s | why, or why not |",
            "|---|---|---|---|",
            *rows,
        ]
    )
