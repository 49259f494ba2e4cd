"""Names of the environment variables set by our programs, for our programs and for trials.

Every Python process of a trial reads this file by its path (`autotune/trial/inject/sitecustomize.py`), so the file
imports nothing. Options of the user, such as AUTOTUNE_STORAGE, have names of the same prefix and reach no trial.
"""

PREFIX = "AUTOTUNE_"
"""Beginning of the names of all variables of ours."""

TRIAL = "AUTOTUNE_TRIAL"
"""Folder of the trial (`autotune.protocol.paths.TrialPaths`); marks all processes of the trial."""
JOB = "AUTOTUNE_JOB"
"""A `TrialJob` as JSON, in real training without a trial's folder."""
STARTED_AT = "AUTOTUNE_STARTED_AT"
"""Moment of the tuner's request, in seconds of `time.monotonic`."""
SEED = "AUTOTUNE_SEED"
"""Seed of the generators of random, numpy and torch; a decimal number."""
KERAS_BACKEND = "AUTOTUNE_KERAS_BACKEND"
"""The engine below Keras of a trial (`autotune.settings.keras_backend`); a script may set Keras' own variable."""
REDIRECT = "AUTOTUNE_REDIRECT"
"""Plan of `autotune.sandbox.redirect` as JSON; set where the system permits no overlay mounts."""
SERVER = "AUTOTUNE_SERVER"
"""Folder of the fork server; marks the server and all children, trials included."""
SERVER_PIDS = "AUTOTUNE_SERVER_PIDS"
"""Process ids of the servers behind a forked trial, separated by blanks: their pages belong to the trial as well."""
SERVER_ROLLUPS = "AUTOTUNE_SERVER_ROLLUPS"
"""Descriptors of the servers' smaps_rollup files, separated by blanks, for trials in a process namespace."""
PRELUDE_ADDRESS = "AUTOTUNE_PRELUDE_ADDRESS"
"""Path of the tuner's socket for a prelude, the run of the script that waits where settings begin to matter."""

TMPDIR = "TMPDIR"
PYTHONPATH = "PYTHONPATH"
VISIBLE_DEVICES = "CUDA_VISIBLE_DEVICES"
DEVICE_ORDER = "CUDA_DEVICE_ORDER"
PCI_ORDER = "PCI_BUS_ID"
"""Value of `DEVICE_ORDER` for NVML's order. By default CUDA counts from the fastest device on."""
COMPILER_CACHE = "TORCHINDUCTOR_CACHE_DIR"
MLFLOW_SERVER = "MLFLOW_TRACKING_URI"

OFFLINE = {
    "WANDB_MODE": "offline",
    "WANDB_SILENT": "true",
    "COMET_MODE": "disabled",
    "NEPTUNE_MODE": "offline",
    "CLEARML_OFFLINE_MODE": "1",
    "DISABLE_MLFLOW_INTEGRATION": "TRUE",
    "SWANLAB_MODE": "disabled",
    "PYTHON_COLORS": "0",
}
"""Documented variables of experiment trackers, which then do nothing or write to a folder in the trial's layer. The
last variable keeps colours out of Python's tracebacks."""
HUB_OFFLINE = {"HF_HUB_OFFLINE": "1"}
"""For all runs after the probe; the probe may download."""
NATIVE_CACHES = ("CUDA_CACHE_PATH", "TORCH_EXTENSIONS_DIR", "TRITON_CACHE_DIR")
"""Places of caches that libraries write or load past Python, where no redirection of writes applies."""
THREADS_BY_CALL = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")
"""Numbers of threads, with an equivalent call in the library."""
BY_CALL = (*THREADS_BY_CALL, "MALLOC_MMAP_MAX_", "MALLOC_TRIM_THRESHOLD_", "MALLOC_TOP_PAD_")
"""Variables with an equivalent call in the library. Trials that differ here can share a fork server, because
`autotune.trial.start.forked_environment` makes the call for threads, and the setting itself for memory."""
KERAS_VARIABLE = "KERAS_BACKEND"
"""Keras' own variable, read at the import of Keras."""
FORKABLE = {"PYTORCH_NVML_BASED_CUDA_CHECK": "1"}
"""Defaults for processes that trials are forked from. Otherwise the first question for a device, which many libraries
ask at import, starts the driver, and no fork can use a driver started earlier. The probe's answers serve the script's
own questions (`autotune.trial.start.known_devices`)."""
PER_TRIAL = (TRIAL, STARTED_AT, TMPDIR, PYTHONPATH)
"""Variables with another value in each trial of a fork server."""


def with_engine(variables: dict[str, str]) -> dict[str, str]:
    """The variables of settings, with Keras' engine in a variable of ours too: the script may set Keras' own itself."""
    if KERAS_VARIABLE not in variables:
        return variables
    return {**variables, KERAS_BACKEND: variables[KERAS_VARIABLE]}
