"""Arguments of the loader for Hugging Face's TrainingArguments, of releases with and without the rare ones."""

from __future__ import annotations

import dataclasses
import sys
import types
import warnings
from typing import Any

import pytest

from autotune.integrations.huggingface import training_arguments
from autotune.settings import GROUP_OF_FIELD, Group, Settings
from autotune.settings.multiprocessing_context import StartMethod

OLDER = ("num_workers", "prefetch_factor", "persistent_workers", "pin_memory")
RARE = ("in_order", "multiprocessing_context")


class Tuned:
    """Stands in for a loaded config that was tuned in all groups."""

    def __init__(self, **changes: Any) -> None:
        self.settings = Settings(num_workers=2, **changes)

    def hand_over(self, *groups: Group) -> frozenset[str]:
        return frozenset(name for name, group in GROUP_OF_FIELD.items() if group in groups)


def made(
    monkeypatch: pytest.MonkeyPatch, loader: tuple[str, ...], given: dict[str, Any] | None = None, **changes: Any
) -> dict[str, Any]:
    """The arguments of a release with these fields of the loader, some given by the script, and its `warnings`."""
    names = ["bf16", "fp16", "per_device_train_batch_size", "gradient_accumulation_steps"]
    fields = [(name, Any, None) for name in (*names, *(f"dataloader_{each}" for each in loader))]
    release = types.ModuleType("transformers")
    release.TrainingArguments = dataclasses.make_dataclass("TrainingArguments", fields)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "transformers", release)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        arguments = training_arguments(Tuned(**changes), **(given or {}))  # type: ignore[arg-type]
    return {**dataclasses.asdict(arguments), "warnings": [str(each.message) for each in caught]}


def test_an_older_release_is_asked_for_the_usual_arguments_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    found = made(monkeypatch, OLDER)
    assert (found["dataloader_num_workers"], found["dataloader_pin_memory"], found["warnings"]) == (2, False, [])


def test_a_release_with_rare_arguments_takes_them_where_they_were_tuned(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = made(monkeypatch, (*OLDER, *RARE))
    assert [plain[f"dataloader_{name}"] for name in RARE] == [None, None]
    changes = {"in_order": False, "multiprocessing_context": StartMethod.SPAWN}
    tuned = made(monkeypatch, (*OLDER, *RARE), **changes)
    assert [tuned[f"dataloader_{name}"] for name in RARE] == [False, "spawn"]
    assert "no dataloader_in_order" in "".join(made(monkeypatch, OLDER, **changes)["warnings"])


def test_a_tuned_value_that_is_torchs_own_replaces_the_scripts_argument(monkeypatch: pytest.MonkeyPatch) -> None:
    given = {"dataloader_in_order": False, "dataloader_multiprocessing_context": "spawn"}
    found = made(monkeypatch, (*OLDER, *RARE), given)
    assert [found[f"dataloader_{name}"] for name in RARE] == [True, None]
