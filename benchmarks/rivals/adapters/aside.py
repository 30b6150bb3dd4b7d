"""What private evolution imports for images and texts: gigabytes of packages, of which
tables need none.
"""

import sys
from unittest.mock import MagicMock

for name in (
    "api.image",
    "api.text",
    "data.image",
    "data.text",
    "embedding.image",
    "embedding.text",
    "llm",
):
    sys.modules[f"pe.{name}"] = MagicMock()
