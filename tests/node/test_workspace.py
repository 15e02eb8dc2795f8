"""Which directories an agent may work in."""

from __future__ import annotations

from pathlib import Path

import pytest

from iop.errors import Failure
from iop.node.adapters import workspace


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A root with a directory, a file, one that nobody may enter, and links in and out."""
    root = tmp_path / "root"
    (root / "in").mkdir(parents=True)
    (tmp_path / "out").mkdir()
    (root / "file").write_text("")
    (root / "shut").mkdir(mode=0o600)
    (root / "to-in").symlink_to(root / "in")
    (root / "to-out").symlink_to(tmp_path / "out")
    (tmp_path / "back").symlink_to(root / "in")
    return root


@pytest.mark.parametrize(
    ("path", "real"),
    [("in", "in"), (".", "."), ("in/../in/", "in"), ("to-in", "in"), ("../back", "in"), ("../root/in", "in")],
)
def test_one_under_a_root_is_resolved(root: Path, path: str, real: str) -> None:
    assert workspace.resolved(f"{root}/{path}", [Path("/elsewhere"), root]) == str((root / real).resolve())


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("{root}/none", "there is no such directory"),
        ("{root}/file", "it is no directory"),
        ("{root}/to-out", "not under a --workspace-root"),
        ("{root}/../out", "not under a --workspace-root"),
        ("{root}x", "not under a --workspace-root"),
        ("/etc", "not under a --workspace-root"),
        ("/none", "not under a --workspace-root"),
        ("in", "an absolute path"),
    ],
)
def test_any_other_is_refused_by_name(root: Path, path: str, why: str) -> None:
    """CL-08"""
    path = path.format(root=root)
    with pytest.raises(Failure, match=why) as raised:
        workspace.resolved(path, [root])
    assert (raised.value.code, raised.value.http_status, raised.value.param) == (
        "workspace_invalid",
        400,
        "metadata.workspace",
    )
    assert path in raised.value.message


def test_one_that_nobody_may_enter(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """CL-08; root may enter all, so the question is answered for it."""
    monkeypatch.setattr("os.access", lambda path, how: not path.endswith("shut"))
    with pytest.raises(Failure, match="may not enter"):
        workspace.resolved(f"{root}/shut", [root])


def test_a_node_without_roots_has_none(root: Path) -> None:
    with pytest.raises(Failure, match="no --workspace-root"):
        workspace.resolved(str(root), [])
