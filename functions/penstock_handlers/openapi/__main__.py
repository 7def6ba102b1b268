"""Print the OpenAPI document of the whole API."""

import json
import sys

from penstock_handlers.openapi.document import document

if __name__ == "__main__":
    json.dump(document(), sys.stdout, indent=1, sort_keys=True)
    sys.stdout.write("\n")
