"""What a stored study makes a resume do, and whether this user has started that or agreed to it.

A database is trusted like code: whoever writes it names the command that a resume runs. So this user's state folder
keeps a digest of what was started here, and anything else is run only after `autotune trust STUDY`.
"""

from __future__ import annotations

import json
import shlex
import shutil
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from autotune.errors import UsageError
from autotune.plain import to_plain
from autotune.runner.cold import HUB_OFFLINE, OFFLINE
from autotune.store.records import StudyRecord
from autotune.store.secrets import MASK, mask_arguments, remember_arguments
from autotune.store.url import mask_url
from autotune.tuner.fingerprint import arguments_digest
from autotune.user_state import read_state, signed, write_state

_KIND = "studies"
SET_BY_US = (
    *OFFLINE,
    *HUB_OFFLINE,
    "CUDA_VISIBLE_DEVICES",
    "TMPDIR",
    "PYTHONPATH",
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
)
"""Variables that trials are given beside the user's own; the tuned ones among them only where they are tried."""


def keep(record: StudyRecord) -> None:
    """Notes that this user starts the study, or agrees to it: from now on it is trusted as it is.

    Secret arguments are kept beside it, since the database has them masked.

    Args:
        record: With the command whole.
    """
    parts = {name: signed(text) for name, text in _followed(record).items()}
    is_secret = MASK in "".join(mask_arguments(record.spec.command))
    command = list(record.spec.command) if is_secret else None
    write_state(_KIND, _place(record), {"parts": parts, "command": command})


def with_whole_command(record: StudyRecord) -> StudyRecord:
    """The study with the secret arguments of its command, which are not in the database.

    Raises:
        UsageError: They were typed on another machine, or by another user.
    """
    command = record.spec.command
    is_masked = any(MASK in word for word in command)
    if is_masked and record.fingerprint.get("arguments", "") not in ("", arguments_digest(command)):
        kept = read_state(_KIND, _place(record)).get("command")
        if not isinstance(kept, list) or mask_arguments([str(word) for word in kept]) != command:
            raise UsageError(
                f"The command of study {record.name!r} has secret arguments, which only the user and machine that "
                "started it know.",
                "Resume it there, or search anew with the secret in a variable that the script reads.",
            )
        command = tuple(str(word) for word in kept)
    remember_arguments(command)
    return replace(record, spec=replace(record.spec, command=command))


def what_differs(record: StudyRecord) -> tuple[str, ...]:
    """Names of what a resume would follow and this user has not started or agreed to; empty where all is trusted."""
    parts = read_state(_KIND, _place(record)).get("parts")
    known: Mapping[str, Any] = parts if isinstance(parts, dict) else {}
    return tuple(
        name for name, text in _followed(record).items() if known.get(name) is None or known[name] != signed(text)
    )


def is_known(record: StudyRecord) -> bool:
    """Whether this user has started or agreed to a study of that name in that database, as it is now or was."""
    return bool(read_state(_KIND, _place(record)))


def check_trusted(record: StudyRecord) -> None:
    """Refuses a study that would do what this user has neither started nor agreed to.

    Raises:
        UsageError: It would; says what, and what to type.
    """
    differences = what_differs(record)
    if not differences:
        return
    why = (
        f"is not as you started it, or agreed to it: {', '.join(differences)}"
        if is_known(record)
        else "was not started by you on this machine, and you have not agreed to it"
    )
    raise UsageError(
        f"Study {record.name!r} {why}. A resume would do this:\n{what_runs(record)}",
        f"If that is what you want, type: {trust_line(record)}",
    )


def trust_line(record: StudyRecord) -> str:
    """What to type to agree to the study."""
    return shlex.join(["autotune", "trust", record.name, "--storage", mask_url(record.spec.storage)])


def what_runs(record: StudyRecord) -> str:
    """What a resume of the study runs, for people: command, program, folder, and what it adds; secrets are masked."""
    spec, command = record.spec, mask_arguments(record.spec.command)
    program = shutil.which(command[0]) or command[0] if command else ""
    lines = [
        f"  command   {shlex.join(command)}",
        f"  program   {program}",
        f"  folder    {spec.cwd}",
        f"  config    {spec.out}{', replacing whatever is there' if spec.force else ''}",
        f"  variables {', '.join(SET_BY_US)}",
    ]
    if spec.writable:
        lines.append(f"  writable  {shlex.join(spec.writable)}, for real, in every trial")
    added = [f"{name}={template}" for name, template in _maps(record)]
    if added:
        lines.append(f"  adds      {shlex.join(mask_arguments(added))}")
    if spec.ranges or spec.fixed:
        lines.append(f"  values    {shlex.join(f'{name}={text}' for name, text in (*spec.ranges, *spec.fixed))}")
    if record.facts is not None and record.facts.imports:
        lines.append(
            f"  imports   {len(record.facts.imports)} modules before the script: {_first(record.facts.imports)}"
        )
    return "\n".join(lines)


def _first(names: tuple[str, ...], num: int = 8) -> str:
    return ", ".join(names[:num]) + (", ..." if len(names) > num else "")


def _maps(record: StudyRecord) -> tuple[tuple[str, str], ...]:
    found = record.facts.arguments if record.facts is not None else ()
    return (*record.spec.maps, *((it.name, it.template) for it in found if it.is_taken))


def _followed(record: StudyRecord) -> dict[str, str]:
    """By name, as text, all of a study that decides what is run, imported, or written where."""
    spec, facts = record.spec, record.facts
    asked = to_plain(replace(spec, command=(), cwd="", storage="", out="", force=False, maps=(), writable=()))
    return {
        "command": json.dumps(list(spec.command)),
        "folder": spec.cwd,
        "config": json.dumps([spec.out, spec.force]),
        "arguments that trials add": json.dumps([list(pair) for pair in _maps(record)]),
        "what trials write for real": json.dumps(list(spec.writable)),
        "what was asked": json.dumps(asked, sort_keys=True),
        "modules that are imported first": json.dumps(
            [list(facts.imports), list(facts.modules)] if facts is not None else [[], []]
        ),
    }


def _place(record: StudyRecord) -> str:
    return f"{record.spec.storage} {record.name}"
