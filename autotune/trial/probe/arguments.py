"""Finds arguments of the script for settings, in the probe.

Arguments are parsed by argparse, by click, or by a configurator. A configurator is a file executed by the script: the
file overrides variables of the script by arguments like `--batch_size=32`.
"""

from __future__ import annotations

import argparse
import ast
import linecache
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from types import FrameType
from typing import Any

from autotune.model.facts import ArgumentFacts, LoaderFacts
from autotune.settings import SETTINGS
from autotune.trial.torch.patching import wrap
from autotune.trial.user_frames import user_frames

SWITCHES = {
    switch: (setting.name, value) for setting in SETTINGS for switch, value in setting.arguments.switches.items()
}
"""Arguments without a value, by the setting and the value of each."""
OF_TRAINER = frozenset(filter(None, (setting.arguments.of_trainer for setting in SETTINGS)))
"""Arguments handed on unchanged to loader and loop by the Trainer of Hugging Face."""
CONFIGURATOR = ("sys.argv", "globals()", "--")
"""Words in the text of every configurator."""
MAX_TEXT_BYTES = 1 << 16
_TRAINER_MODULES = ("transformers.", "accelerate.")


@dataclass(frozen=True, kw_only=True, slots=True)
class _Option:
    """An option of a parser, with the value on the script's command line."""

    dest: str
    option: str
    value: Any
    choices: tuple[str, ...]
    takes_whole_numbers: bool
    is_switch: bool
    is_trainers: bool
    """True for a field of Hugging Face's TrainingArguments."""


