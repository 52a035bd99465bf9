"""The alarm: a signal that CPython has lost is sent again until its handler has run; one that was seen is not."""

import signal
import threading
import time

import pytest

from agent_kernel.notebook.alarm import AGAIN, Alarm


@pytest.fixture
def handled():
    """Note the runs of a SIGINT handler that tells the alarm in ``current``."""

    class Handled(list):
        current = None
        deaf = 0  # runs in which the alarm is not told, as if they had not happened

    runs = Handled()

    def handler(signum, frame):
        runs.append(time.monotonic())
        if runs.deaf:
            runs.deaf -= 1
        elif runs.current is not None:
            runs.current.seen()

    before = signal.signal(signal.SIGINT, handler)
    yield runs
    signal.signal(signal.SIGINT, before)


def until(condition, seconds=10):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.001)


def test_a_signal_that_was_seen_is_not_sent_again(handled):
    with Alarm() as handled.current:
        signal.raise_signal(signal.SIGINT)
        until(lambda: handled)
        time.sleep(4 * AGAIN)  # long enough for a second one, which must not come
        assert len(handled) == 1
        signal.raise_signal(signal.SIGINT)
        until(lambda: len(handled) == 2)


def test_a_signal_that_nobody_saw_is_sent_until_somebody_does(handled):
    handled.deaf = 2
    with Alarm() as handled.current:
        signal.raise_signal(signal.SIGINT)
        until(lambda: len(handled) == 3)
        time.sleep(3 * AGAIN)
        assert len(handled) == 3


def test_it_leaves_nothing_behind(handled):
    handled.deaf = 1_000
    before = signal.set_wakeup_fd(-1)
    signal.set_wakeup_fd(before)
    for _ in range(3):
        with Alarm() as handled.current:
            signal.raise_signal(signal.SIGINT)
    assert signal.set_wakeup_fd(before) == before
    until(lambda: "agent-kernel-alarm" not in [thread.name for thread in threading.enumerate()])
    count = len(handled)
    time.sleep(3 * AGAIN)
    assert len(handled) == count


def test_elsewhere_than_on_the_main_thread_it_does_nothing():
    names = []

    def use():
        with Alarm():
            names.extend(thread.name for thread in threading.enumerate())

    thread = threading.Thread(target=use)
    thread.start()
    thread.join()
    assert "agent-kernel-alarm" not in names
