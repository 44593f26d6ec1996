from html.parser import HTMLParser

from wtawp.experiments import Demo, demo_page
from wtawp.experiments.demo.page import demo_gain, demo_rows

VOID = {"meta", "link", "br", "img", "path", "use"}


class Balance(HTMLParser):
    """Collects addresses and open tags."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.addresses += [v or "" for k, v in attrs if k in ("src", "href", "xlink:href")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag


def test_the_page_is_whole_and_asks_nothing_of_the_network(small_demo: Demo) -> None:
    page = demo_page(small_demo)
    parser = Balance()
    parser.feed(page)
    assert parser.open == []
    assert all(address.startswith("#") for address in parser.addresses)
    assert "<script" not in page
    assert page.count("<svg") == 4


def test_the_page_and_the_terminal_show_the_same_numbers(small_demo: Demo) -> None:
    page = demo_page(small_demo)
    assert demo_gain(small_demo) in page
    for row in demo_rows(small_demo):
        assert all(cell in page for cell in row)
