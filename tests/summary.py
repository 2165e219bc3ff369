"""Sums up ctest's JUnit files: summary.py FOLDER NAME... reads FOLDER/NAME.xml for every NAME.

A file that is missing (the build failed) or without tests counts as one failure. Exits with 1 if anything failed.
"""

import pathlib
import re
import sys
import xml.etree.ElementTree as ElementTree


def skip_reason(case):
    output = case.findtext("system-out") or ""
    match = re.search(r"skipped:?\s+(\S.*)", output, re.IGNORECASE)
    return match.group(1) if match else case.find("skipped").get("message", "no reason given")


def read(path):
    """The names of the tests that passed and failed, and (name, reason) of those that were skipped."""
    if not path.exists():
        return [], ["(not built)"], []
    passed, failed, skipped = [], [], []
    for case in ElementTree.parse(path).getroot().iter("testcase"):
        name = case.get("name")
        if case.find("skipped") is not None:
            skipped.append((name, skip_reason(case)))
        elif case.get("status") == "run":
            passed.append(name)
        else:
            failed.append(name)
    if not passed + failed + skipped:
        failed = ["(no tests)"]
    return passed, failed, skipped


def main(folder, names):
    totals = [0, 0, 0]
    print()
    for name in names:
        results = read(pathlib.Path(folder, name + ".xml"))
        counts = [len(tests) for tests in results]
        totals = [total + count for total, count in zip(totals, counts)]
        print("{}: {} passed, {} failed, {} skipped".format(name, *counts))
        for test in results[1]:
            print(f"    {test} failed")
        for test, reason in results[2]:
            print(f"    {test} skipped: {reason}")
    print("{} passed, {} failed, {} skipped".format(*totals))
    return 1 if totals[1] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
