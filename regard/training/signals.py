"""SIGTERM and Ctrl-C as a wish to stop, which the training loop looks at between two updates."""

import os
import signal
import threading
from types import FrameType, TracebackType
from typing import Any


class Signals:
    """Catches the first signal; a second Ctrl-C ends the process at once. Handlers are put back afterwards."""

    def __init__(self) -> None:
        self.received: signal.Signals | None = None
        self._previous: dict[signal.Signals, Any] = {}

    def __enter__(self) -> "Signals":
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGTERM, signal.SIGINT):
                self._previous[number] = signal.signal(number, self._receive)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)

    def wanted(self) -> bool:
        """Should training stop?"""
        return self.received is not None

    def _receive(self, number: int, frame: FrameType | None) -> None:
        if number == signal.SIGINT and self.received is signal.SIGINT:
            os._exit(130)
        if self.received is not signal.SIGINT:
            self.received = signal.Signals(number)
