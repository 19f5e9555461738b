"""`python -m toosure` is the `toosure` command."""

from toosure.cli import main

if __name__ == "__main__":
    main()
