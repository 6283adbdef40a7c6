"""Outputs in files and in HTTP requests: what is read, what is not, and that nothing accepted is
lost."""

from __future__ import annotations

import http.client
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlsplit

import pyarrow as pa
import pytest
from pyarrow import parquet

from harness.errors import EnvironmentNotReady
from harness.protocols.cluster import StoredMessage
from harness.run.identity import identity_reader
from harness.run.output_sources import MAX_BYTES, FileOutputs, HttpOutputs, OutputSource
from harness.waiting import wait_until


def read(source: OutputSource) -> list[tuple[str, int, bytes]]:
    found: list[StoredMessage] = []
    source.read(found.append, timeout_s=10)
    return [(source.stream(m.partition), m.position, m.value) for m in found]


def test_lines_of_all_instances_are_outputs_and_links_out_of_their_folders_are_not(
    tmp_path: Path,
) -> None:
    folders = [tmp_path / name / "folder" for name in ("billing-1", "billing-2")]
    for folder in folders:
        folder.mkdir(parents=True)
    (folders[0] / "a.jsonl").write_bytes(b"one\n\ntwo\r\nthr")
    (folders[1] / "a.jsonl").write_bytes(b"four\n")
    (folders[1] / "a.txt").write_bytes(b"not meant\n")
    (tmp_path / "secret").write_bytes(b"not ours\n")
    (folders[1] / "b.jsonl").symlink_to(tmp_path / "secret")
    source = FileOutputs("*.jsonl", folders)
    before = source.size()
    assert read(source) == [
        ("billing-1/a.jsonl", 0, b"one"),
        ("billing-1/a.jsonl", 1, b"two"),
        ("billing-1/a.jsonl", 2, b"thr"),
        ("billing-2/a.jsonl", 0, b"four"),
    ]
    (folders[1] / "a.jsonl").write_bytes(b"four\nfive\n")
    assert source.size() != before


def test_a_line_without_an_end_takes_no_memory(tmp_path: Path) -> None:
    folder = tmp_path / "billing" / "folder"
    folder.mkdir(parents=True)
    (folder / "a").write_bytes(b"x" * (3 * MAX_BYTES) + b"\nnext\n")
    lines = [value for _, _, value in read(FileOutputs("*", [folder]))]
    assert [len(line) for line in lines] == [MAX_BYTES, 4]


def test_rows_of_parquet_are_outputs_and_a_file_that_was_cut_off_has_none(tmp_path: Path) -> None:
    folder = tmp_path / "billing" / "folder"
    folder.mkdir(parents=True)
    rows = pa.table({"order_id": ["1/0/7", "1/0/8", None], "amount": [1.5, 2.5, 3.5]})
    parquet.write_table(rows, folder / "a.parquet")
    whole = (folder / "a.parquet").read_bytes()
    (folder / "b.parquet").write_bytes(whole[:-1])
    (folder / "c.parquet").write_bytes(b"")
    source = FileOutputs("*.parquet", [folder], "order_id")
    found: list[StoredMessage] = []
    source.read(found.append, timeout_s=10)
    assert [(source.stream(m.partition), m.position) for m in found] == [
        ("billing/a.parquet", number) for number in range(3)
    ]
    name_input = identity_reader({"column": "order_id"}, 1)
    seqs = [header and int.from_bytes(header[16:24], "little") for header in map(name_input, found)]
    assert seqs == [7, 8, None]
    assert found[2].value == b'{"order_id": null, "amount": 3.5}'


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda whole: whole, "it has no column id, only order_id"),
        (lambda whole: b"PAR1" + b"x" * 20 + whole[-8:], "a.parquet: "),
    ],
)
def test_parquet_that_cannot_be_read_is_one_line(
    tmp_path: Path, change: Callable[[bytes], bytes], problem: str
) -> None:
    folder = tmp_path / "billing" / "folder"
    folder.mkdir(parents=True)
    path = folder / "a.parquet"
    parquet.write_table(pa.table({"order_id": ["1/0/7"]}), path)
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(EnvironmentNotReady) as caught:
        FileOutputs("*.parquet", [folder], "id").read(list[StoredMessage]().append, timeout_s=10)
    assert problem in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.fixture
def endpoint(tmp_path: Path) -> Iterator[HttpOutputs]:
    source = HttpOutputs(tmp_path / "billing.requests")
    source.open()
    yield source
    source.close()


def sent(source: HttpOutputs, body: bytes, method: str = "POST", **headers: str) -> int:
    address = urlsplit(source.url)
    connection = http.client.HTTPConnection(str(address.hostname), address.port, timeout=10)
    try:
        connection.request(method, f"{address.path}invoices", body, headers)
        return connection.getresponse().status
    finally:
        connection.close()


