"""The result of a search: what `--json` prints, what the terminal summarises, what the database keeps."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Self

from autotune.errors import StoreError
from autotune.protocol.protection import Protection
from autotune.settings import Settings

DOCUMENT_SCHEMA = 1


class Status(StrEnum):
    """How a search ended."""

    IMPROVED = "improved"
    """The tuned settings are faster than the baseline beyond the noise."""
    NO_GAIN = "no_gain"
    """Nothing is faster beyond the noise: the baseline is what is written."""
    TOO_SHORT = "too_short"
    """The time or the number of trials did not allow a comparison of other settings with the baseline."""
    NO_FEASIBLE = "no_feasible"
    """Everything that was tried needs more memory than the cap."""
    BASELINE_INFEASIBLE = "baseline_infeasible"
    """The baseline needs more than the cap; the best that does not is what is written."""
    INTERRUPTED = "interrupted"
    """Ended from outside; a resume goes on."""
    ALL_FAILED = "all_failed"
    """No trial could be measured."""

    @property
    def exit_code(self) -> int:
        """The command line's exit code; a gain that was required and is missing is decided there."""
        return {Status.NO_FEASIBLE: 3, Status.ALL_FAILED: 4, Status.INTERRUPTED: 130}.get(self, 0)


@dataclass(frozen=True, kw_only=True, slots=True)
class Contender:
    """The baseline or the best, as published."""

    trial: int | None
    settings: Settings
    feasible: bool
    samples_per_second: float | None
    """From the finals alone; None where it has not been through them."""
    interval: tuple[float, float] | None
    """Of the rate, at 95 %, over the rounds of the finals."""
    peak_memory_bytes: int | None
    """What is compared with the cap."""
    steady_samples_per_second: float | None = None
    """The rate within an epoch, without the cost of an epoch's start; None where that makes no difference."""

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
        }

    @classmethod
    def from_document(cls, document: dict[str, Any]) -> Self:
        """The contender that `document` described."""
        interval = document["interval"]
        return cls(
            trial=document["trial"],
            settings=Settings.from_dict(document["settings"]),
            feasible=document["feasible"],
            samples_per_second=document["samples_per_second"],
            interval=(interval[0], interval[1]) if interval else None,
            peak_memory_bytes=document["peak_memory_bytes"],
            steady_samples_per_second=document.get("steady_samples_per_second"),
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class TrialCounts:
    """How the trials ended; probe, gated, interrupted and finals are in none but their own."""

    complete: int = 0
    infeasible: int = 0
    failed: int = 0
    gated: int = 0
    """Suggestions that were not run, because they were predicted over the cap."""

    @property
    def total(self) -> int:
        """What `--trials` limits, the baseline included."""
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
    """What some changes of the winner were worth together, between two trials that differ in nothing else."""

    settings: tuple[str, ...]
    """Names of the changes; several only ever came together."""
    ratio: float
    """Of the rate with them to the rate without, both of single trials."""
    interval: tuple[float, float] | None
    """At 95 %, of what is repeatable within the two trials: machines drift between trials. None where unknown."""
    is_least: bool
    """The trial without them was stopped early, so that they were worth at least so much."""
    from_trial: int
    to_trial: int
    is_along: bool
    """A factor of the gain: these together, one after the other, lead from the baseline to the winner. The others tell
    of one change beside other settings."""

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
        """The contribution that `document` described."""
        interval = document["interval"]
        values = {**document, "interval": (interval[0], interval[1]) if interval else None}
        return cls(**{**values, "settings": tuple(document["settings"])})


@dataclass(frozen=True, kw_only=True, slots=True)
class LeftOut:
    """Settings that were left out of a study because trials failed under them."""

    settings: tuple[tuple[str, str], ...]
    """Names and values, as text; of several only all together fail."""
    reason: str
    """Of the failed trial with the fewest changes, with the place in the code where that is known."""
    trial: int

    def document(self) -> dict[str, Any]:
        """Plain values for `--json`."""
        return {"settings": dict(self.settings), "reason": self.reason, "trial": self.trial}

    @classmethod
    def from_document(cls, document: dict[str, Any]) -> Self:
        """What `document` described."""
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
    """Of the baseline, a value of measure.bottleneck.BottleneckKind."""
    bottleneck_after: str
    """Of the best."""
    data_wait_fraction: float | None
    """Of the baseline."""
    ceiling_samples_per_second: float | None
    """Compute-only rate of the baseline's settings."""
    trials: TrialCounts
    memory_cap_bytes: int
    wall_s: float
    """Of all runs of this search, resumed ones included."""
    measuring_s: float
    """Of that, warm-up and windows."""
    config: str | None
    """Path of the tuned config that was written."""
    ceiling_fraction: float | None = None
    """Share of the compute-only rate that the baseline reaches within an epoch. What is missing is its stall, with what
    the waits of `data_wait_fraction` do not show."""
    samples_unit: str = "samples"
    """`steps` where nobody could count samples."""
    reason: str = ""
    """Why it ended, as one sentence."""
    notes: tuple[str, ...] = ()
    """What the user should know, as sentences."""
    contributions: tuple[Contribution, ...] = ()
    """What the changes of the best were worth; empty where there is no gain, or nothing is known."""
    left_out: tuple[LeftOut, ...] = ()
    """Settings that trials have shown to fail; the search went on without them."""
    protection: str = ""
    """The weakest that any run of the search had, a value of Protection; empty where that is not known."""
    escaped: tuple[str, ...] = ()
    """User's files that were changed or removed while the script ran, in spite of the protection."""

    def document(self) -> dict[str, Any]:
        """The one document that `--json` prints."""
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
        }

    @classmethod
    def from_document(cls, document: dict[str, Any]) -> Self:
        """The result that `document` described, as the database keeps it.

        Raises:
            StoreError: It describes none that this release knows.
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
        )
