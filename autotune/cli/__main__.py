"""`python -m autotune.cli`, for an environment whose scripts are not on the PATH."""

import sys

from autotune.cli.main import main

sys.exit(main())
