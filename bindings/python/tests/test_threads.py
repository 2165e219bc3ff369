"""Calls from several Python threads at once."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import numpy as np
import pytest

from greyhound import LabelError
from greyhound.kernels.cross_entropy import cross_entropy_with_grad_kernel

THREADS = 8
ROUNDS = 50


def test_same_bits_as_one_thread(generator):
    logits = generator.standard_normal((THREADS, 16, 257), dtype=np.float32)
    target = generator.integers(0, 257, size=(THREADS, 16))
    expected = logits.copy()
    expected_sums = [cross_entropy_with_grad_kernel(expected[i], target[i]) for i in range(THREADS)]
    start = Barrier(THREADS)

    def work(i):
        start.wait()
        for _ in range(ROUNDS):
            mine = logits[i].copy()
            sums = cross_entropy_with_grad_kernel(mine, target[i])
            assert sums == expected_sums[i]
            assert mine.tobytes() == expected[i].tobytes()

    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(work, range(THREADS)))


def test_each_thread_gets_its_own_message():
    start = Barrier(THREADS)

    def work(i):
        logits, target = np.zeros((1, 3), np.float32), np.array([1000 + i])
        start.wait()
        for _ in range(ROUNDS):
            with pytest.raises(LabelError, match=rf"labels\[0\] = {1000 + i}:"):
                cross_entropy_with_grad_kernel(logits, target)

    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(work, range(THREADS)))
