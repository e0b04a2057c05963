"""The laws of `rookery.testing`, held against every algorithm of the package. An algorithm joins with one line in cases.py."""

from cases import CASES

from rookery.testing import conformance

test_conformance = conformance(*CASES)
