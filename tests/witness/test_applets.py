"""The commands that a shell line needs, and the releases of Android that have them."""

from tests.witness.applets import RELEASES, commands_of, needed_commands


def names(line: str) -> set[str]:
    return {name for name, _ in needed_commands(line)}


def test_commands_are_found_in_every_part_of_a_line() -> None:
    assert names("taskset f setsid /data/runner run plan </dev/null") == {"taskset", "setsid"}
    assert names('x=$(sha1sum "$0" | cut -d\' \' -f1); [ -n "$x" ]') == {"sha1sum", "cut", "["}
    assert names(
        "{ while read -r g; do case $g in a) echo 0 >f;; esac; done <g; exec awk; } &"
    ) == {*("read", "echo", "exec", "awk")}
    fenced = 'sh -c \'[ "$1" ] && shift; "$@"\' fence 7 pkill -9 x'
    assert names(fenced) == {"sh", "[", "shift", "pkill"}


def test_a_command_with_an_alternative_is_optional() -> None:
    assert set(needed_commands("fsync f 2>/dev/null || sync")) == {("fsync", True), ("sync", False)}


def test_commands_come_and_go_with_releases() -> None:
    assert {release for release in RELEASES if "sha256sum" in commands_of(release)} == {
        *range(8, 17)
    }
    assert "route" in commands_of(7)
    assert "route" not in commands_of(8)
    assert "awk" not in commands_of(8)
    assert all("setsid" in commands_of(release) for release in RELEASES)
