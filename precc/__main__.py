"""`python -m precc`."""

import sys

from precc.cli import main

sys.exit(main())
