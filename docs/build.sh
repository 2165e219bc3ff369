#!/usr/bin/env bash
# Sets up what is needed, and makes the site of the documentation. Warnings are errors.
#
#   docs/build.sh [FOLDER]    by default build/docs; the front page is FOLDER/html/index.html
#
# Doxygen reads the header, Sphinx the pages and the docstrings, rustdoc the crates. The library need not be built. The
# Python packages of docs/requirements.txt go into an environment of their own in FOLDER. Without cargo, links to the
# Rust reference lead to its source.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
output=$(realpath -m "${1:-$root/build/docs}")
source "$root/tests/setup.sh"

python=${PYTHON:-python3}
need doxygen command -v doxygen
need python3 command -v "$python"
need python3-venv "$python" -c 'import ensurepip'
install_missing
mkdir -p "$output"

environment=$output/environment
if ! cmp -s "$root/docs/requirements.txt" "$environment/requirements.txt"; then
    "$python" -m venv --clear "$environment"
    "$environment/bin/pip" install -q --disable-pip-version-check -r "$root/docs/requirements.txt"
    cp "$root/docs/requirements.txt" "$environment"
fi

cd "$root"
rm -rf "$output"/{doxygen,html}
mkdir "$output/doxygen"
{ cat docs/site/Doxyfile; echo "OUTPUT_DIRECTORY = \"$output/doxygen\""; } | doxygen -
export GREYHOUND_DOXYGEN_XML=$output/doxygen/xml

PATH+=:${HOME:-}/.cargo/bin # where Rust's own installer puts it
if command -v cargo >/dev/null; then
    host=$(rustc -vV | sed -n 's/^host: //p')
    # What greyhound-sys would find out by looking for a library, which documentation does not need.
    RUSTDOCFLAGS='-D warnings' cargo doc --quiet --no-deps --offline --locked --manifest-path bindings/rust/Cargo.toml \
        --target-dir "$output/cargo" --config "target.$host.greyhound.lib_dir = '/nowhere'"
    export GREYHOUND_RUST_HTML=$output/cargo/doc
fi

"$environment/bin/python" -m sphinx --quiet --fail-on-warning --keep-going --nitpicky --fresh-env \
    -c docs/site -d "$output/doctrees" . "$output/html"
echo "The site: $output/html/index.html"
