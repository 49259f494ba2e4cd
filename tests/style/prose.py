"""How plainly docstrings and comments are written: the share of pointing words, by file.

    python -m tests.style.prose autotune                  # the share, the worst files, the worst sentences
    python -m tests.style.prose autotune --limit 0.05     # exit code 1 above the limit: part of `make lint`
    python -m tests.style.prose autotune/store --worst 40

A pointing word is a pronoun or a relative: `it`, `that`, `which`, `one`, `those`. Text with many of them makes a reader
look back for the thing that is meant. Well-kept Python projects have shares of 0.02 to 0.035 (Optuna 0.021,
kernel_tuner 0.027, pyperf 0.028, submitit 0.032, torchtitan 0.033). The share is a thermometer: lower it by naming
things, never by a sentence that is less true.
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import tokenize
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

POINTING = frozenset(
    re.findall(
        r"\w+",
        """that which what who whose whoever whatever it its one ones those these such so theirs nobody anybody somebody
        else they them their other others both either neither where there then""",
    )
)
MIN_WORDS = 6
"""Shorter sentences are labels, and are not counted."""
FILE_WORDS, SENTENCE_WORDS = 40, 14
"""Fewest words of a file, and of a sentence, in the lists of the worst."""


@dataclass(frozen=True)
class Sentence:
    """One sentence of a docstring or a comment."""

    path: Path
    line: int
    """First line of the docstring or comment."""
    text: str

    @property
    def words(self) -> list[str]:
        """Words in lower case."""
        return [word.lower() for word in re.findall(r"[A-Za-z']+", self.text)]

    @property
    def num_pointing(self) -> int:
        """Number of pointing words."""
        return sum(word in POINTING for word in self.words)


def texts(source: str) -> Iterator[tuple[int, str]]:
    """(first line, text) of every docstring, every string below an attribute, and every line of a comment."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.lineno, node.value.value
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string.lstrip("#: ")


def sentences(path: Path) -> Iterator[Sentence]:
    """Sentences of a Python file with at least `MIN_WORDS` words."""
    for line, text in texts(path.read_text()):
        for part in re.split(r"(?<=[.!?])\s+", " ".join(text.split())):
            sentence = Sentence(path, line, part)
            if len(sentence.words) >= MIN_WORDS:
                yield sentence


def share(found: Iterable[Sentence]) -> float:
    """Pointing words per word; 0 of no sentence."""
    found = list(found)
    return sum(sentence.num_pointing for sentence in found) / max(sum(len(sentence.words) for sentence in found), 1)


def report(by_file: dict[Path, list[Sentence]], num_worst: int) -> Iterator[str]:
    """Lines for people: the worst files, the worst sentences, the share of all."""
    files = {path: found for path, found in by_file.items() if sum(len(s.words) for s in found) >= FILE_WORDS}
    for path in sorted(files, key=lambda path: -share(files[path]))[:num_worst]:
        yield f"{share(files[path]):.3f}  {sum(len(s.words) for s in files[path]):5d} words  {path}"
    found = [sentence for sentences in by_file.values() for sentence in sentences]
    long = [sentence for sentence in found if len(sentence.words) >= SENTENCE_WORDS]
    for sentence in sorted(long, key=lambda s: -share([s]) * min(len(s.words), FILE_WORDS))[:num_worst]:
        yield f"{sentence.path}:{sentence.line}: {sentence.text}"
    num_words = sum(len(sentence.words) for sentence in found)
    yield f"share of pointing words {share(found):.3f} of {num_words} words in {len(by_file)} files"


def main(arguments: list[str] | None = None) -> int:
    """Prints the report. The exit code is 1 where the share of all files is above `--limit`."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.style.prose",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("paths", nargs="+", type=Path, help="folders or Python files")
    parser.add_argument("--limit", type=float, help="highest share of pointing words")
    parser.add_argument("--worst", type=int, default=15, help="files and sentences to show")
    options = parser.parse_args(arguments)
    files = [file for path in options.paths for file in (sorted(path.rglob("*.py")) if path.is_dir() else [path])]
    by_file = {file: list(sentences(file)) for file in files}
    print("\n".join(report(by_file, options.worst)))
    total = share(sentence for found in by_file.values() for sentence in found)
    return int(options.limit is not None and total > options.limit)


if __name__ == "__main__":
    raise SystemExit(main())
