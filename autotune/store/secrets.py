"""Hides secrets in text to be shown or stored: tokens and passwords in arguments, text and the environment.

Values are masked first: the value of a variable or an argument with a secret's name is hidden wherever the value
occurs. Names (`--api-key X`, `HF_TOKEN=X`) and shapes (`hf_...`, `user:password@host`) are masked next. Doubtful text
is masked too: a value hidden without need costs less than a secret shown.
"""

from __future__ import annotations

import html
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import Enum
from functools import lru_cache
from typing import Any
from urllib.parse import quote, unquote

from autotune.spec import SearchSpec

MASK = "***"
LEAST_LENGTH = 6
"""Least length of a value hidden everywhere, in characters: shorter values occur in ordinary text, and are hidden by
name alone."""

_SECRET_ENDINGS = ("password", "passwd", "passphrase", "passcode", "secret", "apikey", "authtoken")
_SECRET_WORDS = frozenset(
    {"secrets", "pwd", "credential", "credentials", "bearer", "authorization", "signature", "sig"}
)
_KEYS_THAT_OPEN = frozenset(
    {"access", "account", "api", "auth", "client", "encryption", "license", "master", "private", "secret", "service"}
    | {"shared", "signing", "ssh", "wandb"}
)
_PASSES_THAT_OPEN = frozenset({"admin", "db", "login", "root", "smtp", "user"})
_TOKENS_OF_TEXT = frozenset(
    {"bos", "cls", "end", "eos", "image", "mask", "pad", "sep", "separator", "special", "start", "stop", "unk"}
)
"""Words before `token` for tokens of a language model, in contrast to tokens of a login."""

_CAMEL_BREAK = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_WORD_BREAK = re.compile(r"[^A-Za-z0-9]+")
_ARGUMENT_NAME = re.compile(r"[-+~]{0,2}[A-Za-z_][\w./-]*")

# A script's output is searched too, so the time of every pattern must stay proportional to the text: a pattern begins
# at the start of a run of characters, never goes back into a run (the `++` and `*+`), or is bounded.
# A random string has a digit or is long; `hf_dataset` and `sk-learn` are neither.
_RANDOM = r"(?:(?=[A-Za-z_-]{0,64}[0-9])[\w-]{8,}|[\w-]{20,})"
_KNOWN_PREFIX = re.compile(
    r"\b(hf_|sk-|sk_live_|gh[opsur]_|github_pat_|glpat-|xox[abeprs]-|AKIA|ASIA|AIza|nvapi-)" + _RANDOM
)
_JSON_WEB_TOKEN = re.compile(r"(?<![\w-])eyJ[\w-]{8,}+\.[\w-]{4,}+(?:\.[\w-]*+)?")
_BEARER = re.compile(r"(\bbearer\s++)[\w.~+/=-]{6,}+", re.IGNORECASE)
_AUTHORIZATION = re.compile(
    r"(\bauthorization[\"']?\s*+[:=]\s*+[\"']?)(?:[A-Za-z]{1,20}+\s++)?[^\s\"',]++", re.IGNORECASE
)
# A password ends at the last @, because people do not escape an @ inside; `host:8080/` is no user and password.
_URL_PASSWORD = re.compile(r"(?<![\w+.-])([\w+.-]++://[^\s:/@?#]{0,256}+:)(?!\d{1,5}(?:[/?#\s]|$))[^\s\"']{1,256}@")
_NAME_AND_SIGN = re.compile(r"(?<![\w.%-])([\w.%-]++)[\"']?\s*+[=:]\s*+[\"']?")
_VALUE = re.compile(r"[^\s\"',;&#)}\]]++")
_FLAG_AND_VALUE = re.compile(r"(?<!\S)(--?[A-Za-z][\w.-]*+)(\s++)(?!-)(\S++)")

