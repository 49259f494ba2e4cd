"""What must not be shown or stored: tokens and passwords in arguments, text and the environment.

Masking is by name (`--api-key X`, `HF_TOKEN=X`) and by shape (`hf_...`, `user:password@host`). Where in doubt it masks:
a value hidden without need costs less than a secret shown.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from autotune.spec import SearchSpec

MASK = "***"

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
"""Before `token` these name a token of a language model, not one of a login."""

_CAMEL_BREAK = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_WORD_BREAK = re.compile(r"[^A-Za-z0-9]+")
_ARGUMENT_NAME = re.compile(r"[-+~]{0,2}[A-Za-z_][\w./-]*")

# What a script printed is searched too, so no pattern may take longer than in proportion to the text: each begins where
# a run of its characters begins, does not go back into one (the `++` and `*+`), or is bounded.
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
# The password goes up to the last @, since people do not escape one inside it; `host:8080/` is no user and password.
_URL_PASSWORD = re.compile(r"(?<![\w+.-])([\w+.-]++://[^\s:/@?#]{0,256}+:)(?!\d{1,5}(?:[/?#\s]|$))[^\s\"']{1,256}@")
_NAME_AND_SIGN = re.compile(r"(?<![\w.%-])([\w.%-]++)[\"']?\s*+[=:]\s*+[\"']?")
_VALUE = re.compile(r"[^\s\"',;&#)}\]]++")
_FLAG_AND_VALUE = re.compile(r"(?<!\S)(--?[A-Za-z][\w.-]*+)(\s++)(?!-)(\S++)")

_ENVIRONMENT = re.compile(
    r"(OMP|GOMP|KMP|MKL|OPENBLAS|BLIS|NUMEXPR|TORCH|TORCHINDUCTOR|NCCL|CUBLAS|CUDNN)_\w+"
    r"|PYTORCH_\w*ALLOC_CONF|CUDA_(VISIBLE_DEVICES|DEVICE_ORDER|LAUNCH_BLOCKING|MODULE_LOADING)"
    r"|SLURM_JOB_ID|MALLOC_ARENA_MAX|LD_PRELOAD|LANG|LC_ALL"
)
_SECRET_ENVIRONMENT = re.compile(r"TOKEN|SECRET|PASS|KEY|CREDENTIAL|AUTH", re.IGNORECASE)


def is_secret_name(name: str) -> bool:
    """Whether the value of an argument, a variable or a URL's query key of that name is to be hidden."""
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


def mask_text(text: str) -> str:
    """The text with everything that looks like a secret replaced by `***`; for logs, messages and reports."""
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
    """The text without the values of `name=value` and `"name": "value"` where the name is that of a secret.

    What follows another name is looked into, since `args: token=...` and `https://host?token=...` begin like one.
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
    """Plain JSON data with `mask_text` applied to every string in it, keys excepted."""
    if isinstance(value, str):
        return mask_text(value)
    if isinstance(value, Mapping):
        return {key: mask_plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [mask_plain(item) for item in value]
    return value


def mask_arguments(argv: Sequence[str]) -> tuple[str, ...]:
    """The arguments with tokens and passwords replaced by `***`; as many arguments, in the same order."""
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
        masked.append(argument if is_value_of_secret else mask_text(argument))
    return tuple(masked)


def masked_command(spec: SearchSpec) -> tuple[str, ...]:
    """The command of a search as it may be shown; the command itself is kept whole, since a resume needs it."""
    return mask_arguments(spec.command)


def allowed_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables that may be stored: those that change speed, by an allow-list, without anything secret."""
    return {
        name: mask_text(value)
        for name, value in sorted(environ.items())
        if _ENVIRONMENT.fullmatch(name) and not _SECRET_ENVIRONMENT.search(name)
    }
