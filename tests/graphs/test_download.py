import hashlib
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from wtawp.base import DataError, DownloadError
from wtawp.graphs.download import RemoteFile, fetch, is_intact, locate

BYTES = bytes(range(256)) * 300
FILE = RemoteFile("folder/graph.npz", hashlib.sha256(BYTES).hexdigest(), ())


class Server:
    """A real server on this machine; its paths say how it misbehaves, `asked` what was asked of it."""

    def __init__(self) -> None:
        asked: list[str] = []
        self.stopped = stopped = threading.Event()

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                asked.append(self.path)
                if self.path == "/missing":
                    self.send_error(404)
                    return
                if self.path in ("/endless", "/slow"):
                    self.send_misbehaved(self.path == "/slow")
                    return
                body = BYTES[:-1] + b"!" if self.path == "/tampered" else BYTES
                broken = self.path == "/truncated" or (self.path == "/flaky" and asked.count("/flaky") == 1)
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body[: len(body) // 2] if broken else body)

            def send_misbehaved(self, is_slow: bool) -> None:
                """Send more than was published, or a byte now and then."""
                self.send_response(200)
                self.end_headers()
                for _ in range(1000):
                    try:
                        self.wfile.write(b"x" if is_slow else BYTES)
                    except OSError:  # the other side has given up
                        return
                    if is_slow and stopped.wait(0.05):
                        return

            def log_message(self, *args: object) -> None:
                """Say nothing."""

        self.asked = asked
        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.base = f"http://127.0.0.1:{self.http.server_address[1]}"


@pytest.fixture
def server() -> Iterator[Server]:
    serving = Server()
    thread = threading.Thread(target=serving.http.serve_forever)
    thread.start()
    yield serving
    serving.stopped.set()
    serving.http.shutdown()
    serving.http.server_close()
    thread.join()


def files_under(folder: Path) -> list[str]:
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file())


def test_a_file_is_fetched_once_and_kept(server: Server, empty_home: Path) -> None:
    assert locate(FILE) == ("not here", empty_home / "data/folder/graph.npz")
    path = fetch(FILE, mirrors=[f"{server.base}/good"])
    assert path == empty_home / "data/folder/graph.npz"
    assert path.read_bytes() == BYTES
    assert fetch(FILE, mirrors=[f"{server.base}/good"]) == path
    assert server.asked == ["/good"]
    assert locate(FILE) == ("cache", path)
    assert files_under(empty_home) == ["data/folder/graph.npz"]


@pytest.mark.parametrize("bad", ["missing", "truncated", "tampered"])
def test_a_bad_mirror_gives_way_to_the_next(server: Server, empty_home: Path, bad: str) -> None:
    path = fetch(FILE, mirrors=[f"{server.base}/{bad}", f"{server.base}/good"])
    assert path.read_bytes() == BYTES
    assert server.asked == ["/missing", "/good"] if bad == "missing" else [f"/{bad}", f"/{bad}", "/good"]
    assert files_under(empty_home) == ["data/folder/graph.npz"]


def test_a_broken_transfer_is_made_again_whole(server: Server, empty_home: Path) -> None:  # noqa: ARG001
    assert fetch(FILE, mirrors=[f"{server.base}/flaky"]).read_bytes() == BYTES
    assert server.asked == ["/flaky", "/flaky"]


@pytest.mark.parametrize("bad", ["missing", "truncated", "tampered"])
def test_what_never_arrives_whole_leaves_nothing_behind(server: Server, empty_home: Path, bad: str) -> None:
    with pytest.raises(DownloadError, match=f"/{bad}: "):
        fetch(FILE, mirrors=[f"{server.base}/{bad}"])
    assert files_under(empty_home) == []


def test_without_a_server_the_message_says_what_to_put_where(server: Server, empty_home: Path) -> None:
    server.http.server_close()
    with pytest.raises(DownloadError) as caught:
        fetch(FILE, mirrors=[f"{server.base}/good"])
    for part in ("folder/graph.npz", FILE.sha256, str(empty_home / "data/folder/graph.npz"), "$WTAWP_DATA"):
        assert part in str(caught.value)
    assert files_under(empty_home) == []


def test_a_damaged_cache_is_replaced_and_kept_when_that_fails(server: Server, empty_home: Path) -> None:
    cached = empty_home / "data/folder/graph.npz"
    cached.parent.mkdir(parents=True)
    cached.write_bytes(BYTES[:100])
    assert not is_intact(FILE, cached)
    with pytest.raises(DownloadError):
        fetch(FILE, mirrors=[f"{server.base}/tampered"])
    assert files_under(empty_home) == ["data/folder/graph.npz"]
    assert fetch(FILE, mirrors=[f"{server.base}/good"]) == cached
    assert is_intact(FILE, cached)


def test_the_offline_root_comes_first_and_asks_nobody(
    empty_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "root/folder/graph.npz"
    path.parent.mkdir(parents=True)
    path.write_bytes(BYTES)
    monkeypatch.setenv("WTAWP_DATA", str(tmp_path / "root"))
    assert fetch(FILE, mirrors=["http://127.0.0.1:9/never"]) == path
    assert locate(FILE) == ("root", path)
    assert not empty_home.exists()


def test_a_damaged_file_in_the_offline_root_is_an_error_with_both_hashes(
    server: Server, empty_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "root/folder/graph.npz"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"other")
    monkeypatch.setenv("WTAWP_DATA", str(tmp_path / "root"))
    with pytest.raises(DataError, match=f"{hashlib.sha256(b'other').hexdigest()}, expected {FILE.sha256}"):
        fetch(FILE, mirrors=[f"{server.base}/good"])
    assert path.read_bytes() == b"other"
    assert server.asked == []
    assert not empty_home.exists()


def test_an_offline_root_that_is_no_folder_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WTAWP_DATA", str(tmp_path / "typo"))
    with pytest.raises(DataError, match=r"\$WTAWP_DATA must be a folder with data files, got .*typo"):
        fetch(FILE)


def test_a_cache_that_cannot_be_written_is_named(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "home").write_text("a file where a folder should be")
    monkeypatch.delenv("WTAWP_DATA", raising=False)
    monkeypatch.setenv("WTAWP_HOME", str(tmp_path / "home"))
    with pytest.raises(DownloadError, match=r"cannot write .*graph.npz.*\$WTAWP_HOME"):
        fetch(FILE, mirrors=[f"{server.base}/good"])


def test_a_transfer_of_too_many_bytes_is_given_up(server: Server, empty_home: Path) -> None:
    small = replace(FILE, max_bytes=len(BYTES))
    assert fetch(small, mirrors=[f"{server.base}/endless", f"{server.base}/good"]).read_bytes() == BYTES
    assert server.asked == ["/endless", "/good"]
    (empty_home / "data/folder/graph.npz").unlink()
    with pytest.raises(DownloadError, match=r"more than 76,799 bytes, the file's max_bytes"):
        fetch(replace(FILE, max_bytes=len(BYTES) - 1), mirrors=[f"{server.base}/good"])
    assert files_under(empty_home) == []


def test_a_transfer_that_never_ends_is_given_up_at_the_deadline(server: Server, empty_home: Path) -> None:
    start = time.monotonic()
    with pytest.raises(DownloadError, match=r"not complete after 0\.5 seconds; fetch takes seconds= for more"):
        fetch(FILE, mirrors=[f"{server.base}/slow"], seconds=0.5)
    assert time.monotonic() - start < 5
    assert files_under(empty_home) == []
