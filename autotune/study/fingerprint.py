"""Makes and compares fingerprints: the circumstances to be equal for all trials of a study."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from autotune import __version__
from autotune.errors import UsageError
from autotune.host import HostFingerprint
from autotune.model.facts import ScriptFacts
from autotune.protocol.codec import from_plain, to_plain
from autotune.space.search_space import SPLIT, SearchSpace
from autotune.spec import SearchSpec
from autotune.study.target import Target, script_digest

MAX_FILES = 2000
"""Most source files of one module in a digest."""


def study_fingerprint(spec: SearchSpec, target: Target) -> dict[str, Any]:
    """The part of the fingerprint known before the probe."""
    return {
        "script": script_digest(spec),
        "arguments": arguments_digest(spec.command),
        "cwd": os.path.realpath(spec.cwd),
        "maps": [list(pair) for pair in spec.maps],
        "samples_per_step": spec.samples_per_step,
        "host": to_plain(target.host),
        "versions": {"autotune": __version__},
        "effective_batch": spec.effective_batch,
        "memory_cap": spec.memory_cap,
    }


def arguments_digest(command: Sequence[str]) -> str:
    """SHA-256 of a command's words after the program, in hexadecimal."""
    return _digest("\0".join(command[1:]).encode("utf-8", "surrogateescape"))


def probed_fingerprint(spec: SearchSpec, facts: ScriptFacts, space: SearchSpace) -> dict[str, Any]:
    """The part of the fingerprint added by the probe: imported modules of the user, and the search space."""
    space_print: dict[str, Any] = json.loads(json.dumps(space.fingerprint()))
    return {"modules": module_digests(spec, facts.modules), "space": space_print}


def module_digests(spec: SearchSpec, names: Iterable[str]) -> dict[str, str]:
    """SHA-256 of the modules beside the script or in the working directory, by name; other modules are left out."""
    script = Path(spec.cwd, spec.script)
    folders = dict.fromkeys((script.parent, Path(spec.cwd)))
    found = {name: _module_digest(name, folders) for name in sorted(names)}
    return {name: digest for name, digest in found.items() if digest}


def changed_code(spec: SearchSpec, stored: Mapping[str, Any]) -> tuple[str, ...]:
    """The user's files changed since the probe of a study, as sentences."""
    modules = module_digests(spec, stored.get("modules", ()))
    return what_changed(stored, {**stored, "script": script_digest(spec), "modules": modules})


def what_changed(stored: Mapping[str, Any], now: Mapping[str, Any]) -> tuple[str, ...]:
    """Differences between the circumstances of a study and of today, as sentences; empty when trials can be added.

    Values learned by the probe are compared only when both sides had a probe.
    """
    lines = []
    if stored.get("script") != now["script"]:
        lines.append("the script's file has changed")
    if stored.get("arguments") != now["arguments"]:
        lines.append("the command has changed")
    for key, words in (("maps", "--map has changed"), ("samples_per_step", "--samples-per-step has changed")):
        if key in stored and stored[key] != now.get(key):
            lines.append(words)
    for program, version in stored.get("versions", {}).items():
        here = now.get("versions", {}).get(program)
        if here != version:
            lines.append(f"{program}: {here}, was {version}")
    before, here_host = from_plain(HostFingerprint, stored["host"]), from_plain(HostFingerprint, now["host"])
    lines.extend(here_host.differences(before))
    if before.python and before.python != here_host.python:
        lines.append(f"python: {here_host.python}, was {before.python}")
    lines.extend(_changed_modules(stored.get("modules"), now.get("modules")))
    lines.extend(changed_space(stored.get("space"), now.get("space")))
    return tuple(lines)


def check_unchanged(study: str, stored: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """Refuses to go on with a study under changed circumstances.

    Raises:
        UsageError: The circumstances have changed; the message names the changes, and the hint what to do.
    """
    changes = what_changed(stored, now)
    if not changes:
        return
    hint = "Start a new study with autotune search --study NAME."
    if not what_changed({name: value for name, value in stored.items() if name != "space"}, now):
        hint = f"Start a new study that counts what still fits: autotune search --study NAME --take-over {study}."
    raise UsageError(
        f"Study {study!r} cannot go on, because its trials would not be comparable: {'; '.join(changes)}.", hint
    )


def _changed_modules(stored: Mapping[str, str] | None, now: Mapping[str, str] | None) -> Iterator[str]:
    if stored is None or now is None:
        return
    for name in sorted(stored.keys() | now.keys()):
        if stored.get(name) != now.get(name):
            yield f"the module {name}, which the script imports, has changed"


def changed_space(stored: Mapping[str, Any] | None, now: Mapping[str, Any] | None) -> Iterator[str]:
    """Differences between two search spaces, as sentences; none when a space is unknown."""
    if stored is None or now is None:
        return
    before, after = stored["natural"], now["natural"]
    for name in sorted(before.keys() & after.keys()):
        if before[name] != after[name]:
            yield f"the script's own {name} is {after[name]}, was {before[name]}"
    if stored["world_size"] != now["world_size"]:
        yield f"the number of processes that train together is {now['world_size']}, was {stored['world_size']}"
    for name in sorted(stored["domains"].keys() ^ now["domains"].keys()):
        yield f"{name} is {'no longer' if name in stored['domains'] else 'now'} a parameter of the search space"
    # The batch decides the values of SPLIT.
    for name in sorted((stored["domains"].keys() & now["domains"].keys()) - {SPLIT}):
        if stored["domains"][name] != now["domains"][name] and before.get(name) == after.get(name):
            yield f"the values of {name} in the search space have changed"


def _module_digest(name: str, folders: Iterable[Path]) -> str:
    """Digest of a module's file or of a package's source files; empty for a module outside the folders."""
    for folder in folders:
        package, file = folder / name, folder / f"{name}.py"
        if (package / "__init__.py").is_file():
            files = sorted(islice(package.rglob("*.py"), MAX_FILES))
            return _digest(b"\0".join(str(path.relative_to(folder)).encode() + _content(path) for path in files))
        if file.is_file():
            return _digest(_content(file))
    return ""


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
