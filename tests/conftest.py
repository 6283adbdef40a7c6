"""An engine that happens to answer changes no test: brokers are processes unless a test says otherwise."""

from __future__ import annotations

import os

os.environ["BROKERSTORM_RUNTIME"] = "process"
