"""What runs where the rows are: a host that answers a server's frames under its owner's rules, and writes down what left."""

from .host import Host, Owner
from .rules import Rules

__all__ = ["Host", "Owner", "Rules"]
