"""What the command exits with where it does not end well."""

INTERRUPTED, DIVERGED, WRONG = 130, 3, 2
