"""The end of a search in words: the gain, the changes, the next commands. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from rich.text import Text

from autotune.measure.bottleneck import BottleneckKind
from autotune.measure.paired import range_at_another_time
from autotune.model.search_result import Contender, Contribution, SearchResult, Status
from autotune.protocol.protection import SENTENCES, Protection
from autotune.report.usage_text import usage_lines
from autotune.report.verification_text import latest_lines
from autotune.report.words import bottleneck_text, clean, left_out_words, ratio_text, value_text
from autotune.settings import BY_NAME, own_lines
from autotune.units import format_bytes, format_interval, format_rate, format_seconds

LONG_RUN_H = 10.0
"""Length of the run used to illustrate the gain: long enough to make one-time costs negligible."""
OWN_AND_ONE = 2
"""Trials of a search with one combination beside the script's own settings."""
INDENT = "  "


@dataclass(frozen=True, kw_only=True, slots=True)
class NextCommands:
    """The commands offered by a summary, ready to be pasted into a shell."""

    resume: str
    """Includes a sufficient `--time` after a search that was too short."""
    export: str
    show: str
    report: str
    run: str
    """Includes `--config` if the config is not at the place searched by `run`."""
    cwd: str = ""
    """Folder for relative paths; empty = paths are shown unchanged."""


@dataclass(slots=True)
class _Page:
    """Paragraphs under construction."""

    text: Text = field(default_factory=Text)

    def paragraph(self, lines: Sequence[str], *, style: str = "", indent: str = INDENT) -> None:
        if lines:
            self.text.append("\n" if self.text else "")
            self.text.append("".join(f"{indent if line else ''}{line}\n" for line in lines), style=style)


def summary(result: SearchResult, commands: NextCommands) -> Text:
    """The summary of a search; `.plain` is the text without styles.

    Args:
        result: The result.
        commands: Commands for the next steps.
    """
    page = _Page()
    page.paragraph([clean(result.doubt)] if result.doubt else [], style="yellow", indent="")
    page.paragraph([headline(result)], style="bold", indent="")
    page.paragraph(list(_contenders(result)))
    page.paragraph(_changes(result))
    page.paragraph(worth_lines(result))
    page.paragraph(list(_explanation(result)))
    page.paragraph(usage_lines(result))
    page.paragraph(list(memory_lines(result)))
    page.paragraph(_steadiness(result))
    page.paragraph(latest_lines(result))
    page.paragraph([*_counts(result), *_protection(result)])
    page.paragraph([f"{clean(words)}" for words in left_out_words(result.left_out)], style="yellow")
    page.paragraph([f"note: {clean(note)}" for note in result.notes], style="yellow")
    page.paragraph(list(_next_steps(result, commands)))
    return page.text


def _protection(result: SearchResult) -> Iterator[str]:
    """The protection of the user's files in one line; nothing when unknown."""
    if result.protection:
        yield f"Protection of your files: {SENTENCES[Protection(result.protection)]}."


def headline(result: SearchResult) -> str:
    """The answer in one sentence."""
    unit = result.samples_unit
    if result.status is Status.IMPROVED and result.speedup is not None:
        beside = f", measured beside other load: {clean(result.beside_load)}" if result.beside_load else ""
        return f"These settings train {ratio_text(result.speedup)} as many {unit} per second as yours{beside}."
    if result.status is Status.BASELINE_INFEASIBLE:
        return "Your own settings need more memory than the cap; these are the fastest that were found under it."
    if result.status is Status.ALL_FAILED and result.trials.complete:
        return "No run of the finals could be measured, so the figures of the trials are not confirmed."
    if result.status is Status.NO_GAIN and result.beside_load:
        return (
            f"Settings looked faster than yours beside other load ({clean(result.beside_load)}), and whether they are "
            "on a quiet machine could not be told: yours are kept."
        )
    if result.status is Status.NO_GAIN and result.trials.total == OWN_AND_ONE:
        return "One other combination was tried, and is not faster than yours beyond the noise: yours are kept."
    return status_sentence(result.status, result.memory_cap_bytes)


def status_sentence(status: Status, memory_cap_bytes: int | None) -> str:
    """The end of a search in one sentence without figures."""
    cap = "" if memory_cap_bytes is None else f" of {format_bytes(memory_cap_bytes)}"
    return {
        Status.IMPROVED: "These settings are faster than yours.",
        Status.NO_GAIN: "No settings were found that are faster than yours beyond the noise: yours are kept.",
        Status.TOO_SHORT: "The search was too short to tell whether other settings are faster: yours are kept.",
        Status.NO_FEASIBLE: f"Everything that was tried needs more memory than the cap{cap}.",
        Status.BASELINE_INFEASIBLE: "Your own settings need more memory than the cap.",
        Status.INTERRUPTED: "The search was interrupted; what was finished is saved.",
        Status.ALL_FAILED: "No trial could be measured.",
    }[status]


