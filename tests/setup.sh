# Finds what the build and the tests need, and installs what is missing. Sourced by the scripts that need it.
#
#   need PACKAGE TEST...   notes PACKAGE as missing if the command TEST... fails
#   need_build_tools       a C and C++ compiler, CMake, and Ninja or make
#   install_missing        installs the packages noted; without root, names them and exits with 1
#   use_tools              picks up a CUDA compiler that is not on the PATH, and Ninja; lets idle threads sleep
#
# Packages are called by the names that Debian 12 and Ubuntu 24.04 share.

missing=()

need() {
    local package=$1
    shift
    "$@" >/dev/null 2>&1 || missing+=("$package")
}

has_ninja_or_make() { command -v ninja || command -v make; }

need_build_tools() {
    need g++ command -v c++
    need cmake command -v cmake
    need ninja-build has_ninja_or_make
}

install_missing() {
    ((${#missing[@]})) || return 0
    if ((EUID != 0)) || ! command -v apt-get >/dev/null; then
        echo "Missing packages (as Debian and Ubuntu name them): ${missing[*]}" >&2
        echo "Install them, or run this as root. With sudo:" >&2
        echo "    sudo apt-get install --no-install-recommends ${missing[*]}" >&2
        exit 1
    fi
    echo "Installing ${missing[*]}"
    export DEBIAN_FRONTEND=noninteractive
    apt-get -qq update
    apt-get -qq -y --no-install-recommends install "${missing[@]}" </dev/null
    missing=()
}

use_tools() {
    # The CUDA Toolkit's installer leaves the PATH to the user.
    if ! command -v nvcc >/dev/null && [[ -x /usr/local/cuda/bin/nvcc ]]; then
        PATH+=:/usr/local/cuda/bin
    fi
    # CMake asks for this only in a build folder that is not configured yet.
    if command -v ninja >/dev/null; then
        export CMAKE_GENERATOR=${CMAKE_GENERATOR:-Ninja}
    fi
    # On a busy machine, threads that spin while they wait take the time of those they wait for.
    export OMP_WAIT_POLICY=${OMP_WAIT_POLICY:-passive}
    jobs=$(nproc)
}
