"""Leaves a report that is none, in the way that its argument names."""

import json
import os
import sys

import pretend

RESULTS = pretend.FOLDER / "results"


def half():
    text = json.dumps(pretend.GOOD)
    (RESULTS / "rank-0.json").write_text(text[: len(text) // 2])


def empty():
    (RESULTS / "rank-0.json").write_text("")


def not_utf8():
    (RESULTS / "rank-0.json").write_bytes(b'{"rank": "\xff\xfe"}')


def wrong_types():
    pretend.report(num_steps="many", blocks={"a": 1})


def unknown_field():
    pretend.report(exec="os.system")


def a_list():
    pretend.write("[1, 2, 3]")


def infinite_rate():
    block = {**pretend.BLOCK, "num_samples": 1e308, "duration_s": 1e-300}
    pretend.report(blocks=[block] * 10)


def negative_memory():
    pretend.report(held_host_bytes=-5)


def endless_number():
    pretend.write('{"rank": 0, "world_size": 1, "status": "measured", "num_steps": ' + "9" * 400 + "}")


def not_a_number():
    pretend.write('{"rank": 0, "world_size": 1, "status": "measured", "first_losses": [NaN, Infinity]}')


def nested():
    pretend.write("[" * 200_000 + "]" * 200_000)


def huge():
    with (RESULTS / "rank-0.json").open("wb") as file:
        file.truncate(1 << 40)


def link():
    (RESULTS / "rank-0.json").symlink_to("/etc/passwd")


def link_to_zeros():
    (RESULTS / "rank-0.json").symlink_to("/dev/zero")
    (pretend.FOLDER / "progress.bin").unlink(missing_ok=True)
    (pretend.FOLDER / "progress.bin").symlink_to("/dev/zero")
    import time

    time.sleep(0.5)


def pipe():
    os.mkfifo(RESULTS / "rank-0.json")
    os.mkfifo(pretend.FOLDER / "progress.bin")
    import time

    time.sleep(0.5)


def log_is_zeros():
    pretend.report()
    (pretend.FOLDER / "output.log").unlink()
    (pretend.FOLDER / "output.log").symlink_to("/dev/zero")


def folder():
    (RESULTS / "rank-0.json").mkdir()


def linked_folder():
    RESULTS.rmdir()
    RESULTS.symlink_to("/etc")


def two_of_one_rank():
    pretend.report()
    pretend.write(json.dumps(pretend.GOOD), "rank-00.json")


def ranks_that_disagree():
    pretend.report()
    pretend.write(json.dumps({**pretend.GOOD, "rank": 1, "world_size": 2}), "rank-1.json")


def odd_text():
    pretend.report(
        status="raised", error={"kind": "X\x1b[2J\x00", "message": "\ud800\x00 bad", "is_out_of_memory": False}
    )


def odd_observation():
    pretend.report(observed={"memory_fraction": "much", "num_workers": "\x1b"})


def forged_ending():
    pretend.report()
    (pretend.FOLDER / "exit.json").write_text('{"status": 9, "stopped": false}')


if __name__ == "__main__":
    globals()[sys.argv[1]]()
