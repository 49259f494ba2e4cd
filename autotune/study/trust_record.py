"""Tells what a resume of a stored study runs, and whether this user has started the study or agreed to it.

A database is trusted like code, because whoever writes the database names the command of a resume. This user's state
folder therefore keeps a digest of every study started here. Any other study is run only after `autotune trust STUDY`.
"""

from __future__ import annotations

import json
import shlex
import shutil
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from autotune.errors import UsageError
from autotune.protocol.codec import to_plain
from autotune.protocol.environment import HUB_OFFLINE, OFFLINE
from autotune.store.records import StudyRecord
from autotune.store.secrets import MASK, mask_arguments, remember_arguments
from autotune.store.url import mask_url
from autotune.study.fingerprint import arguments_digest
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
"""Environment variables set for trials beside the user's own; variables of a tuned setting only in trials of the
setting."""


def keep(*records: StudyRecord) -> None:
    """Notes that this user starts the study or agrees to it; from now on, the study is trusted in these forms alone.

    Secret arguments are kept in the state folder too, because the database has them masked.

    Args:
        records: Forms of one study with the whole command, secret arguments included. Before a change of a stored study
            both forms are kept, because another tuner may read the study before or after the change.
    """
    record = records[-1]
    parts = {name: sorted({signed(_followed(form)[name]) or "" for form in records}) for name in _followed(record)}
    is_secret = MASK in "".join(mask_arguments(record.spec.command))
    command = list(record.spec.command) if is_secret else None
    write_state(_KIND, _place(record), {"parts": parts, "command": command})


def with_whole_command(record: StudyRecord) -> StudyRecord:
    """Gives the study with the secret arguments of the command, and has the secrets masked from now on.

    The database has only masked arguments; the secrets come from this user's state folder.

    Raises:
        UsageError: The secrets were typed on another machine or by another user.
    """
    command = record.spec.command
    is_masked = any(MASK in word for word in command)
    if is_masked and record.fingerprint.get("arguments", "") not in ("", arguments_digest(command)):
        words = read_state(_KIND, _place(record)).get("command")
        if not isinstance(words, list) or mask_arguments([str(word) for word in words]) != command:
            raise UsageError(
                f"The command of study {record.name!r} has secret arguments, kept only for the user and on the "
                "machine that started the study.",
                "Resume it there, or search anew with the secret in a variable that the script reads.",
            )
        command = tuple(str(word) for word in words)
    remember_arguments(command)
    return replace(record, spec=replace(record.spec, command=command))


def what_differs(record: StudyRecord) -> tuple[str, ...]:
    """Names of the parts of a resume that this user has neither started nor agreed to; empty when all is trusted."""
    parts = read_state(_KIND, _place(record)).get("parts")
    known: Mapping[str, Any] = parts if isinstance(parts, dict) else {}
    return tuple(name for name, text in _followed(record).items() if not _is_one_of(known.get(name), signed(text)))


def differences(record: StudyRecord, other: StudyRecord) -> tuple[str, ...]:
    """Names of the parts in which resumes of two studies differ."""
    mine, others = _followed(record), _followed(other)
    return tuple(name for name, text in mine.items() if others[name] != text)


def is_known(record: StudyRecord) -> bool:
    """Whether this user has started or agreed to any version of a study with this name in this database."""
    return bool(read_state(_KIND, _place(record)))


def check_trusted(record: StudyRecord) -> None:
    """Refuses a study with parts that this user has neither started nor agreed to.

    Raises:
        UsageError: A part is not trusted; names the parts and the command to type.
    """
    differences = what_differs(record)
    if not differences:
        return
    why = (
        f"has changed since you started it or agreed to it: {', '.join(differences)}"
        if is_known(record)
        else "was not started by you on this machine, and you have not agreed to it"
    )
    raise UsageError(
        f"Study {record.name!r} {why}. A resume would do this:\n{what_runs(record)}",
        f"To agree, type: {trust_line(record)}",
    )


def trust_line(record: StudyRecord) -> str:
    """The command to type in order to agree to the study."""
    return shlex.join(["autotune", "trust", record.name, "--storage", mask_url(record.spec.storage)])


def what_runs(record: StudyRecord) -> str:
    """Describes a resume of the study for people: command, program, folder and additions; secrets are masked."""
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


def _is_one_of(known: object, digest: str | None) -> bool:
    """Whether a digest is among the digests of a state file; files of earlier versions have one digest, not a list."""
    return bool(digest) and digest in (known if isinstance(known, list) else [known])


def _first(names: tuple[str, ...], num: int = 8) -> str:
    return ", ".join(names[:num]) + (", ..." if len(names) > num else "")


def _maps(record: StudyRecord) -> tuple[tuple[str, str], ...]:
    found = record.facts.arguments if record.facts is not None else ()
    return (*record.spec.maps, *((it.name, it.template) for it in found if it.is_taken))


def _followed(record: StudyRecord) -> dict[str, str]:
    """The parts of a study that choose commands, imports and written files, by name, as text."""
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