class ArgumentDetector:
    """Watches the script's parsers, and the arguments used to build loaders."""

    def __init__(self) -> None:
        self._options: dict[str, _Option] = {}
        self._parsed: list[Any] = []
        """Parsed namespaces, kept alive because the lookup is by identity."""
        self._dests: dict[str, str] = {}
        """Argument with the number of workers, by key of the loader."""
        self._of_trainer: set[str] = set()
        """Keys of loaders built by the Trainer of Hugging Face."""

    def attach(self) -> None:
        """Attaches to argparse."""
        wrap(argparse.ArgumentParser, "parse_known_args", self._wrap_parse)

    def built(self, key: str) -> None:
        """Looks at the call of a loader's constructor; called from inside of the call."""
        for option in _click_options():
            self._options.setdefault(option.dest, option)
        frame = next(user_frames(), None)
        if frame is None:
            return
        if str(frame.f_globals.get("__name__", "")).startswith(_TRAINER_MODULES):
            self._of_trainer.add(key)
        call = _call_at(frame)
        for keyword in call.keywords if call is not None else ():
            if keyword.arg == "num_workers" and isinstance(keyword.value, ast.Attribute):
                base = _value_of(keyword.value.value, frame)
                if any(base is namespace for namespace in self._parsed):
                    self._dests[key] = keyword.value.attr

    def facts(
        self,
        loader: LoaderFacts | None,
        *,
        num_micro_batches: int,
        own_autocast: str | None,
        targets_vary: bool,
        input_size: int | None = None,
    ) -> tuple[ArgumentFacts, ...]:
        """Arguments with values confirmed by the script's behaviour, at most one for each setting.

        Args:
            loader: The training loader.
            num_micro_batches: Batches per optimizer step of the script.
            own_autocast: dtype of the script's own autocast regions, None without regions.
            targets_vary: The loss is a mean over targets, and batches have different numbers of targets, so that the
                script's accumulation may matter.
            input_size: Samples of the model's inputs, for a script without a loader; None = unknown.
        """
        found: dict[str, list[ArgumentFacts]] = {}
        in_force = {"grad_accum_steps": num_micro_batches, **(_numbers_of(loader) if loader is not None else {})}
        if loader is None and input_size is not None:
            in_force["batch_size"] = input_size
        for option in _configured():
            self._options.setdefault(option.dest, option)
        for option in self._options.values():
            for name, template in _numbers(option, in_force):
                is_taken = loader is not None and self._is_taken(name, option, loader)
                found.setdefault(name, []).append(ArgumentFacts(name=name, template=template, is_taken=is_taken))
            for name, template in _values(option) if own_autocast is None else ():
                found.setdefault(name, []).append(ArgumentFacts(name=name, template=template, is_taken=False))
        # Two arguments for the same setting are ambiguous.
        single = [alike[0] for _, alike in sorted(found.items()) if len(alike) == 1]
        if targets_vary or not {"batch_size", "grad_accum_steps"} <= {it.name for it in single if it.is_taken}:
            # The product is held fixed, so batch size and accumulation are mapped together or not at all.
            single = [replace(it, is_taken=it.is_taken and it.name == "num_workers") for it in single]
        return tuple(single)

    def _is_taken(self, name: str, option: _Option, loader: LoaderFacts) -> bool:
        """Whether the training loader was built from this very argument, according to the source.

        The batch size is left to the user, because learning rates may follow from the batch size too. The Trainer of
        Hugging Face is an exception: it takes batch size and accumulation from its arguments.
        """
        if option.is_trainers and option.dest in OF_TRAINER:
            return any(key in self._of_trainer for key in loader.keys)
        is_named = any(self._dests.get(key) == option.dest for key in loader.keys)
        return name == "num_workers" and is_named and option.takes_whole_numbers and not option.choices

    def _wrap_parse(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def parse(parser: argparse.ArgumentParser, *args: Any, **kwargs: Any) -> Any:
            parsed = original(parser, *args, **kwargs)
            self._parsed.append(parsed[0])
            is_trainers = any(
                base.__name__ == "TrainingArguments"
                for kind in getattr(parser, "dataclass_types", ())
                for base in getattr(kind, "__mro__", ())
            )
            for option in _options(parser, parsed[0], is_trainers=is_trainers):
                self._options.setdefault(option.dest, option)
            return parsed

        return parse


def _options(parser: argparse.ArgumentParser, namespace: Any, *, is_trainers: bool) -> Iterator[_Option]:
    """Options given by name, with at most one value each."""
    for action in parser._actions:
        long = [option for option in action.option_strings if option.startswith("--")]
        option = next(iter(long or action.option_strings), None)
        if option is None or action.nargs not in (None, 0, "?") or not hasattr(namespace, action.dest):
            continue
        yield _Option(
            dest=action.dest,
            option=option,
            value=getattr(namespace, action.dest),
            choices=tuple(map(str, action.choices or ())),
            takes_whole_numbers=action.type is int and action.nargs is None,
            is_switch=action.const is True and action.nargs in (0, "?"),
            is_trainers=is_trainers,
        )


def _click_options() -> Iterator[_Option]:
    """Options of the command of click or typer running in this thread."""
    for name in ("click.globals", "typer._click.globals"):
        current = getattr(sys.modules.get(name), "get_current_context", None)
        context: Any = current(silent=True) if current is not None else None
        if context is None:
            continue
        for parameter in context.command.params:
            long = [option for option in parameter.opts if option.startswith("--")]
            if not long or getattr(parameter, "nargs", 1) != 1 or parameter.name not in context.params:
                continue
            yield _Option(
                dest=parameter.name,
                option=long[0],
                value=context.params[parameter.name],
                choices=tuple(map(str, getattr(getattr(parameter, "type", None), "choices", ()))),
                takes_whole_numbers=False,
                is_switch=bool(getattr(parameter, "is_flag", False)),
                is_trainers=False,
            )


def _configured() -> Iterator[_Option]:
    """Whole numbers among the variables of a script with a configurator."""
    main = sys.modules.get("__main__")
    path = getattr(main, "__file__", None)
    if path is None or not _has_configurator(Path(path)):
        return
    for name, value in list(vars(main).items()):
        if type(value) is int and not name.startswith("_"):
            yield _Option(
                dest=name,
                option=f"--{name}",
                value=value,
                choices=(),
                takes_whole_numbers=True,
                is_switch=False,
                is_trainers=False,
            )


def _has_configurator(script: Path) -> bool:
    """Whether a script executes a configurator."""
    try:
        statements = ast.parse(script.read_text(errors="replace")).body
    except (OSError, SyntaxError, ValueError, RecursionError):
        return False
    calls = [one.value for one in statements if isinstance(one, ast.Expr) and isinstance(one.value, ast.Call)]
    executed = [call for call in calls if isinstance(call.func, ast.Name) and call.func.id == "exec"]
    constants = [node.value for call in executed for node in ast.walk(call) if isinstance(node, ast.Constant)]
    files = [name for name in constants if isinstance(name, str) and name.endswith(".py")]
    texts = (_text_of(folder / name) for name in files for folder in (Path.cwd(), script.parent))
    return any(all(word in text for word in CONFIGURATOR) for text in texts)


def _text_of(path: Path) -> str:
    try:
        return path.read_text(errors="replace") if path.stat().st_size <= MAX_TEXT_BYTES else ""
    except OSError:
        return ""


def _numbers(option: _Option, in_force: dict[str, int]) -> Iterator[tuple[str, str]]:
    """Setting and template of an option with a number, if the number is the value in force."""
    for setting in SETTINGS:
        is_number = isinstance(option.value, int) and not isinstance(option.value, bool)
        is_named = _plain(option.dest) in setting.arguments.numbers
        if is_named and is_number and option.value == in_force.get(setting.name):
            yield setting.name, _template(option, "{}")


def _numbers_of(loader: LoaderFacts) -> dict[str, int]:
    """Whole numbers among the settings of a loader; 0 for an unknown batch."""
    return {
        setting.name: getattr(loader, setting.name) or 0
        for setting in SETTINGS
        if setting.read_of_loader is not None and setting.arguments.numbers
    }


def _values(option: _Option) -> Iterator[tuple[str, str]]:
    """`SETTING.VALUE` and template of an option for values of a setting."""
    dest = _plain(option.dest).removeprefix("dataloader_")
    if option.is_switch and option.value is False and dest in SWITCHES:
        name, stands_for = SWITCHES[dest]
        yield f"{name}.{stands_for}", option.option
    for setting in SETTINGS:
        named = setting.arguments.spellings.items() if dest in setting.arguments.choices else ()
        for value, spellings in named:
            for choice in option.choices:
                if choice.lower() in spellings and choice != option.value:
                    yield f"{setting.name}.{value}", _template(option, choice)


def _plain(dest: str) -> str:
    return dest.lower().replace("-", "_").replace(".", "_")


def _template(option: _Option, value: str) -> str:
    return f"{option.option}={value}" if option.option.startswith("--") else f"{option.option} {value}"


def _call_at(frame: FrameType) -> ast.Call | None:
    """The call in progress in a frame, as a syntax tree; None without a source."""
    position = next(islice(frame.f_code.co_positions(), frame.f_lasti // 2, None), None)
    try:
        tree = ast.parse("".join(linecache.getlines(frame.f_code.co_filename, frame.f_globals)))
    except (SyntaxError, ValueError, RecursionError):
        return None
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            place = (node.lineno, node.end_lineno, node.col_offset, node.end_col_offset)
            if place == position:
                return node
    return None


def _value_of(node: ast.expr, frame: FrameType) -> Any:
    """The object behind a name, or behind an attribute of a name; None when only running code could tell."""
    if isinstance(node, ast.Name):
        return frame.f_locals.get(node.id, frame.f_globals.get(node.id))
    if isinstance(node, ast.Attribute):
        return getattr(_value_of(node.value, frame), "__dict__", {}).get(node.attr)
    return None
