"""A corpus of phones: one facts file per phone, with what a probe has to make of it.

The layouts of virtual phones are facts files as well, and belong to it.
"""

from pathlib import Path

import agent.virtual.layouts

FILES = sorted(
    path
    for folder in (Path(__file__).parent / "phones", Path(agent.virtual.layouts.__file__).parent)
    for path in folder.glob("*.toml")
)
BY_NAME = {path.stem: path for path in FILES}
