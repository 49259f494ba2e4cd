"""Words on stderr about settings in real training, and the exit code of a training ended by us."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from autotune.trial.observed_values import Observed
from autotune.verdict.in_force import text_in_force

EXIT_CODE = 2
"""Exit code of a usage error: the config does not fit the script."""


def refusal_text(missed: Mapping[str, object], observed: Observed, lines: Sequence[str]) -> str:
    """The message on settings out of force.

    Args:
        missed: Values asked for, by setting.
        observed: Values in force.
        lines: Lines by which the script applies the settings itself.
    """
    listed = "; ".join(
        f"{name} {text_in_force(name, observed.values[name], observed.comments)}, not {asked}"
        for name, asked in missed.items()
    )
    return (
        f"autotune: NOT in force: {listed}\n"
        "autotune: the training is ended after its first steps. Let the script apply its config itself, with these "
        "lines where they belong, and start it without autotune:\n" + "".join(f"  {line}\n" for line in lines)
    )
