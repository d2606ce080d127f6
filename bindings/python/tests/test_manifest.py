"""The RFCs' import paths: our modules, unless an installed package has them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

NAMES = ("message", "presentation", "request", "service", "session")


def run(source: str, path: Path) -> str:
    """The output of a new interpreter with a folder on its path."""
    program = f"import sys; sys.path.insert(0, {str(path)!r})\n{source}"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def install(folder: Path, **modules: str) -> None:
    """A package in the form that an installer makes."""
    package = folder / "coreason_manifest" / "definitions"
    package.mkdir(parents=True)
    for place in (package.parent, package):
        (place / "__init__.py").touch()
    for name, source in modules.items():
        (package / f"{name}.py").write_text(source)


SAME = f"""
import importlib, coreason_client
for name in {NAMES}:
    theirs = importlib.import_module(f"coreason_manifest.definitions.{{name}}")
    ours = importlib.import_module(f"coreason_client.definitions.{{name}}")
    is_named = ours.__name__ == ours.__spec__.name == f"coreason_client.definitions.{{name}}"
    print(name, theirs is ours, is_named)
"""


def test_the_rfcs_modules_are_the_very_same_as_ours(tmp_path: Path) -> None:
    assert run(SAME, tmp_path).split("\n") == [f"{name} True True" for name in NAMES]


def test_there_is_nothing_before_we_are_imported_and_nothing_else_after(tmp_path: Path) -> None:
    source = """
import importlib.util
print(importlib.util.find_spec("coreason_manifest"))
import importlib, coreason_client
importlib.reload(coreason_client)
ours = sum(finder.__module__ == "coreason_client._manifest" for finder in sys.meta_path)
print(ours, sys.meta_path[-1].__name__)
print(importlib.util.find_spec("coreason_manifest.definitions.agent"))
"""
    assert run(source, tmp_path).split("\n") == ["None", "1 Finder", "None"]


def test_an_installed_package_wins(tmp_path: Path) -> None:
    install(tmp_path, **{name: "WHOSE = 'theirs'" for name in NAMES})
    source = f"""
import importlib, coreason_client
load = lambda name: importlib.import_module(f"coreason_manifest.definitions.{{name}}")
print({{load(name).WHOSE for name in {NAMES}}})
"""
    assert run(source, tmp_path) == "{'theirs'}"


def test_what_an_installed_package_lacks_is_ours(tmp_path: Path) -> None:
    install(tmp_path, presentation="WHOSE = 'theirs'")
    source = """
import coreason_client
from coreason_manifest.definitions import presentation
from coreason_manifest.definitions.session import SessionContext
print(presentation.WHOSE, SessionContext is coreason_client.SessionContext)
"""
    assert run(source, tmp_path) == "theirs True"
