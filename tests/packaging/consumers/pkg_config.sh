#!/bin/sh
# Usage: pkg_config.sh CC PKG_CONFIG LIBDIR VERSION OUTPUT [SYSROOT]
# Builds and runs linked.c with nothing but what LIBDIR/pkgconfig/greyhound.pc says. With SYSROOT, the paths in it
# begin there.
set -eu
cc=$1 pkg_config=$2 libdir=$3 version=$4 output=$5 sysroot=${6-}

export PKG_CONFIG_LIBDIR="$libdir/pkgconfig"
unset PKG_CONFIG_PATH
if [ -n "$sysroot" ]; then
    export PKG_CONFIG_SYSROOT_DIR="$sysroot"
fi
found=$("$pkg_config" --modversion greyhound)
if [ "$found" != "$version" ]; then
    echo "greyhound.pc says version $found, not $version" >&2
    exit 1
fi
# Unquoted: the flags are separate words.
"$cc" "$(dirname "$0")/linked.c" $("$pkg_config" --cflags --libs greyhound) -lm -o "$output"
LD_LIBRARY_PATH="$libdir" "$output"
