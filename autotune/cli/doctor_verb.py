"""`autotune doctor`: checks of this machine before a search, with a remedy for each problem."""

from __future__ import annotations

from autotune.cli.options import Json

EXAMPLES = """\b
Examples:
  autotune doctor
  autotune doctor --json
"""


def doctor(as_json: Json = False) -> int:
    """Check this machine for obstacles to a search.

    Looks at torch and driver, cores, memory, /dev/shm, disk, protection of your files, other users of the device, and
    the start of a Ray node.

    Each line says ok, warning or problem, with the remedy. Exits with 6 after a problem.
    """
    from dataclasses import asdict
    from itertools import chain

    from autotune.report.document import write_document
    from autotune.report.streams import write_result
    from autotune.service.engines.ray_checklist import ray_findings
    from autotune.study.machine_check import Status, examine

    findings = []
    for finding in chain(examine(), ray_findings()):
        findings.append(finding)
        if not as_json:
            write_result(f"{finding.status:<8} {finding.name:<10} {finding.text}.\n")
            if finding.remedy:
                write_result(f"{'':19} {finding.remedy}\n")
    if as_json:
        write_document({"findings": [asdict(finding) for finding in findings]})
    return 6 if any(finding.status is Status.PROBLEM for finding in findings) else 0
