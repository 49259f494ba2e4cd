"""Settings in force, as a session saw them."""

from __future__ import annotations

from dataclasses import dataclass, field

from autotune.settings import Value


@dataclass(kw_only=True, slots=True)
class Observed:
    """Settings as a trial saw them."""

    values: dict[str, Value | None] = field(default_factory=dict)
    """Values in force by setting, and by `knobs.NAME`. None = a value was asked for, and no value can be read back;
    settings without any trace are missing."""
    comments: dict[str, str] = field(default_factory=dict)
    """Remarks on values, by setting."""

    def note(self, name: str, value: Value | None, comment: str = "") -> None:
        """Sets a value, with a comment unless empty."""
        self.values[name] = value
        self.comments.pop(name, None)
        if comment:
            self.comments[name] = comment

    def update(self, other: Observed) -> None:
        """Overrides values and comments by later readings."""
        for name, value in other.values.items():
            self.note(name, value, other.comments.get(name, ""))
