"""Fails if a test run skipped something or ran nothing: reads a junit file."""

import sys
import xml.etree.ElementTree as ET

totals = {"tests": 0, "skipped": 0, "failures": 0, "errors": 0}
for suite in ET.parse(sys.argv[1]).getroot().iter("testsuite"):  # noqa: S314 - our own pytest wrote it a moment ago
    for name in totals:
        totals[name] += int(suite.get(name, 0))
failed = totals["failures"] + totals["errors"]
print(f"{totals['tests'] - totals['skipped'] - failed} passed, {failed} failed, {totals['skipped']} skipped")
if totals["skipped"] or not totals["tests"]:
    sys.exit("A test was skipped, or none ran: a test that cannot run fails here.")