_ENVIRONMENT = re.compile(
    r"(OMP|GOMP|KMP|MKL|OPENBLAS|BLIS|NUMEXPR|TORCH|TORCHINDUCTOR|NCCL|CUBLAS|CUDNN)_\w+"
    r"|PYTORCH_\w*ALLOC_CONF|CUDA_(VISIBLE_DEVICES|DEVICE_ORDER|LAUNCH_BLOCKING|MODULE_LOADING)"
    r"|SLURM_JOB_ID|MALLOC_ARENA_MAX|LD_PRELOAD|LANG|LC_ALL"
)
_NO_SECRET_VARIABLES = frozenset({"PWD", "OLDPWD"})
_SECRET_ENVIRONMENT = re.compile(r"TOKEN|SECRET|PASS|KEY|CREDENTIAL|AUTH", re.IGNORECASE)


def is_secret_name(name: str) -> bool:
    """Whether the value of an argument, a variable or a URL's query key with this name is to be hidden."""
    words = [word for word in _WORD_BREAK.split(_CAMEL_BREAK.sub(" ", name).lower()) if word]
    if not words:
        return False
    last, before = words[-1], words[-2] if len(words) > 1 else ""
    if last == "token":
        return before not in _TOKENS_OF_TEXT
    if last == "key":
        return before in _KEYS_THAT_OPEN
    if last == "pass":
        return not before or before in _PASSES_THAT_OPEN
    return last in _SECRET_WORDS or last.endswith(_SECRET_ENDINGS)


def remember_arguments(argv: Sequence[str]) -> None:
    """Hides the values of the command's secret arguments everywhere from now on."""
    remember_secrets(_secret_arguments(argv))


def remember_secrets(values: Iterable[str]) -> None:
    """Hides the values everywhere from now on, except values shorter than `LEAST_LENGTH`."""
    _remembered.update(value for value in values if len(value) >= LEAST_LENGTH)


_remembered: set[str] = set()
"""Secrets of this process beside the secrets in environment variables."""


def mask_known(text: str) -> str:
    """The text with all known secrets, from variables and commands, replaced by `***`."""
    pattern = _known_pattern(frozenset(_known_secrets()))
    return text if pattern is None else pattern.sub(MASK, text)


def _known_secrets() -> Iterator[str]:
    yield from _remembered
    for name, value in os.environ.items():
        if len(value) >= LEAST_LENGTH and (_is_secret_variable(name) or "://" in value):
            yield from _secrets_in_variable(name, value)


@lru_cache(maxsize=4096)
def _is_secret_variable(name: str) -> bool:
    words = [word for word in _WORD_BREAK.split(name.lower()) if word and not word.isdigit()]
    if not words or name in _NO_SECRET_VARIABLES:
        return False
    is_of_text = words[-1] == "token" and words[-2:-1] and words[-2] in _TOKENS_OF_TEXT
    return is_secret_name("_".join(words)) or (words[-1] in ("token", "key", "pass") and not is_of_text)


@lru_cache(maxsize=256)
def _secrets_in_variable(name: str, value: str) -> tuple[str, ...]:
    password = password_of(value)
    if not _is_secret_variable(name):
        return (password,) if len(password) >= LEAST_LENGTH else ()
    # The path of a file with credentials is no secret.
    if value.startswith(("/", "~/", "./")) and os.path.lexists(os.path.expanduser(value)):  # noqa: PTH111
        return ()
    return value, *(line.strip() for line in value.splitlines() if len(line.strip()) > 2 * LEAST_LENGTH)


def password_of(text: str) -> str:
    """The password in a URL, up to the last @ before the query; empty when the text has no password or is no URL."""
    _, separator, rest = text.partition("://")
    login, at, _ = rest.partition("?")[0].rpartition("@")
    return login.partition(":")[2] if separator and at else ""


@lru_cache(maxsize=16)
def _known_pattern(values: frozenset[str]) -> re.Pattern[str] | None:
    """A pattern for the values in all forms used by documents, pages and URLs; None without values."""
    forms = {
        form
        for value in values
        for form in (value, unquote(value), quote(value, safe=""), html.escape(value), json.dumps(value)[1:-1])
        if len(form) >= LEAST_LENGTH
    }
    return re.compile("|".join(map(re.escape, sorted(forms, key=len, reverse=True)))) if forms else None


def mask_text(text: str) -> str:
    """The text with known secrets, and everything like a secret, replaced by `***`."""
    return _mask_shapes(mask_known(text))


