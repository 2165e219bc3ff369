# Prints the commands of README.md's Quick start section, one a line. Exits with 1 unless there are exactly two
# sh blocks with one command each.
/^## / { inside = $0 == "## Quick start" }
inside && /^```/ {
    if (block) block = 0
    else if ($0 == "```sh") { block = 1; blocks++ }
    next
}
block { print; lines++ }
END {
    if (blocks == 2 && lines == 2) exit 0
    printf "README.md: Quick start has %d sh blocks with %d lines, not two of one line\n", blocks, lines > "/dev/stderr"
    exit 1
}
