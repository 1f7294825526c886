"""`python -m pop_stream` is `pop-stream`."""

from pop_stream.cli.main import main

if __name__ == "__main__":
    main()
