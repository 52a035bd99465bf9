"""Alarm: an interrupt reaches Python code on the main thread even where CPython would lose it.

CPython looks for signals between bytecodes, and system calls end at a signal; one that comes between the last look and the call wakes
nobody until the call is over (a sleep of 30 s, say), and giving up the interpreter lock there makes that moment a long one. The C level
always writes a byte to the wakeup descriptor: a thread reads it and sends the signal again until the Python handler has run.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
import threading
import time
from typing import Self

AGAIN = 0.05  # seconds that a Python handler gets to run before the signal is sent again


class Alarm:
    """Watches over the interrupts of one block of code; for the main thread."""

    def __init__(self) -> None:
        """Watch nothing yet."""
        self._changed = threading.Event()
        self._seen = float("-inf")  # when the Python handler ran last
        self._over = False
        self._reader: socket.socket | None = None
        self._writer: socket.socket | None = None
        self._before = -1

    def seen(self) -> None:
        """Tell that the Python handler has run; for the handler."""
        self._seen = time.monotonic()
        self._changed.set()

    def __enter__(self) -> Self:
        if sys.platform == "win32" or threading.current_thread() is not threading.main_thread():
            return self
        self._reader, self._writer = socket.socketpair()
        self._writer.setblocking(False)
        self._before = signal.set_wakeup_fd(self._writer.fileno(), warn_on_full_buffer=False)
        threading.Thread(target=self._watch, args=(self._reader, threading.get_ident()), name="agent-kernel-alarm", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over = True
        self._changed.set()
        if self._writer is not None:
            signal.set_wakeup_fd(self._before)
            self._writer.close()  # the thread reads the end and leaves

    def _watch(self, reader: socket.socket, main: int) -> None:
        with reader:
            while data := reader.recv(64):
                if self._before >= 0:
                    with contextlib.suppress(OSError):  # whoever watched before is told too, if it is there still
                        os.write(self._before, data)
                if signal.SIGINT in data:
                    self._insist(main)

    def _insist(self, main: int) -> None:
        read = time.monotonic()
        while not self._settled(read):
            self._changed.clear()
            if not self._settled(read) and not self._changed.wait(AGAIN):
                signal.pthread_kill(main, signal.SIGINT)

    def _settled(self, read: float) -> bool:
        """Tell whether a signal whose byte was read at some time has been seen to; the handler may have been quicker than the reader."""
        return self._over or self._seen >= read - AGAIN