def _mask_shapes(text: str) -> str:
    text = _URL_PASSWORD.sub(rf"\g<1>{MASK}@", text)
    text = _AUTHORIZATION.sub(rf"\g<1>{MASK}", text)
    text = _BEARER.sub(rf"\g<1>{MASK}", text)
    text = _KNOWN_PREFIX.sub(rf"\g<1>{MASK}", text)
    text = _JSON_WEB_TOKEN.sub(MASK, text)
    return _FLAG_AND_VALUE.sub(_mask_flag, _mask_assignments(text))


def _mask_flag(match: re.Match[str]) -> str:
    flag, space, _ = match.groups()
    return f"{flag}{space}{MASK}" if is_secret_name(flag) else match[0]


def _mask_assignments(text: str) -> str:
    """The text without the values of `name=value` and `"name": "value"` when the name is a secret's.

    Text after a harmless name is searched too, because `args: token=...` and `https://host?token=...` begin like an
    assignment.
    """
    parts, end = [], 0
    for match in _NAME_AND_SIGN.finditer(text):
        if match.start() < end or not is_secret_name(match[1]):
            continue
        value = _VALUE.match(text, match.end())
        if value is not None:
            parts += [text[end : match.end()], MASK]
            end = value.end()
    return "".join([*parts, text[end:]])


def mask_plain(value: Any) -> Any:
    """Plain JSON data with `mask_text` applied to every string, except keys and values of autotune's enumerations.

    A masked outcome could not be read back, and tells nothing of a password that happens to be the same word.
    """
    known = _known_pattern(frozenset(_known_secrets()))
    own_words = _own_words(Enum) if known is not None else frozenset()

    def mask(item: Any) -> Any:
        if isinstance(item, str):
            if item in own_words:
                return item
            return _mask_shapes(item if known is None else known.sub(MASK, item))
        if isinstance(item, Mapping):
            return {key: mask(inner) for key, inner in item.items()}
        if isinstance(item, (list, tuple)):
            return [mask(inner) for inner in item]
        return item

    return mask(value)


def _own_words(enumeration: type[Enum]) -> frozenset[str]:
    """Values of all enumerations of autotune loaded so far, below one class."""
    is_ours = enumeration.__module__.partition(".")[0] == "autotune"
    values = [member.value for member in enumeration] if is_ours else []
    return frozenset(values).union(*map(_own_words, enumeration.__subclasses__()))


def _secret_arguments(argv: Sequence[str]) -> Iterator[str]:
    """Secrets among the arguments: whole values hidden by `mask_arguments`, and passwords in URLs."""
    for argument, masked in zip(argv, _masked(argv), strict=True):
        if masked == MASK:
            yield argument
        elif masked.endswith(f"={MASK}"):
            yield argument.partition("=")[2]
        if password := password_of(argument):
            yield password


def mask_arguments(argv: Sequence[str]) -> tuple[str, ...]:
    """The arguments with tokens and passwords replaced by `***`, in the same number and order."""
    return tuple(mask_known(argument) for argument in _masked(argv))


def _masked(argv: Sequence[str]) -> tuple[str, ...]:
    """The arguments without secrets, as far as names and shapes tell."""
    masked: list[str] = []
    is_value_of_secret = False
    for argument in argv:
        name, equals, _ = argument.partition("=")
        if is_value_of_secret and not argument.startswith("--"):
            masked.append(MASK)
            is_value_of_secret = False
            continue
        is_value_of_secret = False
        if equals and _ARGUMENT_NAME.fullmatch(name) and is_secret_name(name):
            masked.append(f"{name}={MASK}")
            continue
        is_value_of_secret = argument.lower() == "bearer" or (argument.startswith("-") and is_secret_name(argument))
        masked.append(argument if is_value_of_secret else _mask_shapes(argument))
    return tuple(masked)


def masked_command(spec: SearchSpec) -> tuple[str, ...]:
    """The command of a search without secrets, fit to be shown and stored."""
    return mask_arguments(spec.command)


def allowed_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables fit to be stored: variables that change speed, by an allow-list, without anything secret."""
    return {
        name: mask_text(value)
        for name, value in sorted(environ.items())
        if _ENVIRONMENT.fullmatch(name) and not _SECRET_ENVIRONMENT.search(name)
    }
