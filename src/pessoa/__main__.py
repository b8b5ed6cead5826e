"""`python -m pessoa` is the `pessoa` command, for where the script is not on PATH and for the supervisor's children."""

from pessoa.cli.main import main

if __name__ == "__main__":
    main()
