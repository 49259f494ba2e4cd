"""Records the session that the README shows: a real search on a real terminal. 6 minutes.

    python -m tests.docs.record_session [--time 5m] [--columns 100] [--folder FOLDER]

The main job of studies/jpeg_cnn runs in a folder of its own under a pseudo-terminal; with `--folder` it stays, with its
database and config, for whoever wants to see whether the claim holds. Written are docs/session.txt and
docs/session.svg, the screen as it stands at the end, docs/live.svg, the screen in the middle of a trial, and the sample
in README.md: some lines of docs/session.txt, chosen by `excerpt`.
"""

from __future__ import annotations

import argparse
import io
import re
import shutil
import sys
import tempfile
import textwrap
from contextlib import nullcontext
from pathlib import Path

from rich.console import CONSOLE_SVG_FORMAT, Console
from rich.text import Text

from tests.pty_session import OpenStudy, run_in_terminal
from tests.screen import Screen

ROOT = Path(__file__).parents[2]
DOCS, README = ROOT / "docs", ROOT / "README.md"
STUDY = ROOT / "studies" / "jpeg_cnn"
COMMAND = "autotune search train.py"
BEGIN, END = "<!-- docs/session.txt -->", "<!-- end of docs/session.txt -->"
LINES = 45
ELIDED = "..."
"""Stands in the sample for the trials before the winner's."""
WRAPPED, DEEPER = 4, 2
"""Least indent of the rest of a long line, and how much deeper than its beginning it is at least."""
LIVE = "measuring, "
"""In a frame that is worth a picture."""
SVG_FORMAT = re.sub(r"@font-face \{\{.*?\}\}\s*", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)
"""Without rich's fonts, which a viewer would fetch."""


def record(options: argparse.Namespace) -> None:
    """Runs the search, and writes all that is made of it."""
    with tempfile.TemporaryDirectory() if options.folder is None else nullcontext(options.folder) as folder:
        project = Path(folder) / STUDY.name
        shutil.copytree(STUDY, project, ignore=shutil.ignore_patterns("studies", "autotune.yaml", "data*"))
        words = COMMAND.split()[1:]
        command = [sys.executable, "-m", "autotune", *words, "--time", options.time]
        session = run_in_terminal(
            command, cwd=project, environment={"PYTHONPATH": str(ROOT)}, columns=options.columns, lines=LINES
        )
    if session.code != 0:
        raise SystemExit(f"the search ended with {session.code}:\n{session.text[-3000:]}")
    DOCS.mkdir(exist_ok=True)
    screen = Screen().feed(session.text)
    (DOCS / "session.txt").write_text("\n".join(screen.plain) + "\n")
    (DOCS / "session.svg").write_text(picture("\n".join(screen.lines).rstrip(), options.columns))
    (DOCS / "live.svg").write_text(picture("\n".join(live_screen(session).lines).rstrip(), options.columns))
    README.write_text(with_sample(README.read_text(), (DOCS / "session.txt").read_text()))


def live_screen(session: OpenStudy) -> Screen:
    """The last screen on which a trial of the plan was in its window."""
    screen, found = Screen(), Screen()
    for _, text in session.writes:
        screen.feed(text.replace("\r\n", "\n"))
        frame = "\n".join(screen.plain[-10:])
        if all(words in frame for words in (LIVE, "data wait", "best ")) and "final " not in frame:
            found = Screen()
            found.lines = screen.lines[-LINES:]
    return found


def picture(text: str, columns: int) -> str:
    """Lines with their colours as SVG, under the command that wrote them."""
    console = Console(file=io.StringIO(), record=True, width=columns, force_terminal=True, color_system="truecolor")
    console.print(Text("$ ", style="green").append(COMMAND, style="bold"))
    console.print(Text.from_ansi(text), soft_wrap=False)
    return console.export_svg(title=COMMAND, code_format=SVG_FORMAT, unique_id="autotune")


def with_sample(readme: str, text: str) -> str:
    """The README with the excerpt of a session as its sample, between the two marks."""
    head, rest = readme.split(BEGIN)
    _, tail = rest.split(END)
    return f"{head}{BEGIN}\n\n{textwrap.indent(excerpt(text), '    ').rstrip()}\n\n{END}{tail}"


def excerpt(text: str) -> str:
    """A dozen lines of a session: the script, the baseline, the winner's trial, and the gain by the finals."""
    lines = text.splitlines()
    winner = next((found[1] for line in lines if (found := re.match(r"  trial (\d+) ", line))), "0")
    wanted = re.compile(
        rf"study |probe done|trial  outcome| +(?:0|{winner})  \w|These settings train|  yours  |  trial {winner} "
        r"|  Your settings are bound by"
    )
    chosen: list[str] = []
    indent = -1  # of the line to be continued; below 0 where that is left out
    for line in lines:
        own = len(line) - len(line.lstrip())
        if wanted.match(line):
            indent = own
            if line.split()[:1] == [winner]:
                chosen.append(f"   {ELIDED}")
            chosen.append(line)
        elif indent >= 0 and own >= max(WRAPPED, indent + DEEPER):
            chosen.append(line)
        else:
            indent = -1
    return "\n".join(chosen)


def main() -> None:
    """Reads the options, and records."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.docs.record_session",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--time", default="5m", help="for the search")
    parser.add_argument("--columns", type=int, default=100)
    parser.add_argument("--folder", type=Path, help="where the study is copied to and searched, and stays")
    record(parser.parse_args())


if __name__ == "__main__":
    main()
