"""Values and ranges of settings as text: `a,b,c` and `low..high`."""

from __future__ import annotations

from autotune.errors import SearchSpaceError
from autotune.settings import BY_NAME, DOMAINS, GROUP_OF_FIELD, Settings, Value
from autotune.space.search_space import KNOB_PREFIX


def parse_value(name: str, text: str) -> Value:
    """The value of a setting from text.

    Raises:
        SearchSpaceError: The setting is unknown (knobs take any text), or the text is no value of the setting, or more
            than a search tries.
    """
    if name.startswith(KNOB_PREFIX):
        return text
    if name not in GROUP_OF_FIELD:
        raise SearchSpaceError(f"{name!r} is not a setting.", f"Settings are {', '.join(GROUP_OF_FIELD)}.")
    setting = BY_NAME[name]
    sample = setting.domain[0] if setting.domain else 1
    text = text.strip()
    try:
        if isinstance(sample, bool):
            value: Value = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}[text.lower()]
        elif isinstance(sample, int):
            value = int(text)
        elif isinstance(sample, float):
            value = float(text)
        else:
            value = text.lower()
    except (KeyError, ValueError):
        raise SearchSpaceError(f"{name} {text!r} is not a value of this setting.", _example(name)) from None
    Settings.from_dict({name: value})
    most = setting.most_searched
    if most is not None and isinstance(value, int) and value > most:
        # Such a number of processes or threads would be started, or such a number of values listed.
        raise SearchSpaceError(f"{name} {value} is more than a search tries.", f"Give at most {most}.")
    return value


def parse_range(name: str, text: str) -> tuple[Value, ...]:
    """Values meant by `a,b,c` or `low..high`; a range gives its two ends and the domain's values inside.

    Raises:
        SearchSpaceError: A value is impossible, or the range is empty or not of numbers.
    """
    if ".." not in text:
        values = tuple(dict.fromkeys(parse_value(name, part) for part in text.split(",") if part.strip()))
        if not values:
            raise SearchSpaceError(f"The range {text!r} of {name} is empty.", _example(name))
        return values
    low_text, _, high_text = text.partition("..")
    low, high = parse_value(name, low_text), parse_value(name, high_text)
    if isinstance(low, (bool, str)) or isinstance(high, (bool, str)) or low > high:
        raise SearchSpaceError(f"The range {text!r} of {name} is empty.", _example(name))
    if name not in DOMAINS:
        return tuple(range(int(low), int(high) + 1))
    inside = {value for value in DOMAINS[name] if low <= value <= high}  # type: ignore[operator]
    return tuple(sorted(inside | {low, high}))


def _example(name: str) -> str:
    if name not in DOMAINS:
        return f"Write {name}=8,16,32 or {name}=8..32."
    return f"Write {name}=" + ",".join(str(value).lower() for value in DOMAINS[name][:3]) + "."
