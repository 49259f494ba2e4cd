"""The result of a search, as printed by `--json`, summarised in the terminal and stored in the database."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Self

from autotune.errors import StoreError
from autotune.model.memory_share import MemoryShare
from autotune.model.usage import Usage
from autotune.model.verification import Verification
from autotune.protocol.protection import Protection
from autotune.settings import Settings

DOCUMENT_SCHEMA = 1


class Status(StrEnum):
    """How a search ended."""

    IMPROVED = "improved"
    """The tuned settings are faster than the baseline beyond the noise."""
    NO_GAIN = "no_gain"
    """Nothing is faster beyond the noise: the baseline is written."""
    TOO_SHORT = "too_short"
    """The time or the number of trials did not allow a comparison with the baseline."""
    NO_FEASIBLE = "no_feasible"
    """Every trial needed more memory than the cap."""
    BASELINE_INFEASIBLE = "baseline_infeasible"
    """The baseline needs more than the cap: the best settings under the cap are written."""
    INTERRUPTED = "interrupted"
    """Stopped from outside; the search can be resumed."""
    ALL_FAILED = "all_failed"
    """No trial could be measured."""

    @property
    def exit_code(self) -> int:
        """The exit code of the command line, apart from the code for a required but missing gain."""
        return {Status.NO_FEASIBLE: 3, Status.ALL_FAILED: 4, Status.INTERRUPTED: 130}.get(self, 0)


@dataclass(frozen=True, kw_only=True, slots=True)
class Contender:
    """The baseline or the best settings, as published."""

    trial: int | None
    settings: Settings
    feasible: bool
    samples_per_second: float | None
    """Rate in the finals; None without finals."""
    interval: tuple[float, float] | None
    """95 % interval of the rate over the rounds of the finals."""
    peak_memory_bytes: int | None
    """Memory compared with the cap."""
    steady_samples_per_second: float | None = None
    """Rate within an epoch, without the cost of an epoch's start; None when the cost makes no difference."""
    usage: Usage | None = None
    """Use of the machine in the finals; None without finals."""

    def document(self) -> dict[str, Any]:
        """Plain values for `--json`."""
        return {
            "trial": self.trial,
            "settings": self.settings.to_dict(),
            "feasible": self.feasible,
            "samples_per_second": self.samples_per_second,
            "interval": list(self.interval) if self.interval else None,
            "steady_samples_per_second": self.steady_samples_per_second,
            "peak_memory_bytes": self.peak_memory_bytes,
            "usage": self.usage.document() if self.usage else None,
        }

    @classmethod
    def from_document(cls, document: dict[str, Any]) -> Self:
        """The contender described by `document`."""
        interval = document["interval"]
        return cls(
            trial=document["trial"],
            settings=Settings.from_dict(document["settings"]),
            feasible=document["feasible"],
            samples_per_second=document["samples_per_second"],
            interval=(interval[0], interval[1]) if interval else None,
            peak_memory_bytes=document["peak_memory_bytes"],
            steady_samples_per_second=document.get("steady_samples_per_second"),
            usage=Usage.from_document(document["usage"]) if document.get("usage") else None,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class TrialCounts:
    """Number of trials by ending, with gated suggestions apart; probes, interrupted trials and finals do not count."""

    complete: int = 0
    infeasible: int = 0
    failed: int = 0
    gated: int = 0
    """Suggestions never run because their predicted memory was over the cap."""

    @property
    def total(self) -> int:
        """The number limited by `--trials`, including the baseline."""
        return self.complete + self.infeasible + self.failed

    def document(self) -> dict[str, int]:
        """Plain values for `--json`."""
        return {
            "total": self.total,
            "complete": self.complete,
            "infeasible": self.infeasible,
            "failed": self.failed,
            "gated": self.gated,
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class Contribution:
    """The joint worth of some of the winner's changes, between two trials with no other difference."""

    settings: tuple[str, ...]
    """Names of the changes; several names were only ever tried together."""
    ratio: float
    """Rate with the changes over rate without, each from a single trial."""
    interval: tuple[float, float] | None
    """95 % interval of what is repeatable within the two trials, without drift between trials; None where unknown."""
    is_least: bool
    """True when the trial without the changes was stopped early: they were worth at least the ratio."""
    from_trial: int
    to_trial: int
    is_along: bool
    """True for a factor of the gain: in order, these factors lead from the baseline to the winner. False for a single
    change beside other settings."""

    def document(self) -> dict[str, Any]:
        """Plain values for `--json`."""
        return {
            "settings": list(self.settings),
            "ratio": self.ratio,
            "interval": list(self.interval) if self.interval else None,
            "is_least": self.is_least,
            "from_trial": self.from_trial,
            "to_trial": self.to_trial,
            "is_along": self.is_along,
        }

    @classmethod
    def from_document(cls, document: dict[str, Any]) -> Self:
        """The contribution described by `document`."""
        interval = document["interval"]
        values = {**document, "interval": (interval[0], interval[1]) if interval else None}
        return cls(**{**values, "settings": tuple(document["settings"])})


@dataclass(frozen=True, kw_only=True, slots=True)
class Steadiness:
    """How much the rounds of a finalist differ."""

    trial: int
    num_rounds: int
    spread: float
    """Standard deviation of the logarithm of the rates: 0.02 is 2 %."""

    def document(self) -> dict[str, Any]:
        """Plain values for `--json`."""
        return {"trial": self.trial, "num_rounds": self.num_rounds, "spread": self.spread}


@dataclass(frozen=True, kw_only=True, slots=True)
class LeftOut:
    """Settings left out of a study because trials failed with them."""

    settings: tuple[tuple[str, str], ...]
    """Names and values, as text; several settings fail only together."""
    reason: str
    """Reason given by the failed trial with the fewest changes, with the place in the code if known."""
    trial: int

    def document(self) -> dict[str, Any]:
        """Plain values for `--json`."""
        return {"settings": dict(self.settings), "reason": self.reason, "trial": self.trial}

    @classmethod
    def from_document(cls, document: dict[str, Any]) -> Self:
        """The settings described by `document`."""
        settings = tuple((str(name), str(value)) for name, value in document["settings"].items())
        return cls(settings=settings, reason=document["reason"], trial=document["trial"])


@dataclass(frozen=True, kw_only=True, slots=True)
class SearchResult:
    """The result of one search."""

    study: str
    status: Status
    baseline: Contender | None
    best: Contender | None
    speedup: tuple[float, float, float] | None
    """Ratio of best to baseline with its interval, paired by rounds of the finals."""
    bottleneck: str
    """Bottleneck of the baseline, a value of measure.bottleneck.BottleneckKind."""
    bottleneck_after: str
    """Bottleneck of the best settings."""
    data_wait_fraction: float | None
    """Data wait of the baseline."""
    ceiling_samples_per_second: float | None
    """Compute-only rate of the baseline's settings."""
    trials: TrialCounts
    memory_cap_bytes: int
    wall_s: float
    """Time of all runs of this search, including resumed ones."""
    measuring_s: float
    """Part of `wall_s` in warm-ups and windows."""
    config: str | None
    """Path of the tuned config, if written."""
    ceiling_fraction: float | None = None
    """Share of the compute-only rate reached by the baseline within an epoch. The rest is its stall, including losses
    not visible in `data_wait_fraction`."""
    samples_unit: str = "samples"
    """`samples`, or `steps` when samples could not be counted."""
    reason: str = ""
    """Reason for the ending, as one sentence."""
    notes: tuple[str, ...] = ()
    """Sentences that the user should know."""
    contributions: tuple[Contribution, ...] = ()
    """Worth of the best settings' changes; empty without a gain or when unknown."""
    left_out: tuple[LeftOut, ...] = ()
    """Settings that failed in trials; the search went on without them."""
    protection: str = ""
    """Weakest protection of any run of the search, a value of Protection; empty when unknown."""
    escaped: tuple[str, ...] = ()
    """User files changed or removed by the script in spite of the protection."""
    memory: MemoryShare | None = None
    """Device memory needed by the best settings for their full rate; None on a CPU and without finals."""
    doubt: str = ""
    """Why the gain is in doubt, as sentences; empty without a doubt."""
    beside_load: str = ""
    """The load of other programs beside the compared runs, in words; empty for quiet runs. Without a gain: the
    load beside settings that looked faster. These settings are not published, since the load may have made the gain."""
    finalists: tuple[Steadiness, ...] = ()
    """How much the rounds of each finalist differ, the baseline included; empty without finals."""
    verifications: tuple[Verification, ...] = ()
    """Later comparisons of the script with the best settings, by real runs, the newest last."""
    enough_s: float | None = None
    """Total time in seconds, sufficient to compare one setting with the script's own; None unless too short."""

    def document(self) -> dict[str, Any]:
        """The document printed by `--json`."""
        return {
            "schema": DOCUMENT_SCHEMA,
            "study": self.study,
            "status": self.status.value,
            "baseline": self.baseline.document() if self.baseline else None,
            "best": self.best.document() if self.best else None,
            "speedup": dict(zip(("ratio", "low", "high"), self.speedup, strict=True)) if self.speedup else None,
            "bottleneck": {
                "kind": self.bottleneck,
                "after": self.bottleneck_after,
                "data_wait_fraction": self.data_wait_fraction,
                "ceiling_samples_per_second": self.ceiling_samples_per_second,
                "ceiling_fraction": self.ceiling_fraction,
            },
            "trials": self.trials.document(),
            "memory_cap_bytes": self.memory_cap_bytes,
            "wall_s": self.wall_s,
            "measuring_s": self.measuring_s,
            "config": self.config,
            "samples_unit": self.samples_unit,
            "reason": self.reason,
            "notes": list(self.notes),
            "contributions": [contribution.document() for contribution in self.contributions],
            "left_out": [one.document() for one in self.left_out],
            "protection": self.protection or None,
            "escaped": list(self.escaped),
            "memory": self.memory.document() if self.memory else None,
            "doubt": self.doubt or None,
            "beside_load": self.beside_load or None,
            "finalists": [finalist.document() for finalist in self.finalists],
            "verifications": [verification.document() for verification in self.verifications],
            "enough_s": self.enough_s,
        }

    @classmethod
    def from_document(cls, document: dict[str, Any]) -> Self:
        """The result described by `document`, as stored in the database.

        Raises:
            StoreError: When the document is not of a kind known to this release.
        """
        try:
            return cls._from_document(document)
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            raise StoreError(
                f"The stored result of study {document.get('study')!r} cannot be read: {error!r}.",
                "Another release wrote it, or it was edited: delete the study, and search again.",
            ) from error

    @classmethod
    def _from_document(cls, document: dict[str, Any]) -> Self:
        speedup, counts = document["speedup"], document["trials"]
        return cls(
            study=document["study"],
            status=Status(document["status"]),
            baseline=Contender.from_document(document["baseline"]) if document["baseline"] else None,
            best=Contender.from_document(document["best"]) if document["best"] else None,
            speedup=(speedup["ratio"], speedup["low"], speedup["high"]) if speedup else None,
            bottleneck=document["bottleneck"]["kind"],
            bottleneck_after=document["bottleneck"]["after"],
            data_wait_fraction=document["bottleneck"]["data_wait_fraction"],
            ceiling_samples_per_second=document["bottleneck"]["ceiling_samples_per_second"],
            ceiling_fraction=document["bottleneck"].get("ceiling_fraction"),
            trials=TrialCounts(**{name: counts[name] for name in ("complete", "infeasible", "failed", "gated")}),
            memory_cap_bytes=document["memory_cap_bytes"],
            wall_s=document["wall_s"],
            measuring_s=document["measuring_s"],
            config=document["config"],
            samples_unit=document["samples_unit"],
            reason=document["reason"],
            notes=tuple(document["notes"]),
            contributions=tuple(map(Contribution.from_document, document.get("contributions", ()))),
            left_out=tuple(map(LeftOut.from_document, document.get("left_out", ()))),
            protection=Protection(document["protection"]).value if document.get("protection") else "",
            escaped=tuple(document.get("escaped", ())),
            memory=MemoryShare.from_document(document["memory"]) if document.get("memory") else None,
            doubt=document.get("doubt") or "",
            beside_load=document.get("beside_load") or "",
            finalists=tuple(Steadiness(**values) for values in document.get("finalists", ())),
            verifications=tuple(map(Verification.from_document, document.get("verifications", ()))),
            enough_s=document.get("enough_s"),
        )
