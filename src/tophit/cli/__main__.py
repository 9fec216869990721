"""``python -m tophit.cli``, as torchrun starts it."""

from tophit.cli import main

if __name__ == "__main__":
    main()
