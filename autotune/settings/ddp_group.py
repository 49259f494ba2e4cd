"""The common parts of settings that are arguments of DistributedDataParallel."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from autotune.settings.setting import Value

if TYPE_CHECKING:
    from autotune.settings.cases import ScriptCase
    from autotune.settings.data_type import Settings

ARGUMENTS: Mapping[str, str] = MappingProxyType(
    {
        "gradient_as_bucket_view": "gradient_as_bucket_view",
        "static_graph": "static_graph",
        "bucket_mb": "bucket_cap_mb",
    }
)
"""Arguments of DistributedDataParallel, by setting."""
NOT_LIVE = "the ranks build their buckets once, as they wrap the model"


def why_no_ddp(case: ScriptCase) -> str:
    """Why the arguments of DistributedDataParallel are out of reach; empty when trials can change the arguments."""
    return "" if "ddp" in case.facts.notes else "no rank was seen to train by DistributedDataParallel"


def of_ddp(name: str) -> Callable[[Any], Value | None]:
    """The script's own value of a setting, by the facts; None without DistributedDataParallel."""

    def own(facts: Any) -> Value | None:
        return dict(facts.own_ddp).get(name)

    return own


def read_by(read: Callable[[Any], Value]) -> Callable[[Any], Value | None]:
    """The reading of a root module; None for modules outside DistributedDataParallel."""

    def of_module(module: Any) -> Value | None:
        from torch.nn.parallel import DistributedDataParallel

        return read(module) if isinstance(module, DistributedDataParallel) else None

    return of_module


def ddp_argument(name: str, of_trainer: str = "") -> Mapping[str, Callable[[Settings, bool], Mapping[str, Any] | None]]:
    """Arguments of frameworks for one setting of the ranks; nothing for the value of torch.

    Args:
        name: The setting.
        of_trainer: Its name among Hugging Face's TrainingArguments; empty = none.
    """

    def of(settings: Settings, argument: str) -> dict[str, Any]:
        value = getattr(settings, name)
        return {} if value == getattr(type(settings)(), name) else {argument: value}

    def for_ranks(settings: Settings, _: bool) -> Mapping[str, Any]:
        given = of(settings, ARGUMENTS[name])
        return {"ddp": given} if given else {}

    frameworks: dict[str, Callable[[Settings, bool], Mapping[str, Any] | None]] = {
        "lightning": for_ranks,
        "accelerate": for_ranks,
    }
    if of_trainer:
        frameworks["hf"] = lambda settings, _: of(settings, of_trainer)
    return frameworks


def arguments_of(settings: Settings, names: Mapping[str, str] | tuple[str, ...]) -> dict[str, Any]:
    """Arguments of DistributedDataParallel for some of its settings."""
    return {ARGUMENTS[name]: getattr(settings, name) for name in names}
