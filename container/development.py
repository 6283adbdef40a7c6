"""Names the packages of the development group: `development.py PYPROJECT`."""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

if __name__ == "__main__":
    groups = tomllib.loads(Path(sys.argv[1]).read_text())["dependency-groups"]
    sys.stdout.write(
        "\n".join(re.split(r"[^\w.-]", each, maxsplit=1)[0] for each in groups["dev"]) + "\n"
    )
