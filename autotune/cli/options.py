"""Turns the options of a search into parameters of typer, and declares the parameters of many verbs."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, get_type_hints

import typer

from autotune.cli.completion_verb import complete_device, complete_study
from autotune.errors import UsageError
from autotune.study_file.name import study_name
from autotune.study_file.search_options import BY_NAME, IN_JOB, OPTIONS, Kind, SearchOption

COMPLETIONS: dict[str, Callable[..., Any]] = {"device": complete_device, "take_over": complete_study}
"""Functions that complete a value after TAB, by option."""


def typer_parameter(option: SearchOption, verb: str = "search") -> Any:
    """The flag of a verb as typer describes flags; for the script an argument."""
    if option.name == "script":
        return typer.Argument(metavar=option.metavar, help=option.help_text(verb), show_default=False)
    names = [option.flag] if option.short is None else [option.short, option.flag]
    completion = COMPLETIONS.get(option.name)
    return typer.Option(*names, metavar=option.metavar, help=option.help_text(verb), autocompletion=completion)


Storage = Annotated[str | None, typer_parameter(BY_NAME["storage"])]
Json = Annotated[bool, typer.Option("--json", help="One JSON document on standard output, all talk on standard error.")]
JsonLines = Annotated[
    bool,
    typer.Option("--jsonl", help="Every event as a line of JSON on standard output, while it runs (docs/events.md)."),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Say only warnings and the result.")]
Study = Annotated[
    str,
    typer.Argument(
        metavar="STUDY",
        callback=study_name,
        autocompletion=complete_study,
        help="Name of the study; `autotune studies` lists them.",
    ),
]


@dataclass(frozen=True, kw_only=True, slots=True)
class Output:
    """The form of the result on standard output, and how much is said on standard error."""

    as_json: Json = False
    as_jsonl: JsonLines = False
    quiet: Quiet = False

    def __post_init__(self) -> None:
        """Refuses two forms at once.

        Raises:
            UsageError: The user asks for a document and for a stream.
        """
        if self.as_json and self.as_jsonl:
            hint = "The last line of --jsonl holds what --json prints."
            raise UsageError("--json and --jsonl exclude each other.", hint)


class Flags(dict[str, Any]):
    """Flags of a verb by name of the option, as text; None, False and an empty list for absent flags."""


def takes_options(verb: str) -> Callable[[Callable[..., int]], Callable[..., int]]:
    """Gives a verb its flags from the table of options.

    A parameter of type Flags becomes all flags of the verb, and a parameter of type Output becomes `--json`, `--jsonl`
    and `--quiet`. Other parameters stay as the function declares them.
    """

    def decorate(function: Callable[..., int]) -> Callable[..., int]:
        parameters: list[inspect.Parameter] = []
        groups: dict[str, tuple[type, list[str]]] = {}
        hints = get_type_hints(function, include_extras=True)
        for own in inspect.signature(function).parameters.values():
            hint = hints[own.name]
            expanded = _expanded(hint, verb) or [own.replace(annotation=hint, kind=inspect.Parameter.KEYWORD_ONLY)]
            if hint in (Flags, Output):
                groups[own.name] = (hint, [parameter.name for parameter in expanded])
            parameters += expanded

        def run(**values: Any) -> int:
            for name, (group, members) in groups.items():
                values[name] = group(**{member: values.pop(member) for member in members})
            return function(**values)

        run.__doc__ = function.__doc__
        run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        run.__dict__["__signature__"] = inspect.Signature(parameters)
        return run

    return decorate


def _expanded(hint: Any, verb: str) -> list[inspect.Parameter]:
    """The parameters of a group; empty for any other type."""
    if hint is Flags:
        options = IN_JOB if verb == "submit" else [option for option in OPTIONS if verb in option.verbs]
        return [_flag(option, verb) for option in options]
    if hint is Output:
        return [_parameter(name, form, False) for name, form in get_type_hints(Output, include_extras=True).items()]
    return []


def _flag(option: SearchOption, verb: str) -> inspect.Parameter:
    described = typer_parameter(option, verb)
    if option.kind is Kind.SWITCH:
        return _parameter(option.name, Annotated[bool, described], False)
    if option.kind in (Kind.TABLE, Kind.PATHS):
        return _parameter(option.name, Annotated[list[str] | None, described], None)
    return _parameter(option.name, Annotated[str | None, described], None)


def _parameter(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation, default=default)
