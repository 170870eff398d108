"""Print what building this package needs, as pip takes it.

Without options: `build-system.requires`. With ``--tools`` (once those are installed): the same, and CMake and Ninja
from the package index where the machine has none that is new enough. Building in the environment itself, not in pip's
isolated one, is what lets a change of one native file recompile only that file.
"""

import sys
import tomllib
from pathlib import Path


def main() -> None:
    with Path("pyproject.toml").open("rb") as file:
        requires: list[str] = tomllib.load(file)["build-system"]["requires"]
    if "--tools" in sys.argv[1:]:
        from scikit_build_core.build import get_requires_for_build_editable

        requires += get_requires_for_build_editable()
    print(*(requirement.replace(" ", "") for requirement in requires))


if __name__ == "__main__":
    main()
