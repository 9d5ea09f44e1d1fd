"""Signals: which one counts, and who catches them."""

import signal
import threading

from toy_run import kill, trainer

from regard.training.signals import Signals


def test_training_in_another_thread_leaves_the_handlers_alone(tmp_path):
    results = []
    thread = threading.Thread(target=lambda: results.append(trainer(tmp_path, max_steps=2).run()))
    before = signal.getsignal(signal.SIGTERM)
    thread.start()
    thread.join()
    assert results[0].steps == 2
    assert signal.getsignal(signal.SIGTERM) is before


def test_ctrl_c_counts_for_more_than_sigterm():
    with Signals() as signals:
        assert not signals.wanted()
        kill(signal.SIGTERM)
        assert signals.wanted()
        kill(signal.SIGINT)
        assert signals.received is signal.SIGINT
