"""The newest release on a page of the index, and requirements of one Python."""

from typing import Any

from studies.releases import package_index
from studies.releases.release_table import Release, ReleaseTable
from studies.releases.requirements import peers, requirements


def file(name: str, **more: Any) -> dict[str, Any]:
    return {"filename": name, "upload-time": "2026-03-01T10:00:00Z", **more}


def page(*files: dict[str, Any]) -> dict[str, Any]:
    return {"files": [file("peer-0.9.0.tar.gz"), *files]}


def newest(page: dict[str, Any]) -> Release:
    return package_index.newest("peer", page, "2026-03-02")


def test_a_release_for_a_newer_python_counts() -> None:
    wheel = file("peer-0.10.0-py3-none-any.whl", **{"requires-python": ">=3.99"})
    assert newest(page(wheel)) == Release(
        "peer", "0.10.0", "2026-03-01", "2026-03-02", ">=3.99"
    )


def test_the_day_of_a_release_is_that_of_its_first_file() -> None:
    wheel = file("peer-0.10.0-py3-none-any.whl")
    source = file("peer-0.10.0.tar.gz", **{"upload-time": "2026-02-28T23:00:00Z"})
    assert newest(page(wheel, source)).date == "2026-02-28"


def test_withdrawn_releases_pre_releases_and_installers_do_not_count() -> None:
    others = [
        file("peer-0.12.0-py3-none-any.whl", yanked="broken"),
        file("peer-0.11.0rc1-py3-none-any.whl"),
        file("peer-0.13.0.win32.exe"),
    ]
    assert newest(page(*others)).version == "0.9.0"


def test_a_project_with_pre_releases_alone_has_a_newest_one() -> None:
    files = [file("peer-1.0.dev0.tar.gz"), file("peer-1.0.dev1.tar.gz")]
    assert newest({"files": files}).version == "1.0.dev1"


def test_a_release_for_another_python_is_left_out_and_named() -> None:
    releases = dict.fromkeys(
        ["torch", *peers()], Release("any", "1.0", "2026-01-01", "2026-01-02")
    )
    releases["megatron-core"] = Release(
        "megatron-core", "2.0", "2026-01-01", "2026-01-02", ">=3.12"
    )
    table = ReleaseTable("2026-01-02", releases)
    taken, left = requirements(table, "3.11")
    assert "megatron-core==2.0" not in taken
    assert "torch==1.0" in taken
    (line,) = left
    assert line.startswith(
        "megatron-core 2.0 is left out: it needs Python >=3.12, and this is 3.11"
    )
    taken, left = requirements(table, "3.12")
    assert "megatron-core==2.0" in taken
    assert left == []


def test_each_peer_is_in_the_table_of_releases() -> None:
    assert {"torch", *peers()} <= {*ReleaseTable.read().newest}