def _contenders(result: SearchResult) -> Iterator[str]:
    """One line each for the baseline and the best, with rate and memory."""
    best, baseline = result.best, result.baseline
    is_same = best is not None and baseline is not None and best.settings == baseline.settings
    rows = [("yours", baseline)]
    if not is_same:
        rows.append((f"trial {best.trial}" if best is not None and best.trial is not None else "best", best))
    for name, contender in rows:
        if contender is not None:
            yield f"{name:<10}  {_figures(contender, result)}"


def _figures(contender: Contender, result: SearchResult) -> str:
    parts = []
    if contender.samples_per_second is not None:
        interval = f" {format_interval(*contender.interval)}" if contender.interval is not None else ""
        parts.append(f"{format_rate(contender.samples_per_second)}{interval} {result.samples_unit} per second")
        if contender.steady_samples_per_second is not None:
            parts.append(f"{format_rate(contender.steady_samples_per_second)} between the starts of epochs")
    elif contender.feasible:
        parts.append("not confirmed by finals")
    if contender.peak_memory_bytes is not None:
        share = contender.peak_memory_bytes / result.memory_cap_bytes
        cap = format_bytes(result.memory_cap_bytes)
        parts.append(f"peak memory {format_bytes(contender.peak_memory_bytes)}, {share:.0%} of the cap of {cap}")
    if not contender.feasible:
        parts.append("over the cap")
    return ", ".join(parts)


def _changes(result: SearchResult) -> list[str]:
    if result.best is None or result.baseline is None:
        return []
    differences = result.best.settings.differences(result.baseline.settings)
    if not differences:
        return []
    width = max(len(name) for name in differences)
    lines = [
        f"{INDENT}{clean(name):<{width}}  {value_text(before)} -> {value_text(after)}"
        for name, (after, before) in differences.items()
    ]
    return ["What changed:", *lines]


def worth_lines(result: SearchResult) -> list[str]:
    """The worth of each change; nothing for a single change, because the headline gives its worth."""
    along = [factor for factor in result.contributions if factor.is_along]
    beside = [factor for factor in result.contributions if not factor.is_along]
    if len(along) < 2 and not (along and len(along[0].settings) > 1):
        return []
    path = ", ".join(map(str, [along[0].from_trial, *(factor.to_trial for factor in along)]))
    lines = [f"What each was worth, by single trials one after the other (trials {path}):"]
    if len(along) > 1:
        lines += [f"{INDENT}{_factor(factor)}{_doubts(factor)}" for factor in along]
    elif not beside:
        lines = ["What each was worth cannot be told apart: no trial had only some of them."]
    else:
        lines = []
    if beside:
        lines.append("Alone, beside other settings:" if lines else "What each was worth alone, beside the others:")
        lines += [f"{INDENT}{_factor(one)} (trials {one.from_trial} and {one.to_trial})" for one in beside]
    return lines


def _factor(factor: Contribution) -> str:
    least = "at least " if factor.is_least else ""
    ratio = ratio_text((factor.ratio, *factor.interval)) if factor.interval is not None else f"{factor.ratio:.2f}x"
    return f"{least}{ratio}  {', '.join(map(clean, factor.settings))}"


def _doubts(factor: Contribution) -> str:
    doubts = ["only ever changed together"] if len(factor.settings) > 1 else []
    if factor.interval is not None and factor.interval[0] <= 1 <= factor.interval[1]:
        doubts.append("no more than the noise")
    return f" ({', '.join(doubts)})" if doubts else ""


def _explanation(result: SearchResult) -> Iterator[str]:
    """The bottleneck before and after, and the meaning of the figures."""
    before, after = bottleneck_text(result.bottleneck), bottleneck_text(result.bottleneck_after)
    if before:
        yield f"Your settings are bound by {before}{_waiting(result)}."
    if after and result.status is Status.IMPROVED:
        yield f"{'Now it is still' if after == before else 'Now it is'} bound by {after}."
    ceiling = result.ceiling_samples_per_second
    if ceiling is not None and result.bottleneck in (BottleneckKind.LOADER, BottleneckKind.CPU_CONTENTION):
        share = f"; you are at {result.ceiling_fraction:.0%} of that" if result.ceiling_fraction is not None else ""
        unit = result.samples_unit
        yield f"Without any loader your settings would train {format_rate(ceiling)} {unit} per second{share}."
    if result.status is Status.IMPROVED and result.speedup is not None:
        ratios = result.speedup[0], *range_at_another_time(*result.speedup)
        usual, longest, shortest = (format_seconds(LONG_RUN_H * 3600 / value) for value in ratios)
        yield (
            f"In the real run, {LONG_RUN_H:.0f} h of training steps take about {usual}. At another time expect "
            f"{shortest} to {longest}: nine of ten published gains were in such a range. Warm-up and evaluation are "
            "left out, loading the data is not."
        )


