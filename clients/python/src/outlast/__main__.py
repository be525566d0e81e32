"""`python -m outlast mymodule:app` is `outlast-worker mymodule:app`."""

from .cli import main

main()
