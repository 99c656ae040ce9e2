"""Files are written whole or not at all."""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path

import pytest

from sparsefactor.atomic import TEMPORARY, open_replacing, replacing


@pytest.mark.parametrize("durable", [False, True])
def test_a_file_takes_its_place_at_the_end(tmp_path, durable) -> None:
    path = tmp_path / "a.txt"
    path.write_text("old")
    with replacing(path, durable=durable, suffix=".txt") as temporary:
        assert (temporary.parent, temporary.suffix) == (tmp_path, ".txt")
        temporary.write_text("new")
        assert path.read_text() == "old"
    assert path.read_text() == "new"
    assert os.listdir(tmp_path) == ["a.txt"]


@pytest.mark.parametrize("problem", [ValueError, KeyboardInterrupt])
def test_a_failure_leaves_what_was_there(tmp_path, problem) -> None:
    def fail() -> None:
        with replacing(path) as temporary:
            temporary.write_text("half")
            raise problem

    path = tmp_path / "a.txt"
    path.write_text("old")
    with pytest.raises(problem):
        fail()
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["a.txt"]


def test_two_writers_do_not_meet(tmp_path) -> None:
    path = tmp_path / "a"
    with open_replacing(path) as one, open_replacing(path) as two:
        one.write(b"1")
        two.write(b"2")
        assert len(os.listdir(tmp_path)) == 2
    assert path.read_text() == "1"  # the one that ended last
    assert os.listdir(tmp_path) == ["a"]


def test_a_writer_that_ends_leaves_the_file_of_another(tmp_path) -> None:
    """Its own took its place already; another has the name by then."""
    path = tmp_path / "a"

    def overtaken() -> None:
        with replacing(path) as temporary:
            temporary.rename(path)
            temporary.write_text("of another")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        overtaken()
    assert [file.read_text() for file in tmp_path.glob(".a*")] == ["of another"]


@pytest.fixture
def left(tmp_path) -> Path:
    """The temporary file of a writer of tmp_path / "a" that is no more."""
    with replacing(tmp_path / "a") as temporary:
        pass
    (tmp_path / "a").rename(temporary)
    return temporary


def write(path: Path, content: bytes) -> None:
    with open_replacing(path) as file:
        file.write(content)


def test_what_a_kill_left_is_removed_by_the_next_writer(tmp_path, left) -> None:
    write(tmp_path / "b", b"2")
    assert left.exists()  # of another file
    (tmp_path / left.name.replace("-0", "-1")).touch()  # of one that was killed beside it
    write(tmp_path / "a", b"1")
    assert sorted(os.listdir(tmp_path)) == ["a", "b"]
    assert TEMPORARY.fullmatch(left.name)


def test_files_of_others_are_left_alone(tmp_path, left, monkeypatch) -> None:
    """Of another user, or of nobody that could be told apart from a live process."""

    def no_locks(*_args) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    left.write_text("theirs")
    for target, name, value in ((os, "geteuid", lambda: os.getuid() + 1), (fcntl, "flock", no_locks)):
        with monkeypatch.context() as patch:
            patch.setattr(target, name, value)
            write(tmp_path / "a", b"mine")
        assert left.read_text() == "theirs"
        assert (tmp_path / "a").read_text() == "mine"
    left.unlink()
    left.mkdir()
    write(tmp_path / "a", b"mine again")
    assert left.is_dir()


def test_a_file_that_is_removed_before_it_is_locked_is_made_again(tmp_path, monkeypatch) -> None:
    lock, calls = fcntl.flock, []

    def overtaken(descriptor, how) -> None:
        calls.append(how)
        if len(calls) == 1:
            next(tmp_path.iterdir()).unlink()
        lock(descriptor, how)

    monkeypatch.setattr(fcntl, "flock", overtaken)
    write(tmp_path / "a", b"1")
    assert len(calls) == 2
    assert (tmp_path / "a").read_text() == "1"


@pytest.mark.parametrize("dangling", [False, True])
def test_links_are_not_followed(tmp_path, left, dangling) -> None:
    outside = tmp_path / "outside"
    outside.write_text("outside")
    left.unlink()
    left.symlink_to(tmp_path / "none" if dangling else outside)
    (tmp_path / "a").symlink_to(outside)
    write(tmp_path / "a", b"1")
    with replacing(tmp_path / "a") as temporary:
        temporary.write_text("2")
    assert outside.read_text() == "outside"
    assert (tmp_path / "a").read_text() == "2"
    assert not (tmp_path / "a").is_symlink()
    assert left.is_symlink()
    assert not (tmp_path / "none").exists()


def test_a_file_has_the_permissions_that_the_umask_leaves(tmp_path) -> None:
    (tmp_path / "plain").touch()
    with replacing(tmp_path / "a") as temporary:
        temporary.touch()
    assert (tmp_path / "a").stat().st_mode == (tmp_path / "plain").stat().st_mode
