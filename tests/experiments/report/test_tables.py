from wtawp.experiments.report.tables import Entry, mean_and_std, number, p_value


def test_numbers_keep_what_they_are_sorted_by() -> None:
    assert number(1.234, "+.2f") == Entry("+1.23", 1.234)
    assert number(None) == Entry("–")  # noqa: RUF001
    assert p_value(3e-9) == Entry("< 0.0001", 3e-9)
    assert p_value(0.01234) == Entry("0.012", 0.01234)
    assert mean_and_std(80.0, 1.0) == Entry("80.00 ± 1.00", 80.0)
    assert mean_and_std(80.0, None) == Entry("80.00", 80.0)
