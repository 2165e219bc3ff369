#!/bin/sh
# Usage: pkg_config.sh CC PKG_CONFIG LIBDIR VERSION OUTPUT
# Builds and runs linked.c with nothing but what LIBDIR/pkgconfig/greyhound.pc says.
set -eu
cc=$1 pkg_config=$2 libdir=$3 version=$4 output=$5

export PKG_CONFIG_PATH="$libdir/pkgconfig"
found=$("$pkg_config" --modversion greyhound)
if [ "$found" != "$version" ]; then
    echo "greyhound.pc says version $found, not $version" >&2
    exit 1
fi
# Unquoted: the flags are separate words.
"$cc" "$(dirname "$0")/linked.c" $("$pkg_config" --cflags --libs greyhound) -lm -o "$output"
LD_LIBRARY_PATH="$libdir" "$output"
