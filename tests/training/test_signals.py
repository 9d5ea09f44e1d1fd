"""Signals in threads and in forked workers."""

import signal
import threading

from toy_run import in_child, kill, trainer

from regard.training.signals import Signals


def test_training_in_another_thread_leaves_the_handlers_alone(tmp_path):
    results = []
    thread = threading.Thread(target=lambda: results.append(trainer(tmp_path, max_steps=2).run()))
    before = signal.getsignal(signal.SIGTERM)
    thread.start()
    thread.join()
    assert results[0].steps == 2
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_forked_worker_dies_of_sigterm_and_leaves_ctrl_c_to_its_parent():
    with Signals() as signals:
        assert in_child(lambda: kill(signal.SIGTERM)) == -signal.SIGTERM
        assert in_child(lambda: (kill(signal.SIGINT), kill(signal.SIGINT))) == 0
        assert not signals.wanted()
        kill(signal.SIGTERM)
        kill(signal.SIGINT)
        assert signals.received is signal.SIGINT
