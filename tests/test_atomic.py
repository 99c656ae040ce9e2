"""Files are written whole or not at all."""

from __future__ import annotations

import os

import pytest

from sparsefactor.atomic import replacing


@pytest.mark.parametrize("sole", [False, True])
@pytest.mark.parametrize("durable", [False, True])
def test_a_file_takes_its_place_at_the_end(tmp_path, sole, durable) -> None:
    path = tmp_path / "a.txt"
    path.write_text("old")
    with replacing(path, sole=sole, durable=durable, suffix=".txt") as temporary:
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


def test_two_writers_do_not_meet_unless_there_is_one_only(tmp_path) -> None:
    path = tmp_path / "a"
    with replacing(path) as one, replacing(path) as two:
        one.write_text("1")
        two.write_text("2")
        assert one != two
    assert path.read_text() == "1"  # the one that ended last
    (tmp_path / ".a.tmp").write_text("what a kill left")
    with replacing(path, sole=True) as only:
        only.write_text("3")
    assert os.listdir(tmp_path) == ["a"]


def test_a_file_has_the_permissions_that_the_umask_leaves(tmp_path) -> None:
    (tmp_path / "plain").touch()
    with replacing(tmp_path / "a") as temporary:
        temporary.touch()
    assert (tmp_path / "a").stat().st_mode == (tmp_path / "plain").stat().st_mode