def test_each_request_that_is_answered_is_an_output(endpoint: HttpOutputs) -> None:
    assert [sent(endpoint, b"one", order="1/2/3"), sent(endpoint, b"two\n", "PUT")] == [200, 200]
    assert endpoint.size() == 2
    found: list[StoredMessage] = []
    endpoint.read(found.append, timeout_s=10)
    assert [(m.position, m.value) for m in found] == [(0, b"one"), (1, b"two\n")]
    assert ("order", b"1/2/3") in found[0].headers
    assert found[0].t_ms > 0


def test_many_requests_at_once_are_all_answered(endpoint: HttpOutputs) -> None:
    """A connection that is reset would be a failure of ours that the program is blamed for."""
    count = 200
    begin = threading.Barrier(count)

    def send(number: int) -> int:
        begin.wait()
        return sent(endpoint, str(number).encode())

    with ThreadPoolExecutor(count) as pool:
        assert set(pool.map(send, range(count))) == {200}
    assert endpoint.size() == count


def test_who_does_not_know_the_path_is_refused(endpoint: HttpOutputs) -> None:
    """Every program of this machine, and every page in a browser, can reach the port."""
    address = urlsplit(endpoint.url)
    for path in ("/", "/outputs", address.path[:-2]):
        connection = http.client.HTTPConnection(str(address.hostname), address.port, timeout=10)
        connection.request("POST", path, b"stranger")
        assert connection.getresponse().status == 404
    assert endpoint.size() == 0


def test_a_sender_that_is_gone_is_no_error_of_ours(
    endpoint: HttpOutputs, capfd: pytest.CaptureFixture[str]
) -> None:
    address = urlsplit(endpoint.url)
    for _ in range(3):
        with socket.create_connection((str(address.hostname), address.port or 0)) as connection:
            how = struct.pack("ii", 1, 0)  # closed with a reset, as that of a killed process
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, how)
            connection.sendall(f"POST {address.path} HTTP/1.1\r\nContent-Le".encode())
    assert sent(endpoint, b"one") == 200
    endpoint.close()
    assert capfd.readouterr().err == ""


def test_what_is_no_whole_request_is_no_output(endpoint: HttpOutputs) -> None:
    assert sent(endpoint, b"", **{"Content-Length": str(MAX_BYTES + 1)}) == 413
    assert sent(endpoint, b"", **{"Content-Length": "\u00b2"}) == 411
    assert sent(endpoint, b"", "GET") == 501
    address = urlsplit(endpoint.url)
    connection = http.client.HTTPConnection(str(address.hostname), address.port, timeout=10)
    connection.putrequest("POST", address.path)
    connection.putheader("Content-Length", "10")
    connection.endheaders(b"half")
    connection.close()
    assert sent(endpoint, b"whole") == 200
    assert [value for _, _, value in read(endpoint)] == [b"whole"]


def test_a_request_that_cannot_be_written_down_is_refused(
    endpoint: HttpOutputs, tmp_path: Path
) -> None:
    file = tmp_path / "billing.requests"
    file.unlink()
    file.mkdir()  # root, too, cannot write there
    assert sent(endpoint, b"one") == 507


def test_an_endpoint_refuses_a_share_of_the_requests_and_keeps_none_of_them(
    endpoint: HttpOutputs,
) -> None:
    endpoint.disturb("refuse", share=0.5, delay_s=0)
    statuses = [sent(endpoint, str(number).encode()) for number in range(6)]
    endpoint.restore()
    assert statuses == [200, 503] * 3
    assert endpoint.disturbed == 3
    assert sent(endpoint, b"after") == 200
    assert [value for _, _, value in read(endpoint)] == [b"0", b"2", b"4", b"after"]


def test_a_dropped_request_was_accepted_and_its_sender_does_not_know(endpoint: HttpOutputs) -> None:
    endpoint.disturb("drop", share=1, delay_s=0)
    with pytest.raises(http.client.RemoteDisconnected):
        sent(endpoint, b"one")
    endpoint.restore()
    assert sent(endpoint, b"one") == 200  # its sender tries again
    assert [value for _, _, value in read(endpoint)] == [b"one", b"one"]
    assert endpoint.disturbed == 1


def test_a_delayed_request_was_accepted_and_is_answered_when_the_fault_ends(
    endpoint: HttpOutputs,
) -> None:
    endpoint.disturb("delay", share=1, delay_s=60)
    statuses: list[int] = []
    late = threading.Thread(target=lambda: statuses.append(sent(endpoint, b"one")))
    late.start()
    assert wait_until(lambda: endpoint.size() == 1, 10)
    assert statuses == []
    endpoint.restore()
    late.join(10)
    assert statuses == [200]
