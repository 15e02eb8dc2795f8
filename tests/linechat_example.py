"""The example drop-in of ``etc/examples/drop-in``: ``import linechat_example`` makes ``linechat`` importable.

Its folder stays out of ``sys.path``, where its plugin would be found by every test that asks what there is.
"""

from __future__ import annotations

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

EXAMPLE = Path(__file__).parents[1] / "etc" / "examples" / "drop-in"


def _load() -> None:
    spec = spec_from_file_location("linechat", EXAMPLE / "linechat" / "__init__.py")
    assert spec is not None
    assert spec.loader is not None
    sys.modules["linechat"] = module = module_from_spec(spec)
    spec.loader.exec_module(module)


if "linechat" not in sys.modules:
    _load()
