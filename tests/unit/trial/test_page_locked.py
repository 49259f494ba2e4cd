"""How long the pool of page-locked memory has not grown."""

from __future__ import annotations

from autotune.trial.meter.page_locked import LOOK_EVERY_S, PageLockedPool


class Driver:
    """A pool with a number of blocks, and a clock."""

    def __init__(self) -> None:
        self.num_blocks: int | None = 3
        self.now_s, self.num_questions = 0.0, 0

    def ask(self) -> int | None:
        self.num_questions += 1
        return self.num_blocks


def test_micro_batches_are_counted_from_the_last_growth() -> None:
    driver = Driver()
    pool = PageLockedPool(driver.ask, now=lambda: driver.now_s)
    unchanged = []
    for step, num_blocks in enumerate((3, 4, 5, 5, 5), start=1):
        driver.now_s, driver.num_blocks = float(step), num_blocks
        unchanged.append(pool.num_unchanged(step))
    assert unchanged == [1, 0, 0, 1, 2]
    pool.begin()
    driver.now_s = 9.0
    assert pool.num_unchanged(7) == 7


def test_without_a_count_the_pool_never_grows() -> None:
    driver = Driver()
    driver.num_blocks = None
    pool = PageLockedPool(driver.ask, now=lambda: driver.now_s)
    driver.now_s = 1.0
    assert pool.num_unchanged(5) == 5


def test_short_steps_do_not_ask_each_time() -> None:
    driver = Driver()
    pool = PageLockedPool(driver.ask, now=lambda: driver.now_s)
    for step in range(100):
        driver.now_s = step * LOOK_EVERY_S / 10
        pool.num_unchanged(step)
    assert driver.num_questions <= 11
