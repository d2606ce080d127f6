"""The RFCs import their models from `coreason_manifest.definitions`. Where no installed package
provides these modules, ours stand in for them, each the very module of
`coreason_client.definitions`.
"""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.machinery import ModuleSpec

TYPE_CHECKING = False  # without `typing`, which takes longer to import than all of this
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any

PACKAGES = ("coreason_manifest", "coreason_manifest.definitions")
MODULES = {
    f"coreason_manifest.definitions.{name}": f"coreason_client.definitions.{name}"
    for name in ("message", "presentation", "request", "service", "session")
}


class Finder:
    """A finder and its loader.

    It is the last of all finders, so that installed packages are found first.
    """

    @classmethod
    def find_spec(cls, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """Our module, if the name is one of the RFCs'."""
        if name in PACKAGES or name in MODULES:
            return ModuleSpec(name, cls, is_package=name in PACKAGES)  # type: ignore[arg-type]
        return None

    @staticmethod
    def create_module(spec: ModuleSpec) -> ModuleType | None:
        """Creates an ordinary module. A package stays empty, a module is replaced."""
        return None

    @staticmethod
    def exec_module(module: ModuleType) -> None:
        """Replaces the module by ours, so that each class exists once."""
        ours = MODULES.get(module.__name__)
        if ours is not None:
            sys.modules[module.__name__] = import_module(ours)


def install() -> None:
    """Appends the finder, once."""
    if not any(getattr(finder, "__module__", None) == __name__ for finder in sys.meta_path):
        sys.meta_path.append(Finder)
