"""patches/ against the pinned llama.cpp."""
import pathlib
import subprocess
import sys

import pytest

from support.paths import ROOT

sys.path.insert(0, str(ROOT / "scripts"))

import fetch_sources  # noqa: E402
import patches  # noqa: E402

NAMES = [patch.name for patch in patches.series()]


@pytest.fixture(scope="module")
def patched(tmp_path_factory):
    """The files that the series makes, in a folder that is part of a repository: there git leaves out what it does not know."""
    repository = tmp_path_factory.mktemp("repository")
    subprocess.run(["git", "init", "-q", str(repository)], check=True)
    (repository / ".gitignore").write_text("*\n")
    patches.apply(repository / "cache" / "patched")
    return repository / "cache" / "patched"


def test_the_series_holds_every_patch():
    assert sorted(NAMES) == sorted(path.name for path in patches.FOLDER.glob("*.patch")) and len(NAMES) == len(set(NAMES))


def test_the_readme_has_a_line_for_each():
    rows = [line.split("|")[1].strip() for line in (patches.FOLDER / "README.md").read_text().splitlines() if line.startswith("| [")]
    assert rows == [f"[{name}]({name})" for name in NAMES]


@pytest.mark.parametrize("name", NAMES)
def test_a_patch_says_what_and_why(name):
    subject, blank, *body = (patches.FOLDER / name).read_text().partition("\n---\n")[0].splitlines()
    assert subject.startswith("Subject: tests : ") and not blank and len(" ".join(body)) > 100


def test_what_it_makes(patched):
    """Only files that are there, all lines of theirs kept."""
    made = [path.relative_to(patched) for path in patched.rglob("*") if path.is_file()]
    assert made == [pathlib.Path("tests/test-backend-ops.cpp")]
    before = (fetch_sources.llama_cpp() / made[0]).read_text().splitlines()
    after = iter((patched / made[0]).read_text().splitlines())
    assert all(line in after for line in before), "a line of the original is gone"


def test_a_patch_that_does_not_apply_is_told(tmp_path, monkeypatch):
    (tmp_path / "series").write_text(f"# twice\n{NAMES[0]}\nwrong.patch # one\n")
    (tmp_path / NAMES[0]).write_bytes((patches.FOLDER / NAMES[0]).read_bytes())
    file = "tests/test-backend-ops.cpp"
    (tmp_path / "wrong.patch").write_text(f"--- a/{file}\n+++ b/{file}\n@@ -1,1 +1,1 @@\n-not there\n+new\n")
    monkeypatch.setattr(patches, "FOLDER", tmp_path)
    with pytest.raises(SystemExit) as error:
        patches.apply(tmp_path / "made")
    assert "wrong.patch does not apply" in str(error.value)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(["series", NAMES[0], "wrong.patch"])
