from wtawp.base import DataError, DownloadError, NotPerturbableError, WtawpError, find_stack_level


def test_errors_can_be_caught_as_ours_or_as_value_errors() -> None:
    for kind in (NotPerturbableError, DataError):
        assert issubclass(kind, WtawpError)
        assert issubclass(kind, ValueError)
    assert issubclass(DownloadError, WtawpError)


def test_the_stack_level_names_the_caller_outside_of_the_package() -> None:
    assert find_stack_level() == 1
    inside = {"__name__": "wtawp.somewhere", "find_stack_level": find_stack_level}
    exec("def outer(): return inner()\ndef inner(): return find_stack_level()", inside)
    assert inside["outer"]() == 3  # type: ignore[operator]
