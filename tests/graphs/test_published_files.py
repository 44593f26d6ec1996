from pathlib import Path

from wtawp.graphs.download import is_intact
from wtawp.graphs.published_files import FILES


def test_every_file_has_its_hash_and_two_addresses_or_more() -> None:
    assert len(FILES) == 32
    for path, file in FILES.items():
        assert path == file.path
        assert len(file.sha256) == 64
        assert len(file.mirrors) >= 2
        assert all(url.startswith("https://") and url.endswith(path.split("/")[1]) for url in file.mirrors)


def test_every_file_of_the_offline_root_has_its_pinned_hash(offline: Path) -> None:
    assert [path for path, file in FILES.items() if not is_intact(file, offline / path)] == []
