#!/usr/bin/env bash
# README.md's Quick start has two commands, and both are scripts that a fresh clone can run.
set -euo pipefail
cd "$(dirname "$0")/.."

commands=$(awk -f tests/quick_start.awk README.md)
while IFS= read -r command; do
    if [[ ! -x $command ]]; then
        echo "README.md: '$command' is not an executable file" >&2
        exit 1
    fi
done <<<"$commands"
