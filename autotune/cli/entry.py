"""The entry point of the command: an interrupt during the imports ends the process without a traceback."""

import os
import signal
import sys

INTERRUPTED = 130


def main() -> int:
    """Imports the command and runs a verb; gives the exit code."""
    try:
        from autotune.cli import early_warnings

        early_warnings.note_from_now_on()
        from autotune.cli.main import main as run

        return run()
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        os.write(2, b"autotune: error: Interrupted.\n")
        return INTERRUPTED


if __name__ == "__main__":
    sys.exit(main())
