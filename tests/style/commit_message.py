"""Whether a commit's subject is as CONTRIBUTING.md says: a scope, and at most 72 characters.

python -m tests.style.commit_message .git/COMMIT_EDITMSG     # by .pre-commit-config.yaml, as a commit-msg hook
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

LIMIT = 72
SCOPE = re.compile(r"[a-z][a-z0-9_./, -]*: \S")
MADE_BY_GIT = ("Merge ", "Revert ", "fixup! ", "squash! ", "amend! ")


def complaints(message: str) -> list[str]:
    """What is wrong with a commit message; empty where all is well."""
    subject, *body = message.splitlines() or [""]
    if subject.startswith(MADE_BY_GIT):
        return []
    found = []
    if len(subject) > LIMIT:
        found.append(f"the subject has {len(subject)} characters; the limit is {LIMIT}")
    if not SCOPE.match(subject):
        found.append("the subject has no scope, as in `trial: end a crashed trial without waiting for its workers`")
    if subject.endswith("."):
        found.append("the subject ends with a full stop")
    if body and body[0].strip() and not body[0].startswith("#"):
        found.append("the line below the subject is not empty")
    return found


def main(path: str) -> int:
    """Prints the complaints; the exit code is 1 where there are any."""
    found = complaints(Path(path).read_text())
    print("\n".join(found), file=sys.stderr)
    return int(bool(found))


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1]))
