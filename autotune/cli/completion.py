"""What the shell offers after TAB: names of studies, forms of a config, devices. It never says why it has nothing."""

from __future__ import annotations

from collections.abc import Iterable

import typer

from autotune.errors import AutotuneError

DEVICES = ("auto", "cpu", "cuda", "cuda:0")


def complete_study(context: typer.Context, incomplete: str) -> list[str]:
    """Studies in the database that the words so far name, or the usual one."""
    from autotune.cli.place import open_repository

    try:
        with open_repository(context.params.get("storage")) as repository:
            return _beginning_with(incomplete, (record.name for record in repository.studies()))
    except AutotuneError:
        return []


def complete_form(incomplete: str) -> list[str]:
    """Forms of a tuned config."""
    from autotune.emit.export import KINDS

    return _beginning_with(incomplete, KINDS)


def complete_device(incomplete: str) -> list[str]:
    """Devices, as far as they can be named without asking the driver."""
    return _beginning_with(incomplete, DEVICES)


def _beginning_with(incomplete: str, names: Iterable[str]) -> list[str]:
    return [name for name in names if name.startswith(incomplete)]
