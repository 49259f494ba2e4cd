"""A server that has imported torch and forks one process per request: a script is at its first line in a millisecond.

Reads one request per line from stdin and answers with one line; ends at end-of-file. It never runs a parallel region
itself, so that its children may.
"""

import atexit
import importlib
import json
import multiprocessing.util
import os
import runpy
import signal
import sys
import time
import traceback

import autotune.trial.meter.phase_rules
import autotune.trial.start.bootstrap
from autotune.sandbox.process_tree import PR_SET_CHILD_SUBREAPER, Descendants, prctl


def become_script(request):
    """In the child: the script as if it had been started by its name."""
    os.setsid()
    output = os.open(request["log"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    for descriptor in (1, 2):
        os.dup2(output, descriptor)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.environ.update(request["environment"])
    os.chdir(request["cwd"])
    sys.argv = [request["script"], *request["arguments"]]
    sys.path.insert(0, os.path.dirname(request["script"]))
    sys.stdout = os.fdopen(os.dup(1), "w", buffering=1)
    sys.stderr = os.fdopen(os.dup(2), "w", buffering=1)
    if request["is_hasty"]:
        rules = autotune.trial.meter.phase_rules
        rules.STEADY_WARMUP_S, rules.MIN_COMPUTE_S = 0.2, 0.1
    code = 0
    try:
        if not {"AUTOTUNE_TRIAL", "AUTOTUNE_JOB"}.isdisjoint(request["environment"]):
            autotune.trial.start.bootstrap.install()
        runpy.run_path(request["script"], run_name="__main__")
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
    except BaseException as error:
        sys.last_value = error
        sys.excepthook(type(error), error, error.__traceback__)
        code = 1
    try:
        multiprocessing.util._exit_function()
        atexit._run_exitfuncs()
        sys.stdout.flush()
    except BaseException:
        traceback.print_exc()
        code = 1
    os._exit(code)


def wait_for(pid, limit_s):
    """(exit code or minus the signal, whether it ran past its limit); ends what the script has left running.

    What tidies up shared memory after the script is left the time for it.
    """
    deadline = time.monotonic() + limit_s
    is_timed_out = False
    while True:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            break
        if time.monotonic() > deadline and not is_timed_out:
            is_timed_out = True
            os.kill(pid, signal.SIGKILL)
        time.sleep(0.005)
    tree = Descendants()
    tree.end(grace_s=0.0, meanwhile=lambda: None)
    tree.let_tidy()
    return os.waitstatus_to_exitcode(status), is_timed_out


def main():
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    importlib.import_module("torch._dynamo")  # seconds, which the first optimizer of every script would wait for
    for line in sys.stdin:
        request = json.loads(line)
        began = time.monotonic()
        pid = os.fork()
        if pid == 0:
            become_script(request)
        code, is_timed_out = wait_for(pid, request["limit_s"])
        reply = {"code": code, "is_timed_out": is_timed_out, "wall_s": time.monotonic() - began}
        print(json.dumps(reply), flush=True)


if __name__ == "__main__":
    main()
