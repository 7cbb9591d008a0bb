"""`python -m vertexrig`."""

from vertexrig.cli import main

if __name__ == "__main__":
    main()
