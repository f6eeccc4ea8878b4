"""`python -m canaria`: the command line, where its folder is not on the path."""

from canaria.cli import main

if __name__ == "__main__":
    main()
