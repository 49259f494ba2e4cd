"""Where the command begins: an interrupt while the rest is being loaded ends it without a traceback."""

import os
import signal
import sys

INTERRUPTED = 130


def main() -> int:
    """Loads the command and runs one verb; its exit code."""
    try:
        from autotune.cli.main import main as run

        return run()
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        os.write(2, b"autotune: error: Interrupted.\n")
        return INTERRUPTED


if __name__ == "__main__":
    sys.exit(main())