def memory_lines(result: SearchResult) -> Iterator[str]:
    """The device memory of the best settings, and the number of such jobs on a device; nothing on a CPU."""
    memory = result.memory
    if memory is None:
        return
    total, needed = format_bytes(memory.total_bytes), format_bytes(memory.process_bytes)
    how = "runs at full speed in" if memory.is_measured else "needs at most, by the peak of its allocator,"
    fits = f"; with room to spare, {memory.num_jobs} such jobs fit" if memory.num_jobs > 1 else ""
    yield f"The training {how} {needed} of {total}{fits}."
    if memory.reason:
        yield memory.reason
    yield f"autotune run --share then reserves {format_bytes(memory.reserved_bytes)} and leaves the rest to others."


def _steadiness(result: SearchResult) -> list[str]:
    """How much the rounds of every finalist differ, in one line."""
    own = result.baseline.trial if result.baseline is not None else None
    named = [f"{'yours' if one.trial == own else f'trial {one.trial}'} by {one.spread:.1%}" for one in result.finalists]
    return [f"Between rounds of the finals the rates differ: {', '.join(named)}."] if named else []


def _waiting(result: SearchResult) -> str:
    if not result.data_wait_fraction or result.data_wait_fraction < 0.01:
        return ""
    return f"; {result.data_wait_fraction:.0%} of the time goes into waiting for data"


def _counts(result: SearchResult) -> list[str]:
    counts = result.trials
    named = [
        (counts.complete, "measured"),
        (counts.infeasible, "over the memory cap"),
        (counts.failed, "failed"),
        (counts.gated, "left out because they would have needed more memory than the cap"),
    ]
    words = ", ".join(f"{count} {word}" for count, word in named if count)
    spent = f"{format_seconds(result.wall_s)}, {format_seconds(result.measuring_s)} of it measuring"
    plural = "trial" if counts.total == 1 else "trials"
    lines = [f"{counts.total} {plural} in {spent}" + (f": {words}." if words else ".")]
    return lines + ([clean(result.reason)] if result.reason else [])


def _next_steps(result: SearchResult, commands: NextCommands) -> Iterator[str]:
    if result.config is not None:
        yield from _usage_lines(result, result.config, commands)
    elif result.status is Status.NO_FEASIBLE:
        yield "Raise --memory-cap, or start from a smaller batch."
    if result.status is Status.INTERRUPTED:
        yield f"Go on: {commands.resume}"
        return
    if result.config is None:
        yield f"Why each trial ended: {commands.show}"
    if result.enough_s is not None:
        yield f"Go on with more time: {commands.resume}"


def _usage_lines(result: SearchResult, config: str, commands: NextCommands) -> Iterator[str]:
    path, best, baseline = clean(_shown_path(config, commands.cwd)), result.best, result.baseline
    is_own = best is not None and baseline is not None and best.settings == baseline.settings
    yield f"Config: {path}, with the script's own settings" if is_own else f"Config: {path}"
    yield ""
    if not is_own:
        yield "Train with it, the script unedited:"
        yield f"{INDENT}{commands.run}"
        yield "or load it in the script, where lines of its own then put in force what changed:"
        yield from (f"{INDENT}{line}" for line in own_lines(_changed_settings(result), path))
        yield "or take it elsewhere:"
        yield f"{INDENT}{commands.export}"
    has_ended = result.enough_s is None
    again = ", a page with pictures to show, and this summary again" if has_ended else ", and a page with pictures"
    yield f"Every trial and its reason{again}:"
    yield f"{INDENT}{commands.show}"
    yield f"{INDENT}{commands.report}"
    if has_ended:
        yield f"{INDENT}{commands.resume}"


def _changed_settings(result: SearchResult) -> tuple[str, ...]:
    """Settings whose values differ from the script's own, knobs apart."""
    if result.best is None or result.baseline is None:
        return ()
    differences = result.best.settings.differences(result.baseline.settings)
    return tuple(name for name in differences if name in BY_NAME)


def _shown_path(path: str, cwd: str) -> str:
    return path.removeprefix(cwd.rstrip("/") + "/") if cwd else path
