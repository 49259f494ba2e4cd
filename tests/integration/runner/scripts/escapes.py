"""Writes past Python, as other programs do: these files are the user's own afterwards."""

import subprocess

import pretend

subprocess.run(["sh", "-c", "echo new > escaped.txt; echo more >> kept.txt; rm removed.txt; mkdir escaped"], check=True)
pretend.report()
