"""The options of a search, one entry each: flags, study file, variables, Python and the SearchSpec all read this table.

A new option is an entry here, a parameter of `autotune.search`, and a field of SearchSpec. The module loads quickly for
the sake of `autotune --help`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from pathlib import Path
from typing import Any

from autotune.spec import DEFAULT_BUDGET_S, DEFAULT_CONFIG, PREFIX
from autotune.study_file.file_origin import FileOrigin
from autotune.study_file.name import study_name

SEARCH = ("search",)
LIMITED = ("search", "resume")
MEASURING = ("search", "record")
TRYING = ("search", "record", "diagnose", "estimate")
STARTING = (*TRYING, "run")


class Kind(Enum):
    """The type of an option's value; `study_schema.TYPES` holds the checks of each."""

    TEXT = auto()
    PATH = auto()
    PATHS = auto()
    DATABASE = auto()
    WORDS = auto()
    COMMAND = auto()
    COUNT = auto()
    SEED = auto()
    AMOUNT = auto()
    TIME = auto()
    MEMORY_CAP = auto()
    EFFECTIVE_BATCH = auto()
    DEVICE = auto()
    PROTECTION = auto()
    START = auto()
    TABLE = auto()
    SWITCH = auto()


def _as_it_is(value: Any, _: Path) -> Any:
    return value


@dataclass(frozen=True, kw_only=True, slots=True)
class SearchOption:
    """One option of a search."""

    name: str
    """Key in a study file and parameter in Python; the flag has dashes for underscores."""
    kind: Kind
    help: str
    default: str = ""
    """Words for the default in the help text; empty = the help text shows no default."""
    shows_variable: bool = False
    """The help text names the variable too."""
    unsaid: str = ""
    """Words of `autotune config show` for an absent value; empty = the value in the SearchSpec says enough."""
    metavar: str | None = None
    short: str | None = None
    verbs: tuple[str, ...] = ()
    """Commands with the flag; `autotune config show` takes the flags of `search`."""
    help_in: Mapping[str, str] = field(default_factory=dict)
    """Help texts of single verbs with another meaning of the option."""
    without_flag: str = ""
    """How the command line says the value without a flag, such as `SCRIPT`."""
    is_key: bool = True
    """A study file may hold the option."""
    has_variable: bool = True
    """False for code to run, tables and lists."""
    in_python: bool = True
    in_job: bool = True
    """False for options that a job of the service may not hold: commands, places, and less protection."""
    about_script: bool = False
    """In a study file, the value describes the file's own script and does not hold for another script."""
    spec_field: str | None = None
    """Field of SearchSpec; None = the value becomes part of the command."""
    to_spec: Callable[[Any, Path], Any] = _as_it_is
    """Turns the checked value and the working directory into the field's value."""
    leads_outside: Callable[[Any, FileOrigin], bool] = lambda value, origin: False
    """Whether a value in a study file leads outside the file's folder, or leaves files unprotected: the user agrees to
    such values first."""

    @property
    def flag(self) -> str:
        """The typed form: `--memory-cap`, `SCRIPT`, or `after --`."""
        return self.without_flag or f"--{self.name.replace('_', '-')}"

    @property
    def variable(self) -> str | None:
        """Name of the environment variable; None without a variable."""
        return PREFIX + self.name.upper() if self.has_variable else None

    def help_text(self, verb: str = "search") -> str:
        """The help text of a verb's flag, with the default."""
        if verb in self.help_in:
            return self.help_in[verb]
        variable = f"{self.variable}; " if self.shows_variable else ""
        return f"{self.help} [{variable}default: {self.default}]" if self.default else self.help


def _pairs(table: Mapping[str, str], _: Path) -> tuple[tuple[str, str], ...]:
    return tuple(table.items())


def _study(name: str, _: Path) -> str:
    return study_name(name)


def _absolute_paths(paths: list[str], cwd: Path) -> tuple[str, ...]:
    return tuple(str(cwd / Path(path).expanduser()) for path in paths)


