"""Append-only files under kills and damage."""

import os
import subprocess
import sys

import pytest

from aske import AskeError
from aske.store import Lock, Table, environment, read_json, read_rows, write_json

ROW = b'{"id": "a", "n": 1}\n'


def table(path):
    return Table(path, lambda row: row["id"])


@pytest.mark.parametrize(
    ("tail", "keys", "left"),
    [
        (b"", {"a"}, ROW),
        (b'{"id": "b"', {"a"}, ROW),  # torn
        (b'{"id": "b"}', {"a", "b"}, ROW + b'{"id": "b"}\n'),  # whole, its line feed is missing
        (b"\xff\xfe", {"a"}, ROW),
        (b"[1, 2", {"a"}, ROW),
        (b'{"id": "' + b"x" * 200_000, {"a"}, ROW),  # longer than a block
    ],
)
def test_a_torn_last_line_is_mended(tmp_path, tail, keys, left):
    path = tmp_path / "t.jsonl"
    path.write_bytes(ROW + tail)
    assert [row["id"] for row in read_rows(path)] == sorted(keys)  # readers do not mind it
    assert table(path).keys == keys
    assert path.read_bytes() == left


def test_a_file_that_is_one_torn_line(tmp_path):
    path = tmp_path / "t.jsonl"
    path.write_bytes(b'{"id": ')
    assert table(path).keys == set()
    assert path.read_bytes() == b""


def test_a_broken_line_in_the_middle_is_refused_with_its_place(tmp_path):
    path = tmp_path / "t.jsonl"
    path.write_bytes(ROW + b"{broken\n" + b'{"id": "b"}\n')
    with pytest.raises(AskeError, match=r"t\.jsonl:2: not a whole JSON object"):
        table(path)


def test_rows_are_appended_once(tmp_path):
    path = tmp_path / "t.jsonl"
    one = table(path)
    assert one.append([{"id": "a"}, {"id": "b"}]) == 2
    assert one.append([{"id": "b"}, {"id": "c"}, {"id": "c"}]) == 1
    assert [row["id"] for row in one.rows()] == ["a", "b", "c"]
    assert len(one) == 3
    assert "c" in one
    assert "d" not in one
    assert table(path).append([{"id": "a"}]) == 0


def test_whatever_a_model_writes_can_be_kept(tmp_path):
    text = 'line\nfeed, "quotes", \ud800 half a pair, \u2028 separator, \x00'
    path = tmp_path / "t.jsonl"
    table(path).append([{"id": "a", "text": text}])
    assert len(path.read_bytes().splitlines()) == 1
    assert next(read_rows(path))["text"] == text


def test_no_number_that_json_lacks(tmp_path):
    with pytest.raises(ValueError, match="JSON"):
        table(tmp_path / "t.jsonl").append([{"id": "a", "n": float("nan")}])


def test_a_missing_file_has_no_rows(tmp_path):
    assert list(read_rows(tmp_path / "none")) == []


def test_the_lock_names_its_holder_and_dies_with_it(tmp_path):
    code = (
        "import sys, pathlib; from aske.store import Lock\n"
        "lock = Lock(pathlib.Path(sys.argv[1])); print('held', flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", code, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "held\n"
        with pytest.raises(AskeError, match=f"in use by process {child.pid}"):
            Lock(tmp_path)
        child.kill()
        child.wait()
    with Lock(tmp_path), pytest.raises(AskeError, match=f"in use by process {os.getpid()}"):
        Lock(tmp_path)
    Lock(tmp_path)


def test_json_is_written_whole_or_not_at_all(tmp_path):
    path = tmp_path / "c.json"
    write_json(path, {"a": 1})
    with pytest.raises(ValueError, match="JSON"):
        write_json(path, {"a": float("inf")})
    assert read_json(path) == {"a": 1}
    path.write_text("[1]")
    with pytest.raises(AskeError, match="holds list"):
        read_json(path)
    path.write_text("{")
    with pytest.raises(AskeError, match="no whole JSON"):
        read_json(path)


def test_the_environment_names_versions():
    found = environment()
    assert found["python"].startswith(f"{sys.version_info.major}.{sys.version_info.minor}.")
    assert set(found["packages"]) >= {"torch", "transformers", "httpx"}
