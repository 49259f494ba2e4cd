"""The user's wishes: ranges and fixed values of settings, and knobs of the script."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from autotune.errors import SearchSpaceError
from autotune.settings import GROUP_OF_FIELD, Settings, Value
from autotune.space.ranges import parse_range, parse_value
from autotune.space.search_space import KNOB_PREFIX, SCRIPTS_OWN, SPLIT, divisors_of
from autotune.spec import SearchSpec

Values = dict[str, list[Value]]
"""Values by parameter."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Wishes:
    """Applies the user's wishes to the values permitted by script and machine."""

    spec: SearchSpec
    script_settings: Settings
    mapped: Collection[str]
    """Settings and knobs passed to the script as arguments."""
    refused: Mapping[str, str]
    """Reasons of refusals, by parameter or by `parameter=value`."""
    batch: int | None
    """Samples per optimizer step on one device; None = unknown."""

    @property
    def is_fixed_batch(self) -> bool:
        """Whether samples per step stay as they are."""
        return self.spec.effective_batch == "fixed"

    def add_knobs(self, declared: Mapping[str, str], domains: Values, allowed: Values) -> None:
        """Adds the knobs with values from the user.

        Args:
            declared: The script's own values of its declared knobs.
            domains: All values that may ever be tried.
            allowed: Values that may be tried here.

        Raises:
            SearchSpaceError: The script has no knob of this name, or the knob gets no value.
        """
        wishes = {name: text for name, text in (*self.spec.ranges, *self.spec.fixed) if name not in GROUP_OF_FIELD}
        for name, text in wishes.items():
            if name not in declared and name not in self.mapped:
                raise SearchSpaceError(
                    f"{name!r} is neither a setting nor a knob of the script.",
                    f"Settings are {', '.join(GROUP_OF_FIELD)}; declare a knob with --map {name}=--{name}={{}}.",
                )
            values: list[Value] = [part.strip() for part in text.split(",") if part.strip()]
            if not values:
                raise SearchSpaceError(f"The range {text!r} of {name} is empty.", f"Write {name}=a,b.")
            own = declared.get(name, SCRIPTS_OWN)
            domains[KNOB_PREFIX + name] = list(dict.fromkeys([own, *values]))
            allowed[KNOB_PREFIX + name] = values if (name, text) in self.spec.fixed else domains[KNOB_PREFIX + name]

    def narrow(self, domains: Values, allowed: Values) -> None:
        """Narrows the settings named by the user to the values asked for.

        Raises:
            SearchSpaceError: A value is refused here, or cannot be.
        """
        wishes = [(name, parse_range(name, text)) for name, text in self.spec.ranges if name in GROUP_OF_FIELD]
        wishes += [(name, (parse_value(name, text),)) for name, text in self.spec.fixed if name in GROUP_OF_FIELD]
        for name, values in wishes:
            if name in ("batch_size", "grad_accum_steps") and self.is_fixed_batch:
                self._narrow_split(allowed, name, values)
            else:
                self._narrow_field(domains, allowed, name, values)

    def _narrow_field(self, domains: Values, allowed: Values, name: str, values: tuple[Value, ...]) -> None:
        reason = self.refused.get(name)
        for value in values:
            dropped = self.refused.get(f"{name}={value}", reason)
            if dropped and value != self.script_settings.to_dict()[name]:
                raise SearchSpaceError(f"{name} {value} cannot be searched: {dropped}.", f"Leave {name} out.")
        domains[name] = list(dict.fromkeys([*domains[name], *values]))
        allowed[name] = list(values)

    def _narrow_split(self, allowed: Values, name: str, values: tuple[Value, ...]) -> None:
        batch, reason = self.batch, self.refused.get("batch_size")
        own = {
            "batch_size": self.script_settings.batch_size,
            "grad_accum_steps": self.script_settings.grad_accum_steps,
        }[name]
        if (reason or batch is None) and set(values) != {own}:
            raise SearchSpaceError(f"{name} cannot be searched: {reason}.", f"Leave {name} out.")
        if batch is None:
            return
        divisors = divisors_of(batch)
        exact = [int(value) for value in values if batch % int(value) == 0]
        if not exact or (len(values) <= 4 and len(exact) < len(values)):
            wrong = next(value for value in values if batch % int(value))
            raise SearchSpaceError(
                f"{name} {wrong} does not divide the effective batch of {batch} on one device.",
                f"Its divisors are {', '.join(map(str, divisors))}; or search with --effective-batch free.",
            )
        sizes = exact if name == "batch_size" else [batch // value for value in exact]
        kept = {divisors.index(size) for size in sizes}
        allowed[SPLIT] = [index for index in allowed[SPLIT] if index in kept] or sorted(kept)