OPTIONS = (
    SearchOption(
        name="script",
        in_job=False,
        kind=Kind.PATH,
        help="The training script; its own arguments follow --.",
        metavar="SCRIPT",
        verbs=STARTING,
        without_flag="SCRIPT",
        has_variable=False,
        leads_outside=lambda path, origin: not origin.has_file(path),
    ),
    SearchOption(
        name="module",
        in_job=False,
        kind=Kind.TEXT,
        help="The script as a module, as after `python -m`.",
        metavar="MODULE",
        short="-m",
        verbs=STARTING,
        has_variable=False,
        leads_outside=lambda name, origin: not origin.has_module(name),
    ),
    SearchOption(
        name="command",
        in_job=False,
        kind=Kind.COMMAND,
        help="A whole command in place of a script, such as torchrun --nproc-per-node 2 train.py.",
        without_flag="after --",
        has_variable=False,
        leads_outside=lambda command, origin: True,
    ),
    SearchOption(
        name="args",
        in_job=False,
        kind=Kind.WORDS,
        help="Arguments of the script.",
        unsaid="none",
        without_flag="after --",
        has_variable=False,
        about_script=True,
        leads_outside=lambda words, origin: not origin.starts_own_code,
    ),
    SearchOption(
        name="nproc_per_node",
        kind=Kind.COUNT,
        help="Processes that train together on this machine, by torchrun.",
        unsaid="1",
        metavar="N",
        verbs=STARTING,
        about_script=True,
    ),
    SearchOption(
        name="study",
        kind=Kind.TEXT,
        help="Name of the study.",
        default="the script's",
        metavar="NAME",
        verbs=MEASURING,
        help_in={"record": "What it is of. [default: the script's name]"},
        about_script=True,
        spec_field="study",
        to_spec=_study,
    ),
    SearchOption(
        name="study_file",
        in_job=False,
        kind=Kind.PATH,
        help="Read this instead of ./study.toml.",
        metavar="PATH",
        verbs=TRYING,
        is_key=False,
    ),
    SearchOption(
        name="storage",
        in_job=False,
        kind=Kind.DATABASE,
        help="Database: a path, or a URL such as postgresql://user@host/database.",
        default="studies/autotune.db",
        shows_variable=True,
        metavar="URL",
        verbs=("search", "resume", "verify"),
        spec_field="storage",
        leads_outside=lambda url, origin: not origin.has_database(url),
    ),
    SearchOption(
        name="memory_cap",
        kind=Kind.MEMORY_CAP,
        help="Most device memory that training may take.",
        default="90% of what is free; CPU: 80%",
        unsaid="90% of what is free; on a CPU 80%",
        metavar="16GiB|80%",
        verbs=TRYING,
        spec_field="memory_cap",
    ),
    SearchOption(
        name="trials",
        kind=Kind.COUNT,
        help="Trials to spend.",
        default="no limit",
        unsaid="no limit",
        metavar="N",
        verbs=LIMITED,
        help_in={"resume": "New limit of the trials of all runs of the study. [default: as before]"},
        spec_field="max_trials",
    ),
    SearchOption(
        name="time",
        kind=Kind.TIME,
        help="Longest wall time, all included.",
        default=f"{DEFAULT_BUDGET_S / 60:g}m",
        metavar="15m",
        verbs=LIMITED,
        help_in={"resume": "New limit of the wall time of all runs of the study. [default: as before]"},
        spec_field="budget_s",
    ),
    SearchOption(
        name="spend_all",
        kind=Kind.SWITCH,
        help="Spend all of --time, even when the next minute is expected to gain less than 1 %.",
        verbs=SEARCH,
        spec_field="spend_all",
    ),
    SearchOption(
        name="effective_batch",
        kind=Kind.EFFECTIVE_BATCH,
        help="Samples per optimizer step; another batch trains differently.",
        default="fixed",
        metavar="fixed|free|LOW..HIGH",
        verbs=MEASURING,
        spec_field="effective_batch",
    ),
    SearchOption(
        name="set",
        kind=Kind.TABLE,
        help="Search only these values: a,b,c or low..high. Repeatable.",
        metavar="KEY=RANGE",
        verbs=MEASURING,
        help_in={"record": "Values of the grid: a,b,c or low..high. Repeatable."},
        has_variable=False,
        spec_field="ranges",
        to_spec=_pairs,
    ),
    SearchOption(
        name="fix",
        kind=Kind.TABLE,
        help="Do not search this setting. Repeatable.",
        metavar="KEY=VALUE",
        verbs=MEASURING,
        help_in={"record": "One value for all cells. Repeatable."},
        has_variable=False,
        spec_field="fixed",
        to_spec=_pairs,
    ),
    SearchOption(
        name="map",
        kind=Kind.TABLE,
        help="Give a setting, or a knob of yours, to the script as an argument: num_workers=--workers={}. Repeatable.",
        metavar="KEY=TEMPLATE",
        verbs=MEASURING,
        has_variable=False,
        about_script=True,
        spec_field="maps",
        to_spec=_pairs,
        leads_outside=lambda table, origin: not origin.starts_own_code,
    ),
    SearchOption(
        name="samples_per_step",
        kind=Kind.AMOUNT,
        help="Samples per optimizer step over all devices, where they cannot be counted.",
        unsaid="counted",
        metavar="N",
        verbs=TRYING,
        about_script=True,
        spec_field="samples_per_step",
    ),
    SearchOption(
        name="take_over",
        kind=Kind.TEXT,
        help="Count trials of this study too, where they fit: same script and machine, another space or cap.",
        unsaid="none",
        metavar="STUDY",
        verbs=SEARCH,
        about_script=True,
        spec_field="take_over",
        to_spec=_study,
    ),
    SearchOption(
        name="out",
        in_job=False,
        kind=Kind.PATH,
        help="Where the config goes.",
        default=DEFAULT_CONFIG,
        metavar="PATH",
        verbs=SEARCH,
        spec_field="out",
        leads_outside=lambda path, origin: not origin.has_file(path),
    ),
    SearchOption(
        name="force",
        in_job=False,
        kind=Kind.SWITCH,
        help="Overwrite whatever is at --out.",
        verbs=SEARCH,
        spec_field="force",
    ),
    SearchOption(
        name="seed",
        kind=Kind.SEED,
        help="Of the search.",
        default="0",
        metavar="N",
        verbs=MEASURING,
        help_in={"record": "Of the order of the cells. [default: 0]"},
        spec_field="seed",
    ),
    SearchOption(
        name="device",
        kind=Kind.DEVICE,
        help="Where it trains.",
        default="auto",
        metavar="auto|cpu|cuda[:N]",
        verbs=STARTING,
        spec_field="device",
    ),
    SearchOption(
        name="start",
        kind=Kind.START,
        help="How settings are measured: live, several in one process of the script, or each in a fresh process.",
        default="auto, live on a GPU",
        metavar="auto|live|fresh",
        verbs=(*SEARCH, "record"),
        help_in={
            "record": "Measure cells live, or each in a fresh process. [default: live, or as the recording began]"
        },
        spec_field="start",
    ),
    SearchOption(
        name="require_gain",
        kind=Kind.SWITCH,
        help="Exit with 7 when nothing is faster.",
        verbs=SEARCH,
        in_python=False,
        spec_field="require_gain",
    ),
    SearchOption(
        name="share_gpu",
        kind=Kind.SWITCH,
        help="Measure although other processes use the device.",
        verbs=TRYING,
        spec_field="share_gpu",
    ),
    SearchOption(
        name="protection",
        kind=Kind.PROTECTION,
        help="What keeps your files from what trials write.",
        default="auto, the best that the system permits",
        metavar="auto|layers|landlock|none",
        verbs=TRYING,
        spec_field="protection",
        leads_outside=lambda mode, origin: bool(mode == "none"),
    ),
    SearchOption(
        name="unprotected",
        in_job=False,
        kind=Kind.SWITCH,
        help="Go on where nothing protects your files; what trials change there is named.",
        verbs=(*TRYING, "resume", "verify"),
        spec_field="unprotected",
        leads_outside=lambda is_on, origin: is_on is True,
    ),
    SearchOption(
        name="network",
        in_job=False,
        kind=Kind.SWITCH,
        help="Let trials use the network; otherwise only the probe does.",
        verbs=("search",),
        spec_field="network",
    ),
    SearchOption(
        name="allow_batchnorm_accumulation",
        kind=Kind.SWITCH,
        help="Split batches although BatchNorm then sees smaller ones.",
        verbs=MEASURING,
        spec_field="allow_batchnorm_accumulation",
    ),
    SearchOption(
        name="writable",
        in_job=False,
        kind=Kind.PATHS,
        help="Let trials write there for real, and overwrite. Repeatable.",
        unsaid="none",
        metavar="PATH",
        verbs=TRYING,
        has_variable=False,
        spec_field="writable",
        to_spec=_absolute_paths,
        leads_outside=lambda paths, origin: bool(paths),
    ),
)
IN_JOB = tuple(option for option in OPTIONS if option.in_job)
"""Options of a job of the service."""
BY_NAME = {option.name: option for option in OPTIONS}
KEYS = tuple(option.name for option in OPTIONS if option.is_key)
"""Keys of a study file."""
TABLES = tuple(option.name for option in OPTIONS if option.kind is Kind.TABLE)
WHAT_TO_RUN = ("script", "module", "command")
"""Keys that exclude each other."""
NO_VARIABLE = tuple(option.name for option in OPTIONS if not option.has_variable)
VARIABLES = {option.name: option.variable for option in OPTIONS if option.variable is not None}
"""Environment variables by option."""


def flag_of(key: str) -> str:
    """The typed form of a key; for an entry of a table `--set NAME`."""
    table, _, name = key.partition(".")
    flag = BY_NAME[table].flag if table in BY_NAME else f"--{table.replace('_', '-')}"
    return f"{flag} {name}".rstrip()
