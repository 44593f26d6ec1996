import time

import pytest

from wtawp.base import part_of_progress, progress_receiver, report_progress


def test_progress_of_parts_is_received_as_progress_of_the_whole() -> None:
    shares: list[float] = []
    with progress_receiver(shares.append, interval=0.0):
        report_progress(0.1)
        with part_of_progress(0.2, 0.6):
            report_progress(0.5)
            with part_of_progress(0.5, 1.0):
                report_progress(0.5)
        with pytest.raises(ZeroDivisionError), part_of_progress(0.6, 1.0):
            raise ZeroDivisionError
        report_progress(0.9)
    report_progress(1.0)  # to nobody
    assert shares == pytest.approx([0.1, 0.4, 0.5, 0.6, 0.6, 0.9])


def test_frequent_reports_of_progress_cost_next_to_nothing() -> None:
    shares: list[float] = []
    start = time.process_time()
    with progress_receiver(shares.append):
        for i in range(20_000):
            report_progress(i / 20_000)
    assert time.process_time() - start < 0.2, "10 us a report are 1 % of an epoch of a small graph"
    assert shares[0] == 0.0
    assert len(shares) < 10
